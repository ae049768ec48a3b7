//! Seeded runs against a model, with crashes, kills and failing calls.

mod calls;

use calls::{Changes, Model, Plan, SimulatedCall, apply, live, number_of};

use super::*;
use crate::ErrorKind;
use crate::backend::Budget;
use crate::engines::log::disk::sim::{Dice, Fired, Odds};
use crate::engines::log::hint;
use crate::engines::log::segment::Segment;
use crate::model::alteration::{Add, Alteration};
use crate::model::record::Version;

struct Run {
    rig: Rig,
    dice: Dice,
    model: Model,
    now: u64,
    /// Bytes that were flipped in copies of the disk, and found.
    damages: u64,
}

impl Run {
    fn number(&mut self, busy: &[u64]) -> Option<u64> {
        let number = self.dice.below(8);
        (!busy.contains(&number)).then_some(number)
    }

    fn record(&mut self) -> Record {
        let life = [5, 40, 10 * SECOND, DAY, 60 * DAY][usize::try_from(self.dice.below(5)).unwrap()];
        let padding = usize::try_from(self.dice.below(4)).unwrap() * 1_500;
        let value = format!("{}-{}", self.dice.next(), "x".repeat(padding));
        self.rig.record(&value, self.now + life)
    }

    fn write(&mut self, number: u64) -> Write {
        let (key, record) = (key(number), self.record());
        let known = self.model.get(&number).map(|record| record.version);
        match (self.dice.below(9), known) {
            (0, _) => Write::Delete { key },
            (1, Some(expected)) => Write::Remove { key, expected },
            (2 | 3, Some(expected)) => Write::Replace { key, expected, record },
            (4, _) => Write::Insert { key, record },
            (5, Some(expected)) => Write::Check { key, expected },
            (6, _) => Write::Absent { key },
            _ => Write::Put { key, record },
        }
    }

    fn alteration(&mut self, number: u64) -> Alteration {
        let record = self.record();
        let (version, expires_at) =
            (Version::mint(self.rig.store.core.options.settings.rng.as_ref()), record.expires_at);
        let standing = live(&self.model, number, self.now);
        let first = standing.and_then(|record| record.value.first().copied()).unwrap_or(b'1');
        let is_counter = standing.is_none_or(|record| record.value.len() == size_of::<i64>());
        match self.dice.below(4) {
            0 if is_counter => Alteration::Add(Add { by: 3, limit: 7, expires_if_new: expires_at, version }),
            1 => Alteration::Touch { first, expires_at, version },
            2 => Alteration::Take { first },
            _ => Alteration::Swap { record },
        }
    }

    /// A call on keys that no other call uses meanwhile.
    fn plan(&mut self, busy: &mut Vec<u64>) -> Option<Plan> {
        let number = self.number(busy)?;
        busy.push(number);
        let mut writes = vec![self.write(number)];
        if self.dice.below(4) == 0
            && let Some(other) = self.number(busy)
        {
            busy.push(other);
            writes.push(self.write(other));
        }
        Some(match self.dice.below(12) {
            0 => Plan::Take(number),
            1 => Plan::Get(number),
            2 => Plan::GetMany(writes.iter().map(|write| number_of(write.key())).collect()),
            3 | 4 => Plan::Alter(number, self.alteration(number)),
            5 => Plan::CommitEach(writes),
            _ => Plan::Commit(writes),
        })
    }

    /// Runs a few calls on distinct keys at once, with retirement beside them, and answers what was left unanswered.
    fn round(&mut self, is_last: bool) -> std::result::Result<Vec<Changes>, String> {
        self.now += [0, 1, 5, 40, 20 * SECOND][usize::try_from(self.dice.below(5)).unwrap()];
        let now = self.now;
        let mut busy = Vec::new();
        let plans: Vec<_> = (0..=self.dice.below(4)).filter_map(|_| self.plan(&mut busy)).collect();
        let retires = self.dice.below(3) == 0;
        if retires && self.dice.below(2) == 0 {
            let _ = self.rig.store.core.log.prepare_next();
            self.rig.store.core.log.roll();
        }
        let store = &self.rig.store;
        let mut calls: Vec<_> =
            plans.into_iter().map(|plan| Some(SimulatedCall::begin(plan, store, now))).collect();
        let mut retiring = retires.then(|| Box::pin(store.retire_oldest(at(now))));
        let gives_up = if is_last || self.dice.below(6) == 0 { self.dice.below(40) } else { u64::MAX };
        let mut steps = 0;
        let is_running =
            |call: &Option<SimulatedCall<'_>>| call.as_ref().is_some_and(SimulatedCall::is_running);
        while calls.iter().any(is_running) && steps < gives_up.min(2_000) {
            steps += 1;
            match self.dice.below(8) {
                7 => store.core.write_hints(),
                // A sweep and a retirement exclude each other.
                6 if retiring.is_none() => {
                    drop(store.core.sweep(at(now), &Budget::everything(&[Kind::Probe])));
                }
                0 => drop(store.step_pools()),
                1 => drop(store.core.log.write_next()),
                2 => drop(store.core.log.prepare_next()),
                3 => {
                    if let Some(future) = &mut retiring
                        && poll(future).is_ready()
                    {
                        retiring = None;
                    }
                }
                _ => {
                    let at = usize::try_from(self.dice.below(calls.len() as u64)).unwrap();
                    let Some(call) = calls[at].take() else { continue };
                    calls[at] = call.advance(&mut self.model)?;
                }
            }
        }
        if gives_up == u64::MAX && calls.iter().any(is_running) && !store.core.log.is_poisoned() {
            return Err("a call is never answered".to_owned());
        }
        Ok(calls.iter().flatten().flat_map(|call| call.changes(&self.model)).collect())
    }

    /// Compares a listing with the model; a disk that fails is no difference.
    fn compare_listing(&mut self) -> std::result::Result<(), String> {
        let listed = self.rig.drive(self.rig.store.scan_all(&Prefix::kind_wide(Kind::Probe), at(self.now)));
        let Ok(listed) = listed else { return Ok(()) };
        let listed: Vec<_> = listed.into_iter().map(|(key, record)| (number_of(&key), record)).collect();
        let expected = self.model.iter().filter(|(_, record)| record.is_live(at(self.now)));
        let expected: Vec<_> = expected.map(|(number, record)| (*number, record.clone())).collect();
        if listed == expected { Ok(()) } else { Err(format!("listed {listed:?} instead of {expected:?}")) }
    }

    /// Opens the store, with up to two crashes on the way, and compares it with the model.
    fn reopen(&mut self, unanswered: Vec<Changes>) -> std::result::Result<(), String> {
        self.rig.disk.behave();
        for again in (0..=self.dice.below(3)).rev() {
            if self.dice.below(3) == 0 {
                self.rig.disk.kill();
            } else {
                self.rig.disk.crash();
            }
            if again > 0 {
                self.rig.disk.stop_at(self.rig.disk.calls() + self.dice.below(60));
                if let Err(error) = self.rig.open()
                    && error.kind() == ErrorKind::Corrupt
                {
                    return Err(format!("a crash gave: {error}"));
                }
                self.rig.disk.behave();
            }
        }
        self.rig.seed += 1;
        self.rig.store = self.rig.open().map_err(|error| format!("does not open after a crash: {error}"))?;
        let mut found = Model::new();
        for number in 0..8 {
            let record = self.rig.drive(self.rig.store.get(&key(number), at(self.now)));
            if let Some(record) = record.map_err(|error| error.to_string())? {
                found.insert(number, record);
            }
        }
        for changes in unanswered {
            // All of it is there, or nothing.
            let mut with = self.model.clone();
            apply(&mut with, changes.clone());
            if changes.iter().all(|(number, _)| found.get(number) == live(&with, *number, self.now)) {
                self.model = with;
            }
        }
        for number in 0..8 {
            if found.get(&number) != live(&self.model, number, self.now) {
                return Err(format!(
                    "key {number}: found {:?}, acknowledged {:?}",
                    found.get(&number),
                    self.model.get(&number)
                ));
            }
        }
        let listed = self.rig.drive(self.rig.store.scan_all(&Prefix::kind_wide(Kind::Probe), at(self.now)));
        let listed: Model = listed
            .map_err(|error| error.to_string())?
            .into_iter()
            .map(|(key, record)| (number_of(&key), record))
            .collect();
        if listed != found {
            return Err("a listing differs from single reads".to_owned());
        }
        if self.dice.below(2) == 0 { self.damage() } else { Ok(()) }
    }

    /// Flips a bit of a durable group in a copy of the disk: that is always found.
    fn damage(&mut self) -> std::result::Result<(), String> {
        let manifest = self.rig.store.core.log.manifest();
        let closed = manifest.segments.iter().filter_map(|entry| Some((entry.id, entry.closed?.end)));
        let closed: Vec<_> = closed.filter(|(_, end)| *end > 0).collect();
        if closed.is_empty() {
            return Ok(());
        }
        let (id, end) = closed[usize::try_from(self.dice.below(closed.len() as u64)).unwrap()];
        let (byte, bit) = (usize::try_from(self.dice.below(end.into())).unwrap(), self.dice.below(8));
        let disk = self.rig.disk.fork();
        // Segments with a hint are read after the opening.
        for name in disk.names().iter().filter(|name| hint::number(name).is_some()) {
            disk.remove(name);
        }
        disk.damage(&Segment::name(id), |bytes| bytes[byte] ^= 1 << bit);
        self.damages += 1;
        let options = Options { hash_mask: self.rig.mask, ..options(self.rig.seed, self.rig.fault) };
        match open(&disk, &options) {
            Err(error) if error.kind() == ErrorKind::Corrupt => Ok(()),
            Err(error) => Err(format!("damage of byte {byte} of segment {id} gave: {error}")),
            Ok(_) => Err(format!("damage of byte {byte} of segment {id} was not found")),
        }
    }
}

/// Faults that fired in a run, and damages that were found.
type Counts = (Fired, u64);

pub(super) fn run(seed: u64, fault: Option<PlantedFault>) -> std::result::Result<Counts, String> {
    run_with(Rig::new(seed, fault), seed)
}

fn run_with(rig: Rig, seed: u64) -> std::result::Result<Counts, String> {
    let mut run = Run { rig, dice: Dice::new(seed ^ 0x00C0_FFEE), model: Model::new(), now: 0, damages: 0 };
    for _ in 0..8 {
        match run.dice.below(4) {
            0 => run.rig.disk.set_odds(Odds { io: 400, no_space: 800, dropped_sync: 0 }),
            1 => run.rig.disk.stop_at(run.rig.disk.calls() + run.dice.below(120)),
            _ => {}
        }
        let mut unanswered = Vec::new();
        for _ in 0..run.dice.below(16) {
            unanswered = run.round(false)?;
            if !unanswered.is_empty() || run.rig.store.core.log.is_poisoned() {
                break;
            }
            if run.dice.below(4) == 0 {
                run.compare_listing()?;
            }
        }
        if unanswered.is_empty() {
            // Mostly between a write and its sync.
            if run.dice.below(4) > 0 {
                run.rig.disk.stop_at(run.rig.disk.calls() + run.dice.below(10));
            }
            unanswered = run.round(true)?;
        }
        run.reopen(unanswered)?;
    }
    Ok((run.rig.disk.fired(), run.damages))
}

#[test]
fn answers_agree_with_the_model_and_crashes_lose_nothing() {
    let seeds = crate::engines::log::seeds();
    let first = std::env::var("EBBTIDE_FIRST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0);
    let mut fired = Vec::new();
    for seed in first..first + seeds {
        fired.push(run(seed, None).unwrap_or_else(|error| panic!("seed {seed}: {error}")));
    }
    let share = |count: fn(&Fired) -> u64| {
        fired.iter().filter(|(fired, _)| count(fired) > 0).count() * 100 / fired.len()
    };
    let damaged = fired.iter().filter(|(_, damages)| *damages > 0).count() * 100 / fired.len();
    for (name, share) in [
        ("damage at or below the floor", damaged),
        ("kept pages", share(|fired| fired.kept_pages)),
        ("dropped pages", share(|fired| fired.dropped_pages)),
        ("torn pages", share(|fired| fired.torn_pages)),
        ("damaged pages", share(|fired| fired.damaged_pages)),
        ("lost names", share(|fired| fired.lost_names)),
        ("no space", share(|fired| fired.no_space)),
        ("io", share(|fired| fired.io)),
    ] {
        assert!(share >= 30, "{name} in {share} % of the seeds");
    }
}

#[test]
fn keys_with_equal_hashes_are_kept_apart() {
    for seed in 0..100 {
        // Eight keys share two hashes, in one shard.
        let mut rig = Rig::new(seed, None);
        rig.mask = 1;
        rig.store = rig.open().unwrap();
        run_with(rig, seed).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}
