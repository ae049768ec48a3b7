//! Listings, counts, checks and deletions that go beyond one end, one type or one scope.

use futures_util::future::join_all;

use super::relationship::RelationType;
use super::{Edge, Related, Relationships, principals, standing_of};
use crate::backend::Cursor;
use crate::model::error::Result;
use crate::model::key::{Key, Prefix};
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::scope::{Reach, Scope};
use crate::stores::audit::AuditContext;
use crate::stores::shared::filtered::{self, Filter};
use crate::stores::shared::paging::{Listing, MAX_LIMIT, Pages};
use crate::stores::shared::parents::ParentName;
use crate::stores::shared::tombstones::Principal;

/// Relationships to find: those that have every name that is given.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct RelationshipFilter {
    /// Subject.
    pub subject: Option<String>,
    /// Object.
    pub object: Option<String>,
    /// Relation.
    pub relation: Option<String>,
    /// Type.
    pub relation_type: Option<RelationType>,
    /// Includes the scopes that the handle's covers.
    pub below: bool,
}

impl RelationshipFilter {
    /// Finds the relationships from a subject and to an object; of any where none is given.
    #[must_use]
    pub fn new(subject: Option<String>, object: Option<String>) -> Self {
        Self { subject, object, ..Self::default() }
    }

    /// Finds only those of this relation.
    #[must_use]
    pub fn relation(mut self, relation: Option<String>) -> Self {
        self.relation = relation;
        self
    }

    /// Finds only those of this type.
    #[must_use]
    pub fn relation_type(mut self, relation_type: Option<RelationType>) -> Self {
        self.relation_type = relation_type;
        self
    }

    /// Includes the scopes that the handle's covers.
    #[must_use]
    pub fn below(mut self, below: bool) -> Self {
        self.below = below;
        self
    }
}

impl Filter for RelationshipFilter {
    type Item = Related;

    fn read(&self, key: &Key, record: &Record) -> Result<Option<Related>> {
        let is = |asked: &Option<String>, name: &str| asked.as_ref().is_none_or(|asked| asked == name);
        Ok(Some(Related::read(key, record)?).filter(|Related { edge, .. }| {
            is(&self.subject, &edge.subject)
                && is(&self.object, &edge.object)
                && is(&self.relation, &edge.relation)
                && self.relation_type.as_ref().is_none_or(|asked| *asked == edge.relation_type)
        }))
    }

    fn parent(&self, record: &Record) -> Result<Option<ParentName>> {
        Ok(standing_of(record)?.1)
    }

    fn whose(related: &Related) -> (&Scope, Vec<Principal<'_>>) {
        (&related.scope, principals(&related.edge).into())
    }

    fn prefix(&self, scope: &Scope) -> Result<Prefix> {
        let sort = self.relation_type.as_ref().map(RelationType::parts).unwrap_or_default();
        match (&self.subject, &self.object) {
            _ if self.below => Prefix::reach(Kind::Relationship, &Reach::Below(scope.clone())),
            (Some(subject), _) => {
                Prefix::partition(Kind::Relationship, scope, &[subject.as_str().into()], &sort)
            }
            (None, Some(object)) => {
                Prefix::partition(Kind::RelationshipReverse, scope, &[object.as_str().into()], &sort)
            }
            (None, None) => Prefix::reach(Kind::Relationship, &Reach::Exact(scope.clone())),
        }
    }
}

impl Relationships {
    /// Lists the relationships that a filter finds. It renews nothing. One with a subject or an object, in one scope,
    /// reads the relationships of that end; any other reads every relationship of the scope, and a page may have fewer
    /// items than `limit`.
    pub async fn find(
        &self,
        filter: &RelationshipFilter,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Listing<Related>> {
        filtered::find(&self.stores, &self.scope, filter, after, limit).await
    }

    /// Counts the relationships that a filter finds. It reads them all.
    pub async fn count_found(&self, filter: &RelationshipFilter) -> Result<u64> {
        filtered::count(&self.stores, &self.scope, filter).await
    }

    /// Returns a relationship of any type but a custom one, in one step. A sliding one is renewed.
    pub async fn get_of_named_type(
        &self,
        subject: &str,
        relation: &str,
        object: &str,
    ) -> Result<Option<Related>> {
        let edge = |relation_type| Edge::new(subject, relation, object, relation_type);
        let named: Vec<Edge> = RelationType::named().map(edge).collect();
        for found in join_all(named.iter().map(|edge| self.get(edge))).await {
            if let Some(found) = found? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Returns a relationship of any type. Those of a type with a name are read at once; custom types are searched for
    /// among those of the subject. A sliding one is renewed.
    pub async fn get_of_any_type(
        &self,
        subject: &str,
        relation: &str,
        object: &str,
    ) -> Result<Option<Related>> {
        if let Some(found) = self.get_of_named_type(subject, relation, object).await? {
            return Ok(Some(found));
        }
        let sort = [RelationType::custom_part()];
        let prefix = Prefix::partition(Kind::Relationship, &self.scope, &[subject.into()], &sort)?;
        let mut pages = Pages::new(&self.stores, &prefix, MAX_LIMIT);
        while let Some(items) = pages.next().await? {
            for (key, record) in &items {
                let Related { edge, .. } = Related::read(key, record)?;
                // One that has ended with what it belongs to hides none of another type.
                if edge.relation == relation
                    && edge.object == object
                    && let Some(found) = self.get(&edge).await?
                {
                    return Ok(Some(found));
                }
            }
        }
        Ok(None)
    }

    /// Returns a relationship of these names from the scope or one that it covers: a wildcard for all environments of a
    /// tenant. It reads every relationship of those scopes until it has found one, and renews nothing.
    pub async fn get_below(&self, filter: RelationshipFilter) -> Result<Option<Related>> {
        filtered::first(&self.stores, &self.scope, &filter.below(true)).await
    }

    /// Deletes every relationship of the scope, and of those that it covers if `below`, and appends to the audit log.
    /// Removes the records that belong to them too.
    pub async fn delete_all(&self, below: bool, context: &AuditContext) -> Result<u64> {
        let scope = self.scope.clone();
        let reach = if below { Reach::Below(scope) } else { Reach::Exact(scope) };
        // Checks read the forward record: it is removed first, where an engine keeps kinds apart.
        let kinds = vec![Kind::Relationship, Kind::RelationshipReverse];
        let scopes = self.stores.scopes(&self.scope);
        let removed = scopes.delete_kinds(kinds, &reach, context).await?.finish().await?;
        let _ = self.stores.reconcile_below(&reach).await?;
        Ok(removed.records.get(&Kind::Relationship).copied().unwrap_or_default())
    }
}
