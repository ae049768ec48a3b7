//! Registry of the stores: one line for each, from which the lists of the library are made.
//!
//! The line makes the accessors on [`Stores`] and [`Scoped`](crate::Scoped), and the variant of [`ExplainQuestion`].
//! The store's implementation of `Store` does the rest: its part of an owner's deletion, its index records, and the
//! default that a policy must allow. The order of the lines is the order in which an owner's records are deleted: what
//! gives access comes before what only leads to it.

use std::str::FromStr;

use serde::{Deserialize, Deserializer, de};

use super::Stores;
use super::shared::bonds::{Bonds, Companions, Moves};
use super::shared::deletion::{Owned, Progress};
use super::shared::epochs::Stamp;
use super::shared::finding::Finding;
use super::shared::payload::Resealing;
use crate::backend::IndexTarget;
use crate::keyring::KeyId;
use crate::model::error::{Error, Result};
use crate::model::key::Key;
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::scope::Scope;
use crate::model::time::Timestamp;
use crate::model::ttl::Ttl;

/// Typed store of one scope: one concept, kept in one or more kinds of record.
pub(crate) trait Store: Sized {
    /// Kinds of record that the store writes. The first one names it.
    const KINDS: &'static [Kind];

    /// Lifetime of a record that is written without one. `None` if the record then never expires, or if its lifetime
    /// depends on another record.
    const DEFAULT_TTL: Option<Ttl> = None;

    /// Kinds of index record, each with the function that finds the record it points to. An index record is written in
    /// one commit with that record, so one whose target is absent points to nothing and never will.
    const INDEXES: &'static [(Kind, IndexTarget)] = &[];

    /// Names of one record, for [`explain`](Self::explain).
    type Question: Sync;

    /// State of one record. It changes and renews nothing.
    async fn explain(&self, _: &Self::Question) -> Result<Finding> {
        Ok(Finding::unknown("the store does not explain its records"))
    }

    /// Value of a record with its sealed parts under the active key of the keyring and for its key; none if they are
    /// already. A store
    /// that seals parts of its records has its own.
    fn reseal(_stores: &Stores, _at: Resealing<'_>, _value: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }

    /// Returns whether a record needs the key `id` of the keyring in a way that no reseal changes.
    fn depends_on(_value: &[u8], _id: KeyId, _now: Timestamp) -> Result<bool> {
        Ok(false)
    }

    /// Value of a record that can be used once, used up; none if it is already, or is of another kind. A restored backup
    /// does not know what was used since.
    fn spent(_value: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }

    /// Removes a bounded number of an owner's records, and returns whether there may be more. The cursor in `progress`
    /// is `None` at first, and the store's own until it returns false.
    async fn remove_owned(&self, _owned: &Owned<'_>, _progress: &mut Progress) -> Result<bool> {
        Ok(false)
    }
}

/// Declares the type that names one record of a store for `explain`, with the members that HTTP has.
macro_rules! question {
    ($(#[$doc:meta])+ $name:ident { $($(#[$of:meta])* $field:ident: $type:ty,)+ }) => {
        $(#[$doc])+
        #[derive(Debug, Clone, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        #[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
        #[non_exhaustive]
        pub struct $name {
            $($(#[$of])* #[allow(missing_docs)] pub $field: $type,)+
        }

        impl $name {
            /// Names the record.
            pub fn new($($field: impl Into<$type>),+) -> Self {
                Self { $($field: $field.into()),+ }
            }
        }
    };
}
pub(crate) use question;

/// Deserializes a member from its text form.
pub(crate) fn parsed<'de, D: Deserializer<'de>, T: FromStr<Err = Error>>(member: D) -> Result<T, D::Error> {
    String::deserialize(member)?.parse().map_err(|error: Error| de::Error::custom(error.message()))
}

/// Key of the record that an index record points to, where the sort key of the index is that record's partition.
pub(crate) fn listed(kind: Kind, index: &Key) -> Option<Key> {
    Key::new(kind, &index.scope(), &index.sort(), &[]).ok()
}

macro_rules! registry {
    ($(#[$doc:meta] $module:ident: $store:ident $(($question:ident))?;)+) => {
        impl Stores {
            $(#[$doc]
            #[must_use]
            pub fn $module(&self, scope: &Scope) -> super::$module::$store {
                super::$module::$store::new(self.clone(), scope.clone())
            })+
        }

        /// Record to explain: its store, and its names in it or its secret.
        #[derive(Debug, Clone, Deserialize)]
        #[serde(tag = "kind", rename_all = "snake_case")]
        #[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
        #[non_exhaustive]
        pub enum ExplainQuestion {
            $($(#[$doc] $store(super::$module::$question),)?)+
        }

        impl ExplainQuestion {
            /// Kind of the record.
            #[must_use]
            pub fn kind(&self) -> Kind {
                match self { $($(Self::$store(super::$module::$question { .. }) => super::$module::$store::KINDS[0],)?)+ }
            }

            pub(crate) async fn find(&self, stores: &Stores, scope: &Scope) -> Result<Finding> {
                match self {
                    $($(Self::$store(question @ super::$module::$question { .. }) => {
                        stores.$module(scope).explain(question).await
                    })?)+
                }
            }
        }

        /// Number of stores.
        pub(crate) const STORES: usize = [$(stringify!($module)),+].len();

        /// Removes a bounded number of an owner's records from the store with that number.
        pub(crate) async fn remove_owned(
            number: usize,
            owned: &Owned<'_>,
            progress: &mut Progress,
        ) -> Result<bool> {
            let mut next = 0..;
            $(if next.next() == Some(number) {
                return owned.stores.$module(owned.scope).remove_owned(owned, progress).await;
            })+
            Ok(false)
        }

        /// Value of a record with its sealed parts under the active key; none if they are already.
        pub(crate) fn reseal(stores: &Stores, at: Resealing<'_>, value: &[u8]) -> Result<Option<Vec<u8>>> {
            // The first kind of a store has its payload. Entries of second keys are sealed too.
            let kind = at.from.kind();
            let first = if kind == Kind::RecordKey { Kind::Record } else { kind };
            $(if super::$module::$store::KINDS[0] == first {
                return <super::$module::$store as Store>::reseal(stores, at, value);
            })+
            Ok(None)
        }

        /// Returns whether a record needs the key `id` of the keyring in a way that no reseal changes.
        pub(crate) fn depends_on(kind: Kind, value: &[u8], id: KeyId, now: Timestamp) -> Result<bool> {
            $(if super::$module::$store::KINDS[0] == kind {
                return <super::$module::$store as Store>::depends_on(value, id, now);
            })+
            Ok(false)
        }

        /// Value of a record that can be used once, used up; none if it is already.
        pub(crate) fn spent(kind: Kind, value: &[u8]) -> Result<Option<Vec<u8>>> {
            $(if super::$module::$store::KINDS[0] == kind {
                return <super::$module::$store as Store>::spent(value);
            })+
            Ok(None)
        }

        /// Principals that end a record, with the epochs that it carries.
        pub(crate) fn bonds(key: &Key, value: &[u8]) -> Result<Bonds> {
            $(if super::$module::$store::KINDS[0] == key.kind() {
                return <super::$module::$store as Moves>::bonds(key, value);
            })+
            Ok(Bonds::default())
        }

        /// Value of a record that moves from the scope `from`, with other epochs; none if it carries none.
        pub(crate) fn restamped(
            kind: Kind,
            value: &[u8],
            stamp: Stamp,
            from: &Scope,
        ) -> Result<Option<Vec<u8>>> {
            $(if super::$module::$store::KINDS[0] == kind {
                return <super::$module::$store as Moves>::restamped(value, stamp, from);
            })+
            Ok(None)
        }

        /// Records that move to another scope together with `record`.
        pub(crate) async fn companions(stores: &Stores, key: &Key, record: &Record) -> Result<Companions> {
            $(if super::$module::$store::KINDS.contains(&key.kind()) {
                return stores.$module(&key.scope()).companions(key, record).await;
            })+
            Ok(Companions::default())
        }

        /// Index records of every store, each with the function that finds the record it points to.
        #[must_use]
        pub fn indexes() -> Vec<(Kind, IndexTarget)> {
            [$(super::$module::$store::INDEXES),+].concat()
        }

        /// Lifetime that the store of `kind` gives where none is asked for.
        pub(crate) fn default_ttl(kind: Kind) -> Option<Ttl> {
            [$((super::$module::$store::KINDS[0], super::$module::$store::DEFAULT_TTL)),+]
                .into_iter()
                .find_map(|(of, ttl)| ttl.filter(|_| of == kind))
        }

        /// Kinds that the store of `kind` writes, where `kind` names the store; otherwise that kind alone.
        #[must_use]
        pub fn kinds_with(kind: Kind) -> Vec<Kind> {
            KINDS.iter().find(|kinds| kinds[0] == kind).map_or_else(|| vec![kind], |kinds| kinds.to_vec())
        }

        const KINDS: &[&[Kind]] = &[$(super::$module::$store::KINDS),+];
    };
}

/// Stores, one line each: a description, the module, which also names the accessor, the handle, and the type that names
/// a record for `explain` where there is one.
macro_rules! every_store {
    ($callback:ident) => {
        $callback! {
            /// Proofs and assertions that were seen, and must not be accepted again.
            replays: Replays(ReplayQuestion);
            /// Nonces that a server handed out.
            nonces: Nonces(NonceCheck);
            /// Authorization codes.
            codes: Codes(CodeQuestion);
            /// Families of refresh tokens.
            grants: Grants(GrantQuestion);
            /// Access tokens.
            access_tokens: AccessTokens(AccessTokenQuestion);
            /// Tokens of upstream providers.
            provider_tokens: ProviderTokens;
            /// Sessions, and sign-ins that are not finished.
            sessions: Sessions(SessionQuestion);
            /// Pushed authorization requests.
            pushed_requests: PushedRequests(PushedRequestQuestion);
            /// Device codes, with their user codes.
            device_codes: DeviceCodes(DeviceCodeQuestion);
            /// Challenges: one-time codes, links and nonces that a subject proves something with.
            challenges: Challenges(ChallengeQuestion);
            /// Approvals: an identity may do an action to a resource.
            approvals: Approvals(ApprovalQuestion);
            /// Relationships between a subject and an object.
            relationships: Relationships(Edge);
            /// Registered clients.
            clients: Clients(ClientQuestion);
            /// JSON attributes in buckets.
            attributes: Attributes(AttributeQuestion);
            /// Records of frameworks that bring their own ids, with counters and leases.
            records: Records(RecordQuestion);
            /// API keys that a caller of the scope manages.
            api_keys: ApiKeys(ApiKeyQuestion);
            /// Deletion of owners.
            owners: Owners;
            /// TTL policies that a caller of the scope reads and changes.
            policies: Policies;
            /// Audit log.
            audit: Audit;
        }
    };
}
pub(crate) use every_store;

every_store!(registry);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_belongs_to_one_store() {
        let mut kinds: Vec<Kind> = KINDS.concat();
        kinds.sort_unstable();
        let of_stores = |kind: &Kind| !kind.is_probe() && *kind != Kind::System;
        let all: Vec<Kind> = Kind::ALL.iter().copied().filter(of_stores).collect();
        assert_eq!(kinds, all);
    }
}
