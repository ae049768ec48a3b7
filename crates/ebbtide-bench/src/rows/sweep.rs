//! Sweep of a million expired records among a million live ones: its rate, compared with PostgreSQL, and the latency
//! of concurrent callers.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Result, ensure};
use ebbtide::ops::sweeper::Share;
use ebbtide::{Admin, BackendExt as _, Budget, Clock as _, Stopwatch, SystemClock, Timestamp};
use ebbtide_bench::results::{Bar, Figure};
use tokio_postgres::Client;

use super::cold::chill;
use super::grouped;
use super::watch::{sweeper, watchers};
use crate::context::{Context, ENGINES, embedded, shown};
use crate::cpu::{Meter, Whose};
use crate::load::rounds::{Kept, Round};
use crate::measured::{Draft, Measured, axis, log_axis};
use crate::peers::postgres::{fresh, pid, plain_table};
use crate::records::{fill, in_seconds};

const EACH: u64 = 1_000_000;

pub(super) async fn run(context: &Context, measured: &mut Measured) -> Result<()> {
    let rounds = if context.quick { 1 } else { 3 };
    let each = context.scaled(EACH);
    let swept = format!("{} expired of {} records", grouped(each), grouped(2 * each));
    let peer = delete_and_vacuum(context, rounds).await?;
    let mut lines = Vec::new();
    for engine in ENGINES {
        let folder = context.folder(engine)?;
        let store = embedded(engine, folder.path()).await?;
        let mut field = Field::new(Arc::clone(&store), each).await?;
        let ours = field.rates(rounds, shown(engine)).await?;
        let draft = Draft {
            id: format!("sweep-{engine}-rate"),
            what: format!("sweeping {swept}, {}", shown(engine)),
            unit: "records per second",
            bar: Some(Bar::AtLeast(5.0)),
            note: "Without other load on either side, flat out. Ours removes entries of the index, since the \
                   records are in the log, and the bytes return when their segments retire; PostgreSQL deletes by the index and then vacuums, which gives the space back to the table \
                   and not to the disk."
                .to_owned(),
        };
        measured.row(draft, ours, Some(peer.clone()));
        let draft = Draft {
            id: format!("sweep-{engine}-cold-rate"),
            what: format!("sweeping {swept} in the cold store, {}", shown(engine)),
            unit: "records per second",
            bar: Some(Bar::AtLeast(5.0)),
            note: "Without other load on either side, flat out. All records are in one window of the cold store, which has \
                   not passed: ours finds them by the expiry list of the window and writes tombstones, and the bytes return \
                   by compactions; PostgreSQL deletes by the index and then vacuums, which gives the space back to the table \
                   and not to the disk."
                .to_owned(),
        };
        let cold = cold_rates(context, engine, each, rounds).await?;
        measured.row(draft, cold, Some(peer.clone()));
        let mut watchers = watchers(context, &store).await?;
        for (id, name, flat_out) in [
            ("p99", "the server's sweeper, a quarter of the time", false),
            ("p99-flat-out", "flat out", true),
        ] {
            let name = format!("{}, {name}", shown(engine));
            let (mut during, mut before) = (Kept::new(&*name), Kept::new("the same callers before it"));
            for round in 1..=rounds {
                let until = field.refill().await?;
                let sweep = async {
                    if flat_out {
                        Ok(store.sweep_all(until, &Budget::default()).await?.total())
                    } else {
                        sweeper(Arc::clone(&store), Share::QUARTER, until).await
                    }
                };
                let who = [("both", Whose::Ours)];
                let meter = Meter::start(&who)?;
                let watched = watchers.watch(context, &who, sweep).await?;
                field.check(watched.removed)?;
                let [calm, busy, after] = watched.p99()?;
                eprintln!(
                    "  round {round} of {rounds}: {name}: {:.1} s, p99 {calm:.2} ms before, {busy:.2} during, {after:.2} after",
                    watched.seconds()
                );
                during.add(&Round { figure: busy, operations: watched.calls(), cpu: meter.stop()? });
                before.add(&Round { figure: calm, operations: watched.calls(), cpu: BTreeMap::new() });
                if round == rounds {
                    lines.push(watched.line(name.clone()));
                }
            }
            let draft = Draft {
                id: format!("sweep-{engine}-{id}"),
                what: format!("p99 of replay checks while {swept} are swept, {name}"),
                unit: "ms",
                bar: Some(Bar::AtMost(1.5)),
                note: "After filling, it is waited until nothing is compacted any more and all is on the disk. Replay checks \
                       come by a schedule, at a quarter of the most that 64 callers do, before the sweep and on through \
                       it, and their time counts from when they were due. The processors' time is that \
                       of the calls and the sweep together."
                    .to_owned(),
            };
            measured.row(draft, during.figure(), Some(before.figure()));
        }
    }
    let (x, y) = (axis("seconds since the sweep began"), log_axis("p99, ms"));
    measured.chart("sweep", "p99 of replay checks through a sweep, by half seconds", x, y, lines);
    Ok(())
}

/// Store of which half has expired.
struct Field {
    store: Arc<dyn Admin>,
    each: u64,
    /// True if the expired half is present.
    is_full: bool,
}

impl Field {
    async fn new(store: Arc<dyn Admin>, each: u64) -> Result<Self> {
        let now = SystemClock.now();
        let (soon, late) = (in_seconds(now, 60)?, in_seconds(now, 86_400)?);
        // Adjacent in the tables.
        fill(&store, 2 * each, |number| if number % 2 == 0 { soon } else { late }).await?;
        Ok(Self { store, each, is_full: true })
    }

    /// Writes the expired half if it is missing, and returns the instant to sweep to.
    async fn refill(&mut self) -> Result<Timestamp> {
        let now = SystemClock.now();
        if !std::mem::replace(&mut self.is_full, false) {
            let soon = in_seconds(now, 60)?;
            fill(&self.store, self.each, |_| soon).await?;
        }
        // After every expiry of a minute, long before those of a day.
        in_seconds(now, 300)
    }

    fn check(&self, removed: u64) -> Result<()> {
        ensure!(removed >= self.each, "{removed} of {} were swept", self.each);
        Ok(())
    }

    /// Records swept per second without other load.
    async fn rates(&mut self, rounds: usize, name: &str) -> Result<Figure> {
        let mut kept = Kept::new(format!("{name}, sweep"));
        for round in 0..=rounds {
            let until = self.refill().await?;
            let (meter, stopwatch) = (Meter::start(&[("both", Whose::Ours)])?, Stopwatch::start());
            let removed = self.store.sweep_all(until, &Budget::default()).await?.total();
            let seconds = stopwatch.elapsed().as_secs_f64();
            self.check(removed)?;
            let figure = removed as f64 / seconds;
            eprintln!("  round {round} of {rounds}: {name}: {figure:.0} records/s");
            if round > 0 {
                kept.add(&Round { figure, operations: removed, cpu: meter.stop()? });
            }
        }
        Ok(kept.figure())
    }
}

/// Records swept per second out of the cold store, without other load.
async fn cold_rates(context: &Context, engine: &str, each: u64, rounds: usize) -> Result<Figure> {
    let mut kept = Kept::new(format!("{}, sweep of the cold store", shown(engine)));
    for round in 1..=rounds {
        let folder = context.folder(engine)?;
        // Far enough for a window of a day, and close to each other, so that both halves are in the same one.
        let now = SystemClock.now();
        let (soon, late) = (in_seconds(now, 5 * 3_600)?, in_seconds(now, 5 * 3_600 + 120)?);
        {
            let store = embedded(engine, folder.path()).await?;
            fill(&store, 2 * each, |number| if number % 2 == 0 { soon } else { late }).await?;
        }
        chill(engine, folder.path()).await?;
        let store = embedded(engine, folder.path()).await?;
        let until = in_seconds(now, 5 * 3_600 + 60)?;
        let (meter, stopwatch) = (Meter::start(&[("both", Whose::Ours)])?, Stopwatch::start());
        let removed = store.sweep_all(until, &Budget::default()).await?.total();
        let figure = removed as f64 / stopwatch.elapsed().as_secs_f64();
        ensure!(removed == each, "{removed} of {each} were swept");
        eprintln!("  round {round} of {rounds}: {}, cold: {figure:.0} records/s", shown(engine));
        kept.add(&Round { figure, operations: removed, cpu: meter.stop()? });
    }
    Ok(kept.figure())
}

/// Records removed per second by an indexed `DELETE` and the `VACUUM` after it.
async fn delete_and_vacuum(context: &Context, rounds: usize) -> Result<Figure> {
    let (_store, client) = fresh(context.postgres()?).await?;
    let (table, each) = (plain_table(&client).await?, context.scaled(EACH));
    let pid = pid(&client).await?;
    let mut kept = Kept::new("PostgreSQL, DELETE and VACUUM");
    for round in 0..=rounds {
        fill_plain(&client, &table, each).await?;
        let (meter, stopwatch) = (Meter::start(&[("server", Whose::Server(pid))])?, Stopwatch::start());
        let deleted =
            client.execute(&format!("DELETE FROM {table} WHERE expires_at < 1500000000000"), &[]).await?;
        client.batch_execute(&format!("VACUUM {table}")).await?;
        let figure = each as f64 / stopwatch.elapsed().as_secs_f64();
        ensure!(deleted == each, "{deleted} of {each} were deleted");
        eprintln!("  round {round} of {rounds}: PostgreSQL: {figure:.0} records/s");
        if round > 0 {
            kept.add(&Round { figure, operations: each, cpu: meter.stop()? });
        }
    }
    Ok(kept.figure())
}

async fn fill_plain(client: &Client, table: &str, each: u64) -> Result<()> {
    let fill = format!(
        "TRUNCATE {table}; INSERT INTO {table} (key, value, version, expires_at) \
         SELECT sha256(n::text::bytea), '', decode(md5(n::text), 'hex'), \
         CASE WHEN n % 2 = 0 THEN 1000000000000 ELSE 5000000000000 END + n FROM generate_series(1, {}) AS n",
        2 * each
    );
    client.batch_execute(&fill).await?;
    client.batch_execute(&format!("VACUUM ANALYZE {table}")).await?;
    client.batch_execute("CHECKPOINT").await?;
    Ok(())
}
