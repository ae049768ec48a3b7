//! Audit log of each scope: actor and reason of every privileged change, chained by hash.
//!
//! An entry is written in the same commit as the change. Each carries the hash of the one before it, and a head has
//! the last number and hash, so that [`Audit::verify`] detects an entry that was changed, removed or inserted. An
//! attacker who can rewrite the whole log and its head can forge a new one: keep a [`Mark`] elsewhere, and verify
//! against it, to detect that too.
//!
//! Entries expire by the policy for [`Kind::Audit`], after a year by default. An entry has the expiry of the one
//! before it, which tells an expired entry from a missing one.
//!
//! ```
//! use ebbtide::stores::approvals::Approval;
//! use ebbtide::stores::audit::{Action, AuditContext, AuditOutcome};
//! use ebbtide::Ebbtide;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> ebbtide::Result<()> {
//! let acme = Ebbtide::in_memory().scope("tenant:acme")?;
//! let (approvals, audit) = (acme.approvals(), acme.audit());
//! approvals.grant(&Approval::new("alice", "doc", "GET", "admin")).await?;
//! approvals.revoke("alice", "doc", "GET", &AuditContext::new("bob", "she left")?).await?;
//!
//! let entries = audit.list(None, 10).await?.items;
//! assert_eq!((entries[0].action, entries[0].actor.as_str()), (Action::Revoke, "bob"));
//! assert!(matches!(audit.verify(None).await?, AuditOutcome::Intact { entries: 1, .. }));
//! # Ok(())
//! # }
//! ```

mod entry;
mod verify;

use std::convert::Infallible;
use std::future::ready;
use std::hash::{DefaultHasher, Hash, Hasher};

use tokio::sync::Mutex;

pub use entry::{Action, AuditContext, Entry, Mark, Note};
pub use verify::{AuditOutcome, Break};

use entry::{Head, Sealed};
pub(crate) use entry::{check_text, check_words};

use crate::backend::Cursor;
use crate::model::codec;
use crate::model::error::Result;
use crate::model::key::{Key, Prefix};
use crate::model::kind::Kind;
use crate::model::record::{Record, Version};
use crate::model::scope::Scope;
use crate::model::time::Timestamp;
use crate::model::ttl::Ttl;
use crate::model::write::Write;
use crate::stores::Stores;
use crate::stores::registry::Store;
use crate::stores::shared::paging::{Listing, Pages, check_limit};
use crate::stores::shared::update::Step;
use crate::timekeeping::Now;

/// Audited changes of one process that run concurrently. Scopes beyond these share turns.
pub(crate) const GATES: usize = 16;

/// Entries of one page.
const PAGE: usize = 500;

/// Audit log of one scope.
#[derive(Debug, Clone)]
pub struct Audit {
    stores: Stores,
    scope: Scope,
}

impl Store for Audit {
    const KINDS: &'static [Kind] = &[Kind::Audit];
    const DEFAULT_TTL: Option<Ttl> = Some(Ttl::secs(Self::DEFAULT_RETENTION_SECONDS.unsigned_abs()));
    type Question = Infallible;
}

impl Audit {
    /// Retention of an entry, unless there is a policy for [`Kind::Audit`].
    pub const DEFAULT_RETENTION_SECONDS: i64 = 365 * 24 * 3600;

    pub(crate) fn new(stores: Stores, scope: Scope) -> Self {
        Self { stores, scope }
    }

    /// Lists the entries, oldest first.
    pub async fn list(&self, after: Option<&Cursor>, limit: usize) -> Result<Listing<Entry>> {
        check_limit(limit)?;
        let page = self.stores.backend().scan(&self.log()?, after, limit, self.stores.now()?).await?;
        Listing::read(page, |key, record| Entry::read(&key, &record))
    }

    /// Entries about one record, oldest first. It reads the whole log.
    pub(crate) async fn about(&self, kind: Kind, target: &[String]) -> Result<Vec<Entry>> {
        let (log, mut entries) = (self.log()?, Vec::new());
        let mut pages = Pages::new(&self.stores, &log, PAGE);
        while let Some(items) = pages.next().await? {
            for (key, record) in &items {
                let entry = Entry::read(key, record)?;
                entries
                    .extend(Some(entry).filter(|entry| entry.kind == Some(kind) && entry.target == target));
            }
        }
        Ok(entries)
    }

    /// Returns number and hash of the last entry, to keep elsewhere for a later [`verify`](Self::verify). None before
    /// the first entry.
    pub async fn mark(&self) -> Result<Option<Mark>> {
        Ok(self.head(self.stores.now()?).await?.map(|(head, _)| head.mark()))
    }

    /// Appends an entry without a change.
    pub async fn append(&self, note: &Note) -> Result<()> {
        self.stores.retry(|_| ready(Ok(Step::answer(()).audited(&self.scope, note.clone())))).await
    }

    /// Writes that append `note` to the log: the entry, and the head in place of the one that was read.
    pub(crate) async fn entry(&self, note: &Note, now: Now) -> Result<[Write; 2]> {
        let (head, version) =
            self.head(now).await?.map_or((Head::genesis(), None), |(head, version)| (head, Some(version)));
        let (record, next) = self.seal(&head, note, now)?;
        let entry = Write::Insert { key: self.entry_key(next.sequence)?, record };
        let key = self.head_key()?;
        let record = self.stores.record(codec::encode(&next), Timestamp::NEVER);
        let head = match version {
            Some(expected) => Write::Replace { key, expected, record },
            None => Write::Insert { key, record },
        };
        Ok([entry, head])
    }

    fn log(&self) -> Result<Prefix> {
        Prefix::partition(Kind::Audit, &self.scope, &["log".into()], &[])
    }

    fn entry_key(&self, sequence: u64) -> Result<Key> {
        Key::new(Kind::Audit, &self.scope, &["log".into()], &[sequence.into()])
    }

    fn head_key(&self) -> Result<Key> {
        Key::new(Kind::Audit, &self.scope, &["head".into()], &[])
    }

    async fn head(&self, now: Now) -> Result<Option<(Head, Version)>> {
        let record = self.stores.backend().get(&self.head_key()?, now).await?;
        record.map(|record| Ok((codec::decode(&record.value)?, record.version))).transpose()
    }

    /// Entry after `head`, and the head after that entry.
    fn seal(&self, head: &Head, note: &Note, now: Now) -> Result<(Record, Head)> {
        let default = Ttl::from_secs(Self::DEFAULT_RETENTION_SECONDS)?;
        let retention = self.stores.ttl(Kind::Audit, &self.scope, None, default)?;
        // No entry expires before its predecessor, so the entries that are kept are always the end of the chain.
        let expires_at = now.end(retention)?.max(head.expires_at()?);
        let sealed = Sealed::new(&self.scope, head, note, now)?;
        let record = self.stores.record(codec::encode(&sealed), expires_at);
        Ok((record, sealed.head(expires_at)))
    }
}

impl Stores {
    /// Turn of a scope's audited changes. Scopes whose hashes agree share one.
    pub(crate) fn audit_gate(&self, scope: &Scope) -> &Mutex<()> {
        let mut hasher = DefaultHasher::new();
        scope.hash(&mut hasher);
        let gate = usize::try_from(hasher.finish() % GATES as u64).expect("it is less than the gates");
        &self.audit_gates()[gate]
    }
}
