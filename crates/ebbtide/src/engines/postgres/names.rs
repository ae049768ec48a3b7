//! Names of a store's tables, and numbers of its locks.

use sha2::{Digest as _, Sha256};

use crate::model::error::{Error, Result};
use crate::model::kind::Kind;

/// Schema and table prefix of a store. Every statement, migration and sweep takes its names from here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Names {
    schema: String,
    prefix: String,
}

impl Names {
    pub(super) const DEFAULT_SCHEMA: &str = "ebbtide";

    /// Maximum length of a PostgreSQL identifier.
    const MAX_BYTES: usize = 63;

    /// Maximum length of a prefix, so that the names of all tables and indexes fit.
    const MAX_PREFIX_BYTES: usize = 24;

    /// Accepts lower-case letters, digits and underscores, not beginning with a digit: names that need no quotes in
    /// any tool.
    pub(super) fn new(schema: &str, prefix: &str) -> Result<Self> {
        check("schema", schema, 1, Self::MAX_BYTES)?;
        check("prefix", prefix, 0, Self::MAX_PREFIX_BYTES)?;
        if schema.starts_with("pg_") {
            return Err(Error::invalid("a schema name must not begin with pg_, which PostgreSQL reserves"));
        }
        Ok(Self { schema: schema.to_owned(), prefix: prefix.to_owned() })
    }

    pub(super) fn schema(&self) -> &str {
        &self.schema
    }

    pub(super) fn quoted_schema(&self) -> String {
        format!("\"{}\"", self.schema)
    }

    /// Table of a kind, qualified and quoted.
    pub(super) fn table(&self, kind: Kind) -> String {
        self.qualified(kind.name())
    }

    /// Table of the schema version and the clock mark.
    pub(super) fn meta(&self) -> String {
        self.qualified("meta")
    }

    /// Index by expiry of a kind's table, in versions 1 and 2 of the schema; an index is in its table's schema.
    pub(super) fn expiry_index(&self, kind: Kind) -> String {
        format!("\"{}{}_expiry\"", self.prefix, kind.name())
    }

    /// Index of a kind's table by the time at which a sweep looks at a row.
    pub(super) fn due_index(&self, kind: Kind) -> String {
        format!("\"{}{}_due\"", self.prefix, kind.name())
    }

    fn qualified(&self, table: &str) -> String {
        format!("\"{}\".\"{}{table}\"", self.schema, self.prefix)
    }

    /// Number of the advisory lock for `purpose`. Two stores in one database have different numbers.
    pub(super) fn lock(&self, purpose: &str) -> i64 {
        let mut hash = Sha256::new();
        for part in ["ebbtide", purpose, &self.schema, &self.prefix] {
            hash.update(part.as_bytes());
            hash.update([0]);
        }
        let hash: [u8; 32] = hash.finalize().into();
        let first = hash.first_chunk::<8>().expect("a SHA-256 has 32 bytes");
        i64::from_be_bytes(*first)
    }
}

fn check(what: &str, name: &str, least: usize, most: usize) -> Result<()> {
    let good = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    if !good || name.len() < least || name.len() > most || name.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(Error::invalid(format!(
            "a {what} must have {least} to {most} lower-case letters, digits and underscores, and must not begin with a digit"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_need_quoting_is_refused_by_name() {
        for bad in ["", "a b", "a\"b", "a;drop", "Ä", "A", "1a", "a.b", "a-b", "pg_x", &"x".repeat(64)] {
            assert!(Names::new(bad, "").is_err(), "{bad}");
        }
        let error = Names::new("ok", "no\"").unwrap_err();
        assert!(error.message().contains("prefix"), "{error}");
        assert!(Names::new("ok", &"x".repeat(25)).is_err());
    }

    #[test]
    fn every_name_fits_behind_the_longest_prefix() {
        let names = Names::new("s", &"x".repeat(Names::MAX_PREFIX_BYTES)).unwrap();
        for &kind in Kind::ALL {
            let index = names.expiry_index(kind);
            assert!(index.len() - 2 <= Names::MAX_BYTES, "{index}");
        }
    }

    #[test]
    fn two_stores_have_different_locks() {
        let [a, b, c] = [("a", "b"), ("ab", ""), ("a", "")].map(|(s, p)| Names::new(s, p).unwrap());
        assert_ne!(a.lock("sweep"), b.lock("sweep"));
        assert_ne!(a.lock("sweep"), c.lock("sweep"));
        assert_ne!(a.lock("sweep"), a.lock("migrate"));
    }
}
