//! Test rig of a case.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use ebbtide::admin::Admin;
use ebbtide::backend::{BackendExt, Budget, Swept};
use ebbtide::model::key::{Key, Part, Prefix};
use ebbtide::model::kind::Kind;
use ebbtide::model::record::Record;
use ebbtide::model::rng::{Rng, SeededRng};
use ebbtide::model::scope::Scope;
use ebbtide::model::time::Timestamp;
use ebbtide::model::write::{Batch, Commit, Write};

/// Start of the kit's time: the year 2100.
const BEGIN: Duration = Duration::from_secs(4_102_444_800);

/// Store, a scope of its own in it, and shorthands for cases. Every failure of the store fails the case.
#[derive(Clone)]
pub(crate) struct Rig {
    /// Store under test.
    pub(crate) backend: Arc<dyn Admin>,
    /// Scope that no other case uses.
    pub(crate) scope: Scope,
    /// Repeatable random numbers.
    pub(crate) rng: Arc<SeededRng>,
    begin: Timestamp,
}

impl Rig {
    /// Creates the rig of the case with that name.
    pub(crate) fn new(backend: Arc<dyn Admin>, case: &str, seed: u64) -> Self {
        let scope = Scope::custom(["ebbtide-verify", case]).expect("names of cases are short");
        let begin = Timestamp::ZERO.checked_add(BEGIN).expect("the year 2100 is before 9999");
        Self { backend, scope, rng: Arc::new(SeededRng::new(seed)), begin }
    }

    /// Time `millis` milliseconds after the start of the kit's time.
    pub(crate) fn at(&self, millis: u64) -> Timestamp {
        self.begin.checked_add(Duration::from_millis(millis)).expect("cases take less than ages")
    }

    /// Key in the rig's scope, with that name as its partition.
    pub(crate) fn key(&self, name: &str) -> Key {
        self.sorted_key(name, &[])
    }

    /// Key in the rig's scope.
    pub(crate) fn sorted_key(&self, partition: &str, sort: &[Part<'_>]) -> Key {
        Key::new(Kind::Probe, &self.scope, &[partition.into()], sort).expect("cases use good names")
    }

    /// Range of a partition in the rig's scope.
    pub(crate) fn partition(&self, partition: &str, sort: &[Part<'_>]) -> Prefix {
        Prefix::partition(Kind::Probe, &self.scope, &[partition.into()], sort).expect("cases use good names")
    }

    /// Record with a new version that expires `expires` milliseconds after the start of the kit's time.
    pub(crate) fn record(&self, value: &str, expires: u64) -> Record {
        Record::new(value.to_owned(), self.at(expires), self.rng.as_ref() as &dyn Rng)
    }

    /// Reads the live record at the time `now`.
    pub(crate) async fn get(&self, key: &Key, now: u64) -> Option<Record> {
        self.backend.get(key, self.at(now)).await.expect("get")
    }

    /// Takes the live record at the time `now`.
    pub(crate) async fn take(&self, key: &Key, now: u64) -> Option<Record> {
        self.backend.take(key, self.at(now)).await.expect("take")
    }

    /// Commits at the time `now`.
    pub(crate) async fn commit(&self, writes: Vec<Write>, now: u64) -> Commit {
        let batch = Batch::new(writes).expect("cases make good batches");
        self.backend.commit(batch, self.at(now)).await.expect("commit")
    }

    /// Commits one write at the time `now`, and returns true if it was applied.
    pub(crate) async fn applied(&self, write: Write, now: u64) -> bool {
        self.commit(vec![write], now).await.is_applied()
    }

    /// Commits each write by itself at the time `now`, in one call.
    pub(crate) async fn commit_each(&self, writes: Vec<Write>, now: u64) -> Vec<Commit> {
        let batches =
            writes.into_iter().map(|write| Batch::try_from(write).expect("cases make good batches"));
        self.backend.commit_each(batches.collect(), self.at(now)).await.expect("commit each")
    }

    /// Stores a record, and returns it.
    pub(crate) async fn stored(&self, key: &Key, value: &str, expires: u64) -> Record {
        let record = self.record(value, expires);
        let put = Write::Put { key: key.clone(), record: record.clone() };
        assert!(self.applied(put, 0).await, "a put has no condition");
        record
    }

    /// Every live record of a range, at the time `now`.
    pub(crate) async fn scan(&self, prefix: &Prefix, now: u64) -> Vec<(Key, Record)> {
        self.backend.scan_all(prefix, self.at(now)).await.expect("scan")
    }

    /// Sweeps the kit's kinds completely.
    pub(crate) async fn sweep(&self, until: u64) -> Swept {
        let budget = Budget::everything(Kind::PROBES);
        self.backend.sweep_all(self.at(until), &budget).await.expect("sweep")
    }

    /// Runs `count` tasks that begin together, and returns their answers.
    pub(crate) async fn together<T, F>(&self, count: usize, task: impl Fn(Self, usize) -> F) -> Vec<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        together(count, |index| task(self.clone(), index)).await
    }
}

/// Runs `count` tasks that begin together, and returns their answers.
pub(super) async fn together<T, F>(count: usize, task: impl Fn(usize) -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    // A `Barrier` of tokio wakes its tasks in a random order. This wakes them in the order in which they came, so that a
    // run on one thread is repeatable.
    let barrier = Arc::new((AtomicUsize::new(0), Notify::new()));
    let tasks: Vec<_> = (0..count)
        .map(|index| {
            let (barrier, running) = (Arc::clone(&barrier), task(index));
            tokio::spawn(async move {
                let (arrived, all) = barrier.as_ref();
                let begun = all.notified();
                if arrived.fetch_add(1, Ordering::SeqCst) + 1 == count {
                    all.notify_waiters();
                } else {
                    begun.await;
                }
                running.await
            })
        })
        .collect();
    let mut answers = Vec::with_capacity(count);
    for task in tasks {
        answers.push(task.await.expect("a task of a race does not panic"));
    }
    answers
}
