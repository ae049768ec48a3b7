//! Marks: ends of chains, to keep elsewhere and to verify against later.

use std::fmt;
use std::str::FromStr;

use super::chain::ChainId;
use crate::model::digest::Digest;
use crate::model::error::{Error, Result};

/// Place in one chain: number and hash of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChainMark {
    /// Chain; none for the chain of a log from before there was one for each process.
    pub chain: Option<ChainId>,
    /// Number of the entry.
    pub sequence: u64,
    /// Hash of the entry.
    pub hash: Digest,
    /// Expiry of the entry in milliseconds, where it is known.
    pub(super) expires_at: Option<u64>,
}

impl fmt::Display for ChainMark {
    /// Prints the chain and `@`, the number, a colon, and the hash in hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(chain) = self.chain {
            write!(f, "{chain}@")?;
        }
        write!(f, "{}:", self.sequence)?;
        self.hash.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for ChainMark {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            Error::invalid("a mark of the audit log is CHAIN@NUMBER:HASH, the hash in 64 hexadecimal digits")
        };
        let (chain, place) = match text.split_once('@') {
            Some((chain, place)) => (Some(chain.parse::<ChainId>()?), place),
            None => (None, text),
        };
        let (sequence, hash) = place.split_once(':').ok_or_else(wrong)?;
        if hash.len() != 64 || !hash.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let mut bytes = [0; 32];
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&hash[2 * index..2 * index + 2], 16).map_err(|_| wrong())?;
        }
        let sequence = sequence.parse().map_err(|_| wrong())?;
        Ok(Self { chain, sequence, hash: Digest::from_bytes(bytes), expires_at: None })
    }
}

/// Ends of the chains of a scope's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark(pub(super) Vec<ChainMark>);

impl Mark {
    /// Places in the chains.
    #[must_use]
    pub fn chains(&self) -> &[ChainMark] {
        &self.0
    }
}

impl From<ChainMark> for Mark {
    fn from(mark: ChainMark) -> Self {
        Self(vec![mark])
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, mark) in self.0.iter().enumerate() {
            write!(f, "{}{mark}", if index == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl FromStr for Mark {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        text.split(',').map(str::parse).collect::<Result<_>>().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_is_printed() {
        let hash = Digest::of("test", &[]);
        let old = ChainMark { chain: None, sequence: 7, hash, expires_at: None };
        let new = ChainMark { chain: Some("00000000000000ff-3".parse().unwrap()), ..old };
        for mark in [Mark(vec![old]), Mark(vec![new]), Mark(vec![old, new])] {
            assert_eq!(mark.to_string().parse::<Mark>().unwrap(), mark);
        }
        let zeros = "0".repeat(64);
        for bad in [
            "",
            "7",
            "7:",
            "7:zz",
            &format!("x:{zeros}"),
            &format!("7:{}", "é".repeat(32)),
            &format!("ab@7:{zeros}"),
        ] {
            assert!(bad.parse::<Mark>().is_err(), "{bad}");
        }
    }
}
