//! Changes that answer with the record: one statement each.

use super::Postgres;
use super::params::{Bytea, Params, column, millis, record};
use super::sql::{COLUMNS, due};
use super::turns::HeldTurns;
use crate::model::alteration::{Add, Alteration, Altered};
use crate::model::error::{Error, Result};
use crate::model::key::Key;
use crate::model::record::Record;
use crate::model::time::Timestamp;

/// Attempts of a swap that met the insert of another.
const SWAPS: usize = 16;

/// Statements of one kind. Each answers with rows of: applied, value, version, expiry.
pub(super) struct AlterSql {
    add: String,
    add_to_live: String,
    pub(super) swap: String,
    touch: String,
    take: String,
}

impl AlterSql {
    pub(super) fn new(table: &str) -> Self {
        let columns = COLUMNS;
        // The value of a counter is a number of 8 bytes, big-endian, as `int8send` writes it.
        let count = "('x' || encode(t.value, 'hex'))::bit(64)::int8";
        let record = "value, version, expires_at";
        // The record that was in the way, as the statement's snapshot has it.
        let or_standing = |now: &str| {
            format!(
                "SELECT true, {record} FROM done UNION ALL SELECT false, {record} FROM {table} \
                 WHERE key = $1 AND expires_at > {now} AND NOT EXISTS (SELECT 1 FROM done)"
            )
        };
        Self {
            add: format!(
                "WITH done AS (INSERT INTO {table} AS t ({columns}) VALUES ($1, int8send($2::int8), $3, $4, $5, $4) \
                 ON CONFLICT (key) DO UPDATE SET \
                 value = CASE WHEN t.expires_at > $5 THEN int8send({count} + $2::int8) ELSE excluded.value END, \
                 expires_at = CASE WHEN t.expires_at > $5 THEN t.expires_at ELSE excluded.expires_at END, \
                 due_at = CASE WHEN t.expires_at > $5 THEN t.due_at ELSE excluded.due_at END, \
                 version = excluded.version, written_at = excluded.written_at \
                 WHERE CASE WHEN t.expires_at > $5 THEN {count} BETWEEN $6 AND $7 ELSE true END \
                 RETURNING {record}) {}",
                or_standing("$5")
            ),
            add_to_live: format!(
                "WITH done AS (UPDATE {table} AS t SET value = int8send({count} + $2::int8), version = $3, \
                 written_at = $4 WHERE key = $1 AND CASE WHEN expires_at > $4 THEN {count} BETWEEN $5 AND $6 \
                 ELSE false END RETURNING {record}) {}",
                or_standing("$4")
            ),
            // The present record is locked and read. An insert that came between is not overwritten, since it would
            // not be answered: no row says so.
            swap: format!(
                "WITH old AS MATERIALIZED (SELECT {record} FROM {table} WHERE key = $1 FOR UPDATE), \
                 done AS (INSERT INTO {table} AS t ({columns}) VALUES ($1, $2, $3, $4, $5, $4) \
                 ON CONFLICT (key) DO UPDATE SET value = excluded.value, version = excluded.version, \
                 expires_at = excluded.expires_at, written_at = excluded.written_at, due_at = {} \
                 WHERE EXISTS (SELECT 1 FROM old) RETURNING 1) \
                 SELECT old.expires_at > $5, old.value, old.version, old.expires_at FROM done LEFT JOIN old ON true",
                due("t.due_at", "excluded.expires_at", "excluded.written_at")
            ),
            touch: format!(
                "WITH done AS (UPDATE {table} SET expires_at = $2, version = $3, written_at = $4, due_at = {} \
                 WHERE key = $1 AND expires_at > $4 AND substring(value FROM 1 FOR 1) = $5 \
                 RETURNING {record}) {}",
                due("due_at", "$2", "$4"),
                or_standing("$4")
            ),
            take: format!(
                "WITH done AS (DELETE FROM {table} WHERE key = $1 AND expires_at > $2 \
                 AND substring(value FROM 1 FOR 1) = $3 RETURNING {record}) {}",
                or_standing("$2")
            ),
        }
    }

    #[cfg(test)]
    pub(super) fn all(&self) -> [&String; 5] {
        [&self.add, &self.add_to_live, &self.swap, &self.touch, &self.take]
    }
}

impl Postgres {
    pub(super) async fn alter_one(
        &self,
        key: &Key,
        alteration: &Alteration,
        now: Timestamp,
    ) -> Result<Altered> {
        let turns = &self.turns.of(key).await?;
        let sql = &self.sql.of(key.kind()).alter;
        let (bytes, at) = (Bytea(key.as_bytes()), millis(now));
        match alteration {
            Alteration::Add(add) => {
                let Add { by, expires_if_new, version, .. } = add;
                let (least, most) = add.bounds();
                let (version, end) = (Bytea(version.as_bytes()), millis(*expires_if_new));
                if add.fits(0) {
                    self.answer(turns, &sql.add, &[&bytes, by, &version, &end, &at, &least, &most]).await
                } else {
                    self.answer(turns, &sql.add_to_live, &[&bytes, by, &version, &at, &least, &most]).await
                }
            }
            Alteration::Swap { record } => self.swap(turns, &sql.swap, &bytes, record, at).await,
            Alteration::Touch { first, expires_at, version } => {
                let (end, version) = (millis(*expires_at), Bytea(version.as_bytes()));
                self.answer(turns, &sql.touch, &[&bytes, &end, &version, &at, &Bytea(&[*first])]).await
            }
            Alteration::Take { first } => {
                self.answer(turns, &sql.take, &[&bytes, &at, &Bytea(&[*first])]).await
            }
        }
    }

    /// Runs a statement that is never repeated once it was sent.
    async fn answer(&self, turns: &HeldTurns, sql: &str, params: Params<'_>) -> Result<Altered> {
        let answer = self.link.run_in_turn(Some(turns), sql, params).await?;
        match answer.rows.first() {
            Some(row) => Ok(Altered { applied: column(row, 0)?, record: Some(record(row, 1)?) }),
            None => Ok(Altered::refused(None)),
        }
    }

    async fn swap(
        &self,
        turns: &HeldTurns,
        sql: &str,
        key: &Bytea<'_>,
        new: &Record,
        at: i64,
    ) -> Result<Altered> {
        let (value, version) = (Bytea(&new.value), Bytea(new.version.as_bytes()));
        let expires_at = millis(new.expires_at);
        for _ in 0..SWAPS {
            let params: Params<'_> = &[key, &value, &version, &expires_at, &at];
            let answer = self.link.run_in_turn(Some(turns), sql, params).await?;
            let Some(row) = answer.rows.first() else { continue };
            let live: Option<bool> = column(row, 0)?;
            let before = if live == Some(true) { Some(record(row, 1)?) } else { None };
            return Ok(Altered::applied(before));
        }
        Err(Error::unavailable("other writers inserted and removed the record at every attempt; try again"))
    }
}
