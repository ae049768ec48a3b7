//! Owners, and their end: everything of one, over all stores of a scope.
//!
//! An owner is a subject, an identity, whoever has attributes, sessions, grants, approvals, relationships or clients.
//! A tombstone comes first. From then on nothing of theirs is honoured and nothing new is written for them; the rest
//! is removed in steps, and one deletion goes on where another has stopped.

use std::collections::BTreeMap;

use super::clients::ClientDeletion;
use super::grants::{Holder, MAX_NAME_BYTES};
use super::shared::tombstones::Principal;
use super::{Stores, check_length};
use crate::admin::Erased;
use crate::backend::Cursor;
use crate::model::error::{ErrorKind, Result};
use crate::model::key::Prefix;
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::scope::Scope;
use crate::model::write::Write;
use crate::stores::audit::{Action, AuditContext, Note};

/// The owners of one scope.
#[derive(Debug, Clone)]
pub struct Owners {
    stores: Stores,
    scope: Scope,
}

/// What a deletion has removed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Removed {
    /// How many grants, tokens and sessions could have been used until then.
    pub revoked: u64,
    /// How many records went, by kind; kinds of which none did are left out. Index records are not counted.
    pub records: BTreeMap<Kind, u64>,
}

impl Removed {
    pub(super) fn add(&mut self, kind: Kind, removed: u64) {
        if removed > 0 {
            *self.records.entry(kind).or_default() += removed;
        }
    }

    fn take_over(&mut self, other: &Self) {
        self.revoked += other.revoked;
        for (&kind, &removed) in &other.records {
            self.add(kind, removed);
        }
    }

    /// How many records went in all.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.records.values().sum()
    }
}

/// What gives access goes before what only leads to it.
const STAGES: [Stage; 9] = [
    Stage::Grants,
    Stage::AccessTokens,
    Stage::Sessions,
    Stage::Approvals,
    Stage::Relationships(Kind::Relationship),
    Stage::Relationships(Kind::RelationshipReverse),
    Stage::Clients,
    Stage::Attributes,
    Stage::End,
];

#[derive(Debug, Clone, Copy)]
enum Stage {
    Grants,
    AccessTokens,
    Sessions,
    Approvals,
    Relationships(Kind),
    Clients,
    Attributes,
    End,
}

impl Owners {
    pub(super) fn new(stores: Stores, scope: Scope) -> Self {
        Self { stores, scope }
    }

    /// Whether nothing is written for that owner and nothing of theirs is honoured: they are being deleted, or their
    /// deletion has stopped half-way.
    pub async fn is_being_deleted(&self, owner: &str) -> Result<bool> {
        self.stores.is_deleted(&self.scope, &[Principal::Owner(owner)], self.stores.now()).await
    }

    /// Begins to delete an owner with all that is theirs in exactly this scope, and tells the audit log: the tombstone
    /// stands when this is answered. An owner of whom there is nothing is deleted like any other.
    pub async fn delete(&self, owner: &str, context: &AuditContext) -> Result<OwnerDeletion> {
        check_length("owner", owner, MAX_NAME_BYTES)?;
        let deletion = OwnerDeletion {
            stores: self.stores.clone(),
            scope: self.scope.clone(),
            owner: owner.to_owned(),
            context: context.clone(),
            stages: &STAGES,
            after: None,
            client: None,
            removed: Removed::default(),
        };
        deletion.bury("begins".to_owned(), |stores, _| Ok(stores.standing_tombstone())).await?;
        Ok(deletion)
    }
}

/// The deletion of an owner, in steps of a bounded size. One that was stopped or failed is gone on with by another:
/// there is only less to delete, and until one has ended the tombstone stands.
#[derive(Debug)]
#[must_use = "nothing but the tombstone is written before the first step"]
pub struct OwnerDeletion {
    stores: Stores,
    scope: Scope,
    owner: String,
    context: AuditContext,
    stages: &'static [Stage],
    after: Option<Cursor>,
    client: Option<Box<ClientDeletion>>,
    removed: Removed,
}

impl OwnerDeletion {
    /// Deletes some more, and says whether there may be more. The last step tells the log how many there were.
    pub async fn step(&mut self) -> Result<bool> {
        let Some((&stage, rest)) = self.stages.split_first() else { return Ok(false) };
        let more = match stage {
            Stage::Grants => {
                let (grants, holder) = (self.stores.grants(&self.scope), Holder::Subject(&self.owner));
                self.after = grants.remove_page(holder, self.after.as_ref(), &mut self.removed).await?;
                self.after.is_some()
            }
            Stage::AccessTokens => {
                let (tokens, holder) = (self.stores.access_tokens(&self.scope), Holder::Subject(&self.owner));
                let page = tokens.revoke_page(holder, self.after.as_ref()).await?;
                self.note_page(Kind::AccessToken, page)
            }
            Stage::Sessions => {
                let sessions = self.stores.sessions(&self.scope);
                let page = sessions.revoke_page(&self.owner, self.after.as_ref()).await?;
                self.note_page(Kind::Session, page)
            }
            Stage::Approvals => self.erase(Kind::Approval).await?,
            Stage::Relationships(end) => {
                let relationships = self.stores.relationships(&self.scope);
                let erased = match self.prefix(end)? {
                    Some(prefix) => relationships.erase_both_ends(&prefix).await?,
                    None => Erased { removed: 0, more: false },
                };
                self.removed.add(Kind::Relationship, erased.removed);
                erased.more
            }
            Stage::Clients => self.delete_clients().await?,
            Stage::Attributes => self.erase(Kind::Attribute).await?,
            Stage::End => {
                let how = format!("ended, {} records", self.removed.total());
                self.bury(how, Stores::resting_tombstone).await?;
                false
            }
        };
        if !more {
            self.stages = rest;
        }
        Ok(!self.stages.is_empty())
    }

    /// Deletes all that is left, and says how many there were.
    pub async fn finish(mut self) -> Result<Removed> {
        while self.step().await? {}
        Ok(self.removed)
    }

    /// What was deleted so far.
    #[must_use]
    pub fn removed(&self) -> &Removed {
        &self.removed
    }

    /// How many stages are still to be gone through, of [`OwnerDeletion::STAGES`].
    #[must_use]
    pub fn stages_left(&self) -> usize {
        self.stages.len()
    }

    /// How many stages there are.
    pub const STAGES: usize = STAGES.len();

    fn note_page(&mut self, kind: Kind, (revoked, next): (u64, Option<Cursor>)) -> bool {
        self.removed.revoked += revoked;
        self.removed.add(kind, revoked);
        self.after = next;
        self.after.is_some()
    }

    async fn erase(&mut self, kind: Kind) -> Result<bool> {
        let Some(prefix) = self.prefix(kind)? else { return Ok(false) };
        let erased = self.stores.admin().erase(&prefix, self.stores.now()).await?;
        self.removed.add(kind, erased.removed);
        Ok(erased.more)
    }

    /// One step of one client; each of them is deleted as it would be alone.
    async fn delete_clients(&mut self) -> Result<bool> {
        if let Some(client) = &mut self.client {
            if !client.step().await? {
                self.removed.take_over(client.removed());
                self.client = None;
            }
            return Ok(true);
        }
        let clients = self.stores.clients(&self.scope);
        let (ids, more) = clients.some_of(&self.owner).await?;
        if let Some(client_id) = ids.first() {
            self.client = clients.delete(client_id, &self.context).await?.map(Box::new);
        }
        Ok(more)
    }

    /// The records whose partition is the owner's name; none where no key can have such a name.
    fn prefix(&self, kind: Kind) -> Result<Option<Prefix>> {
        match Prefix::partition(kind, &self.scope, &[self.owner.as_str().into()], &[]) {
            Ok(prefix) => Ok(Some(prefix)),
            Err(error) if error.kind() == ErrorKind::Invalid => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes the tombstone, and tells the log, in one commit.
    async fn bury(
        &self,
        how: String,
        tombstone: impl Fn(&Stores, crate::model::time::Timestamp) -> Result<Record>,
    ) -> Result<()> {
        let key = Principal::Owner(&self.owner).tombstone(&self.scope)?;
        let note = Note::of(Action::DeleteOwner, &self.context)?;
        let note = note.about(Kind::Owner, vec![self.owner.clone()]).with_detail(how);
        let audit = self.stores.audit(&self.scope);
        let mut changes = audit.changes().await;
        loop {
            let now = changes.attempt()?;
            let put = Write::Put { key: key.clone(), record: tombstone(&self.stores, now)? };
            if changes.commit(vec![put], &note, now).await? {
                return Ok(());
            }
        }
    }
}
