//! Lifetimes as callers ask for them: `ttl_ms`, `ttl_seconds`, `expires_at` or `keep_ttl`.

use std::time::Duration;

use crate::model::error::{Error, Result};
use crate::model::time::Timestamp;
use crate::model::ttl::Ttl;

/// Lifetime that a caller asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum RecordTtl {
    /// The one that the policy gives; without a policy, no end.
    #[default]
    Default,
    /// A time to live.
    For(Ttl),
    /// An instant.
    Until(Timestamp),
    /// The end of the record that is there; without one, as [`Default`](Self::Default).
    Keep,
    /// No end, unless an enforced policy sets one.
    Never,
}

impl RecordTtl {
    /// Reads the members of a request, of which one may be given.
    pub fn from_members(
        ttl_ms: Option<i64>,
        ttl_seconds: Option<i64>,
        expires_at: Option<u64>,
        keep_ttl: bool,
    ) -> Result<Self> {
        match (ttl_ms, ttl_seconds, expires_at, keep_ttl) {
            (None, None, None, false) => Ok(Self::Default),
            (Some(millis), None, None, false) => {
                let ttl = Ttl::new(Duration::from_millis(u64::try_from(millis).unwrap_or(0)));
                ttl.map(Self::For).map_err(|error| error.about("ttl_ms"))
            }
            (None, Some(seconds), None, false) => Ttl::from_secs(seconds).map(Self::For),
            (None, None, Some(millis), false) => {
                let end = Timestamp::from_millis(millis);
                end.map(Self::Until).map_err(|error| error.about("expires_at"))
            }
            (None, None, None, true) => Ok(Self::Keep),
            _ => Err(Error::invalid(
                "`ttl_ms`, `ttl_seconds`, `expires_at` and `keep_ttl` exclude each other; give one of them",
            )
            .about("ttl_seconds")),
        }
    }
}

impl From<Ttl> for RecordTtl {
    fn from(ttl: Ttl) -> Self {
        Self::For(ttl)
    }
}

/// Declares a body with the members of a lifetime: `ttl_ms`, `ttl_seconds`, `expires_at` and `keep_ttl`, and
/// `life()`, which reads them.
macro_rules! with_life {
    ($(#[$doc:meta])+ $name:ident { $($(#[$of:meta])* $field:ident: $type:ty,)+ }) => {
        #[derive(Debug, Clone, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        #[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
        $(#[$doc])+
        #[allow(missing_docs, reason = "the members are those of the HTTP contract")]
        pub struct $name {
            $($(#[$of])* pub $field: $type,)+
            /// Lifetime in milliseconds.
            #[cfg_attr(feature = "schema", schema(minimum = 1))]
            pub ttl_ms: Option<i64>,
            /// Lifetime in seconds.
            #[cfg_attr(feature = "schema", schema(minimum = 1))]
            pub ttl_seconds: Option<i64>,
            /// End, in milliseconds since 1970.
            pub expires_at: Option<u64>,
            /// Keeps the end of the record that is there.
            #[serde(default)]
            pub keep_ttl: bool,
        }

        impl $name {
            /// Lifetime that is asked for.
            pub fn life(&self) -> $crate::Result<$crate::stores::shared::life::RecordTtl> {
                $crate::stores::shared::life::RecordTtl::from_members(
                    self.ttl_ms,
                    self.ttl_seconds,
                    self.expires_at,
                    self.keep_ttl,
                )
            }
        }
    };
}
pub(crate) use with_life;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_member_at_the_most_is_given() {
        let read = RecordTtl::from_members;
        assert_eq!(read(None, None, None, false).unwrap(), RecordTtl::Default);
        assert_eq!(
            read(Some(1_500), None, None, false).unwrap(),
            RecordTtl::For(Ttl::new(Duration::from_millis(1_500)).unwrap())
        );
        assert_eq!(read(None, Some(2), None, false).unwrap(), RecordTtl::For(Ttl::from_secs(2).unwrap()));
        assert_eq!(
            read(None, None, Some(5), false).unwrap(),
            RecordTtl::Until(Timestamp::from_millis(5).unwrap())
        );
        assert_eq!(read(None, None, None, true).unwrap(), RecordTtl::Keep);
        for (millis, seconds, until, keep) in [
            (Some(1), Some(1), None, false),
            (Some(1), None, Some(1), false),
            (None, Some(1), None, true),
            (None, None, Some(1), true),
        ] {
            assert!(read(millis, seconds, until, keep).unwrap_err().message().contains("one of them"));
        }
    }

    #[test]
    fn a_member_out_of_bounds_is_named_as_it_was_given() {
        let member = |millis, seconds, until| {
            RecordTtl::from_members(millis, seconds, until, false).unwrap_err().member()
        };
        for bad in [0, -1, i64::MIN, i64::MAX] {
            assert_eq!(member(Some(bad), None, None), Some("ttl_ms"), "{bad}");
            assert_eq!(member(None, Some(bad), None), Some("ttl_seconds"), "{bad}");
        }
        for bad in [i64::MAX.unsigned_abs(), u64::MAX] {
            assert_eq!(member(None, None, Some(bad)), Some("expires_at"), "{bad}");
        }
    }
}
