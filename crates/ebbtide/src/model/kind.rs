//! Kinds of records. An engine keeps each in a keyspace or table of its own.

use std::fmt;
use std::str::FromStr;

use crate::model::error::{Error, Result};

macro_rules! kinds {
    ($($(#[$doc:meta])+ $variant:ident = $code:literal, $name:literal;)+) => {
        /// Kind of a record. Users see the name, and engines name their tables by it; the code is stored. Neither is
        /// ever reused for another kind.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum Kind {
            $($(#[$doc])+ $variant = $code,)+
        }

        impl Kind {
            /// Every kind, in the order of their codes.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// The name: lower case letters and underscores.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// Looks up the kind by its [`code`](Kind::code).
            #[must_use]
            pub const fn from_code(code: u8) -> Option<Self> {
                match code { $($code => Some(Self::$variant),)+ _ => None }
            }
        }
    };
}

kinds! {
    /// Proofs and assertions that were seen.
    Replay = 1, "replays";
    /// Nonces that a server issued.
    Nonce = 2, "nonces";
    /// Authorization codes, and markers of redeemed ones.
    Code = 3, "codes";
    /// Refresh-token families.
    Grant = 4, "grants";
    /// Grants, and access tokens without one, by subject and by client.
    GrantIndex = 5, "grant_index";
    /// Access tokens.
    AccessToken = 6, "access_tokens";
    /// Tokens of an upstream provider.
    ProviderToken = 7, "provider_tokens";
    /// Sessions.
    Session = 8, "sessions";
    /// Sessions by subject.
    SessionIndex = 9, "session_index";
    /// Pushed authorization requests.
    PushedRequest = 10, "pushed_requests";
    /// Device codes.
    DeviceCode = 11, "device_codes";
    /// Device codes by user code.
    UserCode = 12, "user_codes";
    /// Registered clients.
    Client = 13, "clients";
    /// Clients by owner.
    ClientIndex = 14, "client_index";
    /// JSON attributes in buckets.
    Attribute = 15, "attributes";
    /// Approvals.
    Approval = 16, "approvals";
    /// Relationships, from the subject.
    Relationship = 17, "relationships";
    /// Relationships, from the object.
    RelationshipReverse = 18, "relationships_reverse";
    /// Owners that are being deleted.
    Owner = 19, "owners";
    /// TTL policies.
    Policy = 20, "policies";
    /// The audit log.
    Audit = 21, "audit";
    /// API keys.
    ApiKey = 22, "api_keys";
    /// Internal state of a store, such as the progress of a resumable job.
    System = 23, "system";
    /// Records of the conformance kit.
    Probe = 24, "probes";
    /// Records of the conformance kit, in a second table.
    ProbeIndex = 25, "probe_index";
    /// Records of frameworks that bring their own ids.
    Record = 26, "records";
    /// Records by their second keys.
    RecordKey = 27, "record_keys";
    /// Markers of revoked groups of records.
    RecordGroup = 28, "record_groups";
    /// Counters.
    Counter = 29, "counters";
    /// Leases.
    Lease = 30, "leases";
    /// Challenges: one-time codes and links.
    Challenge = 40, "challenges";
    /// Challenges by subject and purpose.
    ChallengeIndex = 41, "challenge_index";
}

impl Kind {
    /// Kinds of the conformance kit. Its clock is artificial, so these do not move a store's clock mark.
    pub const PROBES: &[Self] = &[Self::Probe, Self::ProbeIndex];

    /// Returns true for the kinds of the conformance kit.
    #[must_use]
    pub const fn is_probe(self) -> bool {
        matches!(self, Self::Probe | Self::ProbeIndex)
    }

    /// Returns true if records of this kind are tombstones: without them, deleted records would be honoured again.
    #[must_use]
    pub const fn is_tombstone(self) -> bool {
        matches!(self, Self::Owner)
    }

    /// Returns true if new records of this kind end authority or account for it: a disk that is almost full still accepts
    /// them.
    #[must_use]
    pub const fn ends_authority(self) -> bool {
        matches!(self, Self::Owner | Self::Audit | Self::System | Self::RecordGroup)
    }

    /// Code that is stored for this kind.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Kind {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|kind| kind.name()).collect();
            Error::invalid(format!("unknown kind of record; the kinds are {}", names.join(", ")))
                .about("kind")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_codes_are_read_back() {
        for &kind in Kind::ALL {
            assert_eq!(kind.name().parse::<Kind>().unwrap(), kind);
            assert_eq!(Kind::from_code(kind.code()), Some(kind));
            assert!(kind.name().bytes().all(|b| b.is_ascii_lowercase() || b == b'_'));
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let error = "refresh".parse::<Kind>().unwrap_err();
        assert!(error.message().contains("grants"), "{error}");
    }
}
