//! Records of frameworks that bring their own ids: sessions, tokens, interactions, counters and leases.
//!
//! Ids, second keys and groups are kept as digests under the store's naming key, and values are sealed with the id
//! inside. A record that has expired is absent to every condition.
//!
//! ```
//! use ebbtide::stores::records::{GetOutcome, PutOutcome, PutRecord, RecordAddress, RecordCondition};
//! use ebbtide::{Ebbtide, Ttl};
//! use serde_json::json;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> ebbtide::Result<()> {
//! let records = Ebbtide::in_memory().scope("tenant:acme")?.records();
//! let session = PutRecord::new("sessions", "sid-1", json!({"user": "alice"}))
//!     .life(Ttl::from_secs(600)?)
//!     .only_if(RecordCondition::Absent);
//! assert!(matches!(records.put(&session).await?, PutOutcome::Stored { created: true, .. }));
//! assert_eq!(records.put(&session).await?, PutOutcome::Conflict);
//!
//! let address = RecordAddress::id("sessions", "sid-1");
//! assert!(records.take(&address).await?.is_some());
//! assert_eq!(records.get(&address).await?, GetOutcome::Unknown);
//! # Ok(())
//! # }
//! ```

mod batch;
mod belonging;
pub mod body;
mod change;
mod counters;
mod each;
mod groups;
mod leases;
mod listing;
mod moving;
mod naming;
mod put;
mod reads;
mod request;
mod state;
mod text;
mod turn;
mod types;

pub(super) use leases::LEASE_TTL;
pub use request::{
    Acquire, Increment, Modification, PutRecord, RecordAddress, RecordCondition, RecordWrite, TouchCondition,
    TouchRecord,
};
pub use text::TextCounters;
pub use turn::Turn;
pub use types::{
    AcquireOutcome, BatchOutcome, ConsumeOutcome, DeleteOutcome, FoundRecord, GetOutcome, IncrementOutcome,
    IncrementTextOutcome, ListedRecord, PutOutcome, RecordId, RecordValue, Refusal, ScanPage, TouchOutcome,
    WriteAnswer,
};

use std::time::Duration;

use super::Stores;
use super::registry::{Store, question};
use super::shared::epochs::LONGEST;
use super::shared::finding::{Finding, RecordState};
use super::shared::life::RecordTtl;
use super::shared::payload::Resealing;
use crate::model::error::{Error, Result};
use crate::model::kind::Kind;
use crate::model::scope::Scope;
use crate::model::time::Timestamp;
use crate::model::ttl::{PolicyTarget, Ttl};
use crate::timekeeping::Now;

/// Records of one scope.
#[derive(Debug, Clone)]
pub struct Records {
    stores: Stores,
    scope: Scope,
}

question! {
    /// Record to explain.
    RecordQuestion {
        collection: String,
        id: String,
    }
}

/// Attempts of a change. Each loss is another writer's gain: a newcomer's, or another process's, because the losers of
/// one process write in [turn](Turn).
const ATTEMPTS: usize = 256;

impl Store for Records {
    const KINDS: &'static [Kind] =
        &[Kind::Record, Kind::RecordKey, Kind::RecordGroup, Kind::Counter, Kind::Lease];
    type Question = RecordQuestion;

    fn reseal(stores: &Stores, at: Resealing<'_>, value: &[u8]) -> Result<Option<Vec<u8>>> {
        match (at.from.kind(), value.split_first()) {
            (Kind::Record, Some((shape, sealed))) => {
                let sealed = stores.reseal(at, &[*shape], sealed)?;
                Ok(sealed.map(|sealed| [&[*shape], sealed.as_slice()].concat()))
            }
            (Kind::RecordKey, _) => stores.reseal(at, &[], value),
            _ => Ok(None),
        }
    }

    async fn explain(&self, question: &RecordQuestion) -> Result<Finding> {
        let address = RecordAddress::id(&question.collection, question.id.as_str());
        Ok(match self.get(&address).await? {
            GetOutcome::Found(record) if record.consumed_at.is_some() => {
                Finding::new(RecordState::Used, "it was consumed").until(record.expires_at)
            }
            GetOutcome::Found(record) => {
                Finding::new(RecordState::Live, "it is live").until(record.expires_at)
            }
            GetOutcome::Expired(record) => {
                Finding::new(RecordState::Expired, "it has expired, and is retained").until(record.expires_at)
            }
            GetOutcome::Unknown => Finding::unknown(
                "there is no record: it was never written, was taken or deleted, has expired, or its group is revoked",
            ),
        })
    }
}

impl Records {
    /// Longest life of a record with a group: that of everything that can be revoked. The marker of a revoked group lives
    /// a day longer, so that no record outlives the revocation of its group.
    pub const GROUP_CAP: Duration = LONGEST.duration();

    /// Collection whose records the Redis protocol reads and writes.
    pub const REDIS: &'static str = "redis";

    pub(super) fn new(stores: Stores, scope: Scope) -> Self {
        Self { stores, scope }
    }

    /// End that a record of this collection has when it is written at `now` with this lifetime; none if the instant that
    /// was asked for has passed. `current` is the end of the live record. `Invalid` for a lifetime that the policy of the
    /// collection refuses.
    pub fn end_of(
        &self,
        collection: &str,
        life: RecordTtl,
        current: Option<Timestamp>,
        now: Now,
    ) -> Result<Option<Timestamp>> {
        self.end(PolicyTarget::new(Kind::Record, Some(collection)), life, current, now)
    }

    /// The same for a record, a counter or a lease.
    fn end(
        &self,
        target: PolicyTarget<'_>,
        life: RecordTtl,
        current: Option<Timestamp>,
        now: Now,
    ) -> Result<Option<Timestamp>> {
        let asked = match (life, current) {
            (RecordTtl::Keep, Some(current)) => return Ok(Some(current)),
            (RecordTtl::Default | RecordTtl::Keep, _) => None,
            (RecordTtl::For(ttl), _) => Some(ttl),
            (RecordTtl::Until(end), _) if !now.may_write(end) => return Ok(None),
            (RecordTtl::Until(end), _) => {
                let left = Ttl::new(end.since(now.latest()));
                // The policy bounds the time that is left.
                let bounded = left.and_then(|ttl| self.stores.expiry(target, &self.scope, Some(ttl), now));
                return bounded.map(|_| Some(end)).map_err(|error| error.about("expires_at"));
            }
            (RecordTtl::Never, _) => {
                return self.stores.cap(target, &self.scope, now.latest(), Some(Timestamp::NEVER)).map(Some);
            }
        };
        self.stores.expiry(target, &self.scope, asked, now).map(Some)
    }
}

fn contended() -> Error {
    Error::unavailable(Error::CONTENDED)
}
