//! Latency of scheduled calls compared with Redis: by rate, and by the number of callers.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use ebbtide::{Stopwatch, Stores};
use ebbtide_bench::results::{Figure, Line};
use futures_util::future::BoxFuture;
use tokio::sync::Mutex;

use super::grouped;
use crate::context::{Context, ENGINES, embedded, shown};
use crate::cpu::{Meter, Whose};
use crate::load::open::Until;
use crate::load::rounds::{Kept, Round};
use crate::load::{Caller, Outcome, callers, closed, open, whole};
use crate::measured::{Draft, Measured, axis, log_axis};
use crate::peers::http::ReplayChecks;
use crate::peers::redis::{Log, Redis, SetNx};
use crate::peers::server::Server;
use crate::records::replay_check;

/// Rates, as shares of Redis's maximum in a closed loop.
const SHARES: [f64; 5] = [0.1, 0.25, 0.5, 0.75, 0.9];

/// Share of the rows, at which the number of callers also varies.
const SHOWN: f64 = 0.25;

/// Number of callers at the other shares.
const USUAL: usize = 64;

const IN_FLIGHT: [usize; 3] = [16, USUAL, 256];

/// Share of a side's maximum in a closed loop above which the queue grows without bound.
const SATURATED: f64 = 0.95;

const PERCENTILES: [(&str, f64); 3] = [("p50", 50.0), ("p99", 99.0), ("p99.9", 99.9)];

const NOTE: &str = "Both answer when it is on the disk. Calls come as a Poisson process at the same rate on both sides, a \
     quarter of the most that Redis does in a closed loop, and their time counts from when they were due, with the wait \
     for a free caller. Redis and HTTP are asked through TCP, one request at a time on each connection; the library in \
     the process. The load generator shares the processors with all of them.";

/// Load by a number of callers, at a rate or, without one, in a closed loop, for a time.
type Load = Box<dyn Fn(usize, Option<f64>, Duration) -> BoxFuture<'static, Result<Outcome>>>;

struct LatencySide {
    id: &'static str,
    name: String,
    who: Vec<(&'static str, Whose)>,
    load: Load,
}

impl LatencySide {
    fn new<C: Caller>(
        id: &'static str,
        name: impl Into<String>,
        who: &[(&'static str, Whose)],
        callers: Vec<C>,
    ) -> Self {
        let callers = Arc::new(Mutex::new(callers));
        let load: Load = Box::new(move |in_flight, rate, time| {
            let callers = Arc::clone(&callers);
            Box::pin(async move {
                let mut all = callers.lock().await;
                let kept = all.len().checked_sub(in_flight).context("so many callers")?;
                let mut some = all.split_off(kept);
                let outcome = match rate {
                    None => closed::drive(&mut some, time).await,
                    Some(rate) => open::drive(&mut some, rate, Until::Time(time), Stopwatch::start()).await,
                };
                all.append(&mut some);
                outcome
            })
        });
        Self { id, name: name.into(), who: who.to_vec(), load }
    }
}

/// Rounds of each percentile, for one side at one number of callers and one rate.
struct Cell {
    side: usize,
    in_flight: usize,
    share: f64,
    rate: f64,
    kept: [Kept; PERCENTILES.len()],
}

pub(super) async fn run(context: &Context, measured: &mut Measured) -> Result<()> {
    let redis = Redis::start(context, Log::Always).await?;
    let server = Server::start(context).await?;
    // Declared before the stores in them, so that the stores close first.
    let mut folders = Vec::new();
    let most = IN_FLIGHT[IN_FLIGHT.len() - 1];
    let who = |pid| [("client", Whose::Ours), ("server", Whose::Server(pid))];
    let connections = redis.connections(most).await?.into_iter().map(SetNx).collect();
    let mut sides = vec![LatencySide::new("redis", "Redis, AOF always", &who(redis.pid), connections)];
    for engine in ENGINES {
        let folder = context.folder(engine)?;
        let check = replay_check(&Stores::for_tests(embedded(engine, folder.path()).await?));
        folders.push(folder);
        sides.push(LatencySide::new(engine, shown(engine), &[("both", Whose::Ours)], callers(&check, most)));
    }
    let mut connections = Vec::new();
    for _ in 0..most {
        connections.push(ReplayChecks::connect(&server).await?);
    }
    sides.push(LatencySide::new("http", "HTTP, fjall", &who(server.pid), connections));

    let mut cells = cells(context, &sides).await?;
    let (rounds, time) = if context.quick { (1, 500) } else { (3, 2_000) };
    for round in 0..=rounds {
        for cell in &mut cells {
            let side = &sides[cell.side];
            let meter = Meter::start(&side.who)?;
            let outcome = (side.load)(cell.in_flight, Some(cell.rate), Duration::from_millis(time)).await?;
            let cpu = meter.stop()?;
            let latencies = outcome.latencies();
            for ((_, percent), kept) in PERCENTILES.iter().zip(&mut cell.kept) {
                let figure = latencies.millis(*percent).context("no calls came")?;
                if round > 0 {
                    kept.add(&Round { figure, operations: outcome.calls(), cpu: cpu.clone() });
                }
            }
        }
        eprintln!("  round {round} of {rounds}");
    }
    show(measured, &sides, &cells.into_iter().map(Shown::from).collect::<Vec<_>>());
    Ok(())
}

/// Cells to measure: every side at every rate that it can serve, and at one rate with fewer and more callers.
async fn cells(context: &Context, sides: &[LatencySide]) -> Result<Vec<Cell>> {
    let mut cells = Vec::new();
    let mut redis = None;
    for (index, side) in sides.iter().enumerate() {
        (side.load)(USUAL, None, context.round() / 2).await?;
        let most = (side.load)(USUAL, None, context.round()).await?.rate();
        let redis = *redis.get_or_insert(most);
        eprintln!("  {}: {most:.0} per second in a closed loop of {USUAL}", side.name);
        let usual = SHARES.map(|share| (share, USUAL));
        let varied = IN_FLIGHT.map(|in_flight| (SHOWN, in_flight));
        for (share, in_flight) in
            usual.into_iter().chain(varied.into_iter().filter(|(_, many)| *many != USUAL))
        {
            let rate = share * redis;
            if rate > SATURATED * most {
                eprintln!("  {}: {rate:.0} per second are too many, and left out", side.name);
                continue;
            }
            let name = format!("{}, {in_flight} at once, {} per second", side.name, grouped(whole(rate)));
            let kept = PERCENTILES.map(|_| Kept::new(name.clone()));
            cells.push(Cell { side: index, in_flight, share, rate, kept });
        }
    }
    Ok(cells)
}

/// Cell with its figures.
struct Shown {
    side: usize,
    in_flight: usize,
    share: f64,
    rate: f64,
    figures: [Figure; PERCENTILES.len()],
}

impl From<Cell> for Shown {
    fn from(cell: Cell) -> Self {
        let Cell { side, in_flight, share, rate, kept } = cell;
        Self { side, in_flight, share, rate, figures: kept.map(Kept::figure) }
    }
}

fn show(measured: &mut Measured, sides: &[LatencySide], cells: &[Shown]) {
    let is_shown = |cell: &&Shown| cell.share.total_cmp(&SHOWN).is_eq();
    for cell in cells.iter().filter(is_shown).filter(|cell| cell.side > 0) {
        let alike = |peer: &&Shown| peer.side == 0 && peer.in_flight == cell.in_flight;
        let Some(peer) = cells.iter().filter(is_shown).find(alike) else { continue };
        for ((percentile, _), (ours, peer)) in PERCENTILES.iter().zip(cell.figures.iter().zip(&peer.figures))
        {
            // For fewer and more callers, the 99th percentile suffices.
            if cell.in_flight != USUAL && *percentile != "p99" {
                continue;
            }
            let draft = Draft {
                id: format!("latency-{}-{}-{percentile}", sides[cell.side].id, cell.in_flight),
                what: format!(
                    "{percentile} of replay checks that come by a schedule, {}, at most {} at once",
                    sides[cell.side].name, cell.in_flight
                ),
                unit: "ms",
                bar: None,
                note: NOTE.to_owned(),
            };
            measured.row(draft, ours.clone(), Some(peer.clone()));
        }
    }
    let lines = |keep: &dyn Fn(&&Shown) -> bool, x: &dyn Fn(&Shown) -> f64| -> Vec<Line> {
        let line = |(index, side): (usize, &LatencySide)| {
            let of_side = cells.iter().filter(|cell| cell.side == index).filter(keep);
            let mut points: Vec<_> = of_side.map(|cell| (x(cell), cell.figures[1].median())).collect();
            points.sort_by(|left, right| left.0.total_cmp(&right.0));
            Line { name: side.name.clone(), points }
        };
        sides.iter().enumerate().map(line).collect()
    };
    let by_rate = lines(&|cell| cell.in_flight == USUAL, &|cell| cell.rate);
    let (x, y) = (axis("replay checks per second that come"), log_axis("p99, ms"));
    measured.chart(
        "latency",
        "p99 of replay checks that come by a schedule, 64 at once",
        x,
        y.clone(),
        by_rate,
    );
    let by_callers = lines(&is_shown, &|cell| cell.in_flight as f64);
    let title = "p99 of replay checks at a quarter of the most that Redis does";
    measured.chart("latency-in-flight", title, log_axis("at most at once"), y, by_callers);
}
