//! Statements of the engine. Times are parameters: no statement reads the server's clock, except the one that
//! measures the skew.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::alter::AlterSql;
use super::names::Names;
use crate::model::kind::Kind;

/// Expiry of a placeholder: a row for a missing record that a batch checks or removes, so that it can be locked. It is before all time, and so
/// expired to every statement; it is not counted, and a sweep removes it.
pub(super) const PLACEHOLDER: i64 = -1;

/// Expression that is true if commits of the server wait for a standby.
macro_rules! waits_for_standby {
    () => {
        "coalesce(current_setting('synchronous_standby_names', true), '') <> ''"
    };
}

pub(super) const WAITS_FOR_STANDBY: &str = waits_for_standby!();

/// Server's clock in milliseconds since 1970, whatever the session's time zone, and its standbys, which may change.
pub(super) const CLOCK: &str =
    concat!("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::int8, ", waits_for_standby!());

/// Limit above which live records are estimated, not counted.
pub(super) const MOST_COUNTED_LIVE: i64 = 100_000;

/// Limit above which expired records are no longer counted.
pub(super) const MOST_COUNTED_EXPIRED: i64 = 1_000_000;

/// Statements of a store.
pub(super) struct Sql {
    kinds: BTreeMap<Kind, KindSql>,
    pub(super) stats: String,
    pub(super) clock_mark: String,
    pub(super) set_clock_mark: String,
    names: Names,
}

/// Statements of one kind.
pub(super) struct KindSql {
    pub(super) get: String,
    pub(super) get_many: String,
    pub(super) take: String,
    pub(super) alter: AlterSql,
    pub(super) put: String,
    pub(super) insert: String,
    pub(super) replace: String,
    pub(super) delete: String,
    pub(super) remove: String,
    pub(super) standing: String,
    pub(super) scan: String,
    pub(super) erase: String,
    pub(super) sweep: String,
    pub(super) put_off: String,
    pub(super) lock: String,
    pub(super) claim: String,
    pub(super) share: String,
}

impl Sql {
    pub(super) fn new(names: &Names) -> Self {
        let meta = names.meta();
        Self {
            kinds: Kind::ALL.iter().map(|&kind| (kind, KindSql::new(&names.table(kind)))).collect(),
            stats: stats(names),
            clock_mark: format!("SELECT value FROM {meta} WHERE name = 'clock_mark'"),
            set_clock_mark: format!(
                "INSERT INTO {meta} (name, value) VALUES ('clock_mark', $1) \
                 ON CONFLICT (name) DO UPDATE SET value = excluded.value"
            ),
            names: names.clone(),
        }
    }

    pub(super) fn of(&self, kind: Kind) -> &KindSql {
        &self.kinds[&kind]
    }

    /// Evaluates a batch over these kinds, whose rows are locked, and overwrites rows if every condition holds; all in
    /// one statement, so on one snapshot. It leaves the verdict, and the rows to delete, to the next statement. See
    /// [`super::batch`].
    pub(super) fn carry_out(&self, kinds: &[Kind]) -> String {
        let mut sql = format!(
            "WITH w AS MATERIALIZED (SELECT u.*, u.place = ANY ({}) AS is_new FROM unnest($1::int2[], $2::bytea[], \
             $3::int2[], $4::bytea[], $5::int2[], $6::bytea[], $7::bytea[], $8::int8[]) WITH ORDINALITY \
             AS u (kind, key, asks, expected, does, value, version, expires_at, place))",
            noted(INSERTED)
        );
        let mut standing = Vec::new();
        for &kind in kinds {
            let (code, table) = (kind.code(), self.names.table(kind));
            let _ = write!(
                sql,
                ", s{code} AS MATERIALIZED (SELECT w.place, w.asks, w.expected, w.is_new, t.version, t.expires_at \
                 FROM w JOIN {table} AS t ON t.key = w.key WHERE w.kind = {code} FOR SHARE OF t SKIP LOCKED)"
            );
            standing.push(format!("SELECT * FROM s{code}"));
        }
        let _ = write!(
            sql,
            ", verdict AS MATERIALIZED (SELECT count(*) AS met, min(place) FILTER (WHERE NOT CASE asks \
             WHEN {ALWAYS} THEN true WHEN {ABSENT} THEN is_new OR expires_at <= $9 \
             ELSE version = expected AND expires_at > $9 END) AS refused FROM ({}) AS s), \
             go AS MATERIALIZED (SELECT refused IS NULL AND met = $10::int8 AS go FROM verdict)",
            standing.join(" UNION ALL ")
        );
        for &kind in kinds {
            let (code, table) = (kind.code(), self.names.table(kind));
            let _ = write!(
                sql,
                ", u{code} AS (UPDATE {table} AS t SET value = w.value, version = w.version, \
                 expires_at = w.expires_at, written_at = $9, due_at = {} FROM w WHERE t.key = w.key \
                 AND w.kind = {code} AND w.does = {STORE} AND NOT (w.is_new AND t.version = w.version) \
                 AND (SELECT go FROM go))",
                due("t.due_at", "w.expires_at", "$9")
            );
        }
        let _ = write!(
            sql,
            " SELECT set_config('{VERDICT}', ARRAY[met, refused]::text, true), set_config('{DOOMED}', \
             (SELECT coalesce(array_agg(place), '{{}}')::text FROM w WHERE CASE WHEN (SELECT go FROM go) \
             THEN does = {ERASE} ELSE is_new END), true) FROM verdict"
        );
        sql
    }

    /// Deletes the rows of these kinds that [`Self::carry_out`] has left to delete, and returns its verdict: the number
    /// of rows that were found, and the place of the first condition that does not hold.
    pub(super) fn clear_out(&self, kinds: &[Kind]) -> String {
        let mut sql = format!(
            "WITH w AS MATERIALIZED (SELECT u.kind, u.key FROM unnest($1::int2[], $2::bytea[]) WITH ORDINALITY \
             AS u (kind, key, place) WHERE u.place = ANY ({}))",
            noted(DOOMED)
        );
        for &kind in kinds {
            let (code, table) = (kind.code(), self.names.table(kind));
            let _ = write!(
                sql,
                ", d{code} AS (DELETE FROM {table} AS t USING w WHERE t.key = w.key AND w.kind = {code})"
            );
        }
        let _ = write!(sql, " SELECT v[1], v[2] FROM (SELECT {} AS v) AS verdict", noted(VERDICT));
        sql
    }
}

/// Settings of one transaction, by which a statement of a batch leaves numbers to the next one: places of the rows that
/// the batch inserted, places of the rows to delete, and the verdict.
const INSERTED: &str = "ebbtide.inserted";
const DOOMED: &str = "ebbtide.doomed";
const VERDICT: &str = "ebbtide.verdict";

/// Numbers that an earlier statement of the transaction left. A setting of a past transaction reads as empty.
fn noted(setting: &str) -> String {
    format!("coalesce(nullif(current_setting('{setting}', true), ''), '{{}}')::int8[]")
}

/// Conditions of a write, as [`Sql::carry_out`] reads them.
pub(super) const ALWAYS: i16 = 0;
pub(super) const ABSENT: i16 = 1;
pub(super) const VERSION: i16 = 2;

/// Effects of a write.
pub(super) const NOTHING: i16 = 0;
pub(super) const STORE: i16 = 1;
pub(super) const ERASE: i16 = 2;

/// Columns of a table, in the order of the parameters of an insert; the last one is the expiry once more.
pub(super) const COLUMNS: &str = "key, value, version, expires_at, written_at, due_at";

/// Time at which a sweep looks at a row that is overwritten. One that lies ahead stays, unless the new expiry is earlier:
/// then the update changes no index. The sweep that looks at it too early puts it off to the expiry.
pub(super) fn due(present: &str, expires_at: &str, now: &str) -> String {
    format!("CASE WHEN {present} > {now} AND {present} <= {expires_at} THEN {present} ELSE {expires_at} END")
}

impl KindSql {
    fn new(table: &str) -> Self {
        let columns = COLUMNS;
        let overwrite = "value = excluded.value, version = excluded.version, \
                         expires_at = excluded.expires_at, written_at = excluded.written_at";
        Self {
            get: format!("SELECT value, version, expires_at FROM {table} WHERE key = $1 AND expires_at > $2"),
            // Each get carries its own `now`, and is answered by its place.
            get_many: format!(
                "SELECT k.place, t.value, t.version, t.expires_at FROM unnest($1::bytea[], $2::int8[]) \
                 WITH ORDINALITY AS k (key, now, place) JOIN {table} AS t ON t.key = k.key \
                 WHERE t.expires_at > k.now"
            ),
            take: format!(
                "DELETE FROM {table} WHERE key = $1 AND expires_at > $2 RETURNING value, version, expires_at"
            ),
            alter: AlterSql::new(table),
            put: format!(
                "INSERT INTO {table} AS t ({columns}) VALUES ($1, $2, $3, $4, $5, $4) \
                 ON CONFLICT (key) DO UPDATE SET {overwrite}, due_at = {}",
                due("t.due_at", "excluded.expires_at", "excluded.written_at")
            ),
            // Each row carries its own `now`, as the time at which it is written. Rows are taken in the order of
            // their keys, so that no two statements deadlock. If all were written, as is usual, NULL says so;
            // otherwise the keys that were written are returned.
            insert: format!(
                "WITH done AS (INSERT INTO {table} AS t ({columns}) SELECT n.*, n.expires_at \
                 FROM unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::int8[], $5::int8[]) \
                 AS n (key, value, version, expires_at, written_at) ORDER BY n.key \
                 ON CONFLICT (key) DO UPDATE SET {overwrite}, due_at = excluded.due_at WHERE t.expires_at <= excluded.written_at \
                 RETURNING key) \
                 SELECT CASE WHEN count(*) < cardinality($1::bytea[]) THEN coalesce(array_agg(key), '{{}}') END \
                 FROM done"
            ),
            replace: format!(
                "UPDATE {table} SET value = $4, version = $5, expires_at = $6, written_at = $3, due_at = {} \
                 WHERE key = $1 AND version = $2 AND expires_at > $3",
                due("due_at", "$6", "$3")
            ),
            delete: format!("DELETE FROM {table} WHERE key = $1"),
            remove: format!("DELETE FROM {table} WHERE key = $1 AND version = $2 AND expires_at > $3"),
            standing: format!("SELECT version FROM {table} WHERE key = $1 AND expires_at > $2"),
            scan: scan(table),
            erase: format!(
                "WITH part AS (SELECT key FROM {table} WHERE key > $1 AND key < $2 ORDER BY key LIMIT $4 \
                 FOR UPDATE), gone AS (DELETE FROM {table} AS t USING part WHERE t.key = part.key \
                 RETURNING t.expires_at) \
                 SELECT count(*), count(*) FILTER (WHERE expires_at > $3) FROM gone"
            ),
            sweep: sweep(table),
            // Rows that a sweep has looked at too early.
            put_off: format!(
                "UPDATE {table} AS t SET due_at = t.expires_at WHERE t.key = ANY (ARRAY(SELECT d.key \
                 FROM {table} AS d WHERE d.due_at >= $1 AND d.due_at <= $2 AND d.expires_at >= $3 \
                 ORDER BY d.due_at LIMIT $4 FOR UPDATE SKIP LOCKED)) AND t.expires_at >= $3"
            ),
            // Inserts the row if it is missing, notes that, and locks the row otherwise: PostgreSQL locks it before it
            // evaluates the WHERE clause, even if it then changes nothing.
            lock: format!(
                "WITH k AS MATERIALIZED (SELECT * FROM unnest($1::int8[], $2::bytea[], $3::bytea[], $4::bytea[], \
                 $5::int8[], $6::int8[]) AS k (place, key, value, version, expires_at, due_at)), \
                 done AS (INSERT INTO {table} AS t ({columns}) SELECT key, value, version, expires_at, \
                 CASE WHEN expires_at < 0 THEN expires_at ELSE $7::int8 END, due_at FROM k ORDER BY key \
                 ON CONFLICT (key) DO UPDATE SET expires_at = t.expires_at WHERE false RETURNING key) \
                 SELECT set_config('{INSERTED}', ({} || coalesce(array_agg(k.place), '{{}}'))::text, true) \
                 FROM k JOIN done ON done.key = k.key",
                noted(INSERTED)
            ),
            claim: format!(
                "INSERT INTO {table} ({columns}) VALUES ($1, '', '', {PLACEHOLDER}, {PLACEHOLDER}, {PLACEHOLDER}) \
                 ON CONFLICT (key) DO NOTHING"
            ),
            share: format!("SELECT 1 FROM {table} WHERE key = $1 FOR SHARE"),
        }
    }
}

/// Examines a bounded number of rows, and returns the live ones that fit the page, followed by a summary row: the
/// number of rows examined, the number of live ones, and the last key.
fn scan(table: &str) -> String {
    format!(
        "WITH part AS MATERIALIZED (SELECT key, value, version, expires_at FROM {table} \
         WHERE key > $1 AND key < $2 ORDER BY key LIMIT $4), \
         live AS MATERIALIZED (SELECT *, row_number() OVER w AS place, \
         sum(octet_length(value)) OVER w AS bytes FROM part WHERE expires_at > $3 WINDOW w AS (ORDER BY key)) \
         SELECT key, value, version, expires_at, NULL::int8, NULL::int8 FROM live \
         WHERE place <= $5 AND (place = 1 OR bytes <= $6) \
         UNION ALL SELECT (SELECT key FROM part ORDER BY key DESC LIMIT 1), NULL, NULL, NULL, \
         (SELECT count(*) FROM part), (SELECT count(*) FROM live)"
    )
}

/// Looks at some rows that are due, and removes those that have expired, if no other sweeper runs. It waits for no lock.
/// The deleting step checks the expiry again.
fn sweep(table: &str) -> String {
    format!(
        "WITH turn AS MATERIALIZED (SELECT pg_try_advisory_xact_lock($4) AS mine), \
         due AS MATERIALIZED (SELECT d.key, d.expires_at, d.due_at FROM {table} AS d \
         WHERE (SELECT mine FROM turn) AND d.due_at >= $1 AND d.due_at < $2 \
         ORDER BY d.due_at LIMIT $3 FOR UPDATE SKIP LOCKED), \
         gone AS (DELETE FROM {table} AS t WHERE t.key = ANY (ARRAY(SELECT key FROM due WHERE expires_at < $2)) \
         AND t.expires_at < $2 RETURNING t.expires_at) \
         SELECT (SELECT mine FROM turn), count(*), count(*) FILTER (WHERE expires_at >= 0), \
         (SELECT max(due_at) FROM due), (SELECT count(*) FROM due) FROM gone"
    )
}

/// By kind: live records up to a limit and the planner's estimate, expired ones up to a limit, and the earliest expiry
/// of these. Each is a walk that ends at its limit: of the table, and of the index by the time at which rows are due, which
/// is not after their expiry.
fn stats(names: &Names) -> String {
    let of = |kind: &Kind| {
        let (code, table) = (kind.code(), names.table(*kind));
        format!(
            "SELECT {code}::int2, \
             (SELECT count(*) FROM (SELECT 1 FROM {table} WHERE expires_at > $1 LIMIT {MOST_COUNTED_LIVE}) AS l), \
             e.expired, e.earliest, \
             (SELECT reltuples::float8 FROM pg_class WHERE oid = '{table}'::regclass) \
             FROM (SELECT count(*) AS expired, min(expires_at) AS earliest FROM (SELECT expires_at FROM {table} \
             WHERE due_at <= $1 AND expires_at BETWEEN 0 AND $1 ORDER BY due_at LIMIT {MOST_COUNTED_EXPIRED}) AS x) AS e"
        )
    };
    Kind::ALL.iter().map(of).collect::<Vec<_>>().join(" UNION ALL ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every_statement(names: &Names) -> Vec<String> {
        let sql = Sql::new(names);
        let mut all = vec![sql.carry_out(Kind::ALL), sql.clear_out(Kind::ALL)];
        for kind in sql.kinds.into_values() {
            let KindSql { get, get_many, take, put, insert, replace, delete, remove, .. } = kind;
            all.extend(kind.alter.all().map(Clone::clone));
            let KindSql { standing, scan, erase, sweep, put_off, lock, claim, share, .. } = KindSql::new("t");
            all.extend([get, get_many, take, put, insert, replace, delete, remove]);
            all.extend([standing, scan, erase, sweep, put_off, lock, claim, share]);
        }
        all.extend([sql.stats, sql.clock_mark, sql.set_clock_mark]);
        let changes = super::super::schema::steps(names).into_iter().flatten().flatten();
        all.extend(changes.map(|change| change.statement(names)));
        all
    }

    #[test]
    fn no_statement_asks_the_server_for_the_time() {
        let clocks = ["now(", "_timestamp", "localtime", "current_date", "current_time", "timeofday"];
        for statement in every_statement(&Names::new("s", "p_").unwrap()) {
            let lower = statement.to_lowercase();
            for clock in clocks {
                assert!(!lower.contains(clock), "{clock} in {statement}");
            }
        }
        assert!(CLOCK.contains("clock_timestamp"), "the one that is compared");
    }

    /// Servers that speak PostgreSQL's protocol differ in what two changes of one table in one statement see.
    #[test]
    fn a_statement_changes_each_table_once() {
        let names = Names::new("s", "p_").unwrap();
        let tables: Vec<String> = Kind::ALL.iter().map(|&kind| names.table(kind)).collect();
        let mut changes = 0;
        for statement in every_statement(&names) {
            for table in tables.iter().map(String::as_str).chain(["t"]) {
                let count = |verb: &str| {
                    let change = format!("{verb} {table} ");
                    statement.matches(&change).count()
                };
                let of_table = count("INSERT INTO") + count("UPDATE") + count("DELETE FROM");
                assert!(of_table <= 1, "{of_table} changes of {table} in {statement}");
                changes += of_table;
            }
        }
        assert!(changes > 10 * tables.len(), "{changes}");
    }

    #[test]
    fn every_table_is_named_with_its_schema_and_prefix() {
        let names = Names::new("elsewhere", "mine_").unwrap();
        let sql = Sql::new(&names);
        let kind = sql.of(Kind::Code);
        for statement in [
            &kind.get,
            &kind.get_many,
            &kind.take,
            &kind.alter.swap,
            &kind.put,
            &kind.insert,
            &kind.replace,
            &kind.delete,
            &kind.remove,
            &kind.standing,
            &kind.scan,
            &kind.erase,
            &kind.sweep,
            &kind.put_off,
            &kind.lock,
            &kind.claim,
            &kind.share,
            &sql.stats,
        ] {
            assert!(statement.contains("\"elsewhere\".\"mine_codes\""), "{statement}");
        }
    }
}
