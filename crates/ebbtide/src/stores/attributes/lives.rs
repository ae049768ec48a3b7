//! Reading, with the renewal of what slides; and the extension of lives.

use super::bucket::Bucket;
use super::draft::{Attribute, Stored};
use crate::backend::BackendExt;
use crate::error::Result;
use crate::key::Key;
use crate::kind::Kind;
use crate::record::Record;
use crate::stores::extension::{Extended, Extension, Verdict};
use crate::time::Timestamp;
use crate::write::Write;

/// The part of the TTL that must have gone by before a renewal is worth a write: one in so many.
const WORTH_WRITING: u32 = 10;

impl Bucket {
    /// The attribute, if there is one. An error is no answer: never take it for absence.
    ///
    /// Where reads renew it, this one writes its new end, unless less than a tenth of the TTL has gone by since the
    /// last renewal; a fault of that write is an error. If another change was faster, what was read is the answer,
    /// and nothing is written. A renewal is a writing with a version of its own.
    pub async fn get(&self, name: &str) -> Result<Option<Attribute>> {
        let (key, now) = (self.key(name)?, self.stores().now());
        let Some(record) = self.stores().backend().get(&key, now).await? else { return Ok(None) };
        let stored = Stored::decode(&record)?;
        let record = self.renewed(key, record, &stored, now).await?;
        stored.attribute(name.to_owned(), &record).map(Some)
    }

    async fn renewed(&self, key: Key, record: Record, stored: &Stored, now: Timestamp) -> Result<Record> {
        let lifetime = stored.lifetime()?;
        let Some(slide) = lifetime.slide else { return Ok(record) };
        let cap_at = self.stores().cap(Kind::Attribute, self.scope(), lifetime.began_at, lifetime.cap_at)?;
        let full = now.checked_add(slide)?;
        let end = full.min(cap_at);
        if end <= record.expires_at || full.since(record.expires_at) < slide / WORTH_WRITING {
            return Ok(record);
        }
        let renewed = self.stores().record(record.value.clone(), end);
        let commit = self.stores().backend().replace(key, record.version, renewed.clone(), now).await?;
        Ok(if commit.is_applied() { renewed } else { record })
    }

    /// Lets an attribute live longer, and writes into the audit log who did it and why, in one commit.
    pub async fn extend(&self, name: &str, extension: &Extension) -> Result<Extended> {
        let key = self.key(name)?;
        let audit = self.stores().audit(self.scope());
        let mut changes = audit.changes().await;
        loop {
            let now = changes.attempt()?;
            let Some(standing) = self.stores().backend().get(&key, now).await? else {
                return Ok(Extended::Unknown);
            };
            let lifetime = Stored::decode(&standing)?.lifetime()?;
            let cap_at =
                self.stores().cap(Kind::Attribute, self.scope(), lifetime.began_at, lifetime.cap_at)?;
            let was = standing.expires_at;
            let expires_at = match extension.judge(was, cap_at, now)? {
                Verdict::Longer(expires_at) => expires_at,
                Verdict::Refused(answer) => return Ok(answer),
            };
            let record = self.stores().record(standing.value, expires_at);
            let version = record.version;
            let target = vec![self.owner().to_owned(), self.name().to_owned(), name.to_owned()];
            let note = extension.note(Kind::Attribute, target, was, expires_at)?;
            let replace = Write::Replace { key: key.clone(), expected: standing.version, record };
            if changes.commit(vec![replace], &note, now).await? {
                return Ok(Extended::Extended { expires_at, was, version });
            }
        }
    }
}
