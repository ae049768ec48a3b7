//! Rate of replay checks as the store grows, compared with Redis.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use ebbtide::{Admin, Clock as _, Stores, SystemClock};
use ebbtide_bench::results::{Bar, Line};
use tempfile::TempDir;

use super::cold::chill;
use super::grouped;
use super::replays::checks;
use crate::context::{Context, ENGINES, embedded, shown};
use crate::load::rounds::{Contender, alternate};
use crate::measured::{Draft, Measured, axis};
use crate::peers::redis::{Log, Redis};
use crate::records::{fill, in_seconds};

const LEVELS: [u64; 5] = [0, 1_000_000, 5_000_000, 10_000_000, 20_000_000];
const IN_FLIGHT: usize = 1_024;

type Opened = (Vec<Arc<dyn Admin>>, Vec<Contender>);

/// Opens the stores, and makes the sides: Redis, then each of them.
async fn open(folders: &[TempDir], redis: &Arc<Redis>, time: Duration) -> Result<Opened> {
    let (mut stores, mut sides) = (Vec::new(), vec![redis.set_nx(64, time)]);
    for (engine, folder) in ENGINES.iter().zip(folders) {
        let store = embedded(engine, folder.path()).await?;
        sides.push(checks(engine, &Stores::for_tests(Arc::clone(&store)), IN_FLIGHT, time));
        stores.push(store);
    }
    Ok((stores, sides))
}

pub(super) async fn run(context: &Context, measured: &mut Measured) -> Result<()> {
    let redis = Redis::start(context, Log::Always).await?;
    let time = context.round();
    // Declared before the stores in them, so that the stores close first.
    let folders = ENGINES.iter().map(|engine| context.folder(engine)).collect::<Result<Vec<_>>>()?;
    let (mut stores, mut sides) = open(&folders, &redis, time).await?;
    let mut lines: Vec<Line> = ["Redis, AOF always, 64 connections"]
        .into_iter()
        .chain(ENGINES.iter().map(|engine| shown(engine)))
        .map(|name| Line { name: name.to_owned(), points: Vec::new() })
        .collect();
    let (mut held, last) = (0, LEVELS[LEVELS.len() - 1]);
    for level in LEVELS {
        let records = context.scaled(level);
        if level == last {
            eprintln!("  moving what is there to the cold store");
            drop((stores, sides));
            for (engine, folder) in ENGINES.iter().zip(&folders) {
                chill(engine, folder.path()).await?;
            }
            (stores, sides) = open(&folders, &redis, time).await?;
        }
        for (store, engine) in stores.iter().zip(ENGINES) {
            if records > held {
                eprintln!("  filling {} up to {} records", shown(engine), grouped(records));
            }
            // The records stay live throughout the run.
            let late = in_seconds(SystemClock.now(), 86_400)?;
            fill(store, records - held, |_| late).await?;
        }
        held = records;
        let rounds = if level == last { context.rounds() } else { context.rounds().div_ceil(2) };
        let mut figures = alternate(rounds, &mut sides).await?;
        for (line, figure) in lines.iter_mut().zip(&figures) {
            line.points.push((records as f64 / 1e6, figure.median()));
        }
        let peer = figures.remove(0);
        for (engine, ours) in ENGINES.iter().zip(figures) {
            let draft = Draft {
                id: format!("records-{engine}-{}m", level / 1_000_000),
                what: format!("replay checks, {}, {} live records", shown(engine), grouped(records)),
                unit: "per second",
                bar: (level == last).then_some(Bar::AtLeast(4.0)),
                note: "Both answer when it is on the disk; 1,024 in flight in the process beside 64 connections. Redis \
                       holds only what its rounds have left, and has all of it in memory; what was measured before \
                       is also in our store. At the last level half of the records are in the cold store, at the others \
                       most are in the log."
                    .to_owned(),
            };
            measured.row(draft, ours, Some(peer.clone()));
        }
    }
    let (x, y) = (axis("million live records"), axis("replay checks per second"));
    measured.chart("records", "Replay checks per second as the store grows", x, y, lines);
    Ok(())
}
