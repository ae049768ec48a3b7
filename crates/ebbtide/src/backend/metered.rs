//! Spans and metrics around any backend.

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use metrics::{counter, histogram};
use tracing::Instrument as _;

use super::{Backend, Budget, Cleared, Counted, Cursor, Erased, Page, Stats, Swept};
use crate::error::{Error, Result};
use crate::key::{Key, Prefix};
use crate::kind::Kind;
use crate::record::Record;
use crate::time::{Stopwatch, Timestamp};
use crate::write::{Batch, Commit, Write};

/// A backend that reports what it does: a span for each call, `ebbtide_backend_calls_total` and
/// `ebbtide_backend_seconds` by engine, operation, kind and outcome; `ebbtide_records_created_total`,
/// `ebbtide_records_taken_total`, `ebbtide_records_refused_total` and `ebbtide_swept_total` by kind. None holds a key,
/// a value or a scope.
#[derive(Debug)]
pub struct Metered<B>(B);

impl<B: Backend> Metered<B> {
    /// Reports on `inner`.
    pub fn new(inner: B) -> Self {
        Self(inner)
    }

    async fn measure<T>(
        &self,
        operation: &'static str,
        kind: &'static str,
        outcome: impl FnOnce(&T) -> &'static str,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let engine = self.0.engine();
        let span = tracing::debug_span!("backend", engine, operation, kind);
        let stopwatch = Stopwatch::start();
        let answer = call.instrument(span).await;
        let outcome = match &answer {
            Ok(answer) => outcome(answer),
            Err(error) => failure(error),
        };
        histogram!("ebbtide_backend_seconds", "engine" => engine, "operation" => operation, "kind" => kind)
            .record(stopwatch.elapsed());
        counter!("ebbtide_backend_calls_total",
            "engine" => engine, "operation" => operation, "kind" => kind, "outcome" => outcome)
        .increment(1);
        answer
    }
}

const NO_KIND: &str = "";

fn failure(error: &Error) -> &'static str {
    use crate::error::ErrorKind::{Corrupt, Invalid, Unavailable};
    match error.kind() {
        Invalid => "invalid",
        Unavailable => "unavailable",
        Corrupt => "corrupt",
    }
}

#[expect(clippy::ref_option, reason = "this is how the answer comes")]
fn found(record: &Option<Record>) -> &'static str {
    if record.is_some() { "found" } else { "absent" }
}

/// How many records a batch would create, by kind.
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

    fn count(self) {
        for kind in self.first.into_iter().chain(self.rest) {
            counter!("ebbtide_records_created_total", "kind" => Kind::name(kind)).increment(1);
        }
    }
}

#[async_trait]
impl<B: Backend> Backend for Metered<B> {
    async fn get(&self, key: &Key, now: Timestamp) -> Result<Option<Record>> {
        self.measure("get", key.kind().name(), found, self.0.get(key, now)).await
    }

    async fn take(&self, key: &Key, now: Timestamp) -> Result<Option<Record>> {
        let taken = self.measure("take", key.kind().name(), found, self.0.take(key, now)).await?;
        let name =
            if taken.is_some() { "ebbtide_records_taken_total" } else { "ebbtide_records_refused_total" };
        counter!(name, "kind" => key.kind().name()).increment(1);
        Ok(taken)
    }

    async fn commit(&self, batch: Batch, now: Timestamp) -> Result<Commit> {
        // The first write is the record that the call is about; what follows are its indexes.
        let kind = batch.writes().first().map_or(NO_KIND, |write: &Write| write.key().kind().name());
        let outcome = |commit: &Commit| if commit.is_applied() { "applied" } else { "refused" };
        let created = Created::of(&batch);
        let commit = self.measure("commit", kind, outcome, self.0.commit(batch, now)).await?;
        if commit.is_applied() {
            created.count();
        } else {
            counter!("ebbtide_records_refused_total", "kind" => kind).increment(1);
        }
        Ok(commit)
    }

    async fn scan(
        &self,
        prefix: &Prefix,
        after: Option<&Cursor>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Page> {
        let call = self.0.scan(prefix, after, limit, now);
        self.measure("scan", prefix.kind().name(), |_| "done", call).await
    }

    async fn sweep(&self, until: Timestamp, budget: &Budget) -> Result<Swept> {
        let swept = self.measure("sweep", NO_KIND, |_| "done", self.0.sweep(until, budget)).await?;
        for (kind, removed) in &swept.removed {
            counter!("ebbtide_swept_total", "kind" => Kind::name(*kind)).increment(*removed);
        }
        Ok(swept)
    }

    fn engine(&self) -> &'static str {
        self.0.engine()
    }

    async fn stats(&self, now: Timestamp) -> Result<Stats> {
        self.measure("stats", NO_KIND, |_| "done", self.0.stats(now)).await
    }

    async fn stats_at_hand(&self, now: Timestamp) -> Result<Option<Stats>> {
        self.measure("stats", NO_KIND, |_| "done", self.0.stats_at_hand(now)).await
    }

    fn reclaims_within(&self) -> Duration {
        self.0.reclaims_within()
    }

    async fn count(&self, prefixes: &[Prefix], after: Option<&Cursor>, now: Timestamp) -> Result<Counted> {
        self.measure("count", NO_KIND, |_| "done", self.0.count(prefixes, after, now)).await
    }

    async fn list(
        &self,
        prefixes: &[Prefix],
        after: Option<&Cursor>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Page> {
        self.measure("list", NO_KIND, |_| "done", self.0.list(prefixes, after, limit, now)).await
    }

    async fn clear(&self, prefixes: &[Prefix], after: Option<&Cursor>, now: Timestamp) -> Result<Cleared> {
        self.measure("clear", NO_KIND, |_| "done", self.0.clear(prefixes, after, now)).await
    }

    async fn erase(&self, prefix: &Prefix, now: Timestamp) -> Result<Erased> {
        self.measure("erase", prefix.kind().name(), |_| "done", self.0.erase(prefix, now)).await
    }

    async fn clock_mark(&self) -> Result<Option<Timestamp>> {
        self.0.clock_mark().await
    }

    async fn set_clock_mark(&self, mark: Timestamp) -> Result<()> {
        self.0.set_clock_mark(mark).await
    }

    async fn engine_clock(&self) -> Result<Option<Timestamp>> {
        self.measure("clock", NO_KIND, |_| "done", self.0.engine_clock()).await
    }

    async fn warnings(&self) -> Result<Vec<String>> {
        self.0.warnings().await
    }

    async fn backup(&self, dir: &Path) -> Result<()> {
        self.measure("backup", NO_KIND, |()| "done", self.0.backup(dir)).await
    }
}
