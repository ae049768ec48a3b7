//! Records that an owner or a client has by themselves, without a link: they are removed with them.

use super::belongings::{Belonging, Belongings, Parent, names};
use super::paging::Pages;
use crate::model::error::Result;
use crate::model::key::{Key, Prefix};
use crate::model::kind::Kind;
use crate::stores::grants::{Holder, PAGE};

/// Most access tokens that are listed.
const MOST_TOKENS: usize = 1_000;

impl Belongings {
    /// Records that `parent` has by itself, some of them twice, and the relationships and clients among them, which
    /// others may belong to.
    pub(super) async fn owned(&self, parent: &Parent) -> Result<(Vec<Belonging>, Vec<Parent>)> {
        let (mut found, mut parents) = (Vec::new(), Vec::new());
        let holder = match parent {
            Parent::Owner(owner) => {
                self.named(owner, &mut found, &mut parents).await?;
                Holder::Subject(owner)
            }
            Parent::Client(client) => Holder::Client(client),
            Parent::Grant(_) | Parent::Relationship(_) => return Ok((found, parents)),
        };
        let mut after = None;
        loop {
            let page = self.stores.grants(&self.scope).list(holder, after.as_ref(), PAGE).await?;
            for grant in page.items {
                let id = grant.id.to_string();
                parents.push(Parent::Grant(id.clone()));
                found.push(Belonging { kind: Kind::Grant, names: vec![id] });
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let (tokens, _) = self.stores.access_tokens(&self.scope).list(holder, MOST_TOKENS).await?;
        let token = |handle| Belonging { kind: Kind::AccessToken, names: vec![handle] };
        found.extend(tokens.into_iter().map(|info| token(info.handle)));
        Ok((found, parents))
    }

    /// Sessions, approvals, relationships, clients and attributes of an owner.
    async fn named(&self, owner: &str, found: &mut Vec<Belonging>, parents: &mut Vec<Parent>) -> Result<()> {
        let (sessions, clients) = (self.stores.sessions(&self.scope), self.stores.clients(&self.scope));
        let mut after = None;
        loop {
            let page = sessions.list(owner, after.as_ref(), PAGE).await?;
            let session = |handle| Belonging { kind: Kind::Session, names: vec![handle] };
            found.extend(page.items.into_iter().map(|info| session(info.handle)));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        loop {
            let page = clients.list(owner, after.as_ref(), PAGE).await?;
            for client in page.items {
                parents.push(Parent::Client(client.client_id.clone()));
                found.push(Belonging { kind: Kind::Client, names: vec![client.client_id] });
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        for kind in [Kind::Approval, Kind::Relationship, Kind::RelationshipReverse, Kind::Attribute] {
            let prefix = Prefix::partition(kind, &self.scope, &[owner.into()], &[])?;
            let mut pages = Pages::new(&self.stores, &prefix, PAGE);
            while let Some(items) = pages.next().await? {
                for (key, _) in items {
                    self.add(&key, found, parents)?;
                }
            }
        }
        Ok(())
    }

    fn add(&self, key: &Key, found: &mut Vec<Belonging>, parents: &mut Vec<Parent>) -> Result<()> {
        let (kind, mut own) = (key.kind(), names(key));
        if matches!(kind, Kind::Relationship | Kind::RelationshipReverse) {
            let edge = crate::stores::relationships::edge_of(key)?;
            let [forward, _] = crate::stores::relationships::keys_of(&self.scope, &edge)?;
            own = names(&forward);
            parents.push(Parent::Relationship(edge));
        }
        let kind = if kind == Kind::RelationshipReverse { Kind::Relationship } else { kind };
        found.push(Belonging { kind, names: own });
        Ok(())
    }
}
