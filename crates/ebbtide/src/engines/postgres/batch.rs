//! Batches of several writes: one transaction in one round trip.
//!
//! First the rows are locked in the order of kind and key, regardless of the batch's order, so that no two batches
//! deadlock. A missing row is inserted as a placeholder, and thereby locked; every statement sees it as expired. Rows
//! that are only checked are locked shared: batches that check one record do not wait for each other.
//!
//! Then one statement, on one snapshot, evaluates every condition, finds the first that does not hold in the batch's
//! order, and writes if all hold. It waits for no row: a row that vanished before it could be locked and was written
//! again by another transaction would be locked out of order; it counts as not met, and the batch is sent again.
//!
//! The commit follows in the same round trip. A refused batch has written nothing but placeholders, and removes those
//! that it holds alone.

use super::link::Link;
use super::params::{Bytea, Param, Params, column, malformed, millis, only};
use super::sql::{ABSENT, ALWAYS, ERASE, NOTHING, PLACEHOLDER, STORE, Sql, VERSION};
use crate::model::error::{Error, Result};
use crate::model::kind::Kind;
use crate::model::time::Timestamp;
use crate::model::write::{Batch, Commit, Condition, Effect, Write};

/// Attempts at a batch if a checked row vanishes between two of its steps.
const ATTEMPTS: usize = 32;

/// Rows that one statement locks.
enum Step<'a> {
    /// Keys, and when placeholders for them would be due.
    Lock(Kind, Vec<Bytea<'a>>, Vec<i64>),
    Share(Kind, Bytea<'a>),
}

pub(super) async fn commit(link: &Link, sql: &Sql, batch: &Batch, now: Timestamp) -> Result<Commit> {
    let columns = Columns::new(batch.writes());
    let now = millis(now);
    let count = i64::try_from(batch.writes().len()).expect("a batch has at most 100 writes");
    let locks = locks(batch.writes());
    let carry_out = sql.carry_out(&columns.distinct_kinds());
    let last: Params<'_> = &[
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
            Step::Lock(_, keys, due) => vec![keys as _, due as _],
            Step::Share(_, key) => vec![key as _],
        })
        .collect();
    let mut steps: Vec<(&str, Params<'_>)> = Vec::new();
    for (step, params) in locks.iter().zip(&params) {
        match step {
            Step::Lock(kind, ..) => steps.push((&sql.of(*kind).lock, params)),
            Step::Share(kind, _) => {
                steps.push((&sql.of(*kind).claim, params));
                steps.push((&sql.of(*kind).share, params));
            }
        }
    }
    steps.push((&carry_out, last));
    for _ in 0..ATTEMPTS {
        let answer = link.transact(&steps).await?;
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
fn locks(writes: &[Write]) -> Vec<Step<'_>> {
    let mut sorted: Vec<_> = writes.iter().map(|write| (write.key(), write.effect())).collect();
    sorted.sort_unstable_by_key(|(key, _)| (key.kind(), key.as_bytes()));
    let mut steps: Vec<Step<'_>> = Vec::new();
    for (key, effect) in sorted {
        let (kind, bytes) = (key.kind(), Bytea(key.as_bytes()));
        let due = match effect {
            Effect::Nothing => {
                steps.push(Step::Share(kind, bytes));
                continue;
            }
            Effect::Store(record) => millis(record.expires_at),
            Effect::Erase => PLACEHOLDER,
        };
        match steps.last_mut() {
            Some(Step::Lock(last, keys, all_due)) if *last == kind => {
                keys.push(bytes);
                all_due.push(due);
            }
            _ => steps.push(Step::Lock(kind, vec![bytes], vec![due])),
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

    fn distinct_kinds(&self) -> Vec<Kind> {
        let there = |kind: &&Kind| self.kinds.contains(&i16::from(kind.code()));
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
                Step::Lock(kind, keys, _) => (*kind, keys.len(), false),
                Step::Share(kind, _) => (*kind, 1, true),
            })
            .collect();
        let grant = |count, shared| (Kind::Grant, count, shared);
        assert_eq!(order, [(Kind::Code, 1, false), grant(2, false), grant(1, true), grant(1, false)]);
    }
}
