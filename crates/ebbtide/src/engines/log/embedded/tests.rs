//! The engine on a simulated disk, stepped by hand.

mod hinted;
mod planted;
mod retirement;
mod simulated;
mod space;
mod walks;

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use super::*;
use crate::admin::Admin;
use crate::backend::{Backend, BackendExt};
use crate::engines::log::cold::test_store::TestStore;
use crate::engines::log::disk::sim::SimDisk;
use crate::engines::log::faults::PlantedFault;
use crate::model::key::{Key, Prefix};
use crate::model::record::Record;
use crate::model::rng::{Rng, SeededRng};
use crate::model::scope::Scope;
use crate::model::write::{Batch, Commit, Write};

const SEGMENT: u32 = 16 << 10;
const SECOND: u64 = 1_000;
const DAY: u64 = 24 * 3_600 * SECOND;

fn options(seed: u64, fault: Option<PlantedFault>) -> Options {
    let settings = Settings {
        segment_len: SEGMENT,
        first_len: SEGMENT,
        keyrings: Vec::new(),
        rng: Arc::new(SeededRng::new(seed)),
        faults: Faults { planted: fault },
    };
    // Kinds with a map in order and without, with every change of the seed.
    let is_listed = if seed.is_multiple_of(2) { |_| true } else { |_| false };
    let (keep_bytes, hint_from) = (0, 0);
    Options { keep_bytes, hint_from, is_listed, read_threads: 0, walk_threads: 0, ..Options::new(settings) }
}

/// A store on a simulated disk, and a clock.
struct Rig {
    disk: SimDisk,
    fault: Option<PlantedFault>,
    seed: u64,
    /// Bits of the hash of a key that count.
    mask: u64,
    store: Embedded<TestStore>,
}

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(1_800_000_000_000 + millis).unwrap()
}

fn key(number: u64) -> Key {
    Key::new(Kind::Probe, &Scope::Global, &["p".into()], &[number.into()]).unwrap()
}

fn open(disk: &SimDisk, options: &Options) -> Result<Embedded<TestStore>> {
    let shared: Arc<dyn crate::engines::log::disk::Disk> = Arc::new(disk.clone());
    Embedded::open(Arc::clone(&shared), options, || TestStore::open(shared))
}

fn poll<F: Future + ?Sized>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

impl Rig {
    fn new(seed: u64, fault: Option<PlantedFault>) -> Self {
        let disk = SimDisk::new(seed);
        let store = open(&disk, &options(seed, fault)).unwrap();
        Self { disk, fault, seed, mask: u64::MAX, store }
    }

    fn open(&self) -> Result<Embedded<TestStore>> {
        open(&self.disk, &Options { hash_mask: self.mask, ..options(self.seed, self.fault) })
    }

    /// Cuts the power and opens the store again.
    fn crash(&mut self) -> Result<()> {
        self.disk.crash();
        self.seed += 1;
        self.store = self.open()?;
        Ok(())
    }

    /// Does the work of all threads until the future is ready.
    fn drive<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..10_000 {
            if let Poll::Ready(answer) = future.as_mut().poll(&mut context) {
                return answer;
            }
            self.step();
        }
        panic!("the store does not come to an answer");
    }

    fn step(&self) {
        while self.store.step_pools() {}
        let _ = self.store.core.log.write_next();
        let _ = self.store.core.log.prepare_next();
    }

    fn record(&self, value: &str, expires: u64) -> Record {
        Record::new(value.to_owned(), at(expires), self.store.core.options.settings.rng.as_ref() as &dyn Rng)
    }

    fn commit(&self, write: Write, now: u64) -> bool {
        self.drive(self.store.write(write, at(now))).unwrap().is_applied()
    }

    fn put(&self, number: u64, value: &str, expires: u64, now: u64) {
        assert!(self.commit(Write::Put { key: key(number), record: self.record(value, expires) }, now));
    }

    fn get(&self, number: u64, now: u64) -> Option<String> {
        let record = self.drive(self.store.get(&key(number), at(now))).unwrap();
        record.map(|record| String::from_utf8(record.value.to_vec()).unwrap())
    }

    fn list(&self, now: u64) -> Vec<String> {
        let prefix = Prefix::kind_wide(Kind::Probe);
        let rows = self.drive(self.store.scan_all(&prefix, at(now))).unwrap();
        rows.into_iter().map(|(_, record)| String::from_utf8(record.value.to_vec()).unwrap()).collect()
    }

    /// Goes on in a new segment, so that all that was written can be retired, and retires it.
    fn retire(&self, now: u64) {
        self.leave_segment(now).unwrap();
        while self.drive(self.store.retire_oldest(at(now))).unwrap() {}
    }

    /// Goes on in a new segment, with a group whose header says that the segment before is durable.
    fn leave_segment(&self, now: u64) -> Result<()> {
        let _ = self.store.core.log.prepare_next();
        self.store.core.log.roll();
        self.drive(self.store.set_clock_mark(at(now)))
    }

    fn try_retire(&self, now: u64) -> Result<bool> {
        self.leave_segment(now)?;
        self.drive(self.store.retire_oldest(at(now)))
    }
}

#[test]
fn records_are_written_read_replaced_taken_and_listed() {
    let rig = Rig::new(1, None);
    rig.put(1, "one", 10 * SECOND, 0);
    rig.put(2, "two", 20 * SECOND, 0);
    assert!(!rig.commit(Write::Insert { key: key(1), record: rig.record("x", SECOND) }, 1));
    assert_eq!(rig.get(1, 9_999).as_deref(), Some("one"));
    assert_eq!(rig.get(1, 10 * SECOND), None);
    assert!(rig.commit(Write::Insert { key: key(1), record: rig.record("new", 30 * SECOND) }, 10 * SECOND));
    assert_eq!(rig.list(10 * SECOND), ["new", "two"]);
    let taken = rig.drive(rig.store.take(&key(2), at(0))).unwrap();
    assert_eq!(taken.unwrap().value, "two");
    assert!(rig.drive(rig.store.take(&key(2), at(0))).unwrap().is_none());
    assert_eq!(rig.list(10 * SECOND), ["new"]);
    let many = rig.drive(rig.store.get_many(&[key(2), key(1)], at(0))).unwrap();
    assert!(many[0].is_none() && many[1].is_some());
}

#[test]
fn damage_after_opening_is_corrupt_and_not_absent() {
    let rig = Rig::new(1, None);
    rig.put(1, "one", DAY, 0);
    rig.put(2, "two", DAY, 0);
    let name = crate::engines::log::segment::Segment::name(1);
    // A byte of the key in the first frame of the first group.
    rig.disk.damage(&name, |bytes| {
        bytes[crate::engines::log::group::HEADER + crate::engines::log::frame::HEAD + 4] ^= 1;
    });
    let insert = Write::Insert { key: key(1), record: rig.record("again", DAY) };
    let error = rig.drive(rig.store.write(insert, at(1))).unwrap_err();
    assert_eq!(error.kind(), crate::ErrorKind::Corrupt);
    assert!(rig.drive(rig.store.get(&key(1), at(1))).is_err());
    assert_eq!(rig.get(2, 1).as_deref(), Some("two"));
}

#[test]
fn records_come_back_after_a_crash_and_from_the_cold_store() {
    let mut rig = Rig::new(1, None);
    for number in 0..30 {
        rig.put(number, &number.to_string(), DAY * (number + 1), 0);
    }
    rig.crash().unwrap();
    for number in 0..30 {
        assert_eq!(rig.get(number, 1), Some(number.to_string()));
    }
    rig.retire(2);
    assert_eq!(rig.store.core.cold.len(), 30);
    rig.crash().unwrap();
    let reads = rig.store.core.cold.reads();
    for number in 0..30 {
        assert_eq!(rig.get(number, 3), Some(number.to_string()));
        assert!(!rig.commit(Write::Insert { key: key(number), record: rig.record("x", SECOND) }, 3));
    }
    assert_eq!(rig.store.core.cold.reads(), reads + 60);
    assert_eq!(rig.list(3).len(), 30);
    assert_eq!(rig.list(DAY * 10).len(), 20);
    assert_eq!(rig.drive(rig.store.clock_mark()).unwrap(), Some(at(2)));
}
