//! The sweeper: removes what has expired, a step at a time, within its share of the time.
//!
//! A sweep goes up to one instant that is captured when it begins, for all kinds and all of its steps. After each step
//! the sweeper rests, so that it takes no more than its share. What it is handed to rest with also tells it to stop;
//! a sweep that was stopped is gone on with by the next one, in whichever process. Several sweepers do no harm, and
//! those that sweep by the clock take turns.
//!
//! The store remembers when it was last swept: [`warnings`] tells when nothing sweeps it any more, and when sweeps
//! remove nothing while what is overdue grows older.

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
use crate::model::error::Result;
use crate::model::kind::Kind;
use crate::model::rng::Rng;
use crate::model::time::{Clock as _, Stopwatch, Timestamp};
use crate::ops::clock_guard::ClockGuard;

/// How often a sweeper without an interval looks whether somebody else sweeps.
const WATCH_EVERY: Duration = Duration::from_secs(60);

/// How long a sweep that does not end keeps others from beginning one. It is renewed while the sweep is at work.
const TURN: Duration = Duration::from_secs(600);

/// How many records the first step, and the smallest, removes at the most where steps are kept to a time.
const FIRST_STEP: u64 = 32;

/// A sweep that was stopped longer ago than this is not gone on with: a new one begins.
const RESUMED_WITHIN: Duration = Duration::from_secs(86_400);

/// Nothing has swept for longer than this: somebody should look. A daily job that is two hours late is not told of.
pub const SILENCE: Duration = Duration::from_secs(26 * 3_600);

/// Sweeps a store.
pub struct Sweeper {
    backend: Arc<dyn Admin>,
    guard: Arc<ClockGuard>,
    rng: Arc<dyn Rng>,
    share: Share,
    step: Budget,
    /// About how long a step may take; without it, all of them are of one size.
    step_time: Option<Duration>,
}

/// What a sweep did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// What expired before this was removed.
    pub until: Timestamp,
    /// How many records were removed, by kind, and whether there is more.
    pub swept: Swept,
    /// How long it took, with the rests.
    pub took: Duration,
}

/// How it went with a sweep that takes its turn.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "another may be at work, and then nothing was swept"]
pub enum SweepOutcome {
    /// Swept: to the end, or until it was told to stop.
    Swept(Report),
    /// Another sweep is at work. Should it have died, the next one begins then.
    Busy {
        /// When its turn ends at the latest.
        until: Timestamp,
    },
}

impl fmt::Debug for Sweeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sweeper({}, {:?})", self.backend.info().engine, self.share)
    }
}

impl Sweeper {
    /// Sweeps `backend` by the clock of `guard`, without rests, in steps of ten thousand records, where it is worth
    /// the work. Rng mints the versions of what the store remembers of it.
    pub fn new(backend: Arc<dyn Admin>, guard: Arc<ClockGuard>, rng: impl Rng) -> Self {
        let rng: Arc<dyn Rng> = Arc::new(rng);
        Self { backend, guard, rng, share: Share::WHOLE, step: Budget::default(), step_time: None }
    }

    /// Takes no more than this share of the time.
    #[must_use]
    pub fn share(mut self, share: Share) -> Self {
        self.share = share;
        self
    }

    /// Does so much in a step, of these kinds, with that thoroughness.
    #[must_use]
    pub fn step(mut self, step: Budget) -> Self {
        self.step = step;
        self
    }

    /// Keeps the steps to about that time, where there is an end to be met: the first is small, and the next are larger
    /// as long as there is time.
    #[must_use]
    pub fn step_time(mut self, time: Duration) -> Self {
        self.step_time = Some(time);
        self
    }

    /// Removes everything that has expired, in one go, and answers when it is done. It waits for no turn: several
    /// sweeps do no harm. If the clock has leapt nothing is removed, and the error says why.
    pub async fn sweep_now(&self) -> Result<Report> {
        let stopwatch = Stopwatch::start();
        let until = self.guard.sweep_until().await?;
        let mut swept = Swept::default();
        let step = Budget::everything(Kind::ALL);
        while self.one_step(until, &step, &mut swept).await? {}
        let report = Report { until, swept, took: stopwatch.elapsed() };
        // Whoever has a turn keeps it.
        self.conclude(&report, |state| state).await;
        Ok(report)
    }

    /// Sweeps when it is its turn. `rest` waits for so long, and says whether to go on: a sweep that is told to stop
    /// does so between two steps.
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

    async fn take_turn<R, F>(&self, rest: &R) -> Result<SweepOutcome>
    where
        R: Fn(Duration) -> F,
        F: Future<Output = ControlFlow<()>>,
    {
        let stopwatch = Stopwatch::start();
        let fresh = self.guard.sweep_until().await?;
        let begun = match self.notes().begin(fresh, TURN).await? {
            Ok(state) => state.unfinished(fresh, RESUMED_WITHIN),
            Err(until) => return Ok(SweepOutcome::Busy { until }),
        };
        let (mut swept, mut until) = (Swept::default(), fresh);
        let mut outcome = Ok(());
        // What was left is finished first, up to its own instant, and then comes what has expired since.
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
                // Whoever comes next need not wait for the turn to run out.
                self.remember(|state| state.stopped(until).ended()).await;
                Err(error)
            }
        }
    }

    /// Steps and rests up to one instant. What is left when it was told to stop is `more`.
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
                // A step has a cost of its own, which smaller ones would only pay more often.
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
            if renewed.elapsed() > TURN / 2 {
                let now = self.guard.now();
                self.remember(|state| state.renewed(now, TURN)).await;
                renewed = Stopwatch::start();
            }
        }
    }

    async fn one_step(&self, until: Timestamp, budget: &Budget, swept: &mut Swept) -> Result<bool> {
        let step = self.backend.sweep(until, budget).await?;
        for (kind, removed) in step.removed {
            swept.add(kind, removed);
        }
        swept.rested += step.rested;
        Ok(step.more)
    }

    /// Sweeps at every interval until `rest` says that it is time to stop; without an interval, only looks whether
    /// somebody else does. The first sweep comes after the first interval: nothing is cleaned at start-up.
    pub async fn run<R, F>(&self, every: Option<Duration>, rest: R)
    where
        R: Fn(Duration) -> F,
        F: Future<Output = ControlFlow<()>>,
    {
        let mut pause = every.unwrap_or(WATCH_EVERY);
        let mut told = Vec::new();
        while rest(pause).await.is_continue() {
            if let Some(every) = every {
                let stopwatch = Stopwatch::start();
                match self.sweep(&rest).await {
                    Ok(SweepOutcome::Swept(report)) if report.swept.total() > 0 => {
                        tracing::info!(
                            removed = report.swept.total(),
                            seconds = report.took.as_secs_f64(),
                            more = report.swept.more,
                            "swept"
                        );
                    }
                    Ok(_) => {}
                    Err(error) => tracing::warn!(%error, "nothing was swept"),
                }
                // A sweep that took longer than the interval is followed by the next, which catches up.
                pause = every.saturating_sub(stopwatch.elapsed());
            }
            self.watch(&mut told).await;
        }
    }

    /// Warns of what was not warned of before.
    async fn watch(&self, told: &mut Vec<String>) {
        let now = self.guard.now();
        self.remember(|state| state.seen(now)).await;
        match self.notes().read().await {
            Ok(state) => {
                let signals = state.signals(now, SILENCE);
                gauge!("ebbtide_sweep_silent").set(f64::from(u8::from(signals.silent.is_some())));
                gauge!("ebbtide_sweep_stuck").set(f64::from(u8::from(signals.stuck.is_some())));
                let sentences = signals.sentences();
                for sentence in sentences.iter().filter(|sentence| !told.contains(sentence)) {
                    tracing::warn!("{sentence}");
                }
                *told = sentences;
            }
            Err(error) => tracing::warn!(%error, "what the store remembers of its sweeping cannot be read"),
        }
    }

    /// Remembers that the store was swept, and tells the metrics.
    async fn conclude(&self, report: &Report, turn: impl Fn(SweepState) -> SweepState) {
        let overdue = match self.backend.stats_at_hand(self.guard.now()).await {
            Ok(stats) => stats.map(|stats| tell_overdue(&stats)),
            Err(error) => {
                tracing::warn!(%error, "what is overdue is not known");
                None
            }
        };
        let bound = self.backend.info().reclaims_within;
        let Report { until, swept, took } = report;
        self.remember(|state| {
            let removed = swept.total();
            turn(if swept.more {
                state.stopped(*until)
            } else {
                state.swept(*until, removed, overdue, bound)
            })
        })
        .await;
        histogram!("ebbtide_sweep_seconds").record(*took);
        if !swept.more {
            #[expect(clippy::cast_precision_loss, reason = "seconds since 1970 fit")]
            gauge!("ebbtide_last_sweep_timestamp_seconds").set((until.as_millis() / 1_000) as f64);
        }
    }

    /// What the store remembers is a help: a sweep that was done is not undone by it.
    async fn remember(&self, change: impl Fn(SweepState) -> SweepState) {
        if let Err(error) = self.notes().change(self.guard.now(), change).await {
            tracing::warn!(%error, "the sweep was not written down");
        }
    }

    fn notes(&self) -> Notes<'_> {
        Notes { backend: self.backend.as_ref(), rng: self.rng.as_ref() }
    }
}

/// Tells the metrics what is overdue, and answers the age of the oldest.
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

/// What an operator should know of a store and of its sweeping, a sentence each: what the engine says, that nothing
/// has swept for longer than `silence`, and that sweeps remove nothing while what is overdue grows older.
pub async fn warnings(backend: &dyn Admin, now: Timestamp, silence: Duration) -> Result<Vec<String>> {
    let mut warnings = backend.warnings().await?;
    warnings.extend(state::read(backend).await?.signals(now, silence).sentences());
    Ok(warnings)
}
