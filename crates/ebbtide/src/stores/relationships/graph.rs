//! Transitive relationships: breadth-first searches over trust and membership.

use std::collections::HashMap;
use std::fmt;

use futures_util::stream::{self, StreamExt, TryStreamExt};

use super::relationship::{Edge, RelationType, edge_of};
use super::{Relationships, standing_of};
use crate::model::error::{Error, Result};
use crate::model::key::{Part, Prefix};
use crate::model::kind::Kind;
use crate::stores::shared::paging::Pages;
use crate::stores::shared::parents::MetParents;
use crate::stores::shared::tombstones::Principal;
use crate::timekeeping::Now;

/// Concurrent listings of one level.
const AT_ONCE: usize = 16;

/// Answer to a transitive check.
#[derive(Clone, PartialEq, Eq)]
#[must_use = "only one of the answers means that they are related"]
#[non_exhaustive]
pub enum TransitiveOutcome {
    /// They are related.
    Related {
        /// Shortest path from the subject to the object, both included.
        path: Vec<String>,
    },
    /// No path was found.
    NotRelated {
        /// True if the search stopped at its depth or at the most names, with more names left.
        depth_reached: bool,
    },
}

impl TransitiveOutcome {
    /// Returns whether they are related.
    #[must_use]
    pub fn is_related(&self) -> bool {
        matches!(self, Self::Related { .. })
    }
}

impl fmt::Debug for TransitiveOutcome {
    /// Without names, which may be private.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Related { path } => write!(f, "Related({} steps)", path.len().saturating_sub(1)),
            Self::NotRelated { depth_reached } => write!(f, "NotRelated(depth_reached {depth_reached})"),
        }
    }
}

/// Names that a search reaches.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reached {
    /// Each name with its distance, nearest first.
    pub names: Vec<(String, usize)>,
    /// True if the search stopped at its depth or at the most names, with more names left.
    pub depth_reached: bool,
}

impl fmt::Debug for Reached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reached({} names, depth_reached {})", self.names.len(), self.depth_reached)
    }
}

impl Relationships {
    /// Default length of a path.
    pub const DEFAULT_DEPTH: usize = 10;

    /// Longest path that can be asked for.
    pub const MAX_DEPTH: usize = 100;

    /// Most names that one search visits.
    pub const MAX_NAMES: usize = 10_000;

    /// Checks whether the subject is related to the object over a path of up to `max_depth` relationships, each of
    /// the type and relation of `edge`, live now, and in exactly this scope. Only trust and membership are
    /// transitive; another type is invalid. Cycles are harmless.
    ///
    /// The search is breadth first, with one listing for each name that it visits.
    pub async fn check_transitive(&self, edge: &Edge, max_depth: usize) -> Result<TransitiveOutcome> {
        let mut search = self.search(Kind::Relationship, &edge.subject, edge, max_depth)?;
        while let Some(level) = search.next_level().await? {
            if level.contains(&edge.object) {
                let path = search.path_to(&edge.object);
                let whom: Vec<_> = path.iter().map(|name| Principal::Owner(name)).collect();
                // A path over an owner who is being deleted does not count, and no other is searched for until the
                // deletion has ended.
                if self.stores.is_deleted(&self.scope, &whom, search.now).await? {
                    return Ok(TransitiveOutcome::NotRelated { depth_reached: false });
                }
                return Ok(TransitiveOutcome::Related { path });
            }
        }
        Ok(TransitiveOutcome::NotRelated { depth_reached: search.cut_short })
    }

    /// Returns a shortest path from the subject to the object, both included; none if there is none within
    /// `max_depth`.
    pub async fn path(&self, edge: &Edge, max_depth: usize) -> Result<Option<Vec<String>>> {
        Ok(match self.check_transitive(edge, max_depth).await? {
            TransitiveOutcome::Related { path } => Some(path),
            TransitiveOutcome::NotRelated { .. } => None,
        })
    }

    /// Returns every name that a subject reaches over relationships of one type and relation. Owners who are being
    /// deleted, and names that are only reached over them, are left out.
    pub async fn reachable(
        &self,
        subject: &str,
        relation: &str,
        relation_type: &RelationType,
        max_depth: usize,
    ) -> Result<Reached> {
        let like = Edge::new(subject, relation, subject, relation_type.clone());
        self.search(Kind::Relationship, subject, &like, max_depth)?.all().await
    }

    /// Returns every name that reaches an object, as [`reachable`](Self::reachable) does.
    pub async fn reaching(
        &self,
        object: &str,
        relation: &str,
        relation_type: &RelationType,
        max_depth: usize,
    ) -> Result<Reached> {
        let like = Edge::new(object, relation, object, relation_type.clone());
        self.search(Kind::RelationshipReverse, object, &like, max_depth)?.all().await
    }

    fn search(&self, kind: Kind, from: &str, like: &Edge, max_depth: usize) -> Result<Search<'_>> {
        if !like.relation_type.is_transitive() {
            return Err(Error::invalid("only trust and membership carry on from one to the next")
                .about("relation_type"));
        }
        if max_depth == 0 || max_depth > Self::MAX_DEPTH {
            return Err(Error::invalid(format!("a depth is 1 to {}", Self::MAX_DEPTH)).about("max_depth"));
        }
        Ok(Search {
            relationships: self,
            kind,
            relation: like.relation.clone(),
            relation_type: like.relation_type.clone(),
            now: self.stores.now()?,
            origin: from.to_owned(),
            came_from: HashMap::new(),
            frontier: vec![from.to_owned()],
            levels_left: max_depth,
            cut_short: false,
        })
    }
}

struct Search<'a> {
    relationships: &'a Relationships,
    kind: Kind,
    relation: String,
    relation_type: RelationType,
    /// One time for the whole search.
    now: Now,
    origin: String,
    came_from: HashMap<String, String>,
    frontier: Vec<String>,
    levels_left: usize,
    cut_short: bool,
}

impl Search<'_> {
    /// Returns the names of the next level that were not visited before; none when there are no more, or the search
    /// stops. A cycle visits the origin again.
    async fn next_level(&mut self) -> Result<Option<Vec<String>>> {
        if self.frontier.is_empty() {
            return Ok(None);
        }
        if self.levels_left == 0 || self.came_from.len() >= Relationships::MAX_NAMES {
            self.cut_short = true;
            return Ok(None);
        }
        self.levels_left -= 1;
        let frontier = std::mem::take(&mut self.frontier);
        let this = &*self;
        let found: Vec<(String, Vec<String>)> = stream::iter(frontier)
            .map(|name| async move {
                let next = this.neighbours(&name).await?;
                Ok::<_, Error>((name, next))
            })
            .buffered(AT_ONCE)
            .try_collect()
            .await?;
        let mut level = Vec::new();
        for (name, next) in found {
            for neighbour in next {
                if !self.came_from.contains_key(&neighbour) {
                    self.came_from.insert(neighbour.clone(), name.clone());
                    level.push(neighbour);
                }
            }
        }
        // The relationships of the origin were read first.
        self.frontier = level.iter().filter(|name| **name != self.origin).cloned().collect();
        Ok(Some(level))
    }

    async fn neighbours(&self, name: &str) -> Result<Vec<String>> {
        let mut sort = self.relation_type.parts();
        sort.push(Part::from(self.relation.as_str()));
        let scope = &self.relationships.scope;
        let prefix = Prefix::partition(self.kind, scope, &[name.into()], &sort)?;
        let mut pages = Pages::new(&self.relationships.stores, &prefix, 500).at(self.now);
        let mut met = Vec::new();
        let mut parents = MetParents::new(&self.relationships.stores, self.now);
        while let Some(items) = pages.next().await? {
            for (key, record) in &items {
                if parents.ended(scope, standing_of(record)?.1.as_ref()).await? {
                    continue;
                }
                let edge = edge_of(key)?;
                met.push(if self.kind == Kind::Relationship { edge.object } else { edge.subject });
            }
            // One more than the limit shows that the search stopped early.
            if met.len() > Relationships::MAX_NAMES {
                break;
            }
        }
        Ok(met)
    }

    /// Returns every name, without owners who are being deleted and names that are only reached over them.
    async fn all(mut self) -> Result<Reached> {
        let (mut names, mut distance) = (Vec::new(), 0);
        self.frontier = self.not_deleted(vec![self.origin.clone()]).await?;
        while let Some(level) = self.next_level().await? {
            distance += 1;
            let left = self.not_deleted(level).await?;
            self.frontier = left.iter().filter(|name| **name != self.origin).cloned().collect();
            names.extend(left.into_iter().map(|name| (name, distance)));
        }
        Ok(Reached { names, depth_reached: self.cut_short })
    }

    /// Returns the names that are not being deleted.
    async fn not_deleted(&self, names: Vec<String>) -> Result<Vec<String>> {
        let (stores, scope) = (&self.relationships.stores, &self.relationships.scope);
        let asked = stream::iter(names).map(|name| async move {
            let is_deleted = stores.is_deleted(scope, &[Principal::Owner(&name)], self.now).await?;
            Ok::<_, Error>((!is_deleted).then_some(name))
        });
        let left: Vec<_> = asked.buffered(AT_ONCE).try_collect().await?;
        Ok(left.into_iter().flatten().collect())
    }

    fn path_to(&self, object: &str) -> Vec<String> {
        let mut path = vec![object.to_owned()];
        // Each name came from one that is nearer to the origin, so this ends.
        while let Some(before) = path.last().and_then(|name| self.came_from.get(name)) {
            path.push(before.clone());
            if *before == self.origin {
                break;
            }
        }
        path.reverse();
        path
    }
}
