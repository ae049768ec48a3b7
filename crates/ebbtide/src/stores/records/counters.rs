//! Counters: plain integers, of a kind of their own.

use super::Records;
use super::request::Increment;
use super::types::IncrementOutcome;
use crate::model::alteration::{Add, Alteration, decode_count};
use crate::model::error::{Error, Result};
use crate::model::kind::Kind;
use crate::model::ttl::{PolicyTarget, check_collection};
use crate::stores::shared::life::RecordTtl;

impl Records {
    /// Adds to a counter, which begins at zero and lives from its first addition. Additions of any number of callers
    /// add up exactly, and a limit is never passed. An `Unavailable` addition may have been counted. One round trip.
    pub async fn increment(&self, increment: &Increment) -> Result<IncrementOutcome> {
        check_collection(&increment.collection)?;
        increment.id.check("an id")?;
        if increment.life == RecordTtl::Keep {
            return Err(Error::invalid("a counter keeps its end without `keep_ttl`").about("keep_ttl"));
        }
        let key = self.naming().await?.counter(&increment.collection, &increment.id)?;
        let target = PolicyTarget::new(Kind::Counter, Some(&increment.collection));
        let Some(expires_if_new) = self.end(target, increment.life, None, self.stores.now()?)? else {
            return Ok(IncrementOutcome::Expired);
        };
        let add = Add {
            by: increment.by,
            limit: increment.limit.unwrap_or(i64::MAX),
            expires_if_new,
            version: self.stores.mint_plain(),
        };
        let altered = self.alter(&key, &Alteration::Add(add)).await?;
        let count = altered.record.as_ref().map_or(Ok(0), |record| decode_count(&record.value))?;
        let expires_at = altered.record.map(|record| record.expires_at);
        Ok(match expires_at {
            Some(expires_at) if altered.applied => IncrementOutcome::Counted { count, expires_at },
            expires_at => IncrementOutcome::Exceeded { count, expires_at },
        })
    }
}
