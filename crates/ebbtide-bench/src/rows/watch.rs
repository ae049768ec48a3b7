//! Latency of scheduled calls before, during and after a sweep.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use ebbtide::ops::sweeper::{Share, SweepOutcome, Sweeper};
use ebbtide::timekeeping::{TimeSource, Timed};
use ebbtide::{Admin, ManualClock, Stopwatch, Stores, SystemRng, Timestamp};
use ebbtide_bench::results::Line;

use crate::context::Context;
use crate::cpu::{Meter, Whose};
use crate::load::open::Until;
use crate::load::{Caller, Outcome, callers, closed, open};
use crate::records::replay_check;

const CALLERS: usize = 64;

/// Rate of the calls, as a share of the callers' maximum in a closed loop.
const SHARE: f64 = 0.25;

/// Time to observe before the sweep: as long as most sweeps take, since a stall of the disk weighs more in a shorter
/// time.
fn before(context: &Context) -> Duration {
    Duration::from_secs(if context.quick { 1 } else { 10 })
}

/// Time to observe after the sweep.
fn after(context: &Context) -> Duration {
    Duration::from_secs(if context.quick { 1 } else { 3 })
}

/// Maximum number of seconds to wait for the processes to become idle.
fn patience(context: &Context) -> u64 {
    if context.quick { 2 } else { 120 }
}

/// Waits until the processes are idle and their writes are on the disk: compactions that still run after filling
/// would worsen the figures before a sweep, and flatter the sweep.
async fn settle(context: &Context, who: &[(&'static str, Whose)]) -> Result<()> {
    for _ in 0..patience(context) {
        let meter = Meter::start(who)?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        if meter.stop()?.values().sum::<f64>() < 0.05 {
            break;
        }
    }
    ensure!(tokio::process::Command::new("sync").status().await?.success(), "sync failed");
    Ok(())
}

/// Observation of one sweep, in seconds since its start.
pub(super) struct Watched {
    outcome: Outcome,
    began: f64,
    ended: f64,
    pub(super) removed: u64,
}

impl Watched {
    /// 99th percentile in milliseconds before, during and after.
    pub(super) fn p99(&self) -> Result<[f64; 3]> {
        let part = |from, to| self.outcome.between(from, to).millis(99.0).context("no calls came");
        Ok([part(0.0, self.began)?, part(self.began, self.ended)?, part(self.ended, f64::INFINITY)?])
    }

    /// Total number of calls.
    pub(super) fn calls(&self) -> u64 {
        self.outcome.calls()
    }

    /// Duration of the sweep in seconds.
    pub(super) fn seconds(&self) -> f64 {
        self.ended - self.began
    }

    /// 99th percentile of each half second, relative to the beginning of the sweep.
    pub(super) fn line(&self, name: String) -> Line {
        const STEP: f64 = 0.5;
        let first = -(self.began / STEP).floor();
        let last = ((self.outcome.seconds - self.began) / STEP).floor();
        let mut points = Vec::new();
        let mut step = first;
        while step < last {
            let from = self.began + step * STEP;
            if let Some(p99) = self.outcome.between(from, from + STEP).millis(99.0) {
                points.push((step * STEP, p99));
            }
            step += 1.0;
        }
        Line { name, points }
    }
}

/// Callers whose maximum rate is known.
pub(super) struct Watchers<C> {
    callers: Vec<C>,
    rate: f64,
}

/// Creates callers of this store, and determines their rate.
pub(super) async fn watchers(
    context: &Context,
    store: &Arc<dyn Admin>,
) -> Result<Watchers<impl Caller + use<>>> {
    let mut callers = callers(&replay_check(&Stores::for_tests(Arc::clone(store))), CALLERS);
    closed::drive(&mut callers, context.round() / 2).await?;
    let rate = SHARE * closed::drive(&mut callers, context.round()).await?.rate();
    eprintln!("  {}: calls come {rate:.0} times a second", store.info().engine);
    Ok(Watchers { callers, rate })
}

impl<C: Caller> Watchers<C> {
    /// Observes a sweep, which returns the number of removed records, once the processes are idle.
    pub(super) async fn watch(
        &mut self,
        context: &Context,
        who: &[(&'static str, Whose)],
        sweep: impl Future<Output = Result<u64>>,
    ) -> Result<Watched> {
        settle(context, who).await?;
        let (stop, stopwatch) = (Arc::new(AtomicBool::new(false)), Stopwatch::start());
        let load = open::drive(&mut self.callers, self.rate, Until::Set(Arc::clone(&stop)), stopwatch);
        let sweeping = async {
            tokio::time::sleep(before(context)).await;
            let began = stopwatch.elapsed().as_secs_f64();
            let removed = sweep.await;
            let ended = stopwatch.elapsed().as_secs_f64();
            if removed.is_ok() {
                tokio::time::sleep(after(context)).await;
            }
            stop.store(true, Ordering::Relaxed);
            Ok((began, ended, removed?))
        };
        let (outcome, (began, ended, removed)) = tokio::try_join!(load, sweeping)?;
        Ok(Watched { outcome, began, ended, removed })
    }
}

/// Runs one sweep by the server's sweeper, within this share of the time. Its clock shows `now`, so that the records
/// need not expire in real time.
pub(super) async fn sweeper(store: Arc<dyn Admin>, share: Share, now: Timestamp) -> Result<u64> {
    let clock = ManualClock::at(now);
    let timed = Timed::new(store, Arc::new(TimeSource::of_clock(clock)));
    let sweeper = Sweeper::new(timed, SystemRng).share(share);
    let rest = |time| async move {
        tokio::time::sleep(time).await;
        ControlFlow::Continue(())
    };
    match sweeper.sweep(rest).await? {
        SweepOutcome::Swept(report) => Ok(report.swept.total()),
        _ => bail!("nobody else sweeps, and yet it is another's turn"),
    }
}
