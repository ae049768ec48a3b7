//! Records and their versions.

use std::fmt;

use bytes::Bytes;

use crate::model::error::{Error, Result};
use crate::model::rng::Rng;
use crate::model::time::Timestamp;

/// Identifier of one write of a record: 16 random bytes minted by the writer. A re-created record never matches an
/// old version, and a writer whose answer was lost recognises its own write.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version([u8; 16]);

impl Version {
    /// Mints a new version.
    #[must_use]
    pub fn mint(rng: &dyn Rng) -> Self {
        Self(rng.bytes())
    }

    /// Creates a version from stored bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Bytes to store.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for Version {
    /// Prints 32 hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Version({self})")
    }
}

impl std::str::FromStr for Version {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || Error::invalid("a version is 32 hexadecimal digits").about("version");
        if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let number = u128::from_str_radix(text, 16).map_err(|_| wrong())?;
        Ok(Self(number.to_be_bytes()))
    }
}

/// Stored record. It is live while `now < expires_at`.
#[derive(Clone, PartialEq, Eq)]
pub struct Record {
    /// Payload of the typed store.
    pub value: Bytes,
    /// Version of this write.
    pub version: Version,
    /// Instant from which the record is no longer live.
    pub expires_at: Timestamp,
}

impl Record {
    /// Maximum size of a value in bytes: the part of a DynamoDB item that the key and the other attributes leave
    /// free.
    pub const MAX_VALUE_BYTES: usize = 358_400;

    /// Creates a record with a new version.
    pub fn new(value: impl Into<Bytes>, expires_at: Timestamp, rng: &dyn Rng) -> Self {
        Self { value: value.into(), version: Version::mint(rng), expires_at }
    }

    /// Returns true if the record is live at `now`. At its expiry it no longer is.
    #[must_use]
    pub fn is_live(&self, now: Timestamp) -> bool {
        now < self.expires_at
    }

    /// Returns true if a sweep up to `until` removes the record. The comparison is strict, so that a sweep removes
    /// only records that every read already refuses.
    #[must_use]
    pub fn is_swept(&self, until: Timestamp) -> bool {
        self.expires_at < until
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.value.len() > Self::MAX_VALUE_BYTES {
            return Err(Error::invalid(format!(
                "a value has at most {} bytes; this one has {}",
                Self::MAX_VALUE_BYTES,
                self.value.len()
            )));
        }
        Ok(())
    }
}

impl fmt::Debug for Record {
    /// Prints the size of the value, not the value: it may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("value", &format_args!("{} bytes", self.value.len()))
            .field("version", &self.version)
            .field("expires_at", &self.expires_at)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::rng::SeededRng;

    #[test]
    fn a_version_is_read_as_it_is_printed() {
        let version = Version::mint(&SeededRng::new(1));
        assert_eq!(version.to_string().parse::<Version>().unwrap(), version);
        for bad in ["", "12", "zz345678901234567890123456789012", "+2345678901234567890123456789012"] {
            assert!(bad.parse::<Version>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_record_does_not_print_its_value() {
        let record = Record::new("hunter2", Timestamp::NEVER, &SeededRng::new(1));
        assert!(!format!("{record:?}").contains("hunter2"));
    }
}
