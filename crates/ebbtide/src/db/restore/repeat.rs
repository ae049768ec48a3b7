//! Repetition of what the exported audit log of a lost store knows, in the store that a backup gave.

use std::collections::{BTreeSet, HashSet};

use serde_json::Value;

use crate::db::Ebbtide;
use crate::model::error::{Error, Result};
use crate::model::kind::Kind;
use crate::model::scope::{Reach, Scope};
use crate::stores::api_keys::KeyId;
use crate::stores::audit::AuditContext;
use crate::stores::relationships::Edge;

/// Repetition of the entries of a log.
pub(super) struct Repeat<'a> {
    db: &'a Ebbtide,
    context: AuditContext,
    /// Deletions of scopes that were repeated: their entries come in pairs, and each reads a scope.
    scopes: HashSet<Vec<String>>,
    left: BTreeSet<String>,
}

impl<'a> Repeat<'a> {
    pub(super) fn new(db: &'a Ebbtide) -> Result<Self> {
        let context = AuditContext::because("ended before the backup was restored")?;
        Ok(Self { db, context, scopes: HashSet::new(), left: BTreeSet::new() })
    }

    /// Changes that could not be repeated.
    pub(super) fn unrepeated(self) -> Vec<String> {
        self.left.into_iter().collect()
    }

    /// Repeats one revocation or deletion; false if there is nothing to end.
    pub(super) async fn entry(&mut self, scope: &Scope, entry: &Value) -> Result<bool> {
        let names: Vec<_> =
            entry["target"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let there = self.db.at(scope);
        let context = &self.context;
        // A deletion has an entry when it begins and one when it has ended. The backup may have been made between them.
        let deletes = entry["detail"]
            .as_str()
            .is_some_and(|detail| detail == "begins" || detail.starts_with("ended, "));
        match (entry["action"].as_str(), entry["kind"].as_str(), names.as_slice()) {
            (Some("revoke"), Some("api_keys"), [id]) => {
                let id: KeyId = id.parse()?;
                self.db.at(&Scope::Global).api_keys().revoke(&id, context).await
            }
            (Some("revoke"), Some("approvals"), [identity, resource, action]) => {
                there.approvals().revoke(identity, resource, action, context).await
            }
            (Some("revoke"), Some("relationships"), [subject, relation_type, relation, object]) => {
                let relation_type =
                    relation_type.parse().map_err(|_| Error::invalid("no type of relation"))?;
                let edge = Edge::new(*subject, *relation, *object, relation_type);
                there.relationships().remove(&edge, context).await
            }
            (Some("revoke"), Some("record_groups"), [collection, digest]) => {
                there.records().revoke_group_digest(collection, digest, context).await.map(|_| true)
            }
            // A revocation of everything of a client does not delete it.
            (Some("revoke"), Some("clients"), [client_id]) if deletes => {
                match there.clients().delete(client_id, context).await? {
                    Some(deletion) => deletion.finish().await.map(|_| true),
                    None => Ok(false),
                }
            }
            (Some("delete_owner"), Some("owners"), [owner]) if deletes => {
                let removed = there.owners().delete(owner, context).await?.finish().await?;
                Ok(removed.total() > 0 || removed.revoked > 0)
            }
            (Some("delete_owner"), Some("attributes"), [owner]) if deletes => {
                Ok(there.attributes().delete_owner_audited(owner, context).await? > 0)
            }
            (Some("delete_scope"), _, [extent @ ("exactly" | "below"), of, kinds @ ..]) => {
                let names = names.iter().map(|&name| name.to_owned()).collect();
                if !self.scopes.insert(names) {
                    return Ok(false);
                }
                self.delete_scope(of.parse()?, *extent == "below", kinds).await
            }
            // A client that the backup does not have is not weaker than it was.
            (Some("register" | "rotate_secret"), Some("clients"), [client_id]) => {
                if there.clients().find(client_id).await?.is_some() {
                    self.leave(scope, entry, &names);
                }
                Ok(false)
            }
            (Some("delete_scope" | "policy"), ..)
            | (Some("revoke"), Some("record_groups" | "api_keys" | "approvals" | "relationships"), _) => {
                self.leave(scope, entry, &names);
                Ok(false)
            }
            _ => Ok(false),
        }
    }

    async fn delete_scope(&self, scope: Scope, below: bool, kinds: &[&str]) -> Result<bool> {
        let there = self.db.at(&scope);
        let reach = if below { Reach::Below(scope) } else { Reach::Exact(scope) };
        let kinds = kinds.iter().map(|kind| kind.parse()).collect::<Result<Vec<Kind>>>()?;
        if kinds.contains(&Kind::Relationship) {
            return Ok(there.relationships().delete_all(below, &self.context).await? > 0);
        }
        let deletion = if kinds.is_empty() {
            there.scopes().delete(&reach, &self.context).await?
        } else {
            there.scopes().delete_kinds(kinds, &reach, &self.context).await?
        };
        Ok(deletion.finish().await?.total() > 0)
    }

    fn leave(&mut self, scope: &Scope, entry: &Value, names: &[&str]) {
        let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
        let words = [text("action"), text("kind"), names.join(" "), format!("in {scope}"), text("detail")];
        let words: Vec<_> = words.into_iter().filter(|word| !word.is_empty()).collect();
        self.left.insert(words.join(" "));
    }
}
