//! Move of one record to another scope, with what leads to it, in one commit.

use super::Scopes;
use crate::model::codec;
use crate::model::error::{Error, Result};
use crate::model::key::{Key, Part, Prefix};
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::scope::Scope;
use crate::model::write::{Batch, Write};
use crate::stores::grants::GrantId;
use crate::stores::shared::payload::Resealing;
use crate::stores::{Stores, grants, registry};
use crate::timekeeping::Now;

/// Attempts to move a record that others write meanwhile.
const ATTEMPTS: usize = 8;

/// Companions that one commit moves. Provider tokens beyond go before, alone; challenges beyond go afterwards.
const MOST_COMPANIONS: usize = 12;

/// Days for which two scopes know that records move between them.
const KNOWN_DAYS: u64 = 31;

/// Partition of the notes about moves.
const MOVES: &str = "moves";

/// Result for one record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Move {
    /// It is in the other scope, and so are its companions: their kinds.
    Done(Vec<Kind>),
    /// It is there already, or never stopped changing.
    Conflict,
    /// It stays: it has ended, or is bound to its scope.
    Stays,
    /// There is nothing to do.
    Nothing,
}

/// Scopes of a move.
#[derive(Debug, Clone, Copy)]
pub(super) struct Route<'a> {
    pub(super) from: &'a Scope,
    pub(super) to: &'a Scope,
    pub(super) dry_run: bool,
}

/// Kinds that stay where they are too: without them, something would be permitted.
fn is_evidence(kind: Kind) -> bool {
    matches!(kind, Kind::Replay | Kind::RecordGroup)
}

/// Kinds of index record, of which an old one in the other scope leads to nothing.
fn is_entry(kind: Kind) -> bool {
    matches!(kind, Kind::GrantIndex | Kind::SessionIndex | Kind::ClientIndex | Kind::RelationshipReverse)
}

/// Kinds without those that only lead to another record.
fn counted(kinds: impl IntoIterator<Item = Kind>) -> Vec<Kind> {
    let leads = |kind: &Kind| matches!(kind, Kind::UserCode | Kind::ChallengeIndex | Kind::RecordKey);
    kinds.into_iter().filter(|kind| !leads(kind)).collect()
}

/// Returns true for the tokens of a provider that are tied to a grant, with which they move.
pub(super) fn is_of_grant(key: &Key) -> bool {
    matches!(key.partition().as_slice(), [Part::Bytes(id)] if id.len() == GrantId::BYTES)
}

/// Key of the same record in another scope.
fn in_scope(key: &Key, scope: &Scope) -> Result<Key> {
    Key::new(key.kind(), scope, &key.partition(), &key.sort())
}

impl Scopes {
    /// Moves a record that was read.
    pub(super) async fn move_one(&self, route: Route<'_>, key: &Key, record: Record) -> Result<Move> {
        let backend = self.stores.backend();
        let (target, mut known) = (in_scope(key, route.to)?, Some(record));
        for _ in 0..ATTEMPTS {
            let now = self.stores.now()?;
            let record = match known.take() {
                Some(record) => record,
                None => match backend.get(key, now).await? {
                    Some(record) => record,
                    None => return Ok(Move::Nothing),
                },
            };
            if let Some(there) = backend.get(&target, now).await? {
                let is_copy = is_evidence(key.kind()) || there.version == record.version;
                return Ok(if is_copy { Move::Nothing } else { Move::Conflict });
            }
            let Some(writes) = self.writes(route, key, &record, now).await? else { return Ok(Move::Stays) };
            if route.dry_run {
                return Ok(Move::Done(counted([key.kind()])));
            }
            let kinds = writes.iter().filter_map(|write| match write {
                Write::Insert { key, .. } => Some(key.kind()),
                _ => None,
            });
            let kinds = counted(kinds);
            if backend.commit(Batch::new(writes)?, now).await?.is_applied() {
                return Ok(Move::Done(kinds));
            }
        }
        Ok(Move::Conflict)
    }

    /// Writes that move a record and its companions; none if it stays.
    async fn writes(
        &self,
        route: Route<'_>,
        key: &Key,
        record: &Record,
        now: Now,
    ) -> Result<Option<Vec<Write>>> {
        let backend = self.stores.backend();
        let mut with = registry::companions(&self.stores, key, record).await?;
        let salt = if key.kind() == Kind::Grant { grants::salt_of(&record.value)? } else { None };
        let last = |keys: &[Key]| keys.last().map(Key::kind);
        while with.keys.len() > MOST_COMPANIONS
            && matches!(last(&with.keys), Some(Kind::ProviderToken | Kind::Challenge))
        {
            let Some(companion) = with.keys.pop() else { break };
            if let (Kind::ProviderToken, false) = (companion.kind(), route.dry_run)
                && let Some(record) = backend.get(&companion, now).await?
                && let Some(moved) =
                    self.moved(route, &companion, &record, salt, &mut Vec::new(), now).await?
            {
                let writes = self.exchange(route, companion, &record, moved).await?;
                let _ = backend.commit(Batch::new(writes)?, now).await?;
            }
        }
        let mut group = vec![(key.clone(), record.clone())];
        let found = if with.keys.is_empty() { Vec::new() } else { backend.get_many(&with.keys, now).await? };
        group.extend(with.keys.into_iter().zip(found).filter_map(|(key, record)| Some((key, record?))));
        let mut writes = Vec::new();
        let mut conditions = Vec::new();
        for marker in with.markers {
            for marker in [in_scope(&marker, route.to)?, marker] {
                if backend.get(&marker, now).await?.is_some() {
                    return Ok(None);
                }
                conditions.push(Write::Absent { key: marker });
            }
        }
        for (key, record) in group {
            let Some(moved) = self.moved(route, &key, &record, salt, &mut conditions, now).await? else {
                return Ok(None);
            };
            writes.extend(self.exchange(route, key, &record, moved).await?);
        }
        conditions.sort_by(|a, b| a.key().cmp(b.key()));
        conditions.dedup_by(|a, b| a.key() == b.key());
        writes.extend(conditions);
        Ok(Some(writes))
    }

    /// Writes that put a record into the other scope, and remove it from this one, with its link.
    async fn exchange(
        &self,
        route: Route<'_>,
        key: Key,
        record: &Record,
        moved: Record,
    ) -> Result<Vec<Write>> {
        let target = in_scope(&key, route.to)?;
        let mut writes = self.stores.belongings(route.from).moved(&key, &target).await?;
        writes.push(if is_entry(key.kind()) {
            Write::Put { key: target, record: moved }
        } else {
            Write::Insert { key: target, record: moved }
        });
        if !is_evidence(key.kind()) {
            writes.push(Write::Remove { key, expected: record.version });
        }
        Ok(writes)
    }

    /// Record in the other scope; none if it has ended in this one, or its owner is being deleted.
    async fn moved(
        &self,
        route: Route<'_>,
        key: &Key,
        record: &Record,
        salt: Option<[u8; 32]>,
        conditions: &mut Vec<Write>,
        now: Now,
    ) -> Result<Option<Record>> {
        let bonds = registry::bonds(key, &record.value)?;
        let Some((stamp, epochs)) = self.stores.carry(&bonds, route.from, route.to, now).await? else {
            return Ok(None);
        };
        conditions.extend(epochs);
        let target = in_scope(key, route.to)?;
        let at = Resealing { from: key, to: &target };
        let value = match (key.kind(), salt) {
            (Kind::ProviderToken, Some(salt)) => self.stores.reseal(at, &salt, &record.value)?,
            // Sealed with a secret that only its holder has.
            (Kind::ProviderToken, None) => return Ok(None),
            _ => registry::reseal(&self.stores, at, &record.value)?,
        };
        let value = value.map_or_else(|| record.value.clone(), Into::into);
        let restamped = registry::restamped(key.kind(), &value, stamp, route.from)?;
        let value = restamped.map_or(value, Into::into);
        Ok(Some(Record { value, ..record.clone() }))
    }

    /// Notes in both scopes that records move between them.
    pub(super) async fn note_move(&self, from: &Scope, to: &Scope) -> Result<()> {
        let now = self.stores.now()?;
        let ends_at = now.end_after(std::time::Duration::from_secs(KNOWN_DAYS * 24 * 3_600))?;
        let note = |here: &Scope, there: &Scope| {
            let record = self.stores.record(codec::encode(&there.to_string()), ends_at);
            Ok::<_, Error>(Write::Put { key: move_key(here, there)?, record })
        };
        let writes = vec![note(from, to)?, note(to, from)?];
        // A put has no condition that could be refused.
        let _ = self.stores.backend().commit(Batch::new(writes)?, now).await?;
        Ok(())
    }
}

fn move_key(here: &Scope, there: &Scope) -> Result<Key> {
    let digest = crate::model::digest::Digest::of("move", &[there.to_string().as_bytes()]);
    Key::new(Kind::System, here, &[Part::from(MOVES)], &[digest.part()])
}

impl Stores {
    /// Scopes that records move to or from, of late.
    pub(crate) async fn moving_with(&self, scope: &Scope) -> Result<Vec<Scope>> {
        let prefix = Prefix::partition(Kind::System, scope, &[Part::from(MOVES)], &[])?;
        let found = self.backend().scan_all(&prefix, self.now()?).await?;
        found.iter().map(|(_, record)| codec::decode::<String>(&record.value)?.parse()).collect()
    }
}
