//! Secrets: text that must not be printed.

use std::fmt;

use serde::Deserialize;
use subtle::ConstantTimeEq;
use zeroize::Zeroize;

/// A bearer secret. It does not print, compares in constant time, and is wiped when dropped.
#[derive(Clone, Deserialize)]
#[serde(from = "String")]
pub struct Secret(String);

impl Secret {
    /// Wraps `text` so that it is not printed.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Exposes the secret. Review every call.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_bytes().ct_eq(other.0.as_bytes()).into()
    }
}

impl Eq for Secret {}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<&Self> for Secret {
    fn from(secret: &Self) -> Self {
        secret.clone()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_does_not_print() {
        let secret = Secret::new("hunter2");
        assert_eq!(format!("{secret:?}"), "Secret(…)");
        assert_eq!(secret.expose(), "hunter2");
    }

    #[test]
    fn equal_secrets_are_equal_and_others_are_not() {
        assert_eq!(Secret::new("a"), Secret::new("a"));
        assert_ne!(Secret::new("a"), Secret::new("ab"));
    }
}
