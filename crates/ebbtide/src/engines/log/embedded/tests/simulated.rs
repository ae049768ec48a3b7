//! Seeded runs against a model, with crashes, kills and failing calls.

use std::collections::BTreeMap;

use super::*;
use crate::ErrorKind;
use crate::backend::Budget;
use crate::engines::log::disk::sim::{Dice, Fired, Odds};

type Running<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;
type Model = BTreeMap<u64, Record>;

/// A call that has not been answered.
enum Call<'a> {
    Commit {
        running: Running<'a, Result<Commit>>,
        writes: Vec<Write>,
        now: u64,
    },
    Take {
        running: Running<'a, Result<Option<Record>>>,
        number: u64,
        now: u64,
    },
    Get {
        running: Running<'a, Result<Option<Record>>>,
        number: u64,
        now: u64,
    },
    /// An error says that it may have happened.
    Failed(Unanswered),
}

/// Changes of a call that was never answered: all of them are there after a crash, or none.
type Unanswered = Vec<(u64, Option<Record>)>;

fn number_of(key: &Key) -> u64 {
    let crate::model::key::Part::Int(number) = key.sort()[0] else { panic!("the tests use numbers") };
    number
}

fn live(model: &Model, number: u64, now: u64) -> Option<&Record> {
    model.get(&number).filter(|record| record.is_live(at(now)))
}

fn effects(writes: &[Write]) -> Unanswered {
    let effect = |write: &Write| match write.effect() {
        crate::model::write::Effect::Store(record) => Some((number_of(write.key()), Some(record.clone()))),
        crate::model::write::Effect::Erase => Some((number_of(write.key()), None)),
        crate::model::write::Effect::Nothing => None,
    };
    writes.iter().filter_map(effect).collect()
}

fn apply(model: &mut Model, changes: Unanswered) {
    for (number, record) in changes {
        match record {
            Some(record) => model.insert(number, record),
            None => model.remove(&number),
        };
    }
}

fn expected(model: &Model, writes: &[Write], now: u64) -> Commit {
    let refused = writes.iter().position(|write| {
        let standing = model.get(&number_of(write.key())).map(|record| (record.version, record.expires_at));
        !write.condition().holds(standing, at(now))
    });
    refused.map_or(Commit::Applied, |index| Commit::Refused { index })
}

struct Run {
    rig: Rig,
    dice: Dice,
    model: Model,
    now: u64,
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
        match (self.dice.below(7), known) {
            (0, _) => Write::Delete { key },
            (1, Some(expected)) => Write::Remove { key, expected },
            (2 | 3, Some(expected)) => Write::Replace { key, expected, record },
            (4, _) => Write::Insert { key, record },
            _ => Write::Put { key, record },
        }
    }

    /// Runs a few calls on distinct keys at once, with retirement beside them, and answers what was left unanswered.
    fn round(&mut self, is_last: bool) -> std::result::Result<Vec<Unanswered>, String> {
        self.now += [0, 1, 5, 40, 20 * SECOND][usize::try_from(self.dice.below(5)).unwrap()];
        let now = self.now;
        let mut plans = Vec::new();
        let mut busy = Vec::new();
        for _ in 0..=self.dice.below(4) {
            let Some(number) = self.number(&busy) else { continue };
            busy.push(number);
            let mut writes = vec![self.write(number)];
            if self.dice.below(4) == 0
                && let Some(other) = self.number(&busy)
            {
                busy.push(other);
                writes.push(self.write(other));
            }
            plans.push((self.dice.below(8), number, writes));
        }
        let retires = self.dice.below(3) == 0;
        if retires && self.dice.below(2) == 0 {
            let _ = self.rig.store.core.log.prepare_next();
            self.rig.store.core.log.roll();
        }
        let store = &self.rig.store;
        let mut calls: Vec<Option<Call<'_>>> = Vec::new();
        for (choice, number, writes) in plans {
            calls.push(Some(match choice {
                0 => {
                    let running = Box::pin(async move { store.take(&key(number), at(now)).await });
                    Call::Take { running, number, now }
                }
                1 | 2 => {
                    let running = Box::pin(async move { store.get(&key(number), at(now)).await });
                    Call::Get { running, number, now }
                }
                _ => {
                    let batch = Batch::new(writes.clone()).unwrap();
                    Call::Commit { running: Box::pin(store.commit(batch, at(now))), writes, now }
                }
            }));
        }
        let mut retiring = retires.then(|| Box::pin(store.retire_oldest(at(now))));
        let gives_up = if is_last || self.dice.below(6) == 0 { self.dice.below(40) } else { u64::MAX };
        let mut steps = 0;
        let is_running = |call: &Option<Call<'_>>| !matches!(call, None | Some(Call::Failed(_)));
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
                    calls[at] = advance(call, &mut self.model)?;
                }
            }
        }
        if gives_up == u64::MAX && calls.iter().any(is_running) && !store.core.log.is_poisoned() {
            return Err("a call is never answered".to_owned());
        }
        Ok(calls.into_iter().flatten().map(|call| changes(&call, &self.model)).collect())
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
    fn reopen(&mut self, unanswered: Vec<Unanswered>) -> std::result::Result<(), String> {
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
        if listed == found { Ok(()) } else { Err("a listing differs from single reads".to_owned()) }
    }
}

/// Polls a call, and compares its answer with the model.
fn advance<'a>(call: Call<'a>, model: &mut Model) -> std::result::Result<Option<Call<'a>>, String> {
    match call {
        Call::Commit { mut running, writes, now } => match poll(&mut running) {
            Poll::Ready(Ok(commit)) => {
                let wanted = expected(model, &writes, now);
                if commit != wanted {
                    return Err(format!("{commit:?} instead of {wanted:?} for {writes:?}"));
                }
                if commit.is_applied() {
                    apply(model, effects(&writes));
                }
                Ok(None)
            }
            Poll::Ready(Err(error)) => failed(&error, changes(&Call::Commit { running, writes, now }, model)),
            Poll::Pending => Ok(Some(Call::Commit { running, writes, now })),
        },
        Call::Take { mut running, number, now } => match poll(&mut running) {
            Poll::Ready(Ok(record)) => {
                if record.as_ref() != live(model, number, now) {
                    return Err(format!("took {record:?} instead of {:?}", model.get(&number)));
                }
                if record.is_some() {
                    model.remove(&number);
                }
                Ok(None)
            }
            Poll::Ready(Err(error)) => failed(&error, changes(&Call::Take { running, number, now }, model)),
            Poll::Pending => Ok(Some(Call::Take { running, number, now })),
        },
        Call::Get { mut running, number, now } => match poll(&mut running) {
            Poll::Ready(Ok(record)) if record.as_ref() != live(model, number, now) => {
                Err(format!("got {record:?} instead of {:?}", model.get(&number)))
            }
            Poll::Ready(Ok(_)) => Ok(None),
            Poll::Ready(Err(error)) => failed(&error, Vec::new()),
            Poll::Pending => Ok(Some(Call::Get { running, number, now })),
        },
        Call::Failed(_) => Ok(Some(call)),
    }
}

fn failed<'a>(error: &crate::Error, changes: Unanswered) -> std::result::Result<Option<Call<'a>>, String> {
    match error.kind() {
        ErrorKind::Unavailable => Ok(Some(Call::Failed(changes))),
        _ => Err(error.to_string()),
    }
}

fn changes(call: &Call<'_>, model: &Model) -> Unanswered {
    match call {
        Call::Commit { writes, now, .. } if expected(model, writes, *now).is_applied() => effects(writes),
        Call::Take { number, now, .. } if live(model, *number, *now).is_some() => vec![(*number, None)],
        Call::Failed(changes) => changes.clone(),
        _ => Vec::new(),
    }
}

pub(super) fn run(seed: u64, fault: Option<Fault>) -> std::result::Result<Fired, String> {
    run_with(Rig::new(seed, fault), seed)
}

fn run_with(rig: Rig, seed: u64) -> std::result::Result<Fired, String> {
    let mut run = Run { rig, dice: Dice::new(seed ^ 0x00C0_FFEE), model: Model::new(), now: 0 };
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
    Ok(run.rig.disk.fired())
}

#[test]
fn answers_agree_with_the_model_and_crashes_lose_nothing() {
    let seeds = crate::engines::log::seeds();
    let first = std::env::var("EBBTIDE_FIRST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0);
    let mut fired = Vec::new();
    for seed in first..first + seeds {
        fired.push(run(seed, None).unwrap_or_else(|error| panic!("seed {seed}: {error}")));
    }
    let share =
        |count: fn(&Fired) -> u64| fired.iter().filter(|fired| count(fired) > 0).count() * 100 / fired.len();
    for (name, share) in [
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
