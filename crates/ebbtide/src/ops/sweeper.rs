//! Sweeper: removes expired records in steps, within a share of the time.
//!
//! A sweep goes up to one instant that is captured when it begins, for all kinds and all steps. After each step the
//! sweeper rests, so that it takes no more than its share. The `rest` function it is given also tells it to stop; an
//! interrupted sweep can be resumed by another process. Concurrent sweeps do no harm, and scheduled ones take turns
//! by a lease.
//!
//! The store records when it was last swept: [`warnings`] reports a store that nothing sweeps, and sweeps that remove
//! nothing while overdue records grow older.

mod state;

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use metrics::{counter, gauge, histogram};

pub use crate::backend::Share;
use state::{Notes, SweepState};

use crate::admin::Admin;
use crate::admin::Stats;
use crate::backend::{Budget, Swept};
use crate::model::error::{Error, Result};
use crate::model::kind::Kind;
use crate::model::rng::Rng;
use crate::model::time::{Stopwatch, Timestamp};
use crate::stores::registry::kinds_with;
use crate::timekeeping::{Now, Timed};

/// Interval at which a sweeper without a schedule checks that another one sweeps.
const WATCH_EVERY: Duration = Duration::from_secs(60);

/// Maximum number of records in the first, and smallest, step if steps are bounded in time.
const FIRST_STEP: u64 = 32;

/// Maximum age of an interrupted sweep that is resumed; after that a new one begins. A walk through a large table of
/// DynamoDB goes on over several days.
const RESUMED_WITHIN: Duration = Duration::from_secs(8 * 86_400);

/// Time without a sweep after which a warning is due by default. A daily job may be two hours late.
pub const SILENCE: Duration = Duration::from_secs(26 * 3_600);

/// Settings of a sweeper beside its share and its steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SweepSettings {
    /// Lease of a sweep that does not end. It is renewed while the sweep makes progress.
    pub turn: Duration,
    /// Time without a sweep after which a warning is due.
    pub silence: Duration,
    /// Age of an overdue record from which a sweep that removes nothing is a fault; by default the engine's own.
    pub overdue: Option<Duration>,
}

impl Default for SweepSettings {
    /// A minute, 26 hours, and the bound of the engine.
    fn default() -> Self {
        Self { turn: Duration::from_secs(60), silence: SILENCE, overdue: None }
    }
}

/// Sweeper of a store.
pub struct Sweeper {
    timed: Timed,
    rng: Arc<dyn Rng>,
    share: Share,
    settings: SweepSettings,
    step: Budget,
    /// Target duration of a step; without it, all steps are of one size.
    step_time: Option<Duration>,
}

/// Result of a sweep.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Records that expired before this were removed.
    pub until: Timestamp,
    /// Number of removed records by kind, and whether more are left.
    pub swept: Swept,
    /// Duration, rests included.
    pub took: Duration,
}

/// Outcome of a sweep that takes turns.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "another may be at work, and then nothing was swept"]
#[non_exhaustive]
pub enum SweepOutcome {
    /// Swept, completely or until told to stop.
    Swept(Report),
    /// Another sweep holds the lease. If it has died, the next one begins when the lease ends.
    Busy {
        /// End of the lease.
        until: Timestamp,
    },
}

impl fmt::Debug for Sweeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sweeper({}, {:?})", self.timed.info().engine, self.share)
    }
}

impl Sweeper {
    /// Creates a sweeper of a store by its own time, without rests, in steps of ten thousand records. `rng` mints the
    /// versions of the sweep state.
    pub fn new(timed: Timed, rng: impl Rng) -> Self {
        let rng: Arc<dyn Rng> = Arc::new(rng);
        let settings = SweepSettings::default();
        Self { timed, rng, share: Share::WHOLE, settings, step: Budget::default(), step_time: None }
    }

    /// Limits the sweeper to this share of the time.
    #[must_use]
    pub fn share(mut self, share: Share) -> Self {
        self.share = share;
        self
    }

    /// Sets the lease, and the bounds of the warnings. Returns `Invalid` for a lease, a silence or a bound of zero.
    pub fn settings(mut self, settings: SweepSettings) -> Result<Self> {
        let SweepSettings { turn, silence, overdue } = settings;
        if turn.is_zero() || silence.is_zero() || overdue.is_some_and(|bound| bound.is_zero()) {
            return Err(Error::invalid("the lease, silence and overdue bound of a sweeper are above zero"));
        }
        self.settings = settings;
        Ok(self)
    }

    /// Sweeps only these kinds, each with the records that the same store writes beside it. A sweep of some kinds
    /// does not count as one of the store: it neither silences warnings nor resumes an interrupted sweep.
    #[must_use]
    pub fn kinds(mut self, kinds: &[Kind]) -> Self {
        let mut all: Vec<Kind> = kinds.iter().flat_map(|kind| kinds_with(*kind)).collect();
        all.sort_unstable();
        all.dedup();
        self.step.kinds = all;
        self
    }

    /// Sets the size of a step, the kinds and the thoroughness.
    #[must_use]
    pub fn step(mut self, step: Budget) -> Self {
        self.step = step;
        self
    }

    /// Bounds the duration of a step, for callers with a deadline: the first step is small, and later ones grow while
    /// time permits.
    #[must_use]
    pub fn step_time(mut self, time: Duration) -> Self {
        self.step_time = Some(time);
        self
    }

    /// Sweeps completely at once, without waiting for a lease: concurrent sweeps do no harm. While the clock is in
    /// doubt, nothing is removed and an error is returned.
    pub async fn sweep_now(&self) -> Result<Report> {
        let stopwatch = Stopwatch::start();
        let until = self.timed.sweep_until().await?;
        let mut swept = Swept::default();
        let step = Budget::everything(&self.step.kinds);
        while self.one_step(until, &step, &mut swept).await? {}
        let report = Report { until, swept, took: stopwatch.elapsed() };
        // Leave the lease to its holder.
        self.conclude(&report, |state| state).await;
        Ok(report)
    }

    /// Sweeps if no other sweep holds the lease. `rest` waits for the given time and returns false to stop; the sweep
    /// stops between two steps.
    pub async fn sweep<R, F>(&self, rest: R) -> Result<SweepOutcome>
    where
        R: Fn(Duration) -> F,
        F: Future<Output = ControlFlow<()>>,
    {
        let outcome = self.take_turn(&rest).await;
        let outcome_name = match &outcome {
            Ok(SweepOutcome::Swept(report)) if report.swept.more => "stopped",
            Ok(SweepOutcome::Swept(_)) => "done",
            Ok(SweepOutcome::Busy { .. }) => "busy",
            Err(_) => "failed",
        };
        counter!("ebbtide_sweeps_total", "outcome" => outcome_name).increment(1);
        outcome
    }

    /// Returns true if a sweep of every kind was interrupted, and [`sweep`](Self::sweep) would go on with it.
    pub async fn is_unfinished(&self) -> Result<bool> {
        let now = self.timed.now()?.latest();
        Ok(self.notes().read().await?.unfinished(now, RESUMED_WITHIN).is_some())
    }

    async fn take_turn<R, F>(&self, rest: &R) -> Result<SweepOutcome>
    where
        R: Fn(Duration) -> F,
        F: Future<Output = ControlFlow<()>>,
    {
        let stopwatch = Stopwatch::start();
        let fresh = self.timed.sweep_until().await?;
        let resumable = self.is_whole().then_some(RESUMED_WITHIN);
        let begun = match self.notes().begin(fresh, self.settings.turn, resumable).await? {
            Ok(state) => state.unfinished(fresh, RESUMED_WITHIN).filter(|_| self.is_whole()),
            Err(until) => return Ok(SweepOutcome::Busy { until }),
        };
        let (mut swept, mut until) = (Swept::default(), fresh);
        let mut outcome = Ok(());
        // Finish an interrupted sweep first, up to its own instant, then sweep what has expired since.
        for instant in begun.into_iter().chain([fresh]) {
            until = instant;
            match self.paced(until, &mut swept, rest).await {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => {
                    if until < fresh && !swept.more {
                        (swept.more, until) = (true, fresh);
                    }
                    break;
                }
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        let report = Report { until, swept, took: stopwatch.elapsed() };
        match outcome {
            Ok(()) => {
                self.conclude(&report, SweepState::ended).await;
                Ok(SweepOutcome::Swept(report))
            }
            Err(error) => {
                // Release the lease so that the next sweep need not wait for its end.
                let whole = self.is_whole();
                self.remember(|state| if whole { state.stopped(until).ended() } else { state.ended() }).await;
                Err(error)
            }
        }
    }

    /// Steps and rests up to one instant. Sets `more` if it was told to stop before the end.
    async fn paced<R, F>(&self, until: Timestamp, swept: &mut Swept, rest: &R) -> Result<ControlFlow<()>>
    where
        R: Fn(Duration) -> F,
        F: Future<Output = ControlFlow<()>>,
    {
        let mut renewed = Stopwatch::start();
        let mut step = Budget { share: self.share, ..self.step.clone() };
        if self.step_time.is_some() {
            step.records = step.records.min(FIRST_STEP);
        }
        loop {
            let stopwatch = Stopwatch::start();
            let before = swept.rested;
            let more = self.one_step(until, &step, swept).await?;
            let (took, rested) = (stopwatch.elapsed(), swept.rested.saturating_sub(before));
            if let Some(most) = self.step_time {
                let records = if took > most { step.records / 2 } else { step.records.saturating_mul(2) };
                // Each step has a fixed cost, so steps do not shrink further.
                step.records = records.max(FIRST_STEP).min(self.step.records);
            }
            if rest(self.share.rest_after(took.saturating_sub(rested)).saturating_sub(rested))
                .await
                .is_break()
            {
                swept.more = more;
                return Ok(ControlFlow::Break(()));
            }
            if !more {
                return Ok(ControlFlow::Continue(()));
            }
            if renewed.elapsed() > self.settings.turn / 2 {
                let now = self.timed.now()?.latest();
                self.remember(|state| state.renewed(now, self.settings.turn)).await;
                renewed = Stopwatch::start();
            }
        }
    }

    async fn one_step(&self, until: Timestamp, budget: &Budget, swept: &mut Swept) -> Result<bool> {
        let step = self.timed.sweep_step(until, budget).await?;
        for (kind, removed) in step.removed {
            swept.add(kind, removed);
        }
        swept.rested += step.rested;
        swept.progress = step.progress.or(swept.progress);
        Ok(step.more)
    }

    /// Sweeps at every interval until `rest` returns false; without an interval, only monitors sweeps by others. The
    /// first sweep comes after the first interval: nothing is swept at start-up. An interval of zero is `Invalid`.
    pub async fn run<R, F>(&self, every: Option<Duration>, rest: R) -> Result<()>
    where
        R: Fn(Duration) -> F,
        F: Future<Output = ControlFlow<()>>,
    {
        if every.is_some_and(|every| every.is_zero()) {
            return Err(Error::invalid("the interval of a sweeper is above zero"));
        }
        let mut pause = every.unwrap_or(WATCH_EVERY);
        let mut told = Vec::new();
        while rest(pause).await.is_continue() {
            pause = self.turn(every, &rest, &mut told).await;
        }
        Ok(())
    }

    /// Sweeps once where there is an interval, logs warnings that are not in `told`, and returns the time until the
    /// next turn.
    pub(crate) async fn turn<R, F>(
        &self,
        every: Option<Duration>,
        rest: &R,
        told: &mut Vec<String>,
    ) -> Duration
    where
        R: Fn(Duration) -> F,
        F: Future<Output = ControlFlow<()>>,
    {
        let stopwatch = Stopwatch::start();
        if every.is_some() {
            match self.sweep(rest).await {
                Ok(SweepOutcome::Swept(report)) if report.swept.total() > 0 => {
                    tracing::info!(
                        removed = report.swept.total(),
                        seconds = report.took.as_secs_f64(),
                        more = report.swept.more,
                        "swept"
                    );
                }
                Ok(_) => {}
                Err(error) => tracing::warn!(%error, "sweep failed"),
            }
        }
        // A sweep that took longer than the interval is followed at once by the next, which catches up.
        let pause = every.map_or(WATCH_EVERY, |every| every.saturating_sub(stopwatch.elapsed()));
        self.watch(told).await;
        pause
    }

    /// Logs warnings that were not logged before.
    async fn watch(&self, told: &mut Vec<String>) {
        // Without a time there is nothing to say about one.
        let Ok(now) = self.timed.now().map(Now::latest) else { return };
        self.remember(|state| state.seen(now)).await;
        match self.notes().read().await {
            Ok(state) => {
                let signals = state.signals(now, self.settings.silence);
                gauge!("ebbtide_sweep_silent").set(f64::from(u8::from(signals.silent.is_some())));
                gauge!("ebbtide_sweep_stuck").set(f64::from(u8::from(signals.stuck.is_some())));
                let sentences = signals.sentences();
                for sentence in sentences.iter().filter(|sentence| !told.contains(sentence)) {
                    tracing::warn!("{sentence}");
                }
                *told = sentences;
            }
            Err(error) => tracing::warn!(%error, "cannot read the sweep state"),
        }
    }

    /// Records a sweep in the state and in the metrics.
    async fn conclude(&self, report: &Report, turn: impl Fn(SweepState) -> SweepState) {
        let backend = self.timed.admin();
        let overdue = match backend.stats_at_hand(report.until).await {
            Ok(stats) => stats.map(|stats| tell_overdue(&stats)),
            Err(error) => {
                tracing::warn!(%error, "cannot count overdue records");
                None
            }
        };
        let bound = self.settings.overdue.unwrap_or(backend.info().reclaims_within);
        let whole = self.is_whole();
        let Report { until, swept, took } = report;
        self.remember(|state| {
            let removed = swept.total();
            turn(if !whole {
                state
            } else if swept.more {
                state.stopped(*until)
            } else {
                state.swept(*until, removed, overdue, bound)
            })
        })
        .await;
        histogram!("ebbtide_sweep_seconds").record(*took);
        if whole && !swept.more {
            #[expect(clippy::cast_precision_loss, reason = "seconds since 1970 fit")]
            gauge!("ebbtide_last_sweep_timestamp_seconds").set((until.as_millis() / 1_000) as f64);
        }
    }

    /// Returns whether every kind is swept.
    fn is_whole(&self) -> bool {
        Kind::ALL.iter().all(|kind| self.step.kinds.contains(kind))
    }

    /// Failure to write the state does not undo a sweep, so it is only logged.
    async fn remember(&self, change: impl Fn(SweepState) -> SweepState) {
        if let Err(error) = self.notes().change(change).await {
            tracing::warn!(%error, "cannot write the sweep state");
        }
    }

    fn notes(&self) -> Notes<'_> {
        Notes { backend: self.timed.admin().as_ref(), rng: self.rng.as_ref() }
    }
}

/// Updates the metrics of overdue records, and returns the age of the oldest.
fn tell_overdue(stats: &Stats) -> Duration {
    for &kind in Kind::ALL.iter().filter(|kind| !kind.is_probe()) {
        let stats = stats.get(&kind).copied().unwrap_or_default();
        let age = stats.oldest_overdue.unwrap_or_default();
        let expired = u32::try_from(stats.expired).unwrap_or(u32::MAX);
        gauge!("ebbtide_overdue_records", "kind" => kind.name()).set(f64::from(expired));
        gauge!("ebbtide_oldest_overdue_seconds", "kind" => kind.name()).set(age.as_secs_f64());
    }
    stats.values().filter_map(|stats| stats.oldest_overdue).max().unwrap_or_default()
}

/// Warnings for an operator, one sentence each: the engine's own, a store that nothing has swept for longer than
/// `silence`, and sweeps that remove nothing while overdue records grow older.
pub async fn warnings(backend: &dyn Admin, now: Timestamp, silence: Duration) -> Result<Vec<String>> {
    let mut warnings = backend.warnings().await?;
    warnings.extend(state::read(backend).await?.signals(now, silence).sentences());
    Ok(warnings)
}
