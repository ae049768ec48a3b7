//! Deletion of a scope.

use std::time::Duration;

use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};

use crate::backend::Cursor;
use crate::model::codec;
use crate::model::digest::Digest;
use crate::model::error::{Error, Result};
use crate::model::key::{Key, Prefix};
use crate::model::kind::Kind;
use crate::model::scope::{Reach, Scope};
use crate::model::time::Timestamp;
use crate::stores::Stores;
use crate::stores::api_keys::ApiKeys;
use crate::stores::audit::{Action, AuditContext, Note};
use crate::stores::scopes::Scopes;
use crate::stores::shared::deletion::{Deletion, DeletionTarget, Progress, Removed};

/// Time for which the position of a stopped deletion is kept.
const KEPT: Duration = Duration::from_secs(86_400);

/// Deletion of a scope.
pub type ScopeDeletion = Deletion<ScopeRecords>;

/// Records of a scope, in one stage.
#[derive(Debug)]
pub struct ScopeRecords {
    stores: Stores,
    reach: Reach,
    context: AuditContext,
    prefixes: Vec<Prefix>,
    /// False until the API keys of the scope are gone. They go before everything else, and again in their turn: one that
    /// was created meanwhile goes too.
    keys_gone: bool,
    /// One time for all steps, by which an engine recognizes them as one deletion.
    began_at: Timestamp,
}

/// Position of a deletion, as it is stored.
#[derive(Debug, Encode, Decode)]
struct StoredProgress {
    #[n(0)]
    began_at: u64,
    #[n(1)]
    place: ByteVec,
    /// By the code of the kind.
    #[n(2)]
    removed: Vec<(u8, u64)>,
}

impl ScopeDeletion {
    pub(super) async fn begin(
        stores: &Stores,
        reach: &Reach,
        prefixes: Vec<Prefix>,
        context: &AuditContext,
    ) -> Result<Self> {
        let deletion = Deletion::new(ScopeRecords::new(stores, reach, prefixes, context)?);
        deletion.target.append("begins").await?;
        Ok(deletion)
    }

    pub(super) async fn resume(
        stores: &Stores,
        reach: &Reach,
        prefixes: Vec<Prefix>,
        context: &AuditContext,
    ) -> Result<Option<Self>> {
        let mut deletion = Deletion::new(ScopeRecords::new(stores, reach, prefixes, context)?);
        let stored = stores.backend().get(&deletion.target.key()?, stores.now()?).await?;
        let Some(stored) = stored else { return Ok(None) };
        let stored: StoredProgress = codec::decode(&stored.value)?;
        deletion.target.began_at = Timestamp::from_stored(stored.began_at)?;
        deletion.progress.after = Some(Cursor::from_bytes(stored.place));
        for (code, removed) in stored.removed {
            let kind = Kind::from_code(code).ok_or_else(|| Error::corrupt("no kind has this code"))?;
            deletion.progress.removed.add(kind, removed);
        }
        let total = deletion.removed().total();
        deletion.target.append(&format!("goes on, {total} records so far")).await?;
        Ok(Some(deletion))
    }

    /// Time at which it began. A record that was written later may be left.
    #[must_use]
    pub fn began_at(&self) -> Timestamp {
        self.target.began_at
    }
}

impl DeletionTarget for ScopeRecords {
    fn stages(&self) -> usize {
        1
    }

    async fn step(&mut self, _: usize, progress: &mut Progress) -> Result<bool> {
        let admin = self.stores.admin();
        if !self.keys_gone {
            let erased = admin.erase(&self.api_keys()?, self.began_at).await?;
            progress.removed.add(Kind::ApiKey, erased.removed);
            self.keys_gone = !erased.more;
            return Ok(true);
        }
        let step = admin.clear(&self.prefixes, progress.after.as_ref(), self.began_at).await?;
        for (kind, removed) in step.removed {
            progress.removed.add(kind, removed);
        }
        progress.parts = Some(step.done);
        if let Some(place) = step.next {
            self.keep(&place, &progress.removed).await?;
            progress.after = Some(place);
            return Ok(true);
        }
        if self.is_whole() {
            let removed = self.stores.policies(self.reach.scope()).forget(&self.reach).await?;
            progress.removed.add(Kind::Policy, removed);
        }
        self.append(&format!("ended, {} records", progress.removed.total())).await?;
        let _ = self.stores.backend().delete(self.key()?, self.stores.now()?).await?;
        Ok(false)
    }
}

impl ScopeRecords {
    fn new(stores: &Stores, reach: &Reach, prefixes: Vec<Prefix>, context: &AuditContext) -> Result<Self> {
        let (stores, reach, context) = (stores.clone(), reach.clone(), context.clone());
        // The earlier end: nothing that may be live is left.
        let began_at = stores.now()?.earliest();
        let keys_gone = !prefixes.iter().any(|prefix| prefix.kind() == Kind::ApiKey);
        Ok(Self { stores, reach, context, prefixes, keys_gone, began_at })
    }

    /// API keys of the scope. Those of exactly one scope are in one partition, which every engine finds.
    fn api_keys(&self) -> Result<Prefix> {
        match &self.reach {
            Reach::Exact(scope) => ApiKeys::partition(scope),
            Reach::Below(_) => Prefix::reach(Kind::ApiKey, &self.reach),
        }
    }

    /// Names in the audit log, by which a restored store repeats the deletion: the extent, the scope, and the kinds
    /// unless it is everything.
    fn names(&self) -> Vec<String> {
        let (extent, scope) = self.extent();
        let mut names = vec![extent.to_owned(), scope.to_string()];
        if !self.is_whole() {
            names.extend(self.prefixes.iter().map(|prefix| prefix.kind().name().to_owned()));
        }
        names
    }

    fn is_whole(&self) -> bool {
        self.prefixes.len() == Scopes::deletable().count()
    }

    /// Stores the position for a process that resumes the deletion.
    async fn keep(&self, place: &Cursor, removed: &Removed) -> Result<()> {
        let stored = StoredProgress {
            began_at: self.began_at.as_millis(),
            place: place.as_bytes().to_vec().into(),
            removed: removed.records.iter().map(|(kind, removed)| (kind.code(), *removed)).collect(),
        };
        let now = self.stores.now()?;
        let record = self.stores.record(codec::encode(&stored), now.end_after(KEPT)?);
        // A put has no condition that could be refused.
        let _ = self.stores.backend().put(self.key()?, record, now).await?;
        Ok(())
    }

    fn key(&self) -> Result<Key> {
        let (extent, scope) = self.extent();
        let kinds: Vec<_> = self.prefixes.iter().map(|prefix| prefix.kind().code()).collect();
        let name = Digest::of("scope deletion", &[extent.as_bytes(), scope.to_string().as_bytes(), &kinds]);
        Key::new(Kind::System, &Scope::Global, &["scope-deletion".into(), name.part()], &[])
    }

    fn extent(&self) -> (&'static str, &Scope) {
        match &self.reach {
            Reach::Exact(scope) => ("exactly", scope),
            Reach::Below(scope) => ("below", scope),
        }
    }

    /// Appends an entry to the audit log of the scope.
    async fn append(&self, detail: &str) -> Result<()> {
        let (extent, scope) = self.extent();
        let note = Note::of(Action::DeleteScope, &self.context)?;
        let note = note.with_target(self.names()).with_detail(format!("{extent} {scope}: {detail}"));
        self.stores.audit(scope).append(&note).await
    }
}
