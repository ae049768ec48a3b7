//! Scopes: boundaries that no operation crosses unless asked to by name.

use std::fmt;
use std::str::FromStr;

use crate::model::error::{Error, Result};

/// Name within a scope: 1 to [`Name::MAX_BYTES`] bytes of text without control characters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

impl Name {
    /// Maximum length in bytes of UTF-8.
    pub const MAX_BYTES: usize = 128;

    /// Creates a name. Returns `Invalid` for an empty or too long text, or one with control characters.
    pub fn new(text: impl Into<String>) -> Result<Self> {
        let text = text.into();
        if text.is_empty() || text.len() > Self::MAX_BYTES {
            return Err(Error::invalid(format!(
                "a name in a scope has 1 to {} bytes; this one has {}",
                Self::MAX_BYTES,
                text.len()
            )));
        }
        if text.chars().any(char::is_control) {
            return Err(Error::invalid("a name in a scope must not contain control characters"));
        }
        Ok(Self(text))
    }

    /// Name as text, not escaped.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    /// Prints the name with `%`, `/` and `:` percent-escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '%' => f.write_str("%25")?,
                '/' => f.write_str("%2F")?,
                ':' => f.write_str("%3A")?,
                other => fmt::Write::write_char(f, other)?,
            }
        }
        Ok(())
    }
}

impl FromStr for Name {
    type Err = Error;

    /// Parses a name as it is displayed; any byte may be percent-escaped.
    fn from_str(text: &str) -> Result<Self> {
        let mut bytes = Vec::with_capacity(text.len());
        let mut rest = text.bytes();
        while let Some(byte) = rest.next() {
            bytes.push(match byte {
                b'%' => escaped_byte(&mut rest).ok_or_else(|| {
                    Error::invalid("a % in a scope must be followed by two hexadecimal digits")
                })?,
                b'/' | b':' => {
                    return Err(Error::invalid(
                        "a / or : in a name of a scope must be escaped as %2F or %3A",
                    ));
                }
                other => other,
            });
        }
        let text = String::from_utf8(bytes)
            .map_err(|_| Error::invalid("the escaped bytes of a name in a scope are not UTF-8"))?;
        Self::new(text)
    }
}

fn escaped_byte(rest: &mut std::str::Bytes<'_>) -> Option<u8> {
    let mut digit = || char::from(rest.next()?).to_digit(16);
    let byte = digit()? * 16 + digit()?;
    u8::try_from(byte).ok()
}

/// Owner of a record. Operations are exact in their scope; see [`Reach`] for operations on a subtree.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// The store's own scope, above all tenants.
    Global,
    /// A tenant.
    Tenant(Name),
    /// An environment, across tenants.
    Environment(Name),
    /// An environment of a tenant.
    TenantEnvironment {
        /// Tenant.
        tenant: Name,
        /// Environment.
        environment: Name,
    },
    /// Path of 1 to [`Scope::MAX_PATH`] names.
    Custom(Vec<Name>),
}

impl Scope {
    /// Maximum number of names in a custom path.
    pub const MAX_PATH: usize = 8;

    /// Maximum length in bytes, over all names.
    pub const MAX_BYTES: usize = 400;

    /// Creates the scope of a tenant.
    pub fn tenant(tenant: impl Into<String>) -> Result<Self> {
        Ok(Self::Tenant(Name::new(tenant)?))
    }

    /// Creates the scope of an environment.
    pub fn env(environment: impl Into<String>) -> Result<Self> {
        Ok(Self::Environment(Name::new(environment)?))
    }

    /// Creates the scope of an environment of a tenant.
    pub fn tenant_env(tenant: impl Into<String>, environment: impl Into<String>) -> Result<Self> {
        Ok(Self::TenantEnvironment { tenant: Name::new(tenant)?, environment: Name::new(environment)? })
    }

    /// Creates a custom scope.
    pub fn custom<N: Into<String>>(path: impl IntoIterator<Item = N>) -> Result<Self> {
        let path = path.into_iter().map(Name::new).collect::<Result<Vec<_>>>()?;
        let scope = Self::Custom(path);
        scope.check()?;
        Ok(scope)
    }

    /// Returns `Invalid` for a path with no or too many names, and for a scope that is too long. Variants can be
    /// built by hand, so [`Key`](crate::Key) checks every scope.
    pub(crate) fn check(&self) -> Result<()> {
        if let Self::Custom(path) = self
            && (path.is_empty() || path.len() > Self::MAX_PATH)
        {
            return Err(Error::invalid(format!(
                "a custom scope is a path of 1 to {} names; this one has {}",
                Self::MAX_PATH,
                path.len()
            )));
        }
        let bytes: usize = self.names().map(|name| name.as_str().len()).sum();
        if bytes > Self::MAX_BYTES {
            return Err(Error::invalid(format!(
                "the names of a scope have at most {} bytes together; these have {bytes}",
                Self::MAX_BYTES
            )));
        }
        Ok(())
    }

    /// Names of the scope, the outermost first.
    pub(crate) fn names(&self) -> impl Iterator<Item = &Name> {
        let (first, second, path): (_, _, &[Name]) = match self {
            Self::Global => (None, None, &[]),
            Self::Tenant(name) | Self::Environment(name) => (Some(name), None, &[]),
            Self::TenantEnvironment { tenant, environment } => (Some(tenant), Some(environment), &[]),
            Self::Custom(path) => (None, None, path),
        };
        first.into_iter().chain(second).chain(path)
    }

    /// Returns true if a caller of this scope may act in `requested`: every scope covers itself, Global covers all, a
    /// tenant covers its environments, a custom path covers the paths below it, and nothing else covers anything.
    #[must_use]
    pub fn covers(&self, requested: &Self) -> bool {
        match (self, requested) {
            (Self::Global, _) => true,
            (Self::Tenant(ours), Self::TenantEnvironment { tenant, .. }) => ours == tenant,
            (Self::Custom(ours), Self::Custom(theirs)) => theirs.starts_with(ours),
            _ => self == requested,
        }
    }

    /// Returns `Invalid` unless this scope covers `requested`, so that a caller of one scope cannot act in another.
    pub fn require(&self, requested: &Self) -> Result<()> {
        if self.covers(requested) {
            return Ok(());
        }
        Err(Error::invalid("the scope does not cover the one that is asked for").about("scope"))
    }

    /// Scopes that cover this one, from itself up to Global.
    #[must_use]
    pub fn ancestry(&self) -> Vec<Self> {
        let mut chain = vec![self.clone()];
        match self {
            Self::TenantEnvironment { tenant, .. } => chain.push(Self::Tenant(tenant.clone())),
            Self::Custom(path) => {
                chain.extend((1..path.len()).rev().map(|length| Self::Custom(path[..length].to_vec())));
            }
            Self::Global | Self::Tenant(_) | Self::Environment(_) => {}
        }
        if *self != Self::Global {
            chain.push(Self::Global);
        }
        chain
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Global => f.write_str("global"),
            Self::Tenant(tenant) => write!(f, "tenant:{tenant}"),
            Self::Environment(environment) => write!(f, "env:{environment}"),
            Self::TenantEnvironment { tenant, environment } => write!(f, "tenant:{tenant}/env:{environment}"),
            Self::Custom(path) => {
                f.write_str("custom:")?;
                for (index, name) in path.iter().enumerate() {
                    if index > 0 {
                        f.write_str("/")?;
                    }
                    write!(f, "{name}")?;
                }
                Ok(())
            }
        }
    }
}

impl FromStr for Scope {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::read(text).map_err(|error| error.about("scope"))
    }
}

impl Scope {
    fn read(text: &str) -> Result<Self> {
        let scope = match text.split_once(':') {
            None if text == "global" => Self::Global,
            Some(("tenant", rest)) => match rest.split_once("/env:") {
                None => Self::Tenant(rest.parse()?),
                Some((tenant, environment)) => {
                    Self::TenantEnvironment { tenant: tenant.parse()?, environment: environment.parse()? }
                }
            },
            Some(("env", rest)) => Self::Environment(rest.parse()?),
            Some(("custom", rest)) => Self::Custom(rest.split('/').map(str::parse).collect::<Result<_>>()?),
            _ => {
                return Err(Error::invalid(
                    "a scope is global, tenant:T, env:E, tenant:T/env:E or custom:A/B/C, \
                     with /, : and % in a name percent-escaped",
                ));
            }
        };
        scope.check()?;
        Ok(scope)
    }
}

/// Extent of an operation over scopes. `Exact` is the rule; `Below` is a wildcard that callers ask for by name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Reach {
    /// The scope alone.
    Exact(Scope),
    /// The scope and all that it covers: below Global is everything, below a tenant its environments too.
    Below(Scope),
}

impl Reach {
    /// Returns true if the operation includes `scope`.
    #[must_use]
    pub fn contains(&self, scope: &Scope) -> bool {
        match self {
            Self::Exact(exact) => exact == scope,
            Self::Below(top) => top.covers(scope),
        }
    }

    /// Scope that the caller named.
    #[must_use]
    pub fn scope(&self) -> &Scope {
        match self {
            Self::Exact(scope) | Self::Below(scope) => scope,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(text: &str) -> Scope {
        text.parse().unwrap()
    }

    #[test]
    fn a_scope_is_printed_as_it_was_read() {
        for text in [
            "global",
            "tenant:acme",
            "env:prod",
            "tenant:acme/env:prod",
            "custom:a/b/c",
            "tenant:acme%3Aenv%3Aprod",
            "tenant:50%25%2F50/env:é",
        ] {
            assert_eq!(scope(text).to_string(), text);
        }
    }

    #[test]
    fn a_malformed_scope_is_refused_with_the_forms() {
        for text in [
            "",
            "acme",
            "Global",
            "tenant:",
            "tenant:a:b",
            "tenant:a/b",
            "tenant:a/env:",
            "env:a/b",
            "custom:",
            "custom:a//b",
            "tenant:a%",
            "tenant:a%4",
            "tenant:a%zz",
            "tenant:%FF",
            "tenant:a\u{7}",
            "global:",
            "tenant:a/env:b/env:c",
            "tenant:%00",
        ] {
            assert!(text.parse::<Scope>().is_err(), "{text:?}");
        }
        assert!("acme".parse::<Scope>().unwrap_err().message().contains("tenant:T/env:E"));
    }

    #[test]
    fn bounds_are_named() {
        let error = Scope::tenant("x".repeat(129)).unwrap_err();
        assert!(error.message().contains("128"), "{error}");
        let error = Scope::custom(["x"; 9]).unwrap_err();
        assert!(error.message().contains('8'), "{error}");
        let error =
            Scope::custom(["x".repeat(128), "y".repeat(128), "z".repeat(128), "w".repeat(17)]).unwrap_err();
        assert!(error.message().contains("400"), "{error}");
    }

    #[test]
    fn covers_is_exactly_what_the_design_lists() {
        let scopes = [
            "global",
            "tenant:a",
            "tenant:b",
            "env:a",
            "tenant:a/env:a",
            "tenant:a/env:b",
            "custom:a",
            "custom:a/b",
            "custom:ab",
        ];
        let beyond_itself =
            [("tenant:a", "tenant:a/env:a"), ("tenant:a", "tenant:a/env:b"), ("custom:a", "custom:a/b")];
        for caller in scopes {
            for requested in scopes {
                let expected =
                    caller == requested || caller == "global" || beyond_itself.contains(&(caller, requested));
                assert_eq!(scope(caller).covers(&scope(requested)), expected, "{caller} covers {requested}");
                let reach = Reach::Below(scope(caller));
                assert_eq!(reach.contains(&scope(requested)), expected);
                assert_eq!(Reach::Exact(scope(caller)).contains(&scope(requested)), caller == requested);
                assert_eq!(scope(requested).ancestry().contains(&scope(caller)), expected);
            }
        }
    }
}
