//! The end of a scope, in steps.

use std::collections::BTreeMap;
use std::time::Duration;

use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};

use crate::backend::{BackendExt as _, Cursor};
use crate::model::codec;
use crate::model::digest::Digest;
use crate::model::error::{Error, Result};
use crate::model::key::{Key, Prefix};
use crate::model::kind::Kind;
use crate::model::scope::{Reach, Scope};
use crate::model::time::Timestamp;
use crate::stores::Stores;
use crate::stores::audit::{Action, AuditContext, Note};

/// For how long a deletion that was stopped is remembered.
const KEPT: Duration = Duration::from_secs(86_400);

/// The deletion of a scope, in steps of a bounded size. One that was stopped or failed is gone on with by another:
/// there is only less to delete.
#[derive(Debug)]
#[must_use = "nothing is deleted before the first step"]
pub struct Deletion {
    stores: Stores,
    reach: Reach,
    context: AuditContext,
    prefixes: Vec<Prefix>,
    /// One time for all steps, so that an engine knows that they are one deletion, and goes on with it.
    began_at: Timestamp,
    after: Option<Cursor>,
    removed: BTreeMap<Kind, u64>,
    done: (u32, u32),
    is_over: bool,
}

/// How far a deletion has come.
#[derive(Debug, Encode, Decode)]
struct Kept {
    #[n(0)]
    began_at: u64,
    #[n(1)]
    place: ByteVec,
    /// By the code of the kind.
    #[n(2)]
    removed: Vec<(u8, u64)>,
}

impl Deletion {
    pub(super) async fn begin(
        stores: &Stores,
        reach: &Reach,
        prefixes: Vec<Prefix>,
        context: &AuditContext,
    ) -> Result<Self> {
        let deletion = Self::new(stores, reach, prefixes, context);
        deletion.tell("begins").await?;
        Ok(deletion)
    }

    pub(super) async fn resume(
        stores: &Stores,
        reach: &Reach,
        prefixes: Vec<Prefix>,
        context: &AuditContext,
    ) -> Result<Option<Self>> {
        let mut deletion = Self::new(stores, reach, prefixes, context);
        let Some(kept) = stores.backend().get(&deletion.key()?, stores.now()).await? else { return Ok(None) };
        let kept: Kept = codec::decode(&kept.value)?;
        deletion.began_at = Timestamp::from_stored(kept.began_at)?;
        deletion.after = Some(Cursor::from_bytes(kept.place));
        for (code, removed) in kept.removed {
            let kind = Kind::from_code(code).ok_or_else(|| Error::corrupt("no kind has this code"))?;
            deletion.removed.insert(kind, removed);
        }
        deletion.tell(&format!("goes on, {} records so far", deletion.total())).await?;
        Ok(Some(deletion))
    }

    fn new(stores: &Stores, reach: &Reach, prefixes: Vec<Prefix>, context: &AuditContext) -> Self {
        Self {
            stores: stores.clone(),
            reach: reach.clone(),
            context: context.clone(),
            prefixes,
            began_at: stores.now(),
            after: None,
            removed: BTreeMap::new(),
            done: (0, 1),
            is_over: false,
        }
    }

    /// Deletes some more, and says whether there may be more. The last step tells the log how many there were.
    pub async fn step(&mut self) -> Result<bool> {
        if self.is_over {
            return Ok(false);
        }
        let step = self.stores.admin().clear(&self.prefixes, self.after.as_ref(), self.began_at).await?;
        for (kind, removed) in step.removed {
            *self.removed.entry(kind).or_default() += removed;
        }
        self.done = step.done;
        if let Some(place) = step.next {
            self.keep(&place).await?;
            self.after = Some(place);
        } else {
            self.tell(&format!("ended, {} records", self.total())).await?;
            let _ = self.stores.backend().delete(self.key()?, self.stores.now()).await?;
            self.is_over = true;
        }
        Ok(!self.is_over)
    }

    /// Deletes all that is left, and says how many there were, by kind.
    pub async fn finish(mut self) -> Result<BTreeMap<Kind, u64>> {
        while self.step().await? {}
        Ok(self.removed)
    }

    /// How many were deleted so far, by kind.
    #[must_use]
    pub fn removed(&self) -> &BTreeMap<Kind, u64> {
        &self.removed
    }

    /// So many parts of so many are done.
    #[must_use]
    pub fn done(&self) -> (u32, u32) {
        self.done
    }

    /// When it began: what was written later may be left.
    #[must_use]
    pub fn began_at(&self) -> Timestamp {
        self.began_at
    }

    fn total(&self) -> u64 {
        self.removed.values().sum()
    }

    /// Remembers how far it is, for whoever goes on with it.
    async fn keep(&self, place: &Cursor) -> Result<()> {
        let kept = Kept {
            began_at: self.began_at.as_millis(),
            place: place.as_bytes().to_vec().into(),
            removed: self.removed.iter().map(|(kind, removed)| (kind.code(), *removed)).collect(),
        };
        let now = self.stores.now();
        let record = self.stores.record(codec::encode(&kept), now.checked_add(KEPT)?);
        // A put has no condition that could be refused.
        let _ = self.stores.backend().put(self.key()?, record, now).await?;
        Ok(())
    }

    fn key(&self) -> Result<Key> {
        let (far, scope) = self.extent();
        let kinds: Vec<_> = self.prefixes.iter().map(|prefix| prefix.kind().code()).collect();
        let name = Digest::of("scope deletion", &[far.as_bytes(), scope.to_string().as_bytes(), &kinds]);
        Key::new(Kind::System, &Scope::Global, &["scope-deletion".into(), name.part()], &[])
    }

    fn extent(&self) -> (&'static str, &Scope) {
        match &self.reach {
            Reach::Exact(scope) => ("exactly", scope),
            Reach::Below(scope) => ("below", scope),
        }
    }

    async fn tell(&self, how: &str) -> Result<()> {
        let (far, scope) = self.extent();
        let detail = format!("{far} {scope}: {how}");
        let note = Note::of(Action::DeleteScope, &self.context)?.with_detail(detail);
        self.stores.audit(scope).append(&note).await
    }
}
