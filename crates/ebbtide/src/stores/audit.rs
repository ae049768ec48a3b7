//! Audit log of each scope: actor and reason of every privileged change, chained by hash and authenticated by the keyring.
//!
//! An entry is written in the same commit as the change. It has the id of the key that was authenticated, and the
//! name that the caller claims to act for. Each process appends to chains of its own: each entry carries the hash of
//! the one before it and a tag made with the keyring, and a head has the last number and hash. A checkpoint of each
//! process, kept in another table, has the ends of its chains; the first one is in the commit that opens a chain. So
//! [`Audit::verify`] detects an entry that was changed, removed or inserted, a log that was cut at its end, and one that
//! was emptied. An attacker who restores log, heads and checkpoints from a copy, or removes a chain with its head and
//! its checkpoints, is detected with a [`Mark`] that is kept elsewhere: the server logs them.
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
//! let told: Vec<_> = entries.iter().map(|entry| (entry.action, entry.actor.as_str())).collect();
//! assert_eq!(told, [(Action::Grant, "admin"), (Action::Revoke, "bob")]);
//! assert!(matches!(audit.verify(None).await?, AuditOutcome::Intact { entries: 2, .. }));
//! # Ok(())
//! # }
//! ```

mod author;
mod chain;
mod checkpoint;
mod entry;
mod filter;
mod legacy;
mod mark;
mod verify;

use std::convert::Infallible;
use std::future::ready;

pub use author::Author;
pub use chain::ChainId;
pub use checkpoint::AuditCheckpoint;
pub use entry::{Action, AuditContext, AuditEntry, Note};
pub use filter::AuditFilter;
pub use mark::{ChainMark, Mark};
pub use verify::{AuditOutcome, Break};

pub(crate) use chain::Chains;
use chain::{Chain, Link};
pub(crate) use entry::check_text;

use crate::backend::Cursor;
use crate::model::codec;
use crate::model::error::{Error, Result};
use crate::model::key::{Key, Part, Prefix};
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::scope::Scope;
use crate::model::ttl::Ttl;
use crate::model::write::Write;
use crate::stores::Stores;
use crate::stores::registry::Store;
use crate::stores::shared::paging::{Listing, Pages, check_limit};
use crate::stores::shared::tombstones::{Outcome, Principal};
use crate::stores::shared::update::Step;
use crate::timekeeping::Now;

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
    pub async fn list(&self, after: Option<&Cursor>, limit: usize) -> Result<Listing<AuditEntry>> {
        check_limit(limit)?;
        let page = self.stores.backend().scan(&self.log()?, after, limit, self.stores.now()?).await?;
        Listing::read(page, |key, record| AuditEntry::read(&key, &record))
    }

    /// Lists the entries that `filter` selects, oldest first. A page may have fewer than `limit`, even none, and still
    /// have a next one.
    pub async fn search(
        &self,
        filter: &AuditFilter,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Listing<AuditEntry>> {
        let mut page = self.list(after, limit).await?;
        page.items.retain(|entry| filter.selects(entry));
        Ok(page)
    }

    /// Entries about one record, oldest first. It reads the whole log.
    pub(crate) async fn about(&self, kind: Kind, target: &[String]) -> Result<Vec<AuditEntry>> {
        let (log, mut entries) = (self.log()?, Vec::new());
        let mut pages = Pages::new(&self.stores, &log, PAGE);
        while let Some(items) = pages.next().await? {
            for (key, record) in &items {
                let entry = AuditEntry::read(key, record)?;
                entries
                    .extend(Some(entry).filter(|entry| entry.kind == Some(kind) && entry.target == target));
            }
        }
        Ok(entries)
    }

    /// Returns the ends of the chains, to keep elsewhere for a later [`verify`](Self::verify). None before the first
    /// entry.
    pub async fn mark(&self) -> Result<Option<Mark>> {
        let now = self.stores.now()?;
        let mut marks: Vec<_> =
            self.legacy_head(now).await?.map(|(head, _)| head.mark(None)).into_iter().collect();
        let heads = self.heads(now).await?.unwrap_or_default();
        marks.extend(heads.iter().map(|(id, head)| head.mark(Some(*id))));
        marks.sort_by_key(|mark| mark.chain);
        Ok((!marks.is_empty()).then_some(Mark(marks)))
    }

    /// Appends an entry without a change.
    pub async fn append(&self, note: &Note) -> Result<()> {
        self.stores.retry(|_| ready(Ok(Step::answer(()).audited(&self.scope, note.clone())))).await
    }

    /// Takes a chain, and returns the writes that append `note` to it: the entry, the head in place of the one before,
    /// and a checkpoint with the first entry of a chain. So a process that never writes another one, such as a command
    /// or a function that is frozen, leaves no chain that can be deleted unnoticed. `Invalid` if the store was opened
    /// without its keyring: the entry would break the log for every other process.
    pub(crate) fn append_to(&self, note: &Note, now: Now) -> Result<(Pending, Vec<Write>)> {
        self.stores.require_keyring()?;
        let chain = self.stores.chains().take(&self.scope, self.stores.rng());
        let retention = self.retention()?;
        // No entry expires before its predecessor, so the entries that are kept are always the end of the chain.
        let expires_at = now.end(retention)?.max(chain.head.expires_at()?);
        let keyring = self.stores.keyring();
        // The log is ordered by time, and a chain by its numbers: no entry is earlier than its predecessor.
        let at = now.latest().max(chain.at);
        let link = Link::new(&self.scope, &chain, note, at, expires_at, &keyring)?;
        let sort = [at.as_millis().into(), chain.id.as_bytes().into(), link.sequence.into()];
        let entry = Write::Insert {
            key: Key::new(Kind::Audit, &self.scope, &["log".into()], &sort)?,
            record: self.stores.record(codec::encode(&link), expires_at),
        };
        let next = link.head(expires_at);
        let record = self.stores.record(next.signed(&self.scope, chain.id, &keyring)?, expires_at);
        let key = Key::new(Kind::Audit, &self.scope, &["heads".into()], &[chain.id.as_bytes().into()])?;
        let after = Chain { id: chain.id, head: next, version: Some(record.version), at };
        let writes = if let Some(expected) = chain.version {
            vec![entry, Write::Replace { key, expected, record }]
        } else {
            let first = self.first_checkpoint(&after.head.mark(Some(chain.id)), expires_at, &keyring)?;
            vec![entry, Write::Insert { key, record }, first]
        };
        Ok((Pending { scope: self.scope.clone(), before: chain, after }, writes))
    }

    /// Time for which a new entry is kept.
    pub(crate) fn retention(&self) -> Result<Ttl> {
        let default = Ttl::from_secs(Self::DEFAULT_RETENTION_SECONDS)?;
        self.stores.ttl(Kind::Audit, &self.scope, None, default)
    }

    fn log(&self) -> Result<Prefix> {
        Prefix::partition(Kind::Audit, &self.scope, &["log".into()], &[])
    }
}

impl Stores {
    /// Commits `writes` and `note` if none of `whom` is being deleted, in one step.
    pub(crate) async fn commit_audited(
        &self,
        scope: &Scope,
        whom: &[Principal<'_>],
        writes: Vec<Write>,
        note: &Note,
        now: Now,
    ) -> Result<Outcome> {
        let own = writes.len();
        loop {
            let (pending, entry) = self.audit(scope).append_to(note, now)?;
            let all = writes.iter().cloned().chain(entry).collect();
            let outcome = self.commit_for(scope, whom, all, now).await?;
            match outcome {
                Outcome::Applied => pending.applied(self),
                Outcome::Refused { index } if index >= own => {
                    // Another chain is taken: this one is used no more.
                    pending.lost(self);
                    continue;
                }
                Outcome::Refused { .. } | Outcome::OwnerDeleted => pending.refused(self),
            }
            return Ok(outcome);
        }
    }
}

/// Stored value of an entry, a head or a checkpoint under the active key of the keyring; none if it is already, or if
/// it is none of these. Hashes stay as they are, and so do marks that are kept elsewhere.
pub(crate) fn resealed(stores: &Stores, key: &Key, record: &Record) -> Result<Option<Vec<u8>>> {
    let keyring = stores.keyring();
    let partition = key.partition();
    let [Part::Text(partition)] = partition.as_slice() else { return Ok(None) };
    match (key.kind(), partition.as_ref()) {
        (Kind::Audit, "log") => match entry::EntryPosition::of(key)? {
            entry::EntryPosition::Chain { chain, .. } => {
                let mut link: Link = codec::decode(&record.value)?;
                if *link.key == *keyring.active().as_bytes() {
                    return Ok(None);
                }
                if !link.is_genuine(&key.scope(), chain, record.expires_at, &keyring) {
                    return Err(Error::corrupt(
                        "an entry of the audit log is not genuine; run `audit verify`",
                    ));
                }
                link.sign(&keyring)?;
                Ok(Some(codec::encode(&link)))
            }
            entry::EntryPosition::Legacy { .. } => Ok(None),
        },
        (Kind::Audit, "heads") => {
            let sort = key.sort();
            let [Part::Bytes(id)] = sort.as_slice() else { return Ok(None) };
            chain::Head::resealed(record, &key.scope(), ChainId::from_bytes(id)?, &keyring)
        }
        (Kind::System, checkpoint::PARTITION) => checkpoint::resealed(key, &record.value, &keyring),
        _ => Ok(None),
    }
}

/// Chain whose next entry is being committed. Dropped after an error, it is not used again: its entry may have been
/// written.
pub(crate) struct Pending {
    scope: Scope,
    before: Chain,
    after: Chain,
}

impl Pending {
    /// The commit was applied.
    pub(crate) fn applied(self, stores: &Stores) {
        stores.chains().appended(&self.scope, self.after);
    }

    /// The commit was refused for another reason than the chain.
    pub(crate) fn refused(self, stores: &Stores) {
        stores.chains().unused(&self.scope, self.before);
    }

    /// The chain is not as this process left it.
    pub(crate) fn lost(&self, stores: &Stores) {
        stores.chains().forget(&self.scope, &self.before);
    }
}
