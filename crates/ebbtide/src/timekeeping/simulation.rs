//! Seeded scripts of wall, boot-time and engine clocks against a model that knows the true time.
//!
//! The model holds what the contract promises for whatever the clocks do, with five exceptions that no rule could cover,
//! since no clock tells the truth then:
//! * a machine is paused, or off, and its wall is behind the truth when it goes on, by less than it would take to notice
//!   (on a shared engine, the engine tells);
//! * a wall is wrong for a whole day after it was believed;
//! * a wall is wrong and believed, and a reboot or a pause hides that before it is set right: what was issued meanwhile
//!   has an end that is later by the error;
//! * a process is started anew while another one waited for the wall to reach the mark;
//! * two clocks are wrong by the same amount.

mod world;

use std::sync::Arc;
use std::time::Duration;

use self::world::{HOUR, MINUTE, World};
use super::bounds::{Bounds, DAY, Micros, SECOND};
use super::mark::{micros, timestamp};
use super::*;
use crate::model::rng::SeededRng;
use crate::model::time::Timestamp;
use crate::model::ttl::Ttl;

/// Own time and true time may differ by this much without anybody noticing: each of two clocks by 2 s.
const TOLERANCE: Micros = 5 * SECOND;

/// A record as the store has it, and the truth about it.
#[derive(Debug, Clone, Copy)]
struct Issued {
    end: Timestamp,
    /// True time of its end.
    truly_ends: Micros,
    /// A fence has ended it for reads. As evidence it still counts.
    fenced: bool,
}

struct Script {
    rng: SeededRng,
    world: World,
    bounds: Bounds,
    engine: EngineClock,
    time: TimeSource,
    mark: Option<Mark>,
    records: Vec<Issued>,
    /// Own time and boot-time reading of the last confirmed answer.
    last: Option<(Micros, Micros)>,
    /// The process of this script has waited for the wall.
    waits: bool,
    broken: Vec<String>,
    issued: usize,
}

impl Script {
    fn new(seed: u64, bounds: Bounds, engine: EngineClock) -> Self {
        let world = World::new();
        let time = TimeSource::bounded(bounds, Arc::new(world.clone()), engine, None);
        Self {
            rng: SeededRng::new(seed),
            world,
            bounds,
            engine,
            time,
            mark: None,
            records: Vec::new(),
            last: None,
            waits: false,
            broken: Vec::new(),
            issued: 0,
        }
    }

    fn shared(&self) -> bool {
        self.engine == EngineClock::Shared
    }

    fn below(&self, bound: i64) -> i64 {
        i64::try_from(self.rng.below(u64::try_from(bound).unwrap())).unwrap()
    }

    fn one_of(&self, choices: &[i64]) -> i64 {
        let index = self.rng.below(choices.len() as u64);
        choices[usize::try_from(index).unwrap()]
    }

    /// A size from one second to ten years, as likely in each order of magnitude.
    fn size(&self) -> Micros {
        let units = [SECOND, 10 * SECOND, MINUTE, 10 * MINUTE, HOUR, DAY, 30 * DAY, 365 * DAY];
        let unit = self.one_of(&units);
        unit + self.below(9 * unit)
    }

    fn signed(&self, size: Micros) -> Micros {
        if self.rng.below(2) == 0 { size } else { -size }
    }

    fn small(&self) -> Micros {
        self.below(SECOND / 5) - SECOND / 10
    }

    fn breaks(&mut self, what: &str) {
        let state = self.time.status();
        self.broken.push(format!("{what}: {:?}, {state:?}", self.world));
    }

    fn run(&mut self, events: usize) {
        self.look();
        for _ in 0..events {
            self.event();
            self.world.mend(self.small());
            self.look();
        }
        self.settle();
    }

    fn event(&mut self) {
        match self.rng.below(16) {
            0..=3 => self.tick(1 + self.below(30)),
            4 => self.world.pass(self.below(6 * HOUR)),
            5 => self.world.pass(self.below(10 * MINUTE)),
            6 | 7 => {
                // A process that waits for the wall believes it once it has passed the mark.
                let opening = self.time.status().own.is_none();
                let error = if opening { self.size() } else { self.signed(self.size()) };
                self.world.set_wall(if self.same_as_own(error) { 0 } else { error });
            }
            8 => self.world.set_wall(self.small()),
            9 => {
                self.world.synchronize();
                self.tick(2);
            }
            10 => self.pause(),
            11 => self.restart(),
            12 => self.reboot(),
            13 if self.shared() => {
                let error = if self.rng.below(2) == 0 { 0 } else { self.signed(self.size()) };
                self.world.set_engine(error);
            }
            14 if self.shared() => self.foreign_mark(),
            15 => self.operator(),
            _ => self.tick(12),
        }
    }

    /// Lets seconds pass with a look in each.
    fn tick(&mut self, seconds: i64) {
        for _ in 0..seconds {
            self.world.pass(SECOND);
            self.look();
        }
    }

    /// Pauses the machine: the boot-time clock does not count it, the wall is set by the host.
    fn pause(&mut self) {
        if self.world.wall_error() < -SECOND / 5 {
            return;
        }
        self.hide_error();
        self.world.pause(self.size().min(20 * DAY));
        self.world.mend(self.small());
    }

    /// Own time is behind after a pause, and a wall with this error would be wrong by the same amount.
    fn same_as_own(&self, error: Micros) -> bool {
        let own = self.time.status().own.map_or(0, micros);
        own < self.world.truth() - TOLERANCE && (self.world.truth() + error - own).abs() <= 2 * TOLERANCE
    }

    /// A pause or a reboot hides that own time was ahead: what was issued meanwhile keeps an end that is too late.
    fn hide_error(&mut self) {
        if self.time.status().own.is_some_and(|own| micros(own) > self.world.truth() + TOLERANCE) {
            self.fence();
        }
    }

    fn restart(&mut self) {
        self.keep_mark();
        self.open();
    }

    fn open(&mut self) {
        if self.waits {
            self.fence();
        }
        self.waits = false;
        let clocks = Arc::new(self.world.clone());
        self.time = TimeSource::bounded(self.bounds, clocks, self.engine, self.mark);
        self.last = None;
    }

    fn reboot(&mut self) {
        if self.rng.below(2) == 0 {
            self.keep_mark();
        }
        self.hide_error();
        let off = self.size().min(20 * DAY);
        let error = match self.rng.below(4) {
            0 => self.size(),
            // So far behind the mark that it cannot pass for right.
            1 if !self.shared() => {
                let mark = self.mark.map_or(0, |mark| micros(mark.own()));
                mark - 3 * HOUR - self.size() - self.world.truth() - off
            }
            _ => self.small(),
        };
        self.world.reboot(off, error);
        self.open();
    }

    /// Another node, with a wrong clock and an old version, has written the mark.
    fn foreign_mark(&mut self) {
        let ahead = timestamp(self.world.truth() + self.size());
        self.mark = Some(Mark::from_timestamp(ahead));
    }

    /// An operator accepts the wall, and only if it is right.
    fn operator(&mut self) {
        if self.world.wall_error().abs() > SECOND / 5 || self.time.now().is_ok_and(Now::is_exact) {
            return;
        }
        self.compare();
        if let Ok(accepted) = self.time.accept() {
            self.last = None;
            if accepted.fence.is_some() {
                self.fence();
            }
        }
    }

    fn fence(&mut self) {
        self.records.iter_mut().for_each(|record| record.fenced = true);
    }

    fn keep_mark(&mut self) {
        self.ask_engine();
        if let Some(mark) = self.time.mark() {
            if self.shared() && micros(mark.own()) > self.world.engine() + TOLERANCE {
                self.breaks("a mark beyond the engine's clock");
            }
            self.mark = Some(Mark::decode(&mark.encode()).unwrap());
        }
    }

    fn compare(&mut self) {
        if self.time.wants_engine() {
            self.ask_engine();
        }
    }

    fn ask_engine(&mut self) {
        if self.shared() {
            let question = self.time.ask_engine();
            let engine = timestamp(self.world.engine());
            self.time.hear_engine(question, engine, Duration::from_millis(1));
        }
    }

    /// Everything that a process does, judged by the truth.
    fn look(&mut self) {
        self.compare();
        let now = self.time.now();
        for event in self.time.take_events() {
            match event {
                Event::Opened { fence: Some(_), .. } => self.fence(),
                Event::Adopted { .. } | Event::Opened { .. } => self.last = None,
                _ => {}
            }
        }
        self.waits =
            now.as_ref().is_err_and(|error| error.message().contains("behind the store's clock mark"));
        let Ok(now) = now else { return };
        self.check_pace(now);
        self.use_records(now);
        self.issue(now);
        self.sweep();
        if self.rng.below(4) == 0 {
            self.keep_mark();
        }
    }

    /// Between adoptions own time keeps the pace of the boot-time clock, to 500 ppm.
    fn check_pace(&mut self, now: Now) {
        if !now.is_confirmed() {
            return;
        }
        let (own, boot) = (micros(now.latest()), self.world.boot_time());
        if let Some((last_own, last_boot)) = self.last {
            let elapsed = boot - last_boot;
            if (own - last_own - elapsed).abs() > elapsed * 500 / 1_000_000 + 2_000 {
                self.breaks("own time does not keep its pace");
            }
        }
        self.last = Some((own, boot));
    }

    fn use_records(&mut self, now: Now) {
        let truth = self.world.truth();
        let ends = now.end(Ttl::from_secs(60).unwrap()).is_ok();
        for record in self.records.clone() {
            if !record.fenced
                && matches!(now.before(record.end), Ok(true))
                && truth >= record.truly_ends + TOLERANCE
            {
                self.breaks("an expired credential is honoured");
            }
            // An insert over evidence is fresh if the evidence is absent at the earliest.
            let absent = record.end <= now.earliest();
            if absent && ends && truth < record.truly_ends - TOLERANCE {
                self.breaks("fresh for a seen proof");
            }
        }
        self.records.retain(|record| record.truly_ends + 60 * DAY > truth);
    }

    fn issue(&mut self, now: Now) {
        let seconds = self.one_of(&[2, 10, 60, 300, 900, 86_400, 14 * 86_400]);
        let ttl = Ttl::from_secs(seconds).unwrap();
        let Ok(end) = now.end(ttl) else { return };
        let ahead = self.world.wall() - micros(now.latest());
        if ahead > 2 * SECOND + 1_000 {
            self.breaks("issued in doubt");
        }
        self.issued += 1;
        if self.records.len() < 64 {
            let truly_ends = self.world.truth() + micros_of(ttl);
            self.records.push(Issued { end, truly_ends, fenced: false });
            self.keep_mark();
        }
    }

    fn sweep(&mut self) {
        let Ok(until) = self.time.sweep_until() else { return };
        let truth = self.world.truth();
        if (self.world.wall() - micros(self.time.now().unwrap().latest())).abs() > 2 * SECOND + 1_000 {
            self.breaks("swept while wall and own time differ");
        }
        if self.records.iter().any(|record| record.end < until && truth < record.truly_ends - TOLERANCE) {
            self.breaks("a live record is swept");
        }
        self.records.retain(|record| record.end >= until);
    }

    /// Once all clocks are right, and an operator has looked, it issues again.
    fn settle(&mut self) {
        self.world.set_engine(0);
        self.world.set_wall(0);
        self.tick(12);
        self.operator();
        let issued = self.issued;
        self.tick(12);
        if self.issued == issued {
            self.breaks("issues nothing though all clocks are right");
        }
    }
}

fn micros_of(ttl: Ttl) -> Micros {
    reading::micros(ttl.duration())
}

/// Number of scripts of a run. `EBBTIDE_TEST_SEEDS` overrides it: 10,000 find more, and take longer in a debug build.
const SCRIPTS: u64 = 2_000;

fn scripts() -> u64 {
    std::env::var("EBBTIDE_TEST_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(SCRIPTS)
}

/// Runs scripts with these bounds, and gives what they broke.
fn broken(bounds: Bounds, seeds: std::ops::Range<u64>) -> Vec<String> {
    seeds
        .flat_map(|seed| {
            let engine = if seed % 2 == 0 { EngineClock::None } else { EngineClock::Shared };
            let mut script = Script::new(seed, bounds, engine);
            script.run(40);
            script.broken.truncate(1);
            script.broken.into_iter().map(move |what| format!("seed {seed}, {engine:?}: {what}"))
        })
        .collect()
}

#[test]
fn no_script_permits_wrongly() {
    let found = broken(Bounds::CONTRACT, 0..scripts());
    assert!(found.is_empty(), "{} scripts, such as\n{}", found.len(), found[..found.len().min(3)].join("\n"));
}

#[test]
fn every_rule_that_is_left_out_is_noticed() {
    let contract = Bounds::CONTRACT;
    let faults = [
        ("no hold", Bounds { hold_unvouched: 0, hold_vouched: 0, ..contract }, "fresh for a seen proof"),
        (
            "no limit of the slew",
            Bounds { slew_ppm: 1_000_000, ..contract },
            "own time does not keep its pace",
        ),
        ("no doubt", Bounds { doubt: HOUR, ..contract }, "an expired credential is honoured"),
        (
            "an engine that is believed across a pause",
            Bounds { moved: i64::MAX / 4, ..contract },
            "an expired credential",
        ),
    ];
    for (fault, bounds, noticed) in faults {
        let found = broken(bounds, 0..1_000);
        let caught = found.iter().filter(|what| what.contains(noticed)).count();
        println!("{fault}: {caught} of 1000 scripts notice: {noticed}");
        assert!(caught > 0, "{fault}: {} other scripts", found.len());
    }
}

#[test]
fn after_a_pause_with_a_synchronized_engine_it_issues_within_a_second() {
    for seed in 0..100 {
        let mut script = Script::new(seed, Bounds::CONTRACT, EngineClock::Shared);
        script.tick(20);
        script.world.pause(10 * MINUTE + script.below(MINUTE));
        let resumed = script.world.truth();
        let issued = script.issued;
        while script.issued == issued {
            script.world.pass(SECOND / 10);
            script.look();
            assert!(script.world.truth() - resumed <= SECOND);
        }
        assert!(script.broken.is_empty(), "{:?}", script.broken);
    }
}
