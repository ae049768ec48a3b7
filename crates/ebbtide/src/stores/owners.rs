//! Deletion of owners, over all stores of a scope.
//!
//! An owner is a subject, an identity, or anyone who has attributes, sessions, grants, approvals, relationships or
//! clients. The tombstone is written first. From then on the owner's records are not honoured and no new ones are
//! accepted; those that exist are removed in steps.
//!
//! ```
//! use ebbtide::stores::audit::AuditContext;
//! use ebbtide::{Ebbtide, Kind};
//! use serde_json::json;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> ebbtide::Result<()> {
//! let acme = Ebbtide::in_memory().scope("tenant:acme")?;
//! let preferences = acme.attributes().bucket("alice", "preferences")?;
//! preferences.set("theme", json!("dark")).await?;
//!
//! let context = AuditContext::new("admin", "she closed her account")?;
//! let removed = acme.owners().delete("alice", &context).await?.finish().await?;
//! assert_eq!(removed.records[&Kind::Attribute], 1);
//! # Ok(())
//! # }
//! ```

mod sign_out;

use std::convert::Infallible;

use super::grants::MAX_NAME_BYTES;
use super::registry::{STORES, Store, remove_owned};
use super::shared::belongings::Parent;
use super::shared::deletion::{Deletion, DeletionTarget, Owned, Progress};
use super::shared::tombstones::Principal;
use super::shared::update::Step;
use super::{Stores, check_length};
use crate::model::error::Result;
use crate::model::kind::Kind;
use crate::model::scope::Scope;
use crate::stores::audit::{Action, AuditContext, Note};

pub use super::shared::deletion::Removed;
pub(in crate::stores) use sign_out::LAST_RAISES;
pub use sign_out::{Overview, SignedOut};

/// Owners of one scope.
#[derive(Debug, Clone)]
pub struct Owners {
    stores: Stores,
    scope: Scope,
}

impl Store for Owners {
    const KINDS: &'static [Kind] = &[Kind::Owner];
    type Question = Infallible;
}

impl Owners {
    pub(super) fn new(stores: Stores, scope: Scope) -> Self {
        Self { stores, scope }
    }

    /// Returns whether the owner is being deleted, or a deletion of them stopped before its end.
    pub async fn is_being_deleted(&self, owner: &str) -> Result<bool> {
        self.stores.is_deleted(&self.scope, &[Principal::Owner(owner)], self.stores.now()?).await
    }

    /// Begins to delete an owner with all their records in exactly this scope. The tombstone and the audit entry are
    /// written when this returns. An owner without records is deleted like any other.
    pub async fn delete(&self, owner: &str, context: &AuditContext) -> Result<OwnerDeletion> {
        check_length("owner", owner, MAX_NAME_BYTES)?;
        let Self { stores, scope } = self.clone();
        let records = OwnedRecords { stores, scope, owner: owner.to_owned(), context: context.clone() };
        records.mark(true, "begins".to_owned()).await?;
        Ok(Deletion::new(records))
    }
}

/// Deletion of an owner.
pub type OwnerDeletion = Deletion<OwnedRecords>;

/// Records of an owner: a stage for each store, and the end.
#[derive(Debug)]
pub struct OwnedRecords {
    stores: Stores,
    scope: Scope,
    owner: String,
    context: AuditContext,
}

impl OwnedRecords {
    /// Raises the epoch, with or without the tombstone, and writes the audit entry, in one commit.
    async fn mark(&self, deleting: bool, detail: String) -> Result<()> {
        let note = Note::of(Action::DeleteOwner, &self.context)?;
        let note = &note.about(Kind::Owner, vec![self.owner.clone()]).with_detail(detail);
        let owner = Principal::Owner(&self.owner);
        let update = self.stores.retry(|now| async move {
            let (_, _, writes) = self.stores.raise(owner, &self.scope, Some(deleting), now).await?;
            Ok(Step::write(writes, ()).audited(&self.scope, note.clone()))
        });
        update.await
    }
}

impl DeletionTarget for OwnedRecords {
    fn stages(&self) -> usize {
        STORES + 1
    }

    async fn step(&mut self, stage: usize, progress: &mut Progress) -> Result<bool> {
        if stage == STORES {
            let parent = Parent::Owner(self.owner.clone());
            self.stores.belongings(&self.scope).remove(&parent, &mut progress.removed).await?;
            self.mark(false, format!("ended, {} records", progress.removed.total())).await?;
            return Ok(false);
        }
        let owner =
            Owned { stores: &self.stores, scope: &self.scope, owner: &self.owner, context: &self.context };
        remove_owned(stage, &owner, progress).await
    }
}
