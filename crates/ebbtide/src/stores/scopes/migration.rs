//! Moving of records from one scope to another, online and in steps.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use base64ct::{Base64UrlUnpadded, Encoding as _};
use futures_util::future::try_join_all;

use super::Scopes;
use super::moving::{Move, Route, is_of_grant};
use crate::backend::Cursor;
use crate::model::error::{Error, Result};
use crate::model::key::{Key, Prefix};
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::scope::{Reach, Scope};
use crate::stores::audit::{Action, AuditContext, Note};

/// Kinds that are moved, in their order: what others belong to comes first. Index records, second keys and provider tokens
/// move with the record that they lead to or belong to.
const MOVED: [Kind; 20] = [
    Kind::RecordGroup,
    Kind::Replay,
    Kind::Relationship,
    Kind::Client,
    Kind::Grant,
    Kind::AccessToken,
    Kind::Session,
    Kind::Code,
    Kind::PushedRequest,
    Kind::UserCode,
    Kind::DeviceCode,
    Kind::ChallengeIndex,
    Kind::Challenge,
    Kind::Nonce,
    Kind::Approval,
    Kind::Attribute,
    Kind::Record,
    Kind::Counter,
    Kind::Lease,
    // Those of grants have moved with them; the others are sealed with a secret that only a holder has.
    Kind::ProviderToken,
];

/// Kinds that stay and are counted: their names and their meaning contain the scope. Policies stay too; they are all kept
/// in the global scope.
const BOUND: [Kind; 1] = [Kind::ApiKey];

/// Records that are moved at the same time.
const AT_ONCE: usize = 8;

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
        let wrong = || Error::invalid("after must be the `next` of an earlier answer").about("after");
        let (kind, after) = text.split_once('.').ok_or_else(wrong)?;
        let kind = kind.parse().ok().filter(|kind| *kind < STAGES).ok_or_else(wrong)?;
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
    /// Number of records that stay, by kind: API keys, tokens of providers that only the holder of an access
    /// token can open, and records that a sign-out or a deletion has ended.
    pub left: BTreeMap<Kind, u64>,
    /// Position at which it goes on; none at the end.
    pub next: Option<MigrationPlace>,
}

/// Stages of a migration: one for each kind.
const STAGES: usize = MOVED.len() + BOUND.len();

impl Scopes {
    /// Moves some of the records of exactly one scope to another, with their lifetimes and versions, and appends to the
    /// audit logs of both. Callers may read and write meanwhile: each record moves in one commit together with
    /// what leads to it, and one that was changed since it was read is read again. Refresh tokens, access tokens, sessions
    /// and codes of before are valid in the other scope. Evidence that something was seen or revoked is copied, and
    /// refuses in both. After an interruption, begin again: there is only less to move.
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
            return Err(Error::invalid("a scope is not moved to itself").about("to"));
        }
        let note = |detail: String| Ok::<_, Error>(Note::of(Action::Operate, context)?.with_detail(detail));
        if !dry_run {
            self.note_move(from, to).await?;
        }
        if place.is_none() && !dry_run {
            let begins = note(format!("begins to move records from {from} to {to}"))?;
            for log in [from, to] {
                self.stores.audit(log).append(&begins).await?;
            }
        }
        let route = Route { from, to, dry_run };
        let mut place = place.unwrap_or(MigrationPlace { kind: 0, after: None });
        let (mut migrated, mut read) = (Migrated::default(), 0);
        // Kinds of which there are none cost no call. A page without items that has a next one is a long walk, which goes
        // on with the next call.
        while read == 0 && place.kind < STAGES {
            let (items, next) = self.page(&place, from).await?;
            read = items.len() + usize::from(next.kind == place.kind);
            let kind = stage(place.kind);
            for chunk in items.chunks(AT_ONCE) {
                let moves = chunk.iter().map(|(key, record)| async move {
                    if BOUND.contains(&kind) {
                        return Ok(Move::Stays);
                    }
                    if kind == Kind::ProviderToken && dry_run && is_of_grant(key) {
                        return Ok(Move::Done(vec![kind]));
                    }
                    self.move_one(route, key, record.clone()).await
                });
                for outcome in try_join_all(moves).await? {
                    match outcome {
                        Move::Done(kinds) => {
                            for kind in kinds {
                                *migrated.moved.entry(kind).or_default() += 1;
                            }
                        }
                        Move::Stays => *migrated.left.entry(kind).or_default() += 1,
                        Move::Conflict => migrated.conflicts += 1,
                        Move::Nothing => {}
                    }
                }
            }
            place = next;
        }
        migrated.next = Some(place).filter(|place| place.kind < STAGES);
        if !dry_run {
            for (kind, count) in &migrated.moved {
                let moved = note(format!("moved {count} {kind} from {from} to {to}"))?;
                self.stores.audit(to).append(&moved).await?;
            }
        }
        Ok(migrated)
    }

    /// Records at a position, and the position behind them.
    async fn page(
        &self,
        place: &MigrationPlace,
        from: &Scope,
    ) -> Result<(Vec<(Key, Record)>, MigrationPlace)> {
        let prefix = Prefix::reach(stage(place.kind), &Reach::Exact(from.clone()))?;
        let page =
            self.stores.backend().scan(&prefix, place.after.as_ref(), STEP, self.stores.now()?).await?;
        let next = match page.next {
            Some(after) => MigrationPlace { kind: place.kind, after: Some(after) },
            None => MigrationPlace { kind: place.kind + 1, after: None },
        };
        Ok((page.items, next))
    }
}

/// Kind of a stage.
fn stage(number: usize) -> Kind {
    MOVED.get(number).copied().unwrap_or_else(|| BOUND[number - MOVED.len()])
}
