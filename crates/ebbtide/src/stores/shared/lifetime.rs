//! How long a record lives, what makes it live longer, and what ends it early: the same for every store.

use std::time::Duration;

use futures_util::future::try_join;
use minicbor::{Decode, Encode};

use super::extension::{ExtendOutcome, Extension, ExtensionVerdict};
use super::tombstones::Principal;
use super::update::Step;
use crate::model::error::{Error, Result};
use crate::model::key::Key;
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::scope::Scope;
use crate::model::time::Timestamp;
use crate::model::ttl::Ttl;
use crate::model::write::{Batch, Write};
use crate::stores::Stores;
use crate::stores::audit::{AuditContext, Note};

/// The part of the TTL that must have gone by before a renewal is worth a write: one in so many.
const WORTH_WRITING: u32 = 10;

/// The life that is asked for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LifetimeRequest {
    pub(crate) ttl: Option<Ttl>,
    pub(crate) cap: Option<Ttl>,
    pub(crate) slides: bool,
}

impl LifetimeRequest {
    pub(crate) fn sliding(ttl: Ttl, cap: Ttl) -> Self {
        Self { ttl: Some(ttl), cap: Some(cap), slides: true }
    }

    pub(crate) fn is_unsaid(&self) -> bool {
        self.ttl.is_none() && self.cap.is_none()
    }

    /// The life that begins now, and when it ends. A life longer than its cap is invalid.
    pub(crate) fn begin(
        self,
        stores: &Stores,
        kind: Kind,
        scope: &Scope,
        default: Option<Ttl>,
        now: Timestamp,
    ) -> Result<(Lifetime, Timestamp)> {
        if let (Some(ttl), Some(cap)) = (self.ttl, self.cap)
            && ttl > cap
        {
            return Err(Error::invalid(format!("a TTL of {ttl} is longer than its cap of {cap}")));
        }
        let cap_at = self.cap.map(|cap| cap.expires_at(now)).transpose()?;
        let expires_at = stores.expiry(kind, scope, self.ttl.or(default), now)?;
        let slide = self.ttl.filter(|_| self.slides).map(Ttl::duration);
        let lifetime = Lifetime::restored(now, cap_at, slide);
        Ok((lifetime, cap_at.map_or(expires_at, |cap_at| expires_at.min(cap_at))))
    }
}

/// The life of a record, as it is stored in it.
#[derive(Debug, Clone, Copy, PartialEq, Encode, Decode)]
pub(crate) struct Lifetime {
    #[n(0)]
    began_at: u64,
    #[n(1)]
    cap_at: Option<u64>,
    #[n(2)]
    slide_millis: Option<u64>,
}

impl Lifetime {
    pub(crate) fn began_at(&self) -> Result<Timestamp> {
        Timestamp::from_stored(self.began_at)
    }

    pub(crate) fn cap_at(&self) -> Result<Option<Timestamp>> {
        self.cap_at.map(Timestamp::from_stored).transpose()
    }

    pub(crate) fn slides(&self) -> bool {
        self.slide_millis.is_some()
    }

    pub(crate) fn sliding_ttl(&self) -> Option<Duration> {
        self.slide_millis.map(Duration::from_millis)
    }

    /// The life of a record that comes from elsewhere.
    pub(crate) fn restored(began_at: Timestamp, cap_at: Option<Timestamp>, slide: Option<Duration>) -> Self {
        Self {
            began_at: began_at.as_millis(),
            cap_at: cap_at.map(Timestamp::as_millis),
            slide_millis: slide.map(|slide| u64::try_from(slide.as_millis()).unwrap_or(u64::MAX)),
        }
    }
}

/// What became of a record that comes from elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Restored {
    Written,
    SameStands,
    OtherStands,
}

/// Writes a record under all its keys if none stands there; in a dry run, says what would become of it. `same` says
/// whether what stands there is what would have been written.
pub(crate) async fn restore(
    stores: &Stores,
    keys: Vec<Key>,
    whose: &[Principal<'_>],
    record: Record,
    dry_run: bool,
    same: impl Fn(&Record) -> Result<bool>,
) -> Result<Restored> {
    let now = stores.now();
    let mut standing = stores.backend().get(&keys[0], now).await?;
    if standing.is_none() {
        if dry_run {
            return Ok(Restored::Written);
        }
        let mut writes = vec![Write::Insert { key: keys[0].clone(), record: record.clone() }];
        writes.extend(mirrored(&keys, &record));
        let scope = keys[0].scope();
        if stores.commit_for(&scope, whose, writes, now).await?.unless_deleted()?.is_applied() {
            return Ok(Restored::Written);
        }
        standing = stores.backend().get(&keys[0], now).await?;
    }
    let same = standing.map_or(Ok(false), |there| same(&there))?;
    Ok(if same { Restored::SameStands } else { Restored::OtherStands })
}

/// The writes of a record's mirrors.
fn mirrored(keys: &[Key], record: &Record) -> impl Iterator<Item = Write> {
    keys[1..].iter().map(|key| Write::Put { key: key.clone(), record: record.clone() })
}

/// One record, under every key that it stands at. Those after the first are its mirrors: they are written only
/// together with it, so that its version is the condition for all, and a mirror that was lost is mended.
pub(crate) struct Standing<'a> {
    pub(crate) stores: &'a Stores,
    pub(crate) scope: &'a Scope,
    pub(crate) keys: Vec<Key>,
    /// What the audit log calls it.
    pub(crate) target: Vec<String>,
    /// Whose it is: while they are being deleted it is not there.
    pub(crate) whose: Vec<Principal<'a>>,
    pub(crate) lifetime: fn(&Record) -> Result<Lifetime>,
}

impl Standing<'_> {
    fn kind(&self) -> Kind {
        self.keys[0].kind()
    }

    /// The record; where reads renew it, renewed. If something was faster, what was read.
    pub(crate) async fn read(&self) -> Result<Option<Record>> {
        let now = self.stores.now();
        let (record, is_deleted) = try_join(
            self.stores.backend().get(&self.keys[0], now),
            self.stores.is_deleted(self.scope, &self.whose, now),
        )
        .await?;
        let Some(record) = record.filter(|_| !is_deleted) else { return Ok(None) };
        let lifetime = (self.lifetime)(&record)?;
        let Some(slide) = lifetime.sliding_ttl() else { return Ok(Some(record)) };
        let full = now.checked_add(slide)?;
        let end = full.min(self.cap(&lifetime)?);
        if end <= record.expires_at || full.since(record.expires_at) < slide / WORTH_WRITING {
            return Ok(Some(record));
        }
        let renewed = self.stores.record(record.value.clone(), end);
        let commit = self.stores.backend().commit(Batch::new(self.replace(&record, &renewed))?, now).await?;
        Ok(Some(if commit.is_applied() { renewed } else { record }))
    }

    pub(crate) async fn extend(&self, extension: &Extension) -> Result<ExtendOutcome> {
        let update = self.stores.update(&self.keys[0], |standing, now| {
            let Some(standing) = standing else { return Ok(Step::answer(ExtendOutcome::Unknown)) };
            let was = standing.expires_at;
            let cap_at = self.cap(&(self.lifetime)(&standing)?)?;
            let expires_at = match extension.judge(was, cap_at, now)? {
                ExtensionVerdict::Longer(expires_at) => expires_at,
                ExtensionVerdict::Refused(answer) => return Ok(Step::answer(answer)),
            };
            let record = self.stores.record(standing.value.clone(), expires_at);
            let note = extension.note(self.kind(), self.target.clone(), was, expires_at)?;
            let answer = ExtendOutcome::ExtendOutcome { expires_at, was, version: record.version };
            Ok(Step::write(self.replace(&standing, &record), answer).audited(self.scope, note))
        });
        update.await
    }

    /// Ends it, and tells the audit log. True only for the caller that ended it.
    pub(crate) async fn revoke(&self, context: &AuditContext) -> Result<bool> {
        let note = Note::revoked(context)?.about(self.kind(), self.target.clone());
        let update = self.stores.update(&self.keys[0], |standing, _| {
            let Some(standing) = standing else { return Ok(Step::answer(false)) };
            let (key, mirrors) = (self.keys[0].clone(), &self.keys[1..]);
            let mut writes = vec![Write::Remove { key, expected: standing.version }];
            writes.extend(mirrors.iter().map(|key| Write::Delete { key: key.clone() }));
            Ok(Step::write(writes, true).audited(self.scope, note.clone()))
        });
        update.await
    }

    fn replace(&self, standing: &Record, record: &Record) -> Vec<Write> {
        let (key, expected) = (self.keys[0].clone(), standing.version);
        let mut writes = vec![Write::Replace { key, expected, record: record.clone() }];
        writes.extend(mirrored(&self.keys, record));
        writes
    }

    fn cap(&self, lifetime: &Lifetime) -> Result<Timestamp> {
        self.stores.cap(self.kind(), self.scope, lifetime.began_at()?, lifetime.cap_at()?)
    }
}
