//! What follows from relationships that carry on from one to the next.

use std::collections::HashMap;
use std::fmt;

use futures_util::stream::{self, StreamExt, TryStreamExt};

use super::Relationships;
use super::relationship::{Edge, RelationType, edge_of};
use crate::model::error::{Error, Result};
use crate::model::key::{Part, Prefix};
use crate::model::kind::Kind;
use crate::model::time::Timestamp;
use crate::stores::shared::tombstones::Principal;

/// How many listings of a level are under way at once.
const AT_ONCE: usize = 16;

/// The answer to a transitive check.
#[derive(Clone, PartialEq, Eq)]
#[must_use = "only one of the answers means that they are related"]
pub enum TransitiveOutcome {
    /// They are related.
    Related {
        /// A shortest way, from the subject to the object, both included.
        path: Vec<String>,
    },
    /// No way was found.
    NotRelated {
        /// Whether the search ended at its depth, or at the most names it looks at, with more to look at.
        depth_reached: bool,
    },
}

impl TransitiveOutcome {
    /// Whether they are related.
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

/// All that can be reached.
#[derive(Clone, PartialEq, Eq)]
pub struct Reached {
    /// Each name with its distance, nearest first.
    pub names: Vec<(String, usize)>,
    /// Whether the search ended at its depth, or at the most names it looks at, with more to look at.
    pub depth_reached: bool,
}

impl fmt::Debug for Reached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reached({} names, depth_reached {})", self.names.len(), self.depth_reached)
    }
}

impl Relationships {
    /// How many steps a transitive check takes unless it is told otherwise.
    pub const DEFAULT_DEPTH: usize = 10;

    /// The most steps that can be asked for.
    pub const MAX_DEPTH: usize = 100;

    /// The most names that one search looks at.
    pub const MAX_NAMES: usize = 10_000;

    /// Whether the subject is related to the object over any number of steps, up to `max_depth`: each of the edge's
    /// type and relation, live now, and in exactly this scope. Trust and membership alone carry on; another type is
    /// invalid. Cycles do no harm.
    ///
    /// It goes breadth first over the index: one listing for each name it looks at.
    pub async fn check_transitive(&self, edge: &Edge, max_depth: usize) -> Result<TransitiveOutcome> {
        let mut search = self.search(Kind::Relationship, &edge.subject, edge, max_depth)?;
        while let Some(level) = search.next_level().await? {
            if level.contains(&edge.object) {
                let path = search.path_to(&edge.object);
                let whom: Vec<_> = path.iter().map(|name| Principal::Owner(name)).collect();
                // A way over someone who is being deleted is none; nor is another looked for until they are gone.
                if self.stores.is_deleted(&self.scope, &whom, search.now).await? {
                    return Ok(TransitiveOutcome::NotRelated { depth_reached: false });
                }
                return Ok(TransitiveOutcome::Related { path });
            }
        }
        Ok(TransitiveOutcome::NotRelated { depth_reached: search.cut_short })
    }

    /// A shortest way from the subject to the object, both included; none if there is none within `max_depth`.
    pub async fn path(&self, edge: &Edge, max_depth: usize) -> Result<Option<Vec<String>>> {
        Ok(match self.check_transitive(edge, max_depth).await? {
            TransitiveOutcome::Related { path } => Some(path),
            TransitiveOutcome::NotRelated { .. } => None,
        })
    }

    /// All that a subject reaches over relationships of one type and relation. For each name it looks at, it also looks
    /// whether they are being deleted: then nothing is reached over them.
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

    /// All who reach an object over relationships of one type and relation, as [`reachable`](Self::reachable) does.
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
            return Err(Error::invalid("only trust and membership carry on from one to the next"));
        }
        if max_depth == 0 || max_depth > Self::MAX_DEPTH {
            return Err(Error::invalid(format!(
                "a depth is 1 to {}; {max_depth} was asked for",
                Self::MAX_DEPTH
            )));
        }
        Ok(Search {
            relationships: self,
            kind,
            relation: like.relation.clone(),
            relation_type: like.relation_type.clone(),
            now: self.stores.now(),
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
    /// One time for all of it.
    now: Timestamp,
    origin: String,
    came_from: HashMap<String, String>,
    frontier: Vec<String>,
    levels_left: usize,
    cut_short: bool,
}

impl Search<'_> {
    /// The names one step further that were not met before; none when there are no more, or no more are looked at.
    /// The origin is met when a cycle leads back to it.
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
        // What leads on from the origin was looked at first.
        self.frontier = level.iter().filter(|name| **name != self.origin).cloned().collect();
        Ok(Some(level))
    }

    async fn neighbours(&self, name: &str) -> Result<Vec<String>> {
        let mut sort = self.relation_type.parts();
        sort.push(Part::from(self.relation.as_str()));
        let scope = &self.relationships.scope;
        let prefix = Prefix::partition(self.kind, scope, &[name.into()], &sort)?;
        let mut met = Vec::new();
        let mut after = None;
        // One more than are looked at in all shows that the search was cut short.
        while met.len() <= Relationships::MAX_NAMES {
            let backend = self.relationships.stores.backend();
            let page = backend.scan(&prefix, after.as_ref(), 500, self.now).await?;
            for (key, _) in &page.items {
                let edge = edge_of(key)?;
                met.push(if self.kind == Kind::Relationship { edge.object } else { edge.subject });
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        Ok(met)
    }

    /// Everyone who is met, but for those who are being deleted, and whoever is met only over them.
    async fn all(mut self) -> Result<Reached> {
        let (mut names, mut distance) = (Vec::new(), 0);
        self.frontier = self.living(vec![self.origin.clone()]).await?;
        while let Some(level) = self.next_level().await? {
            distance += 1;
            let living = self.living(level).await?;
            self.frontier = living.iter().filter(|name| **name != self.origin).cloned().collect();
            names.extend(living.into_iter().map(|name| (name, distance)));
        }
        Ok(Reached { names, depth_reached: self.cut_short })
    }

    /// Those of the names that are not being deleted.
    async fn living(&self, names: Vec<String>) -> Result<Vec<String>> {
        let (stores, scope) = (&self.relationships.stores, &self.relationships.scope);
        let asked = stream::iter(names).map(|name| async move {
            let is_deleted = stores.is_deleted(scope, &[Principal::Owner(&name)], self.now).await?;
            Ok::<_, Error>((!is_deleted).then_some(name))
        });
        let living: Vec<_> = asked.buffered(AT_ONCE).try_collect().await?;
        Ok(living.into_iter().flatten().collect())
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
