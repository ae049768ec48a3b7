//! Listing and revocation of the sessions of a subject.

use std::fmt;

use super::{Sessions, StoredSession, handle};
use crate::backend::Cursor;
use crate::model::codec;
use crate::model::digest::Digest;
use crate::model::error::Result;
use crate::model::key::{Key, Prefix};
use crate::model::kind::Kind;
use crate::model::time::Timestamp;
use crate::model::write::Write;
use crate::stores::audit::{AuditContext, Note};
use crate::stores::grants::{PAGE, listed_id};
use crate::stores::shared::epochs::Epoch;
use crate::stores::shared::paging::{Listing, Pages, check_limit};
use crate::stores::shared::tombstones::Principal;
use crate::stores::shared::update::Step;

/// Session in a listing. It gives no access to the session.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionInfo {
    /// Digest of the session id, in base64url.
    pub handle: String,
    /// Name that codes and grants refer to the session by.
    pub sid: String,
    /// Owner of the session.
    pub subject: String,
    /// Time of creation.
    pub created_at: Timestamp,
    /// End of the session unless it is touched.
    pub expires_at: Timestamp,
    /// End of the session that touches cannot exceed.
    pub ends_at: Timestamp,
}

impl fmt::Debug for SessionInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionInfo(expires_at {}, …)", self.expires_at)
    }
}

impl Sessions {
    /// Lists up to `limit` live sessions of a subject after `after`, without their contents.
    pub async fn list(
        &self,
        subject: &str,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Listing<SessionInfo>> {
        check_limit(limit)?;
        let stamp = self.stores.subject_stamp(&self.scope, subject, self.stores.now()?).await?;
        let Some(epoch) = stamp.map(|stamp| stamp.subject()) else {
            return Ok(Listing { items: Vec::new(), next: None });
        };
        let (digests, next) = self.digests(subject, after, limit).await?;
        let mut items = Vec::with_capacity(digests.len());
        for digest in digests {
            let now = self.stores.now()?;
            let Some(record) = self.stores.backend().get(&self.key(&digest)?, now).await? else { continue };
            let stored: StoredSession = codec::decode(&record.value)?;
            // An index entry may be stale: the record names the owner.
            let is_theirs = stored.subject.as_deref() == Some(subject) && stored.lives(now)?;
            if is_theirs && stored.stamp.unwrap_or_default().subject() >= epoch {
                items.push(SessionInfo {
                    sid: stored.sid(&digest),
                    handle: handle(&digest),
                    subject: subject.to_owned(),
                    created_at: Timestamp::from_stored(stored.created_at)?,
                    expires_at: Timestamp::from_stored(stored.valid_until)?,
                    ends_at: Timestamp::from_stored(stored.ends_at)?,
                });
            }
        }
        Ok(Listing { items, next })
    }

    /// Number of the sessions of a subject, among the first `most` or a few more, that a raise of its epoch from `was` has
    /// ended, and whether there may be more.
    pub(in crate::stores) async fn count_ended(
        &self,
        subject: &str,
        was: u64,
        most: usize,
    ) -> Result<(u64, bool)> {
        let prefix = self.index(subject)?;
        let (mut pages, mut ended, mut seen) = (Pages::new(&self.stores, &prefix, PAGE), 0, 0);
        while seen < most
            && let Some(items) = pages.next().await?
        {
            seen += items.len();
            let now = self.stores.now()?;
            let keys: Vec<Key> =
                items.iter().map(|(key, _)| self.key(&digest(key)?)).collect::<Result<_>>()?;
            if keys.is_empty() {
                continue;
            }
            for record in self.stores.backend().get_many(&keys, now).await?.into_iter().flatten() {
                let stored: StoredSession = codec::decode(&record.value)?;
                let is_theirs = stored.subject.as_deref() == Some(subject) && stored.lives(now)?;
                ended += u64::from(is_theirs && stored.stamp.unwrap_or_default().subject() == was);
            }
        }
        Ok((ended, seen >= most))
    }

    /// Deletes every session of a subject, and returns the number of those that were live. With a context, the
    /// audit log is written before and after.
    ///
    /// A session that is created while this runs may be left out. After an error, some may have been deleted: call it
    /// again.
    pub async fn revoke(&self, subject: &str, context: Option<&AuditContext>) -> Result<u64> {
        let Some(context) = context else { return self.revoke_listed(subject).await };
        let note = Note::revoked(context)?.about(Kind::Session, vec![subject.to_owned()]);
        let audit = self.stores.audit(&self.scope);
        audit.append(&note.clone().with_detail("all, begins")).await?;
        let revoked = self.revoke_listed(subject).await?;
        audit.append(&note.with_detail(format!("all, ended, {revoked} revoked"))).await?;
        Ok(revoked)
    }

    async fn revoke_listed(&self, subject: &str) -> Result<u64> {
        let prefix = self.index(subject)?;
        let (mut pages, mut revoked) = (Pages::new(&self.stores, &prefix, PAGE), 0);
        while let Some(items) = pages.next().await? {
            for (key, _) in items {
                revoked += u64::from(self.revoke_one(subject, &digest(&key)?).await?);
            }
        }
        Ok(revoked)
    }

    /// Deletes the sessions of one page, and returns the number of those that were live, and the next page.
    pub(in crate::stores) async fn revoke_page(
        &self,
        subject: &str,
        after: Option<&Cursor>,
    ) -> Result<(u64, Option<Cursor>)> {
        let (digests, next) = self.digests(subject, after, PAGE).await?;
        let mut revoked = 0;
        for digest in digests {
            revoked += u64::from(self.revoke_one(subject, &digest).await?);
        }
        Ok((revoked, next))
    }

    async fn revoke_one(&self, subject: &str, digest: &Digest) -> Result<bool> {
        let is_theirs = |stored: &StoredSession, _: bool| stored.subject.as_deref() == Some(subject);
        let was_live = self.remove(digest, None, false, is_theirs).await?;
        // The index may have outlived its session.
        let unlist = Write::Delete { key: self.index_key(subject, digest)? };
        let _ = self.stores.backend().commit(unlist.try_into()?, self.stores.now()?).await?;
        Ok(was_live)
    }

    /// Removes a session with its index, and returns whether it was live; together with its grants, whether it was there.
    pub(super) async fn remove(
        &self,
        digest: &Digest,
        note: Option<Note>,
        with_grants: bool,
        condition: impl Fn(&StoredSession, bool) -> bool,
    ) -> Result<bool> {
        let key = self.key(digest)?;
        let remove = self.stores.update(&key, |record, now| {
            let Some(record) = record else { return Ok(Step::answer(false)) };
            let stored: StoredSession = codec::decode(&record.value)?;
            let lives = stored.lives(now)?;
            if !condition(&stored, lives) {
                return Ok(Step::answer(false));
            }
            let mut writes = vec![Write::Remove { key: key.clone(), expected: record.version }];
            if let Some(subject) = &stored.subject {
                writes.push(Write::Delete { key: self.index_key(subject, digest)? });
            }
            if with_grants {
                let sid = stored.sid(digest);
                let ended = Epoch::raised(None, false, now).record(&self.stores, now)?;
                writes.push(Write::Put {
                    key: Principal::Session(&sid).tombstone(&self.scope)?,
                    record: ended,
                });
            }
            let has_ended_something = lives || with_grants;
            let step = Step::write(writes, has_ended_something);
            // A session that is over already loses nothing by its removal.
            Ok(match &note {
                Some(note) if has_ended_something => {
                    let subject = stored.subject.clone().into_iter();
                    step.audited(&self.scope, subject.fold(note.clone(), Note::of_subject))
                }
                _ => step,
            })
        });
        remove.await
    }

    async fn digests(
        &self,
        subject: &str,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<(Vec<Digest>, Option<Cursor>)> {
        let prefix = self.index(subject)?;
        let page = self.stores.backend().scan(&prefix, after, limit, self.stores.now()?).await?;
        let digests = page.items.iter().map(|(key, _)| digest(key));
        Ok((digests.collect::<Result<_>>()?, page.next))
    }

    fn index(&self, subject: &str) -> Result<Prefix> {
        Prefix::partition(Kind::SessionIndex, &self.scope, &[partition(subject).part()], &[])
    }

    pub(super) fn index_key(&self, subject: &str, digest: &Digest) -> Result<Key> {
        let partition = partition(subject);
        Key::new(Kind::SessionIndex, &self.scope, &[partition.part()], &[digest.part()])
    }
}

/// Partition of a subject: a digest, since names may be longer than a key allows.
fn partition(subject: &str) -> Digest {
    Digest::of("sessions", &[b"subject", subject.as_bytes()])
}

/// Digest of the session that an index entry leads to.
fn digest(key: &Key) -> Result<Digest> {
    Ok(Digest::from_bytes(listed_id(key)?))
}
