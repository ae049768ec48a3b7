//! Answers that several calls share.

use std::collections::BTreeMap;
use std::time::Duration;

use ebbtide::{Kind, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Time in milliseconds since 1970; null for a record that does not expire.
#[must_use]
pub fn millis(time: Timestamp) -> Option<u64> {
    (!time.is_never()).then(|| time.as_millis())
}

/// Whole seconds of a TTL, rounded up.
#[must_use]
pub fn seconds(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_millis().div_ceil(1_000)).unwrap_or(u64::MAX)
}

/// Page of a listing.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Listed<T> {
    pub items: Vec<T>,
    /// Start of the next page: the `after` of the next request. Null at the end.
    pub next: Option<String>,
}

/// Form of the answer "no" to a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AnswerMode {
    /// 200 in any case; the body has the answer.
    Always,
}

/// Number of deleted records.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Deleted {
    pub deleted: u64,
}

/// Number of records that were valid until now.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Revoked {
    pub revoked: u64,
}

/// Counts by name of the kind.
#[must_use]
pub fn by_name(counts: &BTreeMap<Kind, u64>) -> BTreeMap<String, u64> {
    counts.iter().map(|(kind, count)| (kind.to_string(), *count)).collect()
}

/// Declares the body of an extension: the names of a record, then its new lifetime and an entry for the audit log.
macro_rules! extension_body {
    ($(#[$doc:meta])+ $name:ident { $($(#[$of:meta])* pub $field:ident: $type:ty,)* }) => {
        $(#[$doc])+
        #[derive(Debug, serde::Deserialize, utoipa::ToSchema)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $($(#[$of])* pub $field: $type,)*
            /// Lifetime from now on.
            #[serde(rename = "ttl_seconds")]
            #[schema(value_type = i64, minimum = 1)]
            pub ttl: ebbtide::Ttl,
            /// Name that the caller acts for.
            #[serde(alias = "actor")]
            #[schema(min_length = 1, max_length = 256, example = "bob")]
            pub on_behalf_of: Option<String>,
            #[schema(min_length = 1, max_length = 1024, example = "the audit goes on")]
            pub reason: String,
        }
    };
}
pub(crate) use extension_body;
