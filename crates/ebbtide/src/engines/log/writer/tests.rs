//! Group commit, poisoning, and segments prepared ahead.

mod reports;

use std::pin::Pin;
use std::task::Wake;

use super::*;
use crate::engines::log::disk::real::RealDisk;
use crate::engines::log::disk::sim::{DiskFault, SimDisk};
use crate::engines::log::faults::Faults;
use crate::engines::log::frame;
use crate::engines::log::recovery;
use crate::model::key::Key;
use crate::model::kind::Kind;
use crate::model::rng::SeededRng;
use crate::model::scope::Scope;

const SEGMENT: u32 = 16 << 10;

fn settings(fault: Option<PlantedFault>) -> Settings {
    Settings {
        segment_len: SEGMENT,
        first_len: SEGMENT,
        keyrings: Vec::new(),
        rng: Arc::new(SeededRng::new(1)),
        faults: Faults { planted: fault },
    }
}

fn open(disk: Arc<dyn Disk>, settings: Settings) -> (Arc<Log>, Vec<u64>) {
    let mut found = Vec::new();
    let recovered = recovery::open(&disk, &settings, &[], &mut |_, _, frame| {
        let (kind, key) = frame.key().unwrap();
        let key = Key::decode(kind, key).unwrap();
        let crate::model::key::Part::Int(number) = key.partition()[0] else {
            panic!("the tests use numbers")
        };
        found.push(number);
        Ok(())
    });
    found.sort_unstable();
    found.dedup();
    (Arc::new(Log::new(disk, settings, recovered.unwrap(), 1 << 20)), found)
}

fn sim(disk: &SimDisk) -> Arc<Log> {
    open(Arc::new(disk.clone()), settings(None)).0
}

fn frames(number: u64) -> Vec<u8> {
    let key = Key::new(Kind::Probe, &Scope::Global, &[number.into()], &[]).unwrap();
    let mut out = Vec::new();
    frame::delete(&mut out, &key, false);
    out
}

struct Count(AtomicU64);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn poll<T>(future: &mut Pin<Box<impl Future<Output = T>>>, count: &Arc<Count>) -> Poll<T> {
    let waker = Waker::from(Arc::clone(count));
    future.as_mut().poll(&mut Context::from_waker(&waker))
}

#[test]
fn callers_that_wait_together_share_one_write_and_one_sync() {
    let disk = SimDisk::new(1);
    let log = sim(&disk);
    let count = Arc::new(Count(AtomicU64::new(0)));
    let places: Vec<_> = (0..20).map(|number| log.append(&frames(number)).unwrap()).collect();
    let mut waiting: Vec<_> = places.iter().map(|at| Box::pin(log.durable(*at))).collect();
    assert!(waiting.iter_mut().all(|future| poll(future, &count).is_pending()));
    let calls = disk.calls();
    assert!(log.write_next().unwrap());
    assert_eq!(disk.calls(), calls + 2, "one write, one sync");
    assert_eq!(count.0.load(Ordering::SeqCst), 1, "one caller of a thread is woken");
    assert!(waiting.iter_mut().all(|future| matches!(poll(future, &count), Poll::Ready(Ok(())))));
    assert_eq!(count.0.load(Ordering::SeqCst), 20, "and wakes the others");
    assert!(!log.write_next().unwrap());
    assert_eq!(log.acknowledged(), 1);
    assert_eq!(log.in_memory(places[3]).unwrap(), frames(3));
    assert_eq!(log.read(places[3]).unwrap().unwrap(), frames(3));
}

/// Caller that waits for its group, and the count of its wake-ups.
type Caller<F> = (Pin<Box<F>>, Arc<Count>);

/// Callers of one thread that wait for one group, each with a count of its own.
fn crowd(log: &Log, size: u64) -> Vec<Caller<impl Future<Output = Result<()>>>> {
    let caller = |number| {
        let count = Arc::new(Count(AtomicU64::new(0)));
        let mut future = Box::pin(log.durable(log.append(&frames(number)).unwrap()));
        assert!(poll(&mut future, &count).is_pending());
        (future, count)
    };
    (0..size).map(caller).collect()
}

fn is_woken(count: &Arc<Count>) -> bool {
    count.0.load(Ordering::SeqCst) > 0
}

#[test]
fn a_thread_that_panics_closes_the_log_and_leaves_no_caller_waiting() {
    let log = sim(&SimDisk::new(1));
    let mut callers = crowd(&log, 2);
    let shared = Arc::clone(&log);
    let ended = std::thread::spawn(move || {
        let _guard = ClosesOnPanic(&shared);
        panic!("a thread of a test panics");
    });
    assert!(ended.join().is_err() && log.is_poisoned());
    for (future, count) in &mut callers {
        assert!(is_woken(count));
        assert!(matches!(poll(future, count), Poll::Ready(Err(_))));
    }
}

#[test]
fn a_caller_that_goes_away_before_or_after_it_is_woken_strands_nobody() {
    for before in [true, false] {
        for gone in 0..3 {
            let log = sim(&SimDisk::new(1));
            let mut callers = crowd(&log, 3);
            if before {
                drop(callers.remove(gone));
            }
            log.write_next().unwrap();
            let woken = callers.iter().position(|(_, count)| is_woken(count)).unwrap();
            let (mut future, count) = callers.remove(woken);
            if before {
                assert!(matches!(poll(&mut future, &count), Poll::Ready(Ok(()))));
            }
            drop(future);
            assert!(callers.iter().all(|(_, count)| is_woken(count)), "{before} {gone}");
        }
    }
}

#[test]
fn a_caller_that_moves_to_another_task_is_woken_there() {
    let log = sim(&SimDisk::new(1));
    let mut callers = crowd(&log, 2);
    for (future, count) in &mut callers {
        let other = Arc::new(Count(AtomicU64::new(0)));
        assert!(poll(future, &other).is_pending());
        *count = other;
    }
    log.write_next().unwrap();
    let woken = callers.iter().position(|(_, count)| is_woken(count)).expect("a task that waits is woken");
    drop(callers.remove(woken));
    assert!(is_woken(&callers[0].1));
}

#[test]
fn a_woken_caller_that_does_not_look_holds_the_others_up_for_one_group_at_most() {
    let log = sim(&SimDisk::new(1));
    let callers = crowd(&log, 3);
    log.write_next().unwrap();
    assert_eq!(callers.iter().filter(|(_, count)| is_woken(count)).count(), 1);
    // The seal is such a group, and follows after 20 ms of idleness.
    assert!(log.seal().unwrap());
    assert!(callers.iter().all(|(_, count)| is_woken(count)));
}

#[test]
fn a_failed_write_or_sync_is_final_and_answers_nobody() {
    for call in [0, 1] {
        let disk = SimDisk::new(1);
        let log = sim(&disk);
        let count = Arc::new(Count(AtomicU64::new(0)));
        let first = log.append(&frames(1)).unwrap();
        let mut waiting = Box::pin(log.durable(first));
        assert!(poll(&mut waiting, &count).is_pending());
        disk.plan(disk.calls() + call, DiskFault::Io, false);
        assert!(log.write_next().is_err());
        let Poll::Ready(Err(error)) = poll(&mut waiting, &count) else { panic!("nobody is answered") };
        assert_eq!(error.kind(), crate::ErrorKind::Unavailable);
        assert_eq!(log.append(&frames(2)), Err(NotAppended::Poisoned));
        assert!(log.write_next().is_err(), "a second sync proves nothing");
        assert_eq!(log.acknowledged(), 0);
    }
}

#[test]
fn a_log_goes_on_in_the_segment_that_was_prepared() {
    let disk = SimDisk::new(1);
    let log = sim(&disk);
    let mut number = 0;
    for _ in 0..3 {
        while log.append(&frames(number)) != Err(NotAppended::NoRoom) {
            assert!(log.write_next().unwrap());
            number += 1;
        }
        let count = Arc::new(Count(AtomicU64::new(0)));
        let mut room = Box::pin(log.room());
        assert!(poll(&mut room, &count).is_pending());
        assert!(log.prepare_next().unwrap());
        assert!(!log.prepare_next().unwrap(), "one is enough");
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
        assert!(poll(&mut room, &count).is_ready());
    }
    assert_eq!(log.oldest().unwrap().1, 4, "the first segment holds four groups");
    disk.crash();
    let (_, found) = open(Arc::new(disk.clone()), settings(None));
    assert_eq!(found, (0..number).collect::<Vec<_>>());
    let large = vec![0; SEGMENT as usize];
    let log = sim(&disk);
    assert_eq!(log.append(&large), Err(NotAppended::NoRoom));
    log.prepare_next().unwrap();
    assert_eq!(log.append(&large), Err(NotAppended::TooLarge));
}

#[test]
fn a_full_disk_refuses_and_recovers_without_a_restart() {
    let disk = SimDisk::new(1);
    let log = sim(&disk);
    disk.plan(disk.calls(), DiskFault::NoSpace, true);
    assert!(log.prepare_next().is_err());
    let error = pollster::block_on(log.room()).unwrap_err();
    assert_eq!(error.kind(), crate::ErrorKind::Unavailable);
    disk.behave();
    assert!(log.append(&frames(1)).is_ok(), "the segment at hand still has room");
    assert!(log.write_next().unwrap());
    assert!(log.prepare_next().unwrap());
    pollster::block_on(log.room()).unwrap();
    disk.crash();
    assert_eq!(open(Arc::new(disk.clone()), settings(None)).1, [1]);
}

#[test]
fn preparing_can_fail_at_any_call_and_the_log_opens() {
    for call in 0..12 {
        for fault in [DiskFault::Io, DiskFault::NoSpace] {
            let disk = SimDisk::new(call);
            let log = sim(&disk);
            log.append(&frames(1)).unwrap();
            log.write_next().unwrap();
            disk.plan(disk.calls() + call, fault, false);
            let prepared = log.prepare_next();
            disk.behave();
            let retried = prepared.is_ok() || log.prepare_next().is_ok();
            assert!(retried || log.is_poisoned());
            if log.roll() {
                log.append(&frames(2)).unwrap();
                log.write_next().unwrap();
            }
            let acknowledged = log.acknowledged();
            disk.crash();
            let (log, found) = open(Arc::new(disk.clone()), settings(None));
            assert_eq!(found.len() as u64, acknowledged);
            assert_eq!(log.acknowledged(), acknowledged);
        }
    }
}

#[test]
fn threads_write_what_was_appended_and_seal_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::open(folder.path()).unwrap());
    let large = Settings { segment_len: 64 << 10, ..settings(None) };
    let (log, _) = open(Arc::clone(&disk), large.clone());
    let threads = Threads::start(&log).unwrap();
    std::thread::scope(|scope| {
        for caller in 0..8 {
            let log = Arc::clone(&log);
            scope.spawn(move || {
                for number in caller * 100..caller * 100 + 100 {
                    let at = loop {
                        match log.append(&frames(number)) {
                            Ok(at) => break at,
                            Err(NotAppended::NoRoom) => pollster::block_on(log.room()).unwrap(),
                            Err(other) => panic!("{other:?}"),
                        }
                    };
                    pollster::block_on(log.durable(at)).unwrap();
                }
            });
        }
    });
    let acknowledged = log.acknowledged();
    drop(threads);
    let scan = recovery::scan(disk.as_ref(), Faults::default(), &[], &mut |_, _, _| Ok(())).unwrap().unwrap();
    assert!(scan.floor >= acknowledged, "the seal says that the last group is durable");
    assert!(scan.torn.is_empty());
    assert_eq!(open(disk, large).1, (0..800).collect::<Vec<_>>());
}

#[test]
fn a_seal_follows_idleness_and_no_seal_follows_a_seal() {
    let folder = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::open(folder.path()).unwrap());
    let (log, _) = open(disk, settings(None));
    let threads = Threads::start(&log).unwrap();
    pollster::block_on(log.durable(log.append(&frames(1)).unwrap())).unwrap();
    // The position behind the seal is durable once the seal is.
    while log.acknowledged() < 2 {
        std::thread::yield_now();
    }
    drop(threads);
    assert_eq!(log.acknowledged(), 2);
}
