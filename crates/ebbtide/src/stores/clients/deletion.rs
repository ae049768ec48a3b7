//! The end of a client: refused from the first step on, whatever happens to the others.

use super::{Clients, StoredClient};
use crate::backend::Cursor;
use crate::model::codec;
use crate::model::digest::Digest;
use crate::model::error::Result;
use crate::model::kind::Kind;
use crate::model::write::Write;
use crate::stores::audit::{AuditContext, Note};
use crate::stores::grants::Holder;
use crate::stores::owners::Removed;
use crate::stores::shared::tombstones::Principal;

/// The deletion of a client, in steps of a bounded size. Its tombstone stands before the first: from then on neither
/// the client nor anything that it was given is honoured, and nothing new is given to it. One that was stopped or
/// failed is gone on with by another: there is only less to delete.
#[derive(Debug)]
#[must_use = "nothing but the tombstone is written before the first step"]
pub struct ClientDeletion {
    clients: Clients,
    client_id: String,
    context: AuditContext,
    stage: Stage,
    after: Option<Cursor>,
    removed: Removed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Grants,
    AccessTokens,
    Record,
    Done,
}

impl Clients {
    /// Begins to delete a client, with its grants and tokens, and tells the audit log. None if there is no such
    /// client; one whose deletion was begun before is there until it has ended.
    pub async fn delete(&self, client_id: &str, context: &AuditContext) -> Result<Option<ClientDeletion>> {
        let tombstone = Principal::Client(client_id).tombstone(&self.scope)?;
        let note = Note::revoked(context)?.about(Kind::Client, vec![client_id.to_owned()]);
        let audit = self.stores.audit(&self.scope);
        let mut changes = audit.changes().await;
        loop {
            let now = changes.attempt()?;
            let begun = self.stores.backend().get(&tombstone, now).await?;
            if !begun.is_some_and(|begun| begun.expires_at.is_never())
                && self.read(client_id, now).await?.is_none()
            {
                return Ok(None);
            }
            let put = Write::Put { key: tombstone.clone(), record: self.stores.standing_tombstone() };
            if changes.commit(vec![put], &note.clone().with_detail("begins"), now).await? {
                break;
            }
        }
        Ok(Some(ClientDeletion {
            clients: self.clone(),
            client_id: client_id.to_owned(),
            context: context.clone(),
            stage: Stage::Grants,
            after: None,
            removed: Removed::default(),
        }))
    }

    /// The ids of some of an owner's clients, whoever is being deleted. An index that leads nowhere is removed.
    pub(in crate::stores) async fn some_of(&self, owner: &str) -> Result<(Vec<String>, bool)> {
        let (digests, next) = self.digests(owner, None, super::PAGE).await?;
        let (mut ids, listed) = (Vec::new(), digests.len());
        for digest in digests {
            if let Some(client_id) = self.owned(owner, &digest).await? {
                ids.push(client_id);
            } else {
                let unlist = Write::Delete { key: self.index_key(owner, &digest)? };
                // A delete has no condition that could be refused.
                let _ = self.stores.backend().commit(unlist.try_into()?, self.stores.now()).await?;
            }
        }
        Ok((ids, listed > 0 || next.is_some()))
    }

    async fn owned(&self, owner: &str, digest: &Digest) -> Result<Option<String>> {
        let record = self.stores.backend().get(&self.digest_key(digest)?, self.stores.now()).await?;
        let stored: Option<StoredClient> = record.map(|record| codec::decode(&record.value)).transpose()?;
        let theirs = stored.filter(|stored| stored.owner.as_deref() == Some(owner));
        Ok(theirs.map(|stored| stored.client_id))
    }
}

impl ClientDeletion {
    /// Deletes some more, and says whether there may be more.
    pub async fn step(&mut self) -> Result<bool> {
        let Clients { stores, scope } = &self.clients;
        let holder = Holder::Client(&self.client_id);
        let next = match self.stage {
            Stage::Grants => {
                stores.grants(scope).remove_page(holder, self.after.as_ref(), &mut self.removed).await?
            }
            Stage::AccessTokens => {
                let (revoked, next) =
                    stores.access_tokens(scope).revoke_page(holder, self.after.as_ref()).await?;
                self.removed.revoked += revoked;
                self.removed.add(Kind::AccessToken, revoked);
                next
            }
            Stage::Record => {
                self.remove_record().await?;
                None
            }
            Stage::Done => None,
        };
        self.after = next;
        if self.after.is_none() {
            self.stage = match self.stage {
                Stage::Grants => Stage::AccessTokens,
                Stage::AccessTokens => Stage::Record,
                Stage::Record | Stage::Done => Stage::Done,
            };
        }
        Ok(self.stage != Stage::Done)
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

    /// The client and its index go, and its tombstone gets an end, in one commit: there is no client without an index
    /// that its owner's deletion would find it by, and no tombstone without an end that nobody would come back to.
    async fn remove_record(&mut self) -> Result<()> {
        let Clients { stores, scope } = &self.clients;
        let (key, digest) = self.clients.key(&self.client_id)?;
        let tombstone = Principal::Client(&self.client_id).tombstone(scope)?;
        let note = Note::revoked(&self.context)?.about(Kind::Client, vec![self.client_id.clone()]);
        let note = note.with_detail(format!("ended, {} revoked", self.removed.revoked));
        let audit = stores.audit(scope);
        let mut changes = audit.changes().await;
        loop {
            let now = changes.attempt()?;
            let standing = self.clients.read(&self.client_id, now).await?;
            let record = stores.resting_tombstone(now)?;
            let mut writes =
                vec![Write::Put { key: tombstone.clone(), record }, Write::Delete { key: key.clone() }];
            if let Some(owner) = standing.as_ref().and_then(|(_, stored, _)| stored.owner.as_deref()) {
                writes.push(Write::Delete { key: self.clients.index_key(owner, &digest)? });
            }
            if changes.commit(writes, &note, now).await? {
                self.removed.add(Kind::Client, u64::from(standing.is_some()));
                return Ok(());
            }
        }
    }
}
