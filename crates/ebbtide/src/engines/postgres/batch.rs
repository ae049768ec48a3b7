//! Batches of several writes: one transaction in one round trip.
//!
//! First the rows are locked in the order of kind and key, regardless of the batch's order, so that no two batches
//! deadlock. A missing row is inserted, and thereby locked: as the record that the batch stores there, which nobody else
//! sees before the commit, or as a placeholder, which every statement sees as expired. Rows that are only checked are
//! locked shared: batches that check one record do not wait for each other.
//!
//! Then one statement, on one snapshot, evaluates every condition, finds the first that does not hold in the batch's
//! order, and overwrites rows if all hold. It waits for no row: a row that vanished before it could be locked and was
//! written again by another transaction would be locked out of order; it counts as not met, and the batch is sent again.
//!
//! The last statement deletes: rows that the batch removes, or, if it is refused, every row that it has inserted. Which
//! ones these are is noted in settings of the transaction: a row with the batch's own version may be of an earlier
//! attempt whose answer the caller lost. The commit follows in the same round trip.

use super::link::Link;
use super::params::{Bytea, Param, Params, column, malformed, millis, only};
use super::sql::{ABSENT, ALWAYS, ERASE, NOTHING, PLACEHOLDER, STORE, Sql, VERSION};
use super::turns::HeldTurns;
use crate::model::error::{Error, Result};
use crate::model::kind::Kind;
use crate::model::time::Timestamp;
use crate::model::write::{Batch, Commit, Condition, Effect, Write};

/// Attempts at a batch if a checked row vanishes between two of its steps.
const ATTEMPTS: usize = 32;

/// Largest value that is sent with the lock of its row. It is sent once more for a row that is there already, so a
/// larger one has a placeholder.
const DIRECT: usize = 4_096;

/// Rows that one statement locks.
enum LockStep<'a> {
    Lock(Kind, Rows<'a>),
    Share(Kind, Bytea<'a>),
}

/// Rows that are locked together, by column: what is inserted where they are missing.
#[derive(Default)]
struct Rows<'a> {
    /// Places of the writes in the batch, from 1 on.
    places: Vec<i64>,
    keys: Vec<Bytea<'a>>,
    values: Vec<Bytea<'a>>,
    versions: Vec<Bytea<'a>>,
    expires_at: Vec<i64>,
    due_at: Vec<i64>,
}

impl<'a> Rows<'a> {
    fn push(&mut self, place: i64, write: &'a Write) {
        let (record, due) = match write.effect() {
            Effect::Store(record) => (Some(record), millis(record.expires_at)),
            _ => (None, PLACEHOLDER),
        };
        // A missing row refuses a batch that replaces it.
        let replaces = matches!(write.condition(), Condition::Version(_));
        let record = record.filter(|record| !replaces && record.value.len() <= DIRECT);
        self.places.push(place);
        self.keys.push(Bytea(write.key().as_bytes()));
        self.values.push(Bytea(record.map_or(&[], |record| &record.value[..])));
        self.versions.push(Bytea(record.map_or(&[], |record| record.version.as_bytes().as_slice())));
        self.expires_at.push(record.map_or(PLACEHOLDER, |record| millis(record.expires_at)));
        self.due_at.push(due);
    }
}

pub(super) async fn commit(
    link: &Link,
    sql: &Sql,
    turns: &HeldTurns,
    batch: &Batch,
    now: Timestamp,
) -> Result<Commit> {
    let columns = Columns::new(batch.writes());
    let now = millis(now);
    let count = i64::try_from(batch.writes().len()).expect("a batch has at most 100 writes");
    let locks = locks(batch.writes());
    let (carry_out, clear_out) = (
        sql.carry_out(&columns.kinds_of(|_| true)),
        sql.clear_out(&columns.kinds_of(|does| does != NOTHING)),
    );
    let judged: Params<'_> = &[
        &columns.kinds,
        &columns.keys,
        &columns.asks,
        &columns.expected,
        &columns.does,
        &columns.values,
        &columns.versions,
        &columns.expires_at,
        &now,
        &count,
    ];
    let params: Vec<Vec<&dyn Param>> = locks
        .iter()
        .map(|step| match step {
            LockStep::Lock(_, rows) => vec![
                &rows.places as _,
                &rows.keys as _,
                &rows.values as _,
                &rows.versions as _,
                &rows.expires_at as _,
                &rows.due_at as _,
                &now as _,
            ],
            LockStep::Share(_, key) => vec![key as _],
        })
        .collect();
    let mut steps: Vec<(&str, Params<'_>)> = Vec::new();
    for (step, params) in locks.iter().zip(&params) {
        match step {
            LockStep::Lock(kind, ..) => steps.push((&sql.of(*kind).lock, params)),
            LockStep::Share(kind, _) => {
                steps.push((&sql.of(*kind).claim, params));
                steps.push((&sql.of(*kind).share, params));
            }
        }
    }
    let last: Params<'_> = &[&columns.kinds, &columns.keys];
    steps.extend([(carry_out.as_str(), judged), (clear_out.as_str(), last)]);
    for _ in 0..ATTEMPTS {
        let answer = link.transact(turns, &steps).await?;
        let row = only(&answer.rows)?;
        let (met, refused): (i64, Option<i64>) = (column(row, 0)?, column(row, 1)?);
        // A missing row is not locked either, and proves nothing: it was swept or deleted after it was found and
        // before it was locked.
        if met == count {
            return match refused {
                None => Ok(Commit::Applied),
                Some(place) => usize::try_from(place - 1)
                    .map(|index| Commit::Refused { index })
                    .map_err(|_| malformed("an answer")),
            };
        }
    }
    Err(Error::unavailable("the records of the batch changed too often; retry"))
}

/// Rows in the order in which all batches lock them: runs of one kind that are changed together, and each checked row
/// by itself.
fn locks(writes: &[Write]) -> Vec<LockStep<'_>> {
    let mut sorted: Vec<_> = (1..).zip(writes).collect();
    sorted.sort_unstable_by_key(|(_, write)| (write.key().kind(), write.key().as_bytes()));
    let mut steps: Vec<LockStep<'_>> = Vec::new();
    for (place, write) in sorted {
        let kind = write.key().kind();
        match (write.effect(), steps.last_mut()) {
            (Effect::Nothing, _) => steps.push(LockStep::Share(kind, Bytea(write.key().as_bytes()))),
            (_, Some(LockStep::Lock(last, rows))) if *last == kind => rows.push(place, write),
            _ => {
                let mut rows = Rows::default();
                rows.push(place, write);
                steps.push(LockStep::Lock(kind, rows));
            }
        }
    }
    steps
}

/// Writes of a batch, by column.
#[derive(Default)]
struct Columns<'a> {
    kinds: Vec<i16>,
    keys: Vec<Bytea<'a>>,
    asks: Vec<i16>,
    expected: Vec<Option<Bytea<'a>>>,
    does: Vec<i16>,
    values: Vec<Option<Bytea<'a>>>,
    versions: Vec<Option<Bytea<'a>>>,
    expires_at: Vec<Option<i64>>,
}

impl<'a> Columns<'a> {
    fn new(writes: &'a [Write]) -> Self {
        let mut columns = Self::default();
        for write in writes {
            columns.kinds.push(i16::from(write.key().kind().code()));
            columns.keys.push(Bytea(write.key().as_bytes()));
            columns.asks.push(match write.condition() {
                Condition::Always => ALWAYS,
                Condition::Absent => ABSENT,
                Condition::Version(_) => VERSION,
            });
            columns.expected.push(match write {
                Write::Replace { expected, .. }
                | Write::Remove { expected, .. }
                | Write::Check { expected, .. } => Some(Bytea(expected.as_bytes())),
                _ => None,
            });
            let (does, record) = match write.effect() {
                Effect::Store(record) => (STORE, Some(record)),
                Effect::Erase => (ERASE, None),
                Effect::Nothing => (NOTHING, None),
            };
            columns.does.push(does);
            columns.values.push(record.map(|record| Bytea(&record.value)));
            columns.versions.push(record.map(|record| Bytea(record.version.as_bytes())));
            columns.expires_at.push(record.map(|record| millis(record.expires_at)));
        }
        columns
    }

    /// Kinds of the writes with such an effect.
    fn kinds_of(&self, is_wanted: impl Fn(i16) -> bool) -> Vec<Kind> {
        let there = |kind: &&Kind| {
            let mut writes = self.kinds.iter().zip(&self.does);
            writes.any(|(of, does)| *of == i16::from(kind.code()) && is_wanted(*does))
        };
        Kind::ALL.iter().filter(there).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::key::Key;
    use crate::model::scope::Scope;

    #[test]
    fn rows_are_locked_in_the_order_of_kind_and_key_whatever_the_batchs_own() {
        let key = |kind, name: &str| Key::new(kind, &Scope::Global, &[name.into()], &[]).unwrap();
        let delete = |kind, name| Write::Delete { key: key(kind, name) };
        let writes = [
            delete(Kind::Grant, "b"),
            delete(Kind::Code, "z"),
            delete(Kind::Grant, "d"),
            Write::Absent { key: key(Kind::Grant, "c") },
            delete(Kind::Grant, "a"),
        ];
        let order: Vec<(Kind, usize, bool)> = locks(&writes)
            .iter()
            .map(|step| match step {
                LockStep::Lock(kind, rows) => (*kind, rows.keys.len(), false),
                LockStep::Share(kind, _) => (*kind, 1, true),
            })
            .collect();
        let grant = |count, shared| (Kind::Grant, count, shared);
        assert_eq!(order, [(Kind::Code, 1, false), grant(2, false), grant(1, true), grant(1, false)]);
    }
}
