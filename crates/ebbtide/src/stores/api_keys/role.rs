//! Roles of keys.

use std::fmt;
use std::str::FromStr;

use minicbor::{Decode, Encode};

use crate::model::error::{Error, Result};

/// Role of a key. Each role includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum Role {
    /// Reads and checks, and changes nothing.
    #[n(0)]
    Reader,
    /// Changes the records of its scope.
    #[n(1)]
    Writer,
    /// Manages keys and scopes, extends lifetimes, and reads the audit log.
    #[n(2)]
    Admin,
}

impl Role {
    /// All roles, from the lowest to the highest.
    pub const ALL: [Self; 3] = [Self::Reader, Self::Writer, Self::Admin];

    /// Name: `reader`, `writer` or `admin`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reader => "reader",
            Self::Writer => "writer",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Role {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let role = Self::ALL.into_iter().find(|role| role.name() == name);
        role.ok_or_else(|| Error::invalid("a role is reader, writer or admin").about("role"))
    }
}
