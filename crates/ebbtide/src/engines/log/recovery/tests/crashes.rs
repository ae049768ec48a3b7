//! Crashes, kills and failing calls, while writing and while recovering.

use super::*;
use crate::ErrorKind;
use crate::engines::log::disk::sim::{Dice, Fired, Odds};

/// Writes for a while and crashes, several times over. Fails with the first answer that is wrong.
fn run(seed: u64, fault: Option<PlantedFault>, fired: &mut Vec<Fired>) -> std::result::Result<(), String> {
    let mut dice = Dice::new(seed ^ 0x5EED);
    let disk = SimDisk::new(seed);
    let settings = settings(seed, fault);
    let mut acknowledged = Model::new();
    // Written and never answered: there or not after a crash.
    let mut pending: Option<(u64, u64)> = None;
    let mut next_value = 1;
    for _ in 0..4 {
        let mut log = recover(&disk, &settings, &mut dice)?;
        check(&log.found, &acknowledged, pending)?;
        acknowledged.clone_from(&log.found);
        pending = None;
        if dice.below(2) == 0 {
            disk.set_odds(Odds { io: 400, no_space: 700, dropped_sync: 0 });
        }
        for _ in 0..dice.below(8) {
            let (number, padding) = (dice.below(6), usize::try_from(dice.below(9_000)).unwrap());
            if dice.below(6) == 0 {
                // A seal.
                if log.write(&[], true).is_err() {
                    break;
                }
                continue;
            }
            let value = next_value;
            next_value += 1;
            let sync = dice.below(5) > 0 && fault != Some(PlantedFault::SyncSkipped);
            let written = log.write(&frames(number, value, padding), sync);
            if written.is_ok() && (sync || fault == Some(PlantedFault::SyncSkipped)) {
                acknowledged.insert(number, value);
            } else {
                pending = Some((number, value));
                break;
            }
        }
        disk.behave();
        if dice.below(3) == 0 {
            disk.kill();
        } else {
            disk.crash();
        }
    }
    let log = recover(&disk, &settings, &mut dice)?;
    fired.push(disk.fired());
    check(&log.found, &acknowledged, pending)
}

/// Opens the log, with up to two crashes on the way. The last attempt must open it.
fn recover(disk: &SimDisk, settings: &Settings, dice: &mut Dice) -> std::result::Result<Plain, String> {
    for _ in 0..dice.below(3) {
        disk.stop_at(disk.calls() + dice.below(40));
        match Plain::open(disk, settings) {
            Err(error) if error.kind() == ErrorKind::Corrupt => return Err(format!("a crash gave: {error}")),
            _ => {}
        }
        disk.behave();
        if dice.below(3) == 0 {
            disk.kill();
        } else {
            disk.crash();
        }
    }
    Plain::open(disk, settings).map_err(|error| format!("does not open after a crash: {error}"))
}

fn check(
    found: &Model,
    acknowledged: &Model,
    pending: Option<(u64, u64)>,
) -> std::result::Result<(), String> {
    let with = pending.map(|(number, value)| {
        let mut model = acknowledged.clone();
        model.insert(number, value);
        model
    });
    if found == acknowledged || Some(found) == with.as_ref() {
        return Ok(());
    }
    Err(format!("found {found:?}, acknowledged {acknowledged:?}, unanswered {pending:?}"))
}

#[test]
fn crashes_lose_nothing_acknowledged_and_are_never_corrupt() {
    let mut fired = Vec::new();
    // A run of recovery alone is short.
    for seed in 0..4 * crate::engines::log::seeds() {
        run(seed, None, &mut fired).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
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
fn planted_faults_of_syncs_and_recovery_are_caught() {
    for fault in
        [PlantedFault::SyncSkipped, PlantedFault::DirectoryNotSynced, PlantedFault::ContinueInCutSegment]
    {
        let caught = (0..500).find(|seed| run(*seed, Some(fault), &mut Vec::new()).is_err());
        assert!(caught.is_some(), "{fault:?} was not caught");
    }
}

#[test]
fn a_first_opening_can_be_killed_at_any_call_and_the_next_one_crash_at_any() {
    for (seed, killed, crashed) in
        (0..20).flat_map(|seed| (0..144).map(move |calls| (seed, calls / 12, calls % 12)))
    {
        let disk = SimDisk::new(seed);
        disk.stop_at(killed);
        let _ = Plain::open(&disk, &settings(seed, None));
        disk.behave();
        disk.kill();
        disk.stop_at(disk.calls() + crashed);
        let _ = Plain::open(&disk, &settings(seed, None));
        disk.behave();
        disk.crash();
        let opened = Plain::open(&disk, &settings(seed, None));
        assert!(opened.is_ok(), "seed {seed}, killed at {killed}, crashed at {crashed}: {:?}", opened.err());
    }
}

/// A log with a torn tail and a valid group above the floor, as a failed sync leaves it.
fn torn(seed: u64) -> (SimDisk, Model) {
    let disk = SimDisk::new(seed);
    let mut log = Plain::open(&disk, &settings(seed, None)).unwrap();
    let mut model = Model::new();
    for number in 0..5 {
        log.write(&frames(number, number + 1, 3_000), true).unwrap();
        model.insert(number, number + 1);
    }
    log.write(&frames(7, 6, 5_000), false).unwrap();
    model.insert(7, 6);
    log.recovered.current.file.write_at(&[0xEE; 600], log.recovered.tail.into()).unwrap();
    disk.kill();
    (disk, model)
}

#[test]
fn recovery_can_crash_at_any_of_its_calls_twice() {
    let (disk, model) = torn(1);
    let whole = {
        let disk = disk.fork();
        let before = disk.calls();
        assert_eq!(Plain::open(&disk, &settings(1, None)).unwrap().found, model);
        assert!(disk.names().iter().any(|name| name.contains("torn")), "the torn tail is kept aside");
        disk.calls() - before
    };
    let acknowledged: Model = model.range(..7).map(|(number, value)| (*number, *value)).collect();
    for first in 0..=whole {
        for second in (0..=whole).step_by(3) {
            for crash in [false, true] {
                let disk = disk.fork();
                disk.reseed(first * 1_000 + second);
                for stop in [first, second] {
                    disk.stop_at(disk.calls() + stop);
                    let opened = Plain::open(&disk, &settings(2, None));
                    assert!(opened.err().is_none_or(|error| error.kind() != ErrorKind::Corrupt));
                    disk.behave();
                    if crash { disk.crash() } else { disk.kill() }
                }
                let mut log = Plain::open(&disk, &settings(3, None)).unwrap();
                if !crash {
                    assert_eq!(log.found, model, "nothing was lost from the page cache");
                } else if log.found != model {
                    assert_eq!(log.found, acknowledged, "at {first}, then {second}");
                }
                // Answers rest on what was found: no crash takes it away.
                let found = log.found.clone();
                log.write(&frames(9, 9, 10), false).unwrap();
                disk.crash();
                let mut after = Plain::open(&disk, &settings(4, None)).unwrap().found;
                after.remove(&9);
                assert_eq!(after, found, "at {first}, then {second}");
            }
        }
    }
}

#[test]
fn failing_calls_during_recovery_are_unavailable_and_the_next_one_opens() {
    let (disk, model) = torn(1);
    for fault in
        [crate::engines::log::disk::sim::DiskFault::Io, crate::engines::log::disk::sim::DiskFault::NoSpace]
    {
        for call in 0..60 {
            for sticky in [false, true] {
                let disk = disk.fork();
                disk.plan(disk.calls() + call, fault, sticky);
                if let Err(error) = Plain::open(&disk, &settings(2, None)) {
                    assert_eq!(error.kind(), ErrorKind::Unavailable, "{call}: {error}");
                }
                disk.behave();
                disk.kill();
                assert_eq!(Plain::open(&disk, &settings(3, None)).unwrap().found, model, "{call}");
            }
        }
    }
}

/// Outcome of a run on a disk that answers syncs and does nothing.
#[derive(Default)]
struct Lied {
    dropped_syncs: u64,
    /// Openings that refused the log.
    refused: u64,
    /// Openings at which groups were missing that had been acknowledged.
    exposed: u64,
}

/// Writes for a while on a disk that drops syncs, and crashes, several times over. The log is refused, or it is what it
/// was behind its last group, and the sequence of that shows what is missing. Fails if it is anything else.
fn run_lying(seed: u64) -> std::result::Result<Lied, String> {
    let mut dice = Dice::new(seed ^ 0x11E5);
    let (disk, settings) = (SimDisk::new(seed), settings(seed, None));
    let mut lied = Lied::default();
    // Records behind each group.
    let mut states = BTreeMap::from([(0, Model::new())]);
    let mut acknowledged = 0;
    for _ in 0..4 {
        let mut log = match Plain::open(&disk, &settings) {
            Ok(log) => log,
            Err(error) if error.kind() == ErrorKind::Corrupt && lied.dropped_syncs > 0 => {
                lied.refused += 1;
                break;
            }
            Err(error) => return Err(format!("does not open: {error}")),
        };
        let last = log.recovered.last_sequence;
        if states.get(&last) != Some(&log.found) {
            return Err(format!(
                "found {:?} behind group {last}, written {:?}",
                log.found,
                states.get(&last)
            ));
        }
        lied.exposed += u64::from(last < acknowledged);
        if last < acknowledged && lied.dropped_syncs == 0 {
            return Err(format!("group {acknowledged} was acknowledged, and the last one is {last}"));
        }
        states.split_off(&(last + 1));
        disk.set_odds(Odds { dropped_sync: 3_000, ..Odds::default() });
        let mut model = log.found.clone();
        for _ in 0..dice.below(8) {
            let (number, padding) = (dice.below(6), usize::try_from(dice.below(9_000)).unwrap());
            let sequence = log.recovered.last_sequence + 1;
            let written = log.write(&frames(number, sequence, padding), true);
            acknowledged = written.map_err(|error| error.to_string())?;
            model.insert(number, sequence);
            states.insert(sequence, model.clone());
        }
        lied.dropped_syncs = disk.fired().dropped_syncs;
        disk.behave();
        if dice.below(3) == 0 {
            disk.kill();
        } else {
            disk.crash();
        }
    }
    Ok(lied)
}

#[test]
fn a_disk_that_drops_syncs_is_refused_or_exposed_by_the_last_sequence() {
    let seeds = 4 * crate::engines::log::seeds();
    let runs: Vec<_> = (0..seeds)
        .map(|seed| run_lying(seed).unwrap_or_else(|error| panic!("seed {seed}: {error}")))
        .collect();
    let share =
        |count: fn(&Lied) -> u64| runs.iter().filter(|lied| count(lied) > 0).count() * 100 / runs.len();
    let dropped = share(|lied| lied.dropped_syncs);
    assert!(dropped >= 30, "dropped syncs in {dropped} % of the seeds");
    let (refused, exposed) = (share(|lied| lied.refused), share(|lied| lied.exposed));
    assert!(refused > 0 && exposed > 0, "refused in {refused} %, exposed in {exposed} % of the seeds");
}

#[test]
fn a_disk_that_lies_is_exposed_by_the_expected_sequence() {
    let mut exposed = 0;
    for seed in 0..300 {
        let disk = SimDisk::new(seed);
        let mut log = Plain::open(&disk, &settings(seed, None)).unwrap();
        log.write(&frames(0, 1, 10), true).unwrap();
        disk.set_odds(Odds { dropped_sync: 5_000, ..Odds::default() });
        let mut expected = 1;
        for number in 1..4 {
            expected = log.write(&frames(number, number + 1, 10), true).unwrap();
        }
        disk.behave();
        disk.crash();
        match Plain::open(&disk, &settings(seed, None)) {
            Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}"),
            Ok(log) => {
                assert_eq!(log.found.len() as u64, log.recovered.last_sequence, "seed {seed}");
                exposed += u64::from(log.recovered.last_sequence < expected);
            }
        }
    }
    assert!(exposed > 10, "lost groups show in the last sequence");
}
