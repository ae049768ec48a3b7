//! Ten minutes at full rate with lives of 300 s: stalls, latency and memory, with the default cap of the log.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use ebbtide::{Admin, BackendExt as _, Budget, Clock as _, Stopwatch, Stores, SystemClock};
use ebbtide_bench::results::{Bar, Line};

use super::grouped;
use crate::context::{Context, ENGINES, embedded, shown};
use crate::cpu::resident_mib;
use crate::load::{callers, closed};
use crate::measured::{Draft, Measured, axis, log_axis, plain};
use crate::records::replay_check;

const IN_FLIGHT: usize = 1_024;

/// Length of a slice: the samples of more would count as memory.
const SLICE: Duration = Duration::from_secs(10);

/// Slices of ten minutes, and of one.
const SLICES: usize = 60;
const MINUTE: usize = 6;

/// Time between two sweeps.
const SWEEP_EVERY: Duration = Duration::from_secs(30);

/// Figures of one slice.
struct Slice {
    rate: f64,
    p99: f64,
    longest: f64,
    resident_mib: f64,
}

pub(super) async fn run(context: &Context, measured: &mut Measured) -> Result<()> {
    let (slices, minute) = if context.quick { (3, 1) } else { (SLICES, MINUTE) };
    let mut lines = Vec::new();
    for &engine in ENGINES {
        let folder = context.folder(engine)?;
        let store = embedded(engine, folder.path()).await?;
        let is_over = Arc::new(AtomicBool::new(false));
        let sweeping = tokio::spawn(sweep(Arc::clone(&store), Arc::clone(&is_over)));
        let mut taken = Vec::new();
        for number in 1..=slices {
            taken.push(slice(&store).await?);
            let last = &taken[taken.len() - 1];
            eprintln!(
                "  {number} of {slices}: {:.0}/s, p99 {:.2} ms, longest {:.0} ms, {:.0} MiB",
                last.rate, last.p99, last.longest, last.resident_mib
            );
        }
        is_over.store(true, Ordering::Relaxed);
        sweeping.await??;
        let calls: f64 = taken.iter().map(|slice| slice.rate).sum::<f64>() * SLICE.as_secs_f64();
        let note = format!(
            "{} replay checks with lives of 300 s by {} callers in a closed loop, in slices of {} s; a sweep each {} s. The \
             log has its default cap, so that segments retire before their time. The memory is that of the harness and the store.",
            grouped(crate::load::whole(calls)),
            grouped(IN_FLIGHT as u64),
            SLICE.as_secs(),
            SWEEP_EVERY.as_secs()
        );
        let name = shown(engine);
        let draft = |id: &str, what: &str, unit, bar| Draft {
            id: format!("steady-{engine}-{id}"),
            what: format!("{what}, {name}, ten minutes at full rate"),
            unit,
            bar: Some(bar),
            note: note.clone(),
        };
        let longest = taken.iter().map(|slice| slice.longest).fold(0.0, f64::max);
        measured.row(
            draft("stall", "longest call", "ms", Bar::AtMost(1_000.0)),
            plain(name, vec![longest]),
            None,
        );
        // The minute that is worst, beside the first.
        let minutes: Vec<f64> = taken.chunks(minute).map(median_p99).collect();
        let worst = minutes.iter().copied().fold(0.0, f64::max);
        measured.row(
            draft("p99", "p99 of the worst minute", "ms", Bar::AtMost(2.0)),
            plain(name, vec![worst]),
            Some(plain("the first minute", vec![minutes[0]])),
        );
        // Lives of 300 s have begun to end at the half.
        let half = taken[taken.len() / 2].resident_mib;
        let last = taken.last().context("a slice was taken")?.resident_mib;
        measured.row(
            draft("memory", "resident memory at the end", "MiB", Bar::AtMost(1.2)),
            plain(name, vec![last]),
            Some(plain("after five minutes", vec![half])),
        );
        let seconds = |number: usize| number as f64 * SLICE.as_secs_f64();
        let points = taken.iter().enumerate().map(|(number, slice)| (seconds(number), slice.p99)).collect();
        lines.push(Line { name: name.to_owned(), points });
    }
    let (x, y) = (axis("seconds"), log_axis("p99, ms"));
    measured.chart("steady", "p99 of replay checks at full rate, by ten seconds", x, y, lines);
    Ok(())
}

async fn slice(store: &Arc<dyn Admin>) -> Result<Slice> {
    let stores = Stores::for_tests(Arc::clone(store));
    let outcome = closed::drive(&mut callers(&replay_check(&stores), IN_FLIGHT), SLICE).await?;
    let latencies = outcome.latencies();
    let millis = |percent| latencies.millis(percent).context("no call was made");
    Ok(Slice {
        rate: outcome.rate(),
        p99: millis(99.0)?,
        longest: millis(100.0)?,
        resident_mib: resident_mib(std::process::id())?.0,
    })
}

fn median_p99(slices: &[Slice]) -> f64 {
    let mut all: Vec<f64> = slices.iter().map(|slice| slice.p99).collect();
    all.sort_unstable_by(f64::total_cmp);
    all[all.len() / 2]
}

async fn sweep(store: Arc<dyn Admin>, is_over: Arc<AtomicBool>) -> Result<()> {
    loop {
        let waiting = Stopwatch::start();
        while waiting.elapsed() < SWEEP_EVERY {
            if is_over.load(Ordering::Relaxed) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        store.sweep_all(SystemClock.now(), &Budget::default()).await?;
    }
}
