//! Default lifetimes of buckets, by configuration.

use std::collections::BTreeMap;

use super::Attributes;
use crate::model::ttl::Ttl;

const HOUR: u64 = 3_600;
const DAY: u64 = 24 * HOUR;

/// Owners of the buckets that an authorization server keeps for a whole scope.
const SYSTEM_OWNERS: [&str; 2] = [Attributes::OAUTH_OWNER, "_actingweb_oauth2"];

/// Buckets of those owners that have a default lifetime, in seconds.
const OF_SYSTEM_OWNERS: [(&str, u64); 6] = [
    ("oauth_sessions", 600),
    ("spa_access_tokens", HOUR),
    ("spa_refresh_tokens", 14 * DAY),
    ("auth_code_index", 600),
    ("access_token_index", HOUR),
    ("refresh_token_index", 30 * DAY),
];

/// Buckets of every owner that have a default lifetime, in seconds.
const OF_EACH_OWNER: [(&str, u64); 4] = [
    ("mcp_auth_codes", 600),
    ("mcp_tokens", HOUR),
    ("mcp_google_tokens", HOUR),
    ("mcp_refresh_tokens", 30 * DAY),
];

/// Lifetimes of attributes that are set without one, by owner and bucket. An entry for an owner comes before one for
/// every owner; a bucket without an entry has no default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketTtls {
    ttls: BTreeMap<(Option<String>, String), Option<Ttl>>,
    extends: BTreeMap<(Option<String>, String), BucketExtend>,
}

/// Callers whose writes may lengthen the life of a live attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum BucketExtend {
    /// Every writer.
    #[default]
    Free,
    /// Those that may extend: others shorten it, or keep it as it is.
    Privileged,
}

impl BucketTtls {
    /// No bucket has a default lifetime.
    #[must_use]
    pub fn none() -> Self {
        Self { ttls: BTreeMap::new(), extends: BTreeMap::new() }
    }

    /// Sets the default lifetime of a bucket: of one owner, or of every owner. Without a TTL its attributes do not
    /// expire.
    pub fn set(&mut self, owner: Option<&str>, bucket: &str, ttl: Option<Ttl>) {
        self.ttls.insert((owner.map(str::to_owned), bucket.to_owned()), ttl);
    }

    /// Sets whose writes may lengthen lives in a bucket: of one owner, or of every owner.
    pub fn set_extend(&mut self, owner: Option<&str>, bucket: &str, extend: BucketExtend) {
        self.extends.insert((owner.map(str::to_owned), bucket.to_owned()), extend);
    }

    /// Returns whose writes may lengthen lives in an owner's bucket.
    #[must_use]
    pub fn extend_of(&self, owner: &str, bucket: &str) -> BucketExtend {
        let own = self.extends.get(&(Some(owner.to_owned()), bucket.to_owned()));
        own.or_else(|| self.extends.get(&(None, bucket.to_owned()))).copied().unwrap_or_default()
    }

    /// Returns the default lifetime of an owner's bucket.
    #[must_use]
    pub fn of(&self, owner: &str, bucket: &str) -> Option<Ttl> {
        let own = self.ttls.get(&(Some(owner.to_owned()), bucket.to_owned()));
        own.or_else(|| self.ttls.get(&(None, bucket.to_owned()))).copied().flatten()
    }
}

impl Default for BucketTtls {
    /// Buckets of an authorization server: sessions and codes ten minutes, access tokens an hour, refresh tokens two
    /// weeks or thirty days, and their indexes as long.
    fn default() -> Self {
        let mut lives = Self::none();
        for (bucket, seconds) in OF_SYSTEM_OWNERS {
            for owner in SYSTEM_OWNERS {
                lives.set(Some(owner), bucket, Some(Ttl::secs(seconds)));
            }
        }
        for (bucket, seconds) in OF_EACH_OWNER {
            lives.set(None, bucket, Some(Ttl::secs(seconds)));
        }
        lives
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_of_an_owner_comes_first() {
        let mut lives = BucketTtls::default();
        assert_eq!(lives.of("_oauth", "oauth_sessions"), Some(Ttl::secs(600)));
        assert_eq!(lives.of("alice", "oauth_sessions"), None);
        assert_eq!(lives.of("alice", "mcp_tokens"), Some(Ttl::secs(3_600)));
        lives.set(Some("alice"), "mcp_tokens", None);
        lives.set(None, "notes", Some(Ttl::secs(60)));
        assert_eq!(lives.of("alice", "mcp_tokens"), None);
        assert_eq!(lives.of("bob", "mcp_tokens"), Some(Ttl::secs(3_600)));
        assert_eq!(lives.of("bob", "notes"), Some(Ttl::secs(60)));
    }
}
