//! Writes of several records that do not depend on each other.

use std::time::Duration;

use futures_util::future::{join, join_all};

use super::Records;
use super::naming::Naming;
use super::request::PutRecord;
use super::state::RecordContent;
use super::text::again;
use super::types::PutOutcome;
use crate::keyring::Keyring;
use crate::model::error::Result;
use crate::model::time::Timestamp;
use crate::model::write::{Batch, Write};
use crate::timekeeping::Now;

/// Life below which a record is written by itself. A commit whose first end has passed when it returns is no answer, and
/// that must not be told of the other records.
const SHORT: Duration = Duration::from_secs(10);

/// Answer to one of several puts, with its place among them.
type Placed = (usize, Result<PutOutcome>);

/// Put that is sent with others.
struct Sent<'a> {
    place: usize,
    put: &'a PutRecord,
    stored: PutOutcome,
}

impl Records {
    /// Writes several records with different ids, each by itself and as [`put`](Self::put) does. Those that stand by
    /// themselves and are to be new go to the engine together. The answers are in their order.
    pub async fn put_each(&self, puts: &[PutRecord]) -> Vec<Result<PutOutcome>> {
        let (inserts, others): (Vec<_>, Vec<_>) =
            puts.iter().enumerate().partition(|(_, put)| put.is_insert());
        let (mut answers, others) = join(self.insert_each(inserts), self.put_apart(others)).await;
        answers.extend(others);
        answers.sort_unstable_by_key(|(place, _)| *place);
        answers.into_iter().map(|(_, answer)| answer).collect()
    }

    async fn put_apart(&self, puts: Vec<(usize, &PutRecord)>) -> Vec<Placed> {
        join_all(puts.into_iter().map(|(place, put)| async move { (place, self.put(put).await) })).await
    }

    /// Inserts records that stand by themselves.
    async fn insert_each(&self, mut puts: Vec<(usize, &PutRecord)>) -> Vec<Placed> {
        if puts.len() < 2 {
            return self.put_apart(puts).await;
        }
        let (naming, now) = match self.begin().await {
            Ok(begun) => begun,
            Err(error) => return puts.into_iter().map(|(place, _)| (place, Err(again(&error)))).collect(),
        };
        let (mut answers, mut sent) = (Vec::with_capacity(puts.len()), Vec::with_capacity(puts.len()));
        let mut batches = Vec::with_capacity(puts.len());
        let keyring = self.stores.keyring();
        puts.retain(|&(place, put)| match self.insertion(&naming, &keyring, put, now) {
            Ok(Some((_, _, end))) if end.since(now.latest()) < SHORT => true,
            Ok(Some((batch, stored, _))) => {
                batches.push(batch);
                sent.push(Sent { place, put, stored });
                false
            }
            Ok(None) => {
                answers.push((place, Ok(PutOutcome::Expired)));
                false
            }
            Err(error) => {
                answers.push((place, Err(error)));
                false
            }
        });
        let (sent, apart) = join(self.send(batches, sent, now), self.put_apart(puts)).await;
        answers.extend(sent.into_iter().chain(apart));
        answers
    }

    async fn begin(&self) -> Result<(Naming<'_>, Now)> {
        Ok((self.naming().await?, self.stores.now()?))
    }

    async fn send(&self, batches: Vec<Batch>, sent: Vec<Sent<'_>>, now: Now) -> Vec<Placed> {
        let commits = match self.stores.backend().commit_each(batches, now).await {
            Ok(commits) => commits,
            Err(error) => return sent.into_iter().map(|one| (one.place, Err(again(&error)))).collect(),
        };
        let (mut answers, mut refused) = (Vec::with_capacity(sent.len()), Vec::new());
        for (Sent { place, put, stored }, commit) in sent.into_iter().zip(commits) {
            match commit.into_commit() {
                Ok(commit) if commit.is_applied() => answers.push((place, Ok(stored))),
                Ok(_) => refused.push((place, put)),
                Err(error) => answers.push((place, Err(error))),
            }
        }
        // One that is retained, or whose group is revoked, is in the way and yet absent.
        let looked =
            refused.into_iter().map(|(place, put)| async move { (place, self.put_linked(put).await) });
        answers.extend(join_all(looked).await);
        answers
    }

    /// Insertion of a record that stands by itself, its answer and its end; none if the end has passed.
    fn insertion(
        &self,
        naming: &Naming<'_>,
        keyring: &Keyring,
        put: &PutRecord,
        now: Now,
    ) -> Result<Option<(Batch, PutOutcome, Timestamp)>> {
        put.check()?;
        let key = naming.record(&put.collection, put.id.as_bytes())?;
        let Some(expires_at) = self.end_of(&put.collection, put.life, None, now)? else { return Ok(None) };
        let content = RecordContent::new(&put.id, &put.value);
        let record = self.stores.seal_record_with(keyring, &key, content, expires_at)?;
        let stored =
            PutOutcome::Stored { version: record.version, expires_at, created: true, previous: None };
        Ok(Some((Batch::try_from(Write::Insert { key, record })?, stored, expires_at)))
    }
}
