//! Lifetimes, shared by all stores: expiry, cap, renewal by use, extension and revocation.

use std::time::Duration;

use futures_util::future::try_join;
use minicbor::{Decode, Encode};

use super::extension::{ExtendOutcome, Extension, ExtensionVerdict};
use super::parents::ParentName;
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
use crate::stores::audit::{Action, AuditContext, Note};
use crate::timekeeping::Now;

/// Divisor of the TTL: a renewal is written after that part of it has passed.
pub(crate) const WORTH_WRITING: u32 = 10;

/// Detail of an audit entry about a record that use renews: its end is not in the log.
pub(crate) const SLIDES: &str = "use renews it";

/// Setters of the lifetime of a request that has the members `ttl`, `cap` and `slides`.
macro_rules! lifetime_setters {
    () => {
        /// Expires after `ttl`.
        #[must_use]
        pub fn ttl(mut self, ttl: impl Into<Option<Ttl>>) -> Self {
            self.ttl = ttl.into();
            self
        }

        /// Expires after `cap` at the latest: no extension reaches further.
        #[must_use]
        pub fn cap(mut self, cap: Ttl) -> Self {
            self.cap = Some(cap);
            self
        }

        /// Expires when it was not used for `ttl`, or nine tenths of it, and after `cap` at the latest.
        #[must_use]
        pub fn sliding_ttl(mut self, ttl: Ttl, cap: Ttl) -> Self {
            (self.ttl, self.cap, self.slides) = (Some(ttl), Some(cap), true);
            self
        }

        pub(crate) fn lifetime(&self) -> $crate::stores::shared::lifetime::LifetimeRequest {
            let Self { ttl, cap, slides, .. } = *self;
            $crate::stores::shared::lifetime::LifetimeRequest { ttl, cap, slides }
        }
    };
}
pub(crate) use lifetime_setters;

/// Lifetime that is asked for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LifetimeRequest {
    pub(crate) ttl: Option<Ttl>,
    pub(crate) cap: Option<Ttl>,
    pub(crate) slides: bool,
}

impl LifetimeRequest {
    pub(crate) fn is_unset(&self) -> bool {
        self.ttl.is_none() && self.cap.is_none()
    }

    /// Begins a lifetime now, and returns it with its expiry. A TTL longer than the cap is invalid.
    pub(crate) fn begin(
        self,
        stores: &Stores,
        kind: Kind,
        scope: &Scope,
        default: Option<Ttl>,
        now: Now,
    ) -> Result<(Lifetime, Timestamp)> {
        if self.slides && (self.ttl.is_none() || self.cap.is_none()) {
            return Err(
                Error::invalid("a life that use renews needs a TTL and a longest TTL").about("sliding")
            );
        }
        if let (Some(ttl), Some(cap)) = (self.ttl, self.cap)
            && ttl > cap
        {
            return Err(Error::invalid(format!("a TTL of {ttl} is longer than its cap of {cap}"))
                .about("ttl_seconds"));
        }
        let cap_at = self.cap.map(|cap| now.end(cap)).transpose()?;
        let expires_at = stores.expiry(kind, scope, self.ttl.or(default), now)?;
        let slide = self.ttl.filter(|_| self.slides).map(Ttl::duration);
        let mut lifetime = Lifetime::restored(now.latest(), cap_at, slide);
        lifetime.ttl_millis =
            (!expires_at.is_never()).then(|| expires_at.as_millis().saturating_sub(now.latest().as_millis()));
        Ok((lifetime, cap_at.map_or(expires_at, |cap_at| expires_at.min(cap_at))))
    }
}

/// Lifetime, as it is stored in a record.
#[derive(Debug, Clone, Copy, PartialEq, Encode, Decode)]
pub(crate) struct Lifetime {
    #[n(0)]
    began_at: u64,
    #[n(1)]
    cap_at: Option<u64>,
    #[n(2)]
    slide_millis: Option<u64>,
    /// TTL that it began with; none where it had no end, or was written by an earlier version.
    #[n(3)]
    ttl_millis: Option<u64>,
}

impl Lifetime {
    pub(crate) fn began_at(&self) -> Result<Timestamp> {
        Timestamp::from_stored(self.began_at)
    }

    pub(crate) fn cap_at(&self) -> Result<Option<Timestamp>> {
        self.cap_at.map(Timestamp::from_stored).transpose()
    }

    /// TTL that it began with, before extensions and renewals; none without an end.
    pub(crate) fn ttl(&self, expires_at: Timestamp) -> Option<Duration> {
        let derived = (!expires_at.is_never()).then(|| expires_at.as_millis().saturating_sub(self.began_at));
        self.ttl_millis.or(derived).map(Duration::from_millis)
    }

    pub(crate) fn slides(&self) -> bool {
        self.slide_millis.is_some()
    }

    pub(crate) fn sliding_ttl(&self) -> Option<Duration> {
        self.slide_millis.map(Duration::from_millis)
    }

    /// Latest end that use alone can give a record that expires at `expires_at`.
    pub(crate) fn reach(&self, expires_at: Timestamp) -> Result<Timestamp> {
        if self.slides() {
            Ok(self.cap_at()?.unwrap_or(Timestamp::NEVER).max(expires_at))
        } else {
            Ok(expires_at)
        }
    }

    /// Lifetime of an imported record.
    pub(crate) fn restored(began_at: Timestamp, cap_at: Option<Timestamp>, slide: Option<Duration>) -> Self {
        Self {
            began_at: began_at.as_millis(),
            cap_at: cap_at.map(Timestamp::as_millis),
            slide_millis: slide.map(|slide| u64::try_from(slide.as_millis()).unwrap_or(u64::MAX)),
            ttl_millis: None,
        }
    }
}

/// Result of an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Restored {
    Written,
    Same,
    Different,
}

/// Import that a record is written by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Import<'a> {
    /// Writes nothing, and answers as if it had.
    pub(crate) dry_run: bool,
    pub(crate) context: Option<&'a AuditContext>,
}

impl Import<'_> {
    /// Entry of the audit log about the import itself.
    pub(crate) fn begin_or_end(&self) -> Result<Note> {
        match self.context {
            Some(context) => Note::of(Action::Import, context),
            None => Note::automatic(Action::Import, "records were imported"),
        }
    }

    /// Entry of the audit log about an imported record, for the commit that writes it.
    pub(crate) fn note(&self, kind: Kind, target: Vec<String>, expires_at: Timestamp) -> Result<Note> {
        Ok(self.begin_or_end()?.about(kind, target).with_new_expiry(expires_at))
    }
}

/// Terms of the write of an imported record.
pub(crate) struct RestoreTerms<'a> {
    /// Writes nothing, and answers as if it had.
    pub(crate) dry_run: bool,
    /// Entry of the audit log, where the record has one.
    pub(crate) note: Option<&'a Note>,
    /// Links to what the record belongs to.
    pub(crate) links: Vec<Write>,
}

/// Writes an imported record under all its keys if there is none, with its links and the entry of the audit log where it
/// has one; in a dry run, returns the result without a write. `same` compares the existing record with the new one.
pub(crate) async fn restore(
    stores: &Stores,
    keys: Vec<Key>,
    whose: &[Principal<'_>],
    record: Record,
    RestoreTerms { dry_run, note, links }: RestoreTerms<'_>,
    same: impl Fn(&Record) -> Result<bool>,
) -> Result<Restored> {
    let now = stores.now()?;
    let mut present = stores.backend().get(&keys[0], now).await?;
    if present.is_none() {
        if dry_run {
            return Ok(Restored::Written);
        }
        let mut writes = vec![Write::Insert { key: keys[0].clone(), record: record.clone() }];
        writes.extend(mirrored(&keys, &record));
        writes.extend(links);
        let scope = keys[0].scope();
        let outcome = match note {
            Some(note) => stores.commit_audited(&scope, whose, writes, note, now).await?,
            None => stores.commit_for(&scope, whose, writes, now).await?,
        };
        if outcome.unless_deleted()?.is_applied() {
            return Ok(Restored::Written);
        }
        present = stores.backend().get(&keys[0], now).await?;
    }
    let same = present.map_or(Ok(false), |present| same(&present))?;
    Ok(if same { Restored::Same } else { Restored::Different })
}

/// Writes of the mirrors of a record.
fn mirrored(keys: &[Key], record: &Record) -> impl Iterator<Item = Write> {
    keys[1..].iter().map(|key| Write::Put { key: key.clone(), record: record.clone() })
}

/// Terms of a grant.
pub(crate) struct GrantRights<'a> {
    /// Claimed grantor.
    pub(crate) granted_by: &'a str,
    /// False if the grant must not lengthen the life of what is there: the caller may not extend.
    pub(crate) may_lengthen: bool,
}

/// Record, under each of its keys. Those after the first are its mirrors: they are written only together with it, so
/// that its version is the condition for all, and a write repairs a mirror that was lost.
pub(crate) struct RecordHandle<'a> {
    pub(crate) stores: &'a Stores,
    pub(crate) scope: &'a Scope,
    pub(crate) keys: Vec<Key>,
    /// Names of the record in the audit log.
    pub(crate) target: Vec<String>,
    /// Owners of the record. While one of them is being deleted, it is absent.
    pub(crate) whose: Vec<Principal<'a>>,
    pub(crate) lifetime: fn(&Record) -> Result<Lifetime>,
    /// Record that it belongs to, as the value names it. Without that one, it is absent.
    pub(crate) parent: fn(&Record) -> Result<Option<ParentName>>,
}

/// Record that the engine has.
#[derive(Debug)]
pub(crate) enum Present {
    /// It is live.
    Live(Record),
    /// It has ended with what it belongs to.
    Ended(Record),
}

impl Present {
    /// Record, if it is live.
    pub(crate) fn live(self) -> Option<Record> {
        match self {
            Self::Live(record) => Some(record),
            Self::Ended(_) => None,
        }
    }
}

impl RecordHandle<'_> {
    /// Record that the engine has, whoever owns it.
    pub(crate) async fn present(&self, now: Now) -> Result<Option<Present>> {
        let Some(record) = self.stores.backend().get(&self.keys[0], now).await? else { return Ok(None) };
        Ok(Some(if self.has_ended(&record, now).await? {
            Present::Ended(record)
        } else {
            Present::Live(record)
        }))
    }

    /// Returns whether a record has ended with what it belongs to.
    async fn has_ended(&self, record: &Record, now: Now) -> Result<bool> {
        match (self.parent)(record)? {
            Some(parent) => self.stores.belongings(self.scope).has_ended(&parent, now).await,
            None => Ok(false),
        }
    }

    fn kind(&self) -> Kind {
        self.keys[0].kind()
    }

    /// Reads the record, and renews it if it slides. If another writer was faster, returns it as it was read.
    pub(crate) async fn read(&self) -> Result<Option<Record>> {
        let now = self.stores.now()?;
        let (record, is_deleted) = try_join(
            self.stores.backend().get(&self.keys[0], now),
            self.stores.is_deleted(self.scope, &self.whose, now),
        )
        .await?;
        let Some(record) = record.filter(|_| !is_deleted) else { return Ok(None) };
        if self.has_ended(&record, now).await? {
            return Ok(None);
        }
        let lifetime = (self.lifetime)(&record)?;
        let Some(slide) = lifetime.sliding_ttl() else { return Ok(Some(record)) };
        // Renewal by reading is skipped while the clock is in doubt.
        let Ok(full) = now.end_after(slide) else { return Ok(Some(record)) };
        let end = full.min(self.cap(&lifetime)?);
        if end <= record.expires_at || full.since(record.expires_at) < slide / WORTH_WRITING {
            return Ok(Some(record));
        }
        let renewed = self.stores.record(record.value.clone(), end);
        let commit = self.stores.backend().commit(Batch::new(self.replace(&record, &renewed))?, now).await?;
        Ok(Some(if commit.is_applied() { renewed } else { record }))
    }

    pub(crate) async fn extend(&self, extension: &Extension) -> Result<ExtendOutcome> {
        let update = self.stores.retry(|now| async move {
            let Some(present) = self.present(now).await?.and_then(Present::live) else {
                return Ok(Step::answer(ExtendOutcome::Unknown));
            };
            let was = present.expires_at;
            let cap_at = self.cap(&(self.lifetime)(&present)?)?;
            let expires_at = match extension.judge(was, cap_at, now)? {
                ExtensionVerdict::Longer(expires_at) => expires_at,
                ExtensionVerdict::Refused(answer) => return Ok(Step::answer(answer)),
            };
            let record = self.stores.record(present.value.clone(), expires_at);
            let note = extension.note(self.kind(), self.target.clone(), was, expires_at)?;
            let answer = ExtendOutcome::Extended { expires_at, was, version: record.version };
            Ok(Step::write(self.replace(&present, &record), answer).audited(self.scope, note))
        });
        update.await
    }

    /// Writes a new grant over the record that is there, and appends to the audit log. `longer` is the answer where
    /// that would lengthen a live record's life and the caller may not extend one.
    pub(crate) fn grant<T>(
        &self,
        present: Option<Present>,
        new: (Lifetime, &Record),
        terms: &GrantRights<'_>,
        granted: T,
        longer: impl FnOnce(Timestamp) -> T,
    ) -> Result<Step<T>> {
        let (lifetime, record) = new;
        let note = |reason| {
            let note =
                Note::new(Action::Grant, terms.granted_by, reason)?.about(self.kind(), self.target.clone());
            Ok(if lifetime.slides() { note.with_detail(SLIDES) } else { note })
        };
        let (writes, note) = match present {
            None => {
                let mut writes = vec![Write::Insert { key: self.keys[0].clone(), record: record.clone() }];
                writes.extend(mirrored(&self.keys, record));
                (writes, note("granted")?.with_new_expiry(record.expires_at))
            }
            Some(Present::Ended(present)) => {
                (self.replace(&present, record), note("granted")?.with_new_expiry(record.expires_at))
            }
            Some(Present::Live(present)) => {
                let was = (self.lifetime)(&present)?;
                let longest = was.reach(present.expires_at)?;
                if !terms.may_lengthen && lifetime.reach(record.expires_at)? > longest {
                    return Ok(Step::answer(longer(present.expires_at)));
                }
                let note = note("granted again")?.with_expiry(present.expires_at, record.expires_at);
                (self.replace(&present, record), note)
            }
        };
        Step::write(writes, granted).audited(self.scope, note).unless_deleted(self.scope, &self.whose)
    }

    /// Removes the record, and appends to the audit log. True only for the caller that removed it.
    pub(crate) async fn revoke(&self, context: &AuditContext) -> Result<bool> {
        let note = &Note::revoked(context)?.about(self.kind(), self.target.clone());
        let update = self.stores.retry(|now| async move {
            let Some(present) = self.present(now).await?.and_then(Present::live) else {
                return Ok(Step::answer(false));
            };
            let (key, mirrors) = (self.keys[0].clone(), &self.keys[1..]);
            let mut writes = vec![Write::Remove { key, expected: present.version }];
            writes.extend(mirrors.iter().map(|key| Write::Delete { key: key.clone() }));
            Ok(Step::write(writes, true).audited(self.scope, note.clone()))
        });
        update.await
    }

    fn replace(&self, present: &Record, record: &Record) -> Vec<Write> {
        let (key, expected) = (self.keys[0].clone(), present.version);
        let mut writes = vec![Write::Replace { key, expected, record: record.clone() }];
        writes.extend(mirrored(&self.keys, record));
        writes
    }

    fn cap(&self, lifetime: &Lifetime) -> Result<Timestamp> {
        self.stores.cap(self.kind(), self.scope, lifetime.began_at()?, lifetime.cap_at()?)
    }
}
