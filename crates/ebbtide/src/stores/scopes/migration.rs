//! Moving of records from one scope to another, online and in steps.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use base64ct::{Base64UrlUnpadded, Encoding as _};

use super::Scopes;
use crate::backend::Cursor;
use crate::model::error::{Error, Result};
use crate::model::key::{Key, Prefix};
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::scope::{Reach, Scope};
use crate::model::write::{Batch, Write};
use crate::stores::audit::{Action, AuditContext, Note};
use crate::timekeeping::Now;

/// Kinds that are moved. A relationship moves with its reverse. Records that carry secrets are bound to their scope:
/// what they name is issued anew in the other one.
const MOVED: [Kind; 3] = [Kind::Approval, Kind::Relationship, Kind::Attribute];

/// Most records that one call reads.
const STEP: usize = 200;

/// Position of a migration between two calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigrationPlace {
    kind: usize,
    after: Option<Cursor>,
}

impl fmt::Display for MigrationPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let after = self.after.as_ref().map_or(&[][..], Cursor::as_bytes);
        write!(f, "{}.{}", self.kind, Base64UrlUnpadded::encode_string(after))
    }
}

impl FromStr for MigrationPlace {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || Error::invalid("after must be the `next` of an earlier answer");
        let (kind, after) = text.split_once('.').ok_or_else(wrong)?;
        let kind = kind.parse().ok().filter(|kind| *kind < MOVED.len()).ok_or_else(wrong)?;
        let after = Base64UrlUnpadded::decode_vec(after).map_err(|_| wrong())?;
        Ok(Self { kind, after: (!after.is_empty()).then(|| Cursor::from_bytes(after)) })
    }
}

/// Records that one call has moved.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Migrated {
    /// Number of moved records, by kind.
    pub moved: BTreeMap<Kind, u64>,
    /// Number of records that exist in the other scope already, and were left.
    pub conflicts: u64,
    /// Position at which it goes on; none at the end.
    pub next: Option<MigrationPlace>,
}

impl Scopes {
    /// Moves some of the approvals, relationships and attributes of exactly one scope to another, with their
    /// lifetimes, and appends to the audit log of the other scope. Callers may read and write meanwhile: each record
    /// moves in one commit, and one that was changed since it was read stays for the next call. After an interruption,
    /// begin again: there is only less to move.
    pub async fn migrate(
        &self,
        from: &Scope,
        to: &Scope,
        place: Option<MigrationPlace>,
        dry_run: bool,
        context: &AuditContext,
    ) -> Result<Migrated> {
        self.caller.require(from)?;
        self.caller.require(to)?;
        if from == to {
            return Err(Error::invalid("a scope is not moved to itself"));
        }
        let note = |detail: String| Ok::<_, Error>(Note::of(Action::Operate, context)?.with_detail(detail));
        if place.is_none() && !dry_run {
            let begins = note(format!("begins to move records from {from} to {to}"))?;
            self.stores.audit(to).append(&begins).await?;
        }
        let place = place.unwrap_or(MigrationPlace { kind: 0, after: None });
        let kind = MOVED[place.kind];
        let prefix = Prefix::reach(kind, &Reach::Exact(from.clone()))?;
        let now = self.stores.now()?;
        let page = self.stores.backend().scan(&prefix, place.after.as_ref(), STEP, now).await?;
        let mut migrated = Migrated::default();
        for (key, record) in page.items {
            let has_moved = if dry_run {
                let there = self.stores.backend().get(&in_scope(&key, to)?, now).await?;
                there.is_none()
            } else {
                self.move_one(&key, record, to, now).await?
            };
            if has_moved {
                *migrated.moved.entry(kind).or_default() += 1;
            } else {
                migrated.conflicts += 1;
            }
        }
        migrated.next = match page.next {
            Some(after) => Some(MigrationPlace { kind: place.kind, after: Some(after) }),
            None => Some(MigrationPlace { kind: place.kind + 1, after: None })
                .filter(|place| place.kind < MOVED.len()),
        };
        let moved: u64 = migrated.moved.values().sum();
        if moved > 0 && !dry_run {
            let moved = note(format!("moved {moved} {kind} from {from} to {to}"))?;
            self.stores.audit(to).append(&moved).await?;
        }
        Ok(migrated)
    }

    /// Moves a record, a relationship with its reverse. False if it was changed meanwhile, or exists there already.
    async fn move_one(&self, key: &Key, record: Record, to: &Scope, now: Now) -> Result<bool> {
        let mut writes = vec![
            Write::Insert { key: in_scope(key, to)?, record: record.clone() },
            Write::Remove { key: key.clone(), expected: record.version },
        ];
        if key.kind() == Kind::Relationship {
            let reverse = crate::stores::relationships::reverse_of(key)?;
            writes.push(Write::Put { key: in_scope(&reverse, to)?, record });
            writes.push(Write::Delete { key: reverse });
        }
        Ok(self.stores.backend().commit(Batch::new(writes)?, now).await?.is_applied())
    }
}

/// Key of the same record in another scope.
fn in_scope(key: &Key, scope: &Scope) -> Result<Key> {
    Key::new(key.kind(), scope, &key.partition(), &key.sort())
}
