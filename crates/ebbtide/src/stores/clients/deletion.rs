//! Deletion of a client, with its grants and tokens.

use super::{Clients, StoredClient};
use crate::model::codec;
use crate::model::digest::Digest;
use crate::model::error::Result;
use crate::model::kind::Kind;
use crate::model::write::Write;
use crate::stores::audit::{AuditContext, Note};
use crate::stores::grants::Holder;
use crate::stores::shared::belongings::Parent;
use crate::stores::shared::deletion::{Deletion, DeletionTarget, Owned, Progress};
use crate::stores::shared::epochs::Epoch;
use crate::stores::shared::tombstones::Principal;
use crate::stores::shared::update::Step;

/// Deletion of a client. The tombstone is written before the first step: from then on neither the client nor anything
/// that was issued to it is honoured, and nothing new is issued to it.
pub type ClientDeletion = Deletion<ClientRecords>;

/// Grants, access tokens and the record of a client, in this order.
#[derive(Debug)]
pub struct ClientRecords {
    clients: Clients,
    client_id: String,
    context: AuditContext,
}

impl Clients {
    /// Begins to delete a client, with its grants and tokens. The tombstone and the audit entry are written when this
    /// returns. `None` if there is no such client; one whose deletion has begun exists until the deletion has ended.
    pub async fn delete(&self, client_id: &str, context: &AuditContext) -> Result<Option<ClientDeletion>> {
        let principal = Principal::Client(client_id);
        let tombstone = &principal.tombstone(&self.scope)?;
        let note = Note::revoked(context)?.about(Kind::Client, vec![client_id.to_owned()]);
        let note = &note.with_detail("begins");
        let begin = self.stores.retry(|now| async move {
            let begun = self.stores.backend().get(tombstone, now).await?;
            let begun = begun.as_ref().map(Epoch::read).transpose()?;
            if !begun.is_some_and(|begun| begun.deleting) && self.read(client_id, now).await?.is_none() {
                return Ok(Step::answer(None));
            }
            let (_, epoch, writes) = self.stores.raise(principal, &self.scope, Some(true), now).await?;
            Ok(Step::write(writes, Some(epoch)).audited(&self.scope, note.clone()))
        });
        let Some(epoch) = begin.await? else { return Ok(None) };
        self.stores.spread(client_id, &self.scope, epoch).await?;
        let (client_id, context) = (client_id.to_owned(), context.clone());
        Ok(Some(Deletion::new(ClientRecords { clients: self.clone(), client_id, context })))
    }

    /// Removes a bounded number of the records of an owner's clients. Each client is deleted as it would be alone.
    pub(super) async fn remove_clients(&self, owned: &Owned<'_>, progress: &mut Progress) -> Result<bool> {
        if let Some(client) = &mut progress.client {
            if !client.step().await? {
                progress.removed.add_all(client.removed());
                progress.client = None;
            }
            return Ok(true);
        }
        let (ids, more) = self.some_of(owned.owner).await?;
        if let Some(client_id) = ids.first() {
            progress.client = self.delete(client_id, owned.context).await?.map(Box::new);
        }
        Ok(more)
    }

    /// Ids of some of an owner's clients, whether or not they are being deleted. An index record whose client is absent
    /// is removed.
    async fn some_of(&self, owner: &str) -> Result<(Vec<String>, bool)> {
        let (digests, next) = self.digests(owner, None, super::PAGE).await?;
        let (mut ids, listed) = (Vec::new(), digests.len());
        for digest in digests {
            if let Some(client_id) = self.owned(owner, &digest).await? {
                ids.push(client_id);
            } else {
                let unlist = Write::Delete { key: self.index_key(owner, &digest)? };
                // A delete has no condition that could be refused.
                let _ = self.stores.backend().commit(unlist.try_into()?, self.stores.now()?).await?;
            }
        }
        Ok((ids, listed > 0 || next.is_some()))
    }

    async fn owned(&self, owner: &str, digest: &Digest) -> Result<Option<String>> {
        let record = self.stores.backend().get(&self.digest_key(digest)?, self.stores.now()?).await?;
        let stored: Option<StoredClient> = record.map(|record| codec::decode(&record.value)).transpose()?;
        let theirs = stored.filter(|stored| stored.owner.as_deref() == Some(owner));
        Ok(theirs.map(|stored| stored.client_id))
    }
}

impl DeletionTarget for ClientRecords {
    fn stages(&self) -> usize {
        3
    }

    async fn step(&mut self, stage: usize, progress: &mut Progress) -> Result<bool> {
        let Clients { stores, scope } = &self.clients;
        let holder = Holder::Client(&self.client_id);
        if stage == 2 {
            let parent = Parent::Client(self.client_id.clone());
            stores.belongings(scope).remove(&parent, &mut progress.removed).await?;
            self.end(progress).await?;
            return Ok(false);
        }
        if stage == 0 {
            let grants = stores.grants(scope);
            progress.after =
                grants.remove_page(holder, progress.after.as_ref(), &mut progress.removed).await?;
            return Ok(progress.after.is_some());
        }
        let page = stores.access_tokens(scope).revoke_page(holder, progress.after.as_ref()).await?;
        Ok(progress.add_page(Kind::AccessToken, page))
    }
}

impl ClientRecords {
    /// Removes the client with its index record, and gives its tombstone an end, in one commit. The deletion of its
    /// owner finds a client by the index, and nothing would remove a tombstone without an end.
    async fn end(&self, progress: &mut Progress) -> Result<()> {
        let (clients, client_id) = (&self.clients, &self.client_id);
        let Clients { stores, scope } = clients;
        let (key, digest) = &clients.key(client_id)?;
        let note = Note::revoked(&self.context)?.about(Kind::Client, vec![client_id.clone()]);
        let note = &note.with_detail(format!("ended, {} revoked", progress.removed.revoked));
        let end = stores.retry(|now| async move {
            let client = clients.read(client_id, now).await?;
            let principal = Principal::Client(client_id);
            let (_, epoch, mut writes) = stores.raise(principal, scope, Some(false), now).await?;
            writes.push(Write::Delete { key: key.clone() });
            if let Some(owner) = client.as_ref().and_then(|(_, stored, _)| stored.owner.as_deref()) {
                writes.push(Write::Delete { key: clients.index_key(owner, digest)? });
            }
            Ok(Step::write(writes, (client.is_some(), epoch)).audited(scope, note.clone()))
        });
        let (was_there, epoch) = end.await?;
        progress.removed.add(Kind::Client, u64::from(was_there));
        stores.spread(client_id, scope, epoch).await
    }
}
