//! PostgreSQL: one store for many nodes. See `docs/engines/postgres.md`.
//!
//! A write is one statement with its condition inside; a batch is one transaction in one round trip; inserts and gets
//! that arrive together are one statement. No statement asks the server for the time.

mod alter;
mod batch;
mod connect;
mod expand;
mod flight;
mod gather;
mod gets;
mod lanes;
mod link;
mod names;
mod params;
mod schema;
mod settings;
mod sql;
mod sweep;
mod tls;
mod turns;
mod wire;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use crate::admin::{Admin, Erased, KindStats, Stats};
use crate::backend::{Backend, Budget, Cursor, Info, Page, Swept};
use crate::model::alteration::{Alteration, Altered};
use crate::model::error::Result;
use crate::model::key::{Key, Prefix};
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::rng::Rng;
use crate::model::time::Timestamp;
use crate::model::write::{Batch, Commit, Write};
use crate::provide;

use gather::Gatherer;
use gets::Getter;
use link::{Link, Repeat};
use names::Names;
use params::{Bytea, Params, column, malformed, millis, only, record, timestamp};
pub use schema::Migrated;
use settings::Settings;
use sql::Sql;
use turns::Turns;

/// Maximum number of records, rows examined, and bytes of values in one page.
const MOST_IN_PAGE: usize = 10_000;
const MOST_LOOKED_AT: usize = 30_000;
const MOST_PAGE_BYTES: i64 = 8_000_000;

/// Maximum number of records that one call of `erase` removes.
const ERASE_STEP: i64 = 1_000;

/// Upper bound of all keys: their first byte is the scope's tag.
const AFTER_ALL_KEYS: &[u8] = &[0xFF];

/// Store in PostgreSQL, shared by any number of nodes.
pub struct Postgres {
    link: Arc<Link>,
    sql: Arc<Sql>,
    gatherers: BTreeMap<Kind, Arc<Gatherer>>,
    getters: BTreeMap<Kind, Arc<Getter>>,
    turns: Turns,
    names: Names,
}

/// Opens a store whose schema exists in this build's version, or in a newer one that this build can use. `rng` spreads
/// the pauses between attempts.
pub async fn open(url: &str, rng: impl Rng) -> Result<Postgres> {
    let settings = Settings::parse(url)?;
    let link = Link::new(&settings, rng).await?;
    schema::check(&link, &settings.names).await?;
    Ok(Postgres::new(link, settings.names))
}

/// Creates the schema, or migrates it to this build's version. If several processes race, one does it. A newer schema
/// that this build can use is left unchanged.
pub async fn migrate(url: &str) -> Result<Migrated> {
    let mut settings = Settings::parse(url)?;
    // One connection holds the lock, and another changes the tables.
    settings.pool = settings.pool.max(2);
    schema::migrate(&Link::new(&settings, crate::model::rng::SystemRng).await?, &settings.names).await
}

impl Postgres {
    fn new(link: Link, names: Names) -> Self {
        let (link, sql) = (Arc::new(link), Arc::new(Sql::new(&names)));
        let gatherer =
            |&kind: &Kind| (kind, Arc::new(Gatherer::new(kind, Arc::clone(&link), Arc::clone(&sql))));
        let getter = |&kind: &Kind| (kind, Arc::new(Getter::new(kind, Arc::clone(&link), Arc::clone(&sql))));
        let gatherers = Kind::ALL.iter().map(gatherer).collect();
        let getters = Kind::ALL.iter().map(getter).collect();
        let turns = link.turns();
        Self { link, sql, gatherers, getters, turns, names }
    }

    /// Commits one write: a statement with its condition inside. Returns true if it was applied.
    async fn single(&self, write: Write, now: Timestamp) -> Result<bool> {
        let sql = self.sql.of(write.key().kind());
        let at = millis(now);
        // Inserts are gathered, and have turns of their own; conditions alone wait for no lock.
        let turns = match &write {
            Write::Insert { .. } | Write::Check { .. } | Write::Absent { .. } => None,
            write => Some(self.turns.of(write.key()).await?),
        };
        let run =
            async |text: &str, params: Params<'_>| self.link.run_in_turn(turns.as_ref(), text, params).await;
        match write {
            Write::Insert { key, record } => self.gatherers[&key.kind()].insert(key, record, now).await,
            Write::Put { key, record } => {
                let (value, version) = (Bytea(&record.value), Bytea(record.version.as_bytes()));
                let expires_at = millis(record.expires_at);
                let params: Params<'_> = &[&Bytea(key.as_bytes()), &value, &version, &expires_at, &at];
                run(&sql.put, params).await.map(|_| true)
            }
            Write::Replace { key, expected, record } => {
                let (value, version) = (Bytea(&record.value), Bytea(record.version.as_bytes()));
                let (expected, expires_at) = (Bytea(expected.as_bytes()), millis(record.expires_at));
                let params: Params<'_> =
                    &[&Bytea(key.as_bytes()), &expected, &at, &value, &version, &expires_at];
                Ok(run(&sql.replace, params).await?.affected == 1)
            }
            Write::Delete { key } => run(&sql.delete, &[&Bytea(key.as_bytes())]).await.map(|_| true),
            Write::Remove { key, expected } => {
                let params: Params<'_> = &[&Bytea(key.as_bytes()), &Bytea(expected.as_bytes()), &at];
                Ok(run(&sql.remove, params).await?.affected == 1)
            }
            Write::Check { key, expected } => {
                Ok(self.standing(&key, at).await?.is_some_and(|version| version == expected.as_bytes()))
            }
            Write::Absent { key } => Ok(self.standing(&key, at).await?.is_none()),
        }
    }

    /// Version of the live record.
    async fn standing(&self, key: &Key, now: i64) -> Result<Option<Vec<u8>>> {
        let sql = &self.sql.of(key.kind()).standing;
        let rows = self.link.read(sql, &[&Bytea(key.as_bytes()), &now]).await?;
        rows.first().map(|row| column(row, 0)).transpose()
    }
}

#[async_trait]
impl Backend for Postgres {
    async fn get(&self, key: &Key, now: Timestamp) -> Result<Option<Record>> {
        self.getters[&key.kind()].get(key.clone(), now).await
    }

    async fn take(&self, key: &Key, now: Timestamp) -> Result<Option<Record>> {
        let turns = self.turns.of(key).await?;
        let sql = &self.sql.of(key.kind()).take;
        let params: Params<'_> = &[&Bytea(key.as_bytes()), &millis(now)];
        let answer = self.link.run_in_turn(Some(&turns), sql, params).await?;
        answer.rows.first().map(|row| record(row, 0)).transpose()
    }

    async fn alter(&self, key: &Key, alteration: &Alteration, now: Timestamp) -> Result<Altered> {
        alteration.check()?;
        self.alter_one(key, alteration, now).await
    }

    async fn commit(&self, batch: Batch, now: Timestamp) -> Result<Commit> {
        if batch.writes().len() > 1 {
            let turns = self.turns.of_all(batch.writes().iter().map(Write::key)).await?;
            return batch::commit(&self.link, &self.sql, &turns, &batch, now).await;
        }
        let write = batch.into_writes().pop().expect("a batch has at least one write");
        Ok(if self.single(write, now).await? { Commit::Applied } else { Commit::Refused { index: 0 } })
    }

    async fn scan(
        &self,
        prefix: &Prefix,
        after: Option<&Cursor>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Page> {
        let limit = limit.min(MOST_IN_PAGE);
        if limit == 0 {
            return Ok(Page::default());
        }
        // A key is always longer than a prefix of it.
        let start = after.map_or(prefix.as_bytes(), |cursor| cursor.as_bytes().max(prefix.as_bytes()));
        let end = prefix.end();
        let end = Bytea(end.as_deref().unwrap_or(AFTER_ALL_KEYS));
        // Expired rows that are not swept yet are examined too, up to a limit.
        let most = i64::try_from((2 * limit + 1_000).min(MOST_LOOKED_AT)).expect("a small number");
        let place = i64::try_from(limit).expect("a small number");
        let params: Params<'_> = &[&Bytea(start), &end, &millis(now), &most, &place, &MOST_PAGE_BYTES];
        let rows = self.link.read(&self.sql.of(prefix.kind()).scan, params).await?;
        let mut page = Page::default();
        let mut summary = None;
        for row in &rows {
            if let Some(looked_at) = column::<Option<i64>>(row, 4)? {
                summary = Some((looked_at, column::<i64>(row, 5)?, column::<Option<&[u8]>>(row, 0)?));
            } else {
                page.items.push((Key::decode(prefix.kind(), column(row, 0)?)?, record(row, 1)?));
            }
        }
        page.items.sort_unstable_by(|(left, _), (right, _)| left.cmp(right));
        let (looked_at, live, last) = summary.ok_or_else(|| malformed("an answer"))?;
        page.next = if i64::try_from(page.items.len()).is_ok_and(|listed| listed < live) {
            page.items.last().map(|(key, _)| Cursor::from_bytes(key.as_bytes()))
        } else {
            last.filter(|_| looked_at == most).map(Cursor::from_bytes)
        };
        Ok(page)
    }

    async fn sweep(&self, until: Timestamp, budget: &Budget) -> Result<Swept> {
        sweep::sweep(&self.link, &self.sql, self.names.lock("sweep"), until, budget).await
    }

    provide!(get_many commit_each);

    fn info(&self) -> Info {
        Info::new("postgres").shared()
    }
}

#[async_trait]
impl Admin for Postgres {
    provide!(stats_at_hand list count clear warnings backup);

    async fn stats(&self, now: Timestamp) -> Result<Stats> {
        self.link.report_pool();
        let rows = self.link.read(&self.sql.stats, &[&millis(now)]).await?;
        let mut stats = Stats::new();
        for row in &rows {
            let code: i16 = column(row, 0)?;
            let kind =
                u8::try_from(code).ok().and_then(Kind::from_code).ok_or_else(|| malformed("a kind"))?;
            let counts = read_stats(row, now)?;
            if counts != KindStats::default() {
                stats.insert(kind, counts);
            }
        }
        Ok(stats)
    }

    async fn erase(&self, prefix: &Prefix, now: Timestamp) -> Result<Erased> {
        let end = prefix.end();
        let end = Bytea(end.as_deref().unwrap_or(AFTER_ALL_KEYS));
        let params: Params<'_> = &[&Bytea(prefix.as_bytes()), &end, &millis(now), &ERASE_STEP];
        let answer = self.link.run(Repeat::Write, &self.sql.of(prefix.kind()).erase, params).await?;
        let row = only(&answer.rows)?;
        let (gone, live): (i64, i64) = (column(row, 0)?, column(row, 1)?);
        Ok(Erased { removed: u64::try_from(live).unwrap_or_default(), more: gone == ERASE_STEP })
    }

    async fn clock_mark(&self) -> Result<Option<Timestamp>> {
        let rows = self.link.read(&self.sql.clock_mark, &[]).await?;
        rows.first().map(|row| timestamp(column(row, 0)?)).transpose()
    }

    async fn set_clock_mark(&self, mark: Timestamp) -> Result<()> {
        self.link.run(Repeat::Write, &self.sql.set_clock_mark, &[&millis(mark)]).await.map(|_| ())
    }

    async fn engine_clock(&self) -> Result<Option<Timestamp>> {
        let rows = self.link.read(sql::CLOCK, &[]).await?;
        let row = only(&rows)?;
        self.link.note_standby(column(row, 1)?);
        timestamp(column(row, 0)?).map(Some)
    }
}

fn read_stats(row: &tokio_postgres::Row, now: Timestamp) -> Result<KindStats> {
    let (live, expired): (i64, i64) = (column(row, 1)?, column(row, 2)?);
    let (earliest, estimate): (Option<i64>, Option<f64>) = (column(row, 3)?, column(row, 4)?);
    let count = |counted: i64| u64::try_from(counted).unwrap_or_default();
    let (mut live, expired) = (count(live), count(expired));
    if live >= count(sql::MOST_COUNTED_LIVE) {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "an estimate, not negative"
        )]
        let all = estimate.unwrap_or_default().max(0.0) as u64;
        live = live.max(all.saturating_sub(expired));
    }
    let oldest_overdue = earliest.map(timestamp).transpose()?.map(|earliest| now.since(earliest));
    Ok(KindStats { live, expired, oldest_overdue })
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Postgres({})", self.names.schema())
    }
}
