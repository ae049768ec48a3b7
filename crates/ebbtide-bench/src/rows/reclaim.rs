//! Cost of a sweep that has little to do, and the time for which expired records are present.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use ebbtide::{Admin, BackendExt as _, Budget, Clock as _, Stopwatch, SystemClock};
use ebbtide_bench::results::Bar;
use procfs::process::Process;

use super::cold::chill;
use super::grouped;
use crate::context::{Context, ENGINES, embedded, shown};
use crate::measured::{Draft, Measured, plain};
use crate::records::{fill, in_seconds};

const RECORDS: u64 = 2_000_000;

/// Time between two sweeps of the second row, and its length.
const INTERVAL: Duration = Duration::from_secs(2);

pub(super) async fn run(context: &Context, measured: &mut Measured) -> Result<()> {
    for &engine in ENGINES {
        one(context, measured, engine).await?;
        present(context, measured, engine).await?;
    }
    Ok(())
}

/// Bytes that a sweep reads and writes which finds one expired record among two million in the cold store.
async fn one(context: &Context, measured: &mut Measured, engine: &str) -> Result<()> {
    let (folder, records) = (context.folder(engine)?, context.scaled(RECORDS));
    eprintln!("  filling {} with {} records", shown(engine), grouped(records));
    let now = SystemClock.now();
    // In one window of the cold store, which has not passed: a window of its own would be dropped whole.
    let (soon, late) = (in_seconds(now, 5 * 3_600)?, in_seconds(now, 5 * 3_600 + 120)?);
    {
        let store = embedded(engine, folder.path()).await?;
        fill(&store, records, |number| if number == records / 2 { soon } else { late }).await?;
    }
    chill(engine, folder.path()).await?;
    let store = embedded(engine, folder.path()).await?;
    // Lets the background work of opening end.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let before = bytes()?;
    let swept = store.sweep_all(in_seconds(now, 5 * 3_600 + 60)?, &Budget::default()).await?.total();
    let megabytes = (bytes()? - before) as f64 / 1e6;
    ensure!(swept == 1, "{swept} records were swept");
    let draft = Draft {
        id: format!("one-{engine}"),
        what: format!("sweeping one expired of {} records, {}", grouped(records), shown(engine)),
        unit: "MB read and written",
        bar: Some(Bar::AtMost(8.0)),
        note: "All records are in one window of the cold store, which has not passed. The bytes are those of the calls that read and write, whether a disk or the \
               page cache answers them."
            .to_owned(),
    };
    measured.row(draft, plain(shown(engine), vec![megabytes]), None);
    Ok(())
}

/// Bytes that this process has read and written.
fn bytes() -> Result<u64> {
    let io = Process::myself()?.io()?;
    Ok(io.rchar + io.wchar)
}

/// Longest time, in sweep intervals, for which an expired record was found by a count.
async fn present(context: &Context, measured: &mut Measured, engine: &str) -> Result<()> {
    let folder = context.folder(engine)?;
    let store = embedded(engine, folder.path()).await?;
    let time = Duration::from_secs(if context.quick { 10 } else { 60 });
    let (running, mut longest) = (Stopwatch::start(), Duration::ZERO);
    let sweeping = {
        let store = Arc::clone(&store);
        async move {
            while running.elapsed() < time {
                tokio::time::sleep(INTERVAL).await;
                store.sweep_all(SystemClock.now(), &Budget::default()).await?;
            }
            anyhow::Ok(())
        }
    };
    let writing = write(&store, running, time);
    let counting = async {
        while running.elapsed() < time {
            let stats = store.stats(SystemClock.now()).await?;
            let overdue = stats.values().filter_map(|stats| stats.oldest_overdue).max();
            longest = longest.max(overdue.unwrap_or_default());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        anyhow::Ok(())
    };
    tokio::try_join!(sweeping, writing, counting)?;
    let draft = Draft {
        id: format!("present-{engine}"),
        what: format!("expired but present, {}", shown(engine)),
        unit: "sweep intervals",
        bar: Some(Bar::AtMost(2.0)),
        note: format!(
            "Records with lives of 1 to 5 s are written throughout {} s, and swept every {} s; the oldest one that a count \
             found after its end.",
            time.as_secs(),
            INTERVAL.as_secs()
        ),
    };
    let intervals = longest.as_secs_f64() / INTERVAL.as_secs_f64();
    measured.row(draft, plain(shown(engine), vec![intervals]), None);
    Ok(())
}

async fn write(store: &Arc<dyn Admin>, running: Stopwatch, time: Duration) -> Result<()> {
    while running.elapsed() < time {
        let now = SystemClock.now();
        let ends = [1, 2, 3, 4, 5].map(|seconds| in_seconds(now, seconds));
        let ends = ends.into_iter().collect::<Result<Vec<_>>>()?;
        fill(store, 5_000, |number| ends[usize::try_from(number % 5).unwrap_or(0)]).await?;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}
