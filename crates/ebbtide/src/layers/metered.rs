//! Spans and metrics around any backend.

use std::fmt;
use std::sync::OnceLock;

use async_trait::async_trait;
use metrics::{Counter, Histogram, counter, histogram};
use tracing::Instrument as _;

use crate::admin::Admin;
use crate::backend::{Backend, Budget, Cursor, Page, Swept};
use crate::delegate;
use crate::model::alteration::{Alteration, Altered};
use crate::model::error::{Error, Result};
use crate::model::key::{Key, Prefix};
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::time::{Stopwatch, Timestamp};
use crate::model::write::{Batch, Commit, Write};

/// A backend that reports what it does: a span for each call, `ebbtide_backend_calls_total` and
/// `ebbtide_backend_seconds` by engine, operation, kind and outcome; `ebbtide_records_created_total`,
/// `ebbtide_records_taken_total`, `ebbtide_records_refused_total` and `ebbtide_swept_total` by kind. None holds a key,
/// a value or a scope.
pub struct Metered<B> {
    inner: B,
    /// By the code of the kind.
    meters: Vec<Meters>,
}

impl<B> fmt::Debug for Metered<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metered")
    }
}

/// Counters of the records of one kind. Each is looked up once, at its first use.
#[derive(Default)]
struct Meters {
    created: OnceLock<Counter>,
    taken: OnceLock<Counter>,
    refused: OnceLock<Counter>,
    get: Calls,
    take: Calls,
    alter: Calls,
    commit: Calls,
    commit_each: Calls,
}

/// Histograms of the calls of one operation, by result.
#[derive(Default)]
struct Calls {
    seconds: OnceLock<Histogram>,
    good: OnceLock<Counter>,
    bad: OnceLock<Counter>,
}

impl Meters {
    fn created(&self, kind: Kind) -> &Counter {
        self.created.get_or_init(|| counter!("ebbtide_records_created_total", "kind" => kind.name()))
    }

    fn taken(&self, kind: Kind) -> &Counter {
        self.taken.get_or_init(|| counter!("ebbtide_records_taken_total", "kind" => kind.name()))
    }

    fn refused(&self, kind: Kind) -> &Counter {
        self.refused.get_or_init(|| counter!("ebbtide_records_refused_total", "kind" => kind.name()))
    }
}

/// Labels of a call.
struct MeteredCall<'a> {
    operation: &'static str,
    kind: &'static str,
    /// Its own meters, where it has some.
    meters: Option<&'a Calls>,
}

impl MeteredCall<'static> {
    fn rare(operation: &'static str, kind: &'static str) -> Self {
        Self { operation, kind, meters: None }
    }
}

impl<B: Admin> Metered<B> {
    /// Reports on `inner`.
    pub fn new(inner: B) -> Self {
        let last = Kind::ALL.iter().map(|kind| kind.code()).max().unwrap_or_default();
        Self { inner, meters: (0..=last).map(|_| Meters::default()).collect() }
    }

    fn meters(&self, kind: Kind) -> &Meters {
        &self.meters[usize::from(kind.code())]
    }

    /// `outcome` names what was answered, and says whether that is a success.
    async fn measure<T>(
        &self,
        call: MeteredCall<'_>,
        outcome: impl FnOnce(&T) -> (&'static str, bool),
        answer: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let MeteredCall { operation, kind, meters } = call;
        let engine = self.inner.info().engine;
        let span = tracing::debug_span!("backend", engine, operation, kind);
        let stopwatch = Stopwatch::start();
        let answer = answer.instrument(span).await;
        let elapsed = stopwatch.elapsed();
        let seconds = || histogram!("ebbtide_backend_seconds", "engine" => engine, "operation" => operation, "kind" => kind);
        let calls = |outcome: &'static str| {
            counter!("ebbtide_backend_calls_total",
                "engine" => engine, "operation" => operation, "kind" => kind, "outcome" => outcome)
        };
        match meters {
            Some(meters) => meters.seconds.get_or_init(seconds).record(elapsed),
            None => seconds().record(elapsed),
        }
        match (answer.as_ref().map(outcome), meters) {
            (Ok((name, good)), Some(meters)) => {
                let counter = if good { &meters.good } else { &meters.bad };
                counter.get_or_init(|| calls(name)).increment(1);
            }
            (Ok((name, _)), None) => calls(name).increment(1),
            (Err(error), _) => calls(failure(error)).increment(1),
        }
        answer
    }

    /// Measures a call that is too rare for meters of its own.
    async fn rare<T>(
        &self,
        operation: &'static str,
        call: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        self.measure(MeteredCall::rare(operation, NO_KIND), done, call).await
    }

    /// Counts the records that a commit of such a batch created, or that it was refused.
    fn count(&self, commit: Commit, kind: Option<Kind>, created: Created) {
        if commit.is_applied() {
            for kind in created.kinds() {
                self.meters(kind).created(kind).increment(1);
            }
        } else if let Some(kind) = kind {
            self.meters(kind).refused(kind).increment(1);
        }
    }
}

/// The first write is the record that the call is about; what follows are its indexes.
fn kind_of(batch: &Batch) -> Option<Kind> {
    batch.writes().first().map(|write| write.key().kind())
}

fn done<T>(_: &T) -> (&'static str, bool) {
    ("done", true)
}

const NO_KIND: &str = "";

fn failure(error: &Error) -> &'static str {
    use crate::model::error::ErrorKind::{Corrupt, Expired, Invalid, Unavailable};
    match error.kind() {
        Invalid => "invalid",
        Unavailable => "unavailable",
        Corrupt => "corrupt",
        Expired => "expired",
    }
}

#[expect(clippy::ref_option, reason = "this is how the answer comes")]
fn found(record: &Option<Record>) -> (&'static str, bool) {
    if record.is_some() { ("found", true) } else { ("absent", false) }
}

/// Number of records that a batch would create, by kind.
struct Created {
    /// Nearly every batch creates one; that one costs no list.
    first: Option<Kind>,
    rest: Vec<Kind>,
}

impl Created {
    fn of(batch: &Batch) -> Self {
        let created = |write: &Write| matches!(write, Write::Insert { .. } | Write::Put { .. });
        let mut kinds = batch.writes().iter().filter(|write| created(write)).map(|write| write.key().kind());
        Self { first: kinds.next(), rest: kinds.collect() }
    }

    fn kinds(self) -> impl Iterator<Item = Kind> {
        self.first.into_iter().chain(self.rest)
    }
}

#[async_trait]
impl<B: Admin> Backend for Metered<B> {
    async fn get(&self, key: &Key, now: Timestamp) -> Result<Option<Record>> {
        let kind = key.kind();
        let call = MeteredCall { operation: "get", kind: kind.name(), meters: Some(&self.meters(kind).get) };
        self.measure(call, found, self.inner.get(key, now)).await
    }

    async fn take(&self, key: &Key, now: Timestamp) -> Result<Option<Record>> {
        let (kind, meters) = (key.kind(), self.meters(key.kind()));
        let call = MeteredCall { operation: "take", kind: kind.name(), meters: Some(&meters.take) };
        let taken = self.measure(call, found, self.inner.take(key, now)).await?;
        if taken.is_some() { meters.taken(kind) } else { meters.refused(kind) }.increment(1);
        Ok(taken)
    }

    async fn alter(&self, key: &Key, alteration: &Alteration, now: Timestamp) -> Result<Altered> {
        let (kind, meters) = (key.kind(), self.meters(key.kind()));
        let call = MeteredCall { operation: "alter", kind: kind.name(), meters: Some(&meters.alter) };
        let outcome =
            |altered: &Altered| if altered.applied { ("applied", true) } else { ("refused", false) };
        let altered = self.measure(call, outcome, self.inner.alter(key, alteration, now)).await?;
        match (alteration, altered.applied) {
            (_, false) => meters.refused(kind).increment(1),
            (Alteration::Take { .. }, true) => meters.taken(kind).increment(1),
            (Alteration::Swap { .. }, true) => meters.created(kind).increment(1),
            (Alteration::Add(_) | Alteration::Touch { .. }, true) => {}
        }
        Ok(altered)
    }

    async fn commit(&self, batch: Batch, now: Timestamp) -> Result<Commit> {
        let kind = kind_of(&batch);
        let call = MeteredCall {
            operation: "commit",
            kind: kind.map_or(NO_KIND, Kind::name),
            meters: kind.map(|kind| &self.meters(kind).commit),
        };
        let outcome = |commit: &Commit| {
            if commit.is_applied() { ("applied", true) } else { ("refused", false) }
        };
        let created = Created::of(&batch);
        let commit = self.measure(call, outcome, self.inner.commit(batch, now)).await?;
        self.count(commit, kind, created);
        Ok(commit)
    }

    async fn commit_each(&self, batches: Vec<Batch>, now: Timestamp) -> Result<Vec<Commit>> {
        let about: Vec<_> = batches.iter().map(|batch| (kind_of(batch), Created::of(batch))).collect();
        let first = about.first().and_then(|(kind, _)| *kind);
        let call = MeteredCall {
            operation: "commit_each",
            kind: first.map_or(NO_KIND, Kind::name),
            meters: first.map(|kind| &self.meters(kind).commit_each),
        };
        let commits = self.measure(call, done, self.inner.commit_each(batches, now)).await?;
        for (commit, (kind, created)) in commits.iter().zip(about) {
            self.count(*commit, kind, created);
        }
        Ok(commits)
    }

    async fn sweep(&self, until: Timestamp, budget: &Budget) -> Result<Swept> {
        let swept = self.rare("sweep", self.inner.sweep(until, budget)).await?;
        for (kind, removed) in &swept.removed {
            counter!("ebbtide_swept_total", "kind" => Kind::name(*kind)).increment(*removed);
        }
        Ok(swept)
    }

    async fn scan(
        &self,
        prefix: &Prefix,
        after: Option<&Cursor>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Page> {
        let call = self.inner.scan(prefix, after, limit, now);
        self.measure(MeteredCall::rare("scan", prefix.kind().name()), done, call).await
    }

    delegate!(self => self.inner, through self.rare; get_many);
    delegate!(self => self.inner; info);
}

#[async_trait]
impl<B: Admin> Admin for Metered<B> {
    delegate!(self => self.inner, through self.rare; stats stats_at_hand list count clear erase engine_clock backup);
    delegate!(self => self.inner; clock_mark set_clock_mark warnings);
}
