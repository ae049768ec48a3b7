//! The sweeper: turns, steps, rests, stopping, going on, and what it tells of.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ebbtide::ops::sweeper::{self, SILENCE, Share, SweepOutcome, SweepSettings, Sweeper};
use ebbtide::timekeeping::{ManualClocks, TimeSource, Timed};
use ebbtide::{
    Admin, Backend, BackendExt as _, Budget, Clock as _, Ebbtide, Error, Key, Kind, ManualClock, Memory,
    Prefix, Record, Result, Scope, Swept, SystemRng, Timestamp, async_trait, delegate,
};

const HOUR: Duration = Duration::from_secs(3_600);

/// A memory store that writes down up to when it is swept, can be made to remove nothing, to fail, or to say that it has
/// rested, and has a mark.
#[derive(Default)]
struct Observed {
    inner: Memory,
    until: Mutex<Vec<Timestamp>>,
    idle: AtomicBool,
    broken: AtomicBool,
    rested: Mutex<Duration>,
}

#[async_trait]
impl Backend for Observed {
    delegate!(self => self.inner; get get_many take alter commit commit_each scan info);

    async fn sweep(&self, until: Timestamp, budget: &Budget) -> Result<Swept> {
        if self.broken.load(Ordering::SeqCst) {
            return Err(Error::unavailable("the engine is away"));
        }
        self.until.lock().unwrap().push(until);
        if self.idle.load(Ordering::SeqCst) {
            return Ok(Swept::default());
        }
        let swept = self.inner.sweep(until, budget).await?;
        let rested = if budget.share == Share::WHOLE { Duration::ZERO } else { *self.rested.lock().unwrap() };
        Ok(Swept { rested, ..swept })
    }
}

#[async_trait]
impl Admin for Observed {
    delegate!(self => self.inner; stats stats_at_hand list count clear erase);
    delegate!(self => self.inner; clock_mark set_clock_mark engine_clock warnings backup);
}

struct Site {
    store: Arc<Observed>,
    clock: ManualClock,
}

impl Site {
    fn new() -> Self {
        let store = Arc::new(Observed::default());
        let clock = ManualClock::at(Timestamp::ZERO.checked_add(1_000_000 * HOUR / 2).unwrap());
        Self { store, clock }
    }

    /// In steps of ten records.
    fn sweeper(&self) -> Sweeper {
        let step = Budget { records: 10, ..Budget::default() };
        let time = Arc::new(TimeSource::of_clock(self.clock.clone()));
        Sweeper::new(Timed::new(Arc::clone(&self.store) as Arc<dyn Admin>, time), SystemRng).step(step)
    }

    /// Stores so many records that end after `life`.
    async fn fill(&self, kind: Kind, count: usize, life: Duration) {
        let now = self.clock.now();
        for number in 0..count {
            let parts = [now.as_millis().into(), (number as u64).into()];
            let key = Key::new(kind, &Scope::Global, &parts, &[]).unwrap();
            let record = Record::new("", now.checked_add(life).unwrap(), &SystemRng);
            assert!(self.store.put(key, record, now).await.unwrap().is_applied());
        }
    }

    async fn stored(&self, kind: Kind) -> usize {
        self.store.scan_all(&Prefix::kind_wide(kind), Timestamp::ZERO).await.unwrap().len()
    }

    fn untils(&self) -> Vec<Timestamp> {
        std::mem::take(&mut self.store.until.lock().unwrap())
    }

    async fn warnings(&self) -> Vec<String> {
        sweeper::warnings(self.store.as_ref(), self.clock.now(), SILENCE).await.unwrap()
    }
}

async fn never_stop(_: Duration) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Says stop at the rest of that number, counted from one.
fn stop_at(number: usize) -> impl Fn(Duration) -> std::future::Ready<ControlFlow<()>> {
    let rests = AtomicUsize::new(0);
    move |_| {
        let stop = rests.fetch_add(1, Ordering::SeqCst) + 1 >= number;
        std::future::ready(if stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }
}

fn report(turn: SweepOutcome) -> sweeper::Report {
    match turn {
        SweepOutcome::Swept(report) => report,
        other => panic!("nobody else sweeps: {other:?}"),
    }
}

#[tokio::test]
async fn one_instant_holds_for_all_kinds_and_steps() {
    let site = Site::new();
    site.fill(Kind::Replay, 25, HOUR).await;
    site.fill(Kind::Nonce, 15, HOUR).await;
    site.clock.advance(2 * HOUR);
    let begun = site.clock.now();
    // Time passes while it rests, and more expires.
    let rest = |_| {
        site.clock.advance(HOUR);
        never_stop(HOUR)
    };
    let report = report(site.sweeper().sweep(rest).await.unwrap());
    assert_eq!(report.until, begun);
    assert_eq!(report.swept.removed, [(Kind::Replay, 25), (Kind::Nonce, 15)].into());
    let untils = site.untils();
    assert!(untils.len() >= 4 && untils.iter().all(|until| *until == begun), "{untils:?}");
}

#[tokio::test]
async fn it_is_strict() {
    let site = Site::new();
    site.fill(Kind::Replay, 1, HOUR).await;
    site.clock.advance(HOUR);
    assert_eq!(
        site.sweeper().sweep_now().await.unwrap().swept.total(),
        0,
        "what expires at the instant is kept"
    );
    site.clock.advance(Duration::from_millis(1));
    let report = site.sweeper().sweep_now().await.unwrap();
    assert_eq!(report.swept.removed, [(Kind::Replay, 1)].into());
}

#[tokio::test]
async fn it_rests_by_its_share() {
    let site = Site::new();
    site.fill(Kind::Replay, 100, HOUR).await;
    site.clock.advance(2 * HOUR);
    let rests = Mutex::new(Vec::new());
    let rest = |time| {
        rests.lock().unwrap().push(time);
        never_stop(time)
    };
    report(site.sweeper().share(Share::QUARTER).sweep(&rest).await.unwrap());
    let times = std::mem::take(&mut *rests.lock().unwrap());
    assert!(times.len() >= 10 && times.iter().all(|time| *time > Duration::ZERO), "{times:?}");
    site.fill(Kind::Replay, 100, HOUR).await;
    site.clock.advance(2 * HOUR);
    report(site.sweeper().sweep(&rest).await.unwrap());
    assert!(rests.lock().unwrap().iter().all(Duration::is_zero), "all of the time: no rests");
}

/// An engine whose steps are long rests within them, and is not made to rest for that time again.
#[tokio::test]
async fn what_was_rested_within_a_step_counts() {
    let site = Site::new();
    site.fill(Kind::Replay, 100, HOUR).await;
    site.clock.advance(2 * HOUR);
    *site.store.rested.lock().unwrap() = Duration::from_secs(10);
    let rests = Mutex::new(Vec::new());
    let rest = |time| {
        rests.lock().unwrap().push(time);
        never_stop(time)
    };
    let swept = report(site.sweeper().share(Share::QUARTER).sweep(&rest).await.unwrap()).swept;
    let times = rests.lock().unwrap();
    assert!(times.len() >= 10 && times.iter().all(Duration::is_zero), "{times:?}");
    assert!(swept.rested >= Duration::from_secs(100), "{:?}", swept.rested);
}

#[tokio::test]
async fn steps_that_are_kept_to_a_time_grow_or_shrink_with_it() {
    let site = Site::new();
    let step = Budget { records: 1_000, ..Budget::default() };
    for (time, least, most) in [(Duration::from_secs(3_600), 3, 8), (Duration::ZERO, 10, 12)] {
        site.fill(Kind::Replay, 300, HOUR).await;
        site.clock.advance(2 * HOUR);
        let sweeper = site.sweeper().step(step.clone()).step_time(time);
        assert_eq!(report(sweeper.sweep(never_stop).await.unwrap()).swept.total(), 300);
        let steps = site.untils().len();
        assert!((least..=most).contains(&steps), "{steps} steps of {time:?}");
    }
}

#[tokio::test]
async fn it_stops_between_steps_and_another_goes_on_up_to_the_same_instant() {
    let site = Site::new();
    site.fill(Kind::Replay, 45, HOUR).await;
    site.clock.advance(2 * HOUR);
    let begun = site.clock.now();
    let stopped = report(site.sweeper().sweep(stop_at(2)).await.unwrap());
    assert_eq!((stopped.swept.total(), stopped.swept.more), (20, true));
    site.untils();
    site.clock.advance(HOUR);
    let resumed = report(site.sweeper().sweep(never_stop).await.unwrap());
    assert_eq!((resumed.swept.total(), resumed.swept.more), (25, false));
    let untils = site.untils();
    assert_eq!(untils[0], begun, "what was left first");
    assert_eq!(*untils.last().unwrap(), site.clock.now(), "and then what has expired since");
    site.clock.advance(HOUR);
    report(site.sweeper().sweep(never_stop).await.unwrap());
    assert!(site.untils().iter().all(|until| *until == site.clock.now()), "nothing was left");
}

#[tokio::test]
async fn a_large_backlog_is_caught_up_with() {
    let site = Site::new();
    site.fill(Kind::AccessToken, 5_000, HOUR).await;
    site.clock.advance(2 * HOUR);
    site.fill(Kind::AccessToken, 7, 1_000 * HOUR).await;
    let report = report(site.sweeper().share(Share::QUARTER).sweep(never_stop).await.unwrap());
    assert_eq!((report.swept.total(), report.swept.more), (5_000, false));
    assert_eq!(site.stored(Kind::AccessToken).await, 7);
}

#[tokio::test]
async fn two_take_turns_and_a_dead_one_is_not_waited_for_long() {
    let site = Site::new();
    site.fill(Kind::Replay, 45, HOUR).await;
    site.clock.advance(2 * HOUR);
    let (first, second) = (site.sweeper(), site.sweeper());
    let rest = |_| async {
        let turn = second.sweep(never_stop).await.unwrap();
        let SweepOutcome::Busy { until } = turn else { panic!("the first is at work: {turn:?}") };
        assert_eq!(until.since(site.clock.now()), Duration::from_secs(60));
        ControlFlow::Continue(())
    };
    assert_eq!(report(first.sweep(rest).await.unwrap()).swept.total(), 45);
    // One that dies in the middle of it never gives its turn back.
    site.fill(Kind::Replay, 45, HOUR).await;
    site.clock.advance(2 * HOUR);
    let resting = tokio::sync::Notify::new();
    let rest = |_| {
        resting.notify_one();
        std::future::pending()
    };
    tokio::select! {
        turn = first.sweep(rest) => panic!("it rests for ever: {turn:?}"),
        () = resting.notified() => {}
    }
    assert!(matches!(second.sweep(never_stop).await.unwrap(), SweepOutcome::Busy { .. }));
    assert_eq!(
        site.sweeper().sweep_now().await.unwrap().swept.total(),
        35,
        "asked for, it waits for no turn"
    );
    assert!(
        matches!(second.sweep(never_stop).await.unwrap(), SweepOutcome::Busy { .. }),
        "and ends nobody's"
    );
    site.clock.advance(Duration::from_secs(60));
    report(second.sweep(never_stop).await.unwrap());
}

#[tokio::test]
async fn a_fault_gives_the_turn_back() {
    let site = Site::new();
    site.store.broken.store(true, Ordering::SeqCst);
    assert!(site.sweeper().sweep(never_stop).await.is_err());
    site.store.broken.store(false, Ordering::SeqCst);
    report(site.sweeper().sweep(never_stop).await.unwrap());
}

#[tokio::test]
async fn a_clock_that_leaps_ends_a_sweep_between_two_steps() {
    let site = Site::new();
    site.fill(Kind::Replay, 25, HOUR).await;
    let clocks = ManualClocks::at(site.clock.now().checked_add(2 * HOUR).unwrap());
    let store = Arc::clone(&site.store) as Arc<dyn Admin>;
    let timed = Timed::open(store, Arc::new(clocks.clone())).await.unwrap();
    let step = Budget { records: 10, ..Budget::default() };
    let sweeper = Sweeper::new(timed, SystemRng).step(step);
    let leap = |_| {
        clocks.step_wall(HOUR);
        async { ControlFlow::Continue(()) }
    };
    let error = sweeper.sweep(leap).await.unwrap_err();
    assert!(error.message().contains("in doubt"), "{error}");
    assert_eq!(
        site.store.inner.scan_all(&Prefix::kind_wide(Kind::Replay), Timestamp::ZERO).await.unwrap().len(),
        15
    );
    clocks.step_wall_back(HOUR);
    let go_on = |_| async { ControlFlow::Continue(()) };
    assert!(
        matches!(sweeper.sweep(go_on).await.unwrap(), SweepOutcome::Swept(report) if report.swept.total() == 15)
    );
}

#[tokio::test]
async fn it_runs_at_every_interval_and_not_at_start_up() {
    let site = Site::new();
    site.fill(Kind::Replay, 5, HOUR).await;
    site.clock.advance(2 * HOUR);
    let rests = Mutex::new(Vec::new());
    let rest = |time| {
        let mut rests = rests.lock().unwrap();
        rests.push((time, site.store.until.lock().unwrap().len()));
        std::future::ready(if rests.len() == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    };
    // So long that no machine is busy for an hour of it.
    let every = 24 * HOUR;
    site.sweeper().run(Some(every), rest).await.unwrap();
    let rests = rests.into_inner().unwrap();
    assert_eq!(rests[0], (every, 0), "nothing was swept before the first rest");
    assert_eq!(rests[1].1, 1, "the rest after the step");
    assert!(rests[2].0 > 23 * HOUR && rests[2].0 < every, "{rests:?}");
    assert_eq!(site.stored(Kind::Replay).await, 0);
}

#[tokio::test]
async fn without_an_interval_nothing_is_swept_and_after_a_day_that_is_told() {
    let site = Site::new();
    site.fill(Kind::Replay, 5, HOUR).await;
    site.sweeper().run(None, stop_at(2)).await.unwrap();
    assert_eq!(site.untils(), []);
    assert_eq!(site.warnings().await, Vec::<String>::new());
    site.clock.advance(SILENCE + HOUR);
    let warnings = site.warnings().await;
    assert!(
        warnings.len() == 1 && warnings[0].contains("nothing has swept this store for 27 hours"),
        "{warnings:?}"
    );
    site.sweeper().sweep_now().await.unwrap();
    assert_eq!(site.warnings().await, Vec::<String>::new());
}

#[tokio::test]
async fn sweeps_that_remove_nothing_while_the_overdue_age_grows_are_told_of() {
    let site = Site::new();
    site.fill(Kind::Replay, 5, HOUR).await;
    site.store.idle.store(true, Ordering::SeqCst);
    for _ in 0..2 {
        site.clock.advance(2 * HOUR);
        report(site.sweeper().sweep(never_stop).await.unwrap());
    }
    let warnings = site.warnings().await;
    assert!(warnings.len() == 1 && warnings[0].contains("expired 3 hours ago"), "{warnings:?}");
    site.store.idle.store(false, Ordering::SeqCst);
    report(site.sweeper().sweep(never_stop).await.unwrap());
    assert_eq!(site.warnings().await, Vec::<String>::new());
}

#[tokio::test]
async fn an_interval_of_zero_is_refused() {
    let site = Site::new();
    let rested = AtomicUsize::new(0);
    let rest = |_| {
        rested.fetch_add(1, Ordering::SeqCst);
        async { ControlFlow::Break(()) }
    };
    let error = site.sweeper().run(Some(Duration::ZERO), rest).await.unwrap_err();
    assert!(error.message().contains("above zero"), "{error}");
    assert_eq!(rested.load(Ordering::SeqCst), 0);
    for wrong in [
        SweepSettings { turn: Duration::ZERO, ..SweepSettings::default() },
        SweepSettings { silence: Duration::ZERO, ..SweepSettings::default() },
        SweepSettings { overdue: Some(Duration::ZERO), ..SweepSettings::default() },
    ] {
        assert!(site.sweeper().settings(wrong).is_err(), "{wrong:?}");
    }
}

#[tokio::test]
async fn a_sweep_of_some_kinds_does_not_silence_the_warning_about_the_others() {
    let site = Site::new();
    let swept = site.sweeper().sweep_now().await.unwrap();
    assert_eq!(swept.swept.total(), 0);
    site.clock.advance(27 * HOUR);
    let report = site.sweeper().kinds(&[Kind::Replay]).sweep_now().await.unwrap();
    assert_eq!(report.swept.total(), 0);
    let told = sweeper::warnings(site.store.as_ref(), site.clock.now(), SILENCE).await.unwrap();
    assert_eq!(told.len(), 1, "{told:?}");
    let report = site.sweeper().sweep_now().await.unwrap();
    assert_eq!(report.swept.total(), 0);
    assert!(sweeper::warnings(site.store.as_ref(), site.clock.now(), SILENCE).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_handle_with_an_interval_sweeps_by_itself() {
    let site = Site::new();
    site.fill(Kind::Replay, 25, HOUR).await;
    let engine = Arc::clone(&site.store) as Arc<dyn Admin>;
    let every = Duration::from_millis(1);
    let db = Ebbtide::over(engine).clock(site.clock.clone()).sweep_every(every).sweep_share(Share::WHOLE);
    let db = db.open().await.unwrap();
    site.clock.advance(2 * HOUR);
    let expired = async || {
        let stats = db.engine().stats(site.clock.now()).await.unwrap();
        stats.get(&Kind::Replay).map_or(0, |stats| stats.expired)
    };
    let swept = async {
        while expired().await > 0 {
            tokio::time::sleep(every).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), swept).await.expect("nothing was swept");
}

#[tokio::test]
async fn a_sweeping_handle_lets_go_of_the_store_when_it_is_dropped() {
    let site = Site::new();
    let engine = Arc::clone(&site.store) as Arc<dyn Admin>;
    let db = Ebbtide::over(engine).clock(site.clock.clone()).sweep_every(HOUR).open().await.unwrap();
    tokio::task::yield_now().await;
    assert!(Arc::strong_count(&site.store) > 1);
    db.close().await;
    assert_eq!(Arc::strong_count(&site.store), 1, "the sweeper holds the store between two sweeps");
}

#[test]
fn a_sweeping_handle_needs_an_interval_and_a_runtime() {
    let open = |every| pollster::block_on(Ebbtide::builder("memory:").sweep_every(every).open());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    assert!(open(HOUR).unwrap_err().message().contains("runtime"));
    let _inside = runtime.enter();
    assert!(open(Duration::ZERO).unwrap_err().message().contains("above zero"));
    open(HOUR).unwrap();
}
