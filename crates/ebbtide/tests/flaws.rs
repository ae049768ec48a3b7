//! The kit is only worth what it catches: each flaw below is an engine's mistake seen in the field, put around the
//! memory engine on purpose, and at least one case must fail on it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ebbtide::{
    Backend, BackendExt, Batch, Budget, Commit, Cursor, Effect, Key, Kind, Memory, Page, Prefix, Record,
    Result, Stats, Swept, Timestamp, Write,
};
use ebbtide_conformance::CASES;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Flaw {
    ValidAtItsExpiry,
    InsertWithoutItsCondition,
    SweepThatIsNotStrict,
    SweepOfWhatIsListed,
    TakeAsReadThenDelete,
    ConditionsJudgedBeforeTheWrite,
    ChecksLeftOut,
    AbsencesLeftOut,
    ReplaceThatRevives,
    BatchWrittenOneByOne,
    LastRefusalNamed,
    PageThatForgetsItsCursor,
    ScanThatShowsTheExpired,
    DeleteThatIsLost,
}

struct Flawed {
    inner: Memory,
    flaw: Flaw,
}

impl Flawed {
    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == flaw
    }

    /// The time as an engine reads it that takes a record to be valid at its expiry.
    fn read_time(&self, now: Timestamp) -> Timestamp {
        let earlier = Timestamp::from_millis(now.as_millis().saturating_sub(1)).unwrap();
        if self.has(Flaw::ValidAtItsExpiry) { earlier } else { now }
    }

    fn bend(&self, write: Write) -> Option<Write> {
        match write {
            Write::Insert { key, record } if self.has(Flaw::InsertWithoutItsCondition) => {
                Some(Write::Put { key, record })
            }
            Write::Check { .. } if self.has(Flaw::ChecksLeftOut) => None,
            Write::Absent { .. } if self.has(Flaw::AbsencesLeftOut) => None,
            Write::Delete { .. } if self.has(Flaw::DeleteThatIsLost) => None,
            other => Some(other),
        }
    }

    async fn judged_before(&self, batch: &Batch, now: Timestamp) -> Result<Option<usize>> {
        for (index, write) in batch.writes().iter().enumerate() {
            let standing = self.inner.get(write.key(), now).await?;
            let standing = standing.map(|record| (record.version, record.expires_at));
            if !write.condition().holds(standing, now) {
                return Ok(Some(index));
            }
        }
        Ok(None)
    }
}

#[async_trait]
impl Backend for Flawed {
    async fn get(&self, key: &Key, now: Timestamp) -> Result<Option<Record>> {
        self.inner.get(key, self.read_time(now)).await
    }

    async fn take(&self, key: &Key, now: Timestamp) -> Result<Option<Record>> {
        if !self.has(Flaw::TakeAsReadThenDelete) {
            return self.inner.take(key, self.read_time(now)).await;
        }
        let record = self.inner.get(key, now).await?;
        tokio::task::yield_now().await;
        let _ = self.inner.delete(key.clone(), now).await?;
        Ok(record)
    }

    async fn commit(&self, batch: Batch, now: Timestamp) -> Result<Commit> {
        if self.has(Flaw::BatchWrittenOneByOne) {
            for (index, write) in batch.into_writes().into_iter().enumerate() {
                if !self.inner.write(write, now).await?.is_applied() {
                    return Ok(Commit::Refused { index });
                }
            }
            return Ok(Commit::Applied);
        }
        if self.has(Flaw::ConditionsJudgedBeforeTheWrite) {
            if let Some(index) = self.judged_before(&batch, now).await? {
                return Ok(Commit::Refused { index });
            }
            tokio::task::yield_now().await;
            let unconditional = batch.into_writes().into_iter().filter_map(|write| match write.effect() {
                Effect::Store(record) => {
                    Some(Write::Put { key: write.key().clone(), record: record.clone() })
                }
                Effect::Erase => Some(Write::Delete { key: write.key().clone() }),
                Effect::Nothing => None,
            });
            let unconditional: Vec<_> = unconditional.collect();
            return if unconditional.is_empty() {
                Ok(Commit::Applied)
            } else {
                self.inner.commit(Batch::new(unconditional)?, now).await
            };
        }
        let count = batch.writes().len();
        let bent: Vec<_> = batch.into_writes().into_iter().filter_map(|write| self.bend(write)).collect();
        if bent.is_empty() {
            return Ok(Commit::Applied);
        }
        let revives = self.has(Flaw::ReplaceThatRevives)
            && bent.iter().any(|write| matches!(write, Write::Replace { .. }));
        let judged_at = if revives { Timestamp::ZERO } else { self.read_time(now) };
        let commit = self.inner.commit(Batch::new(bent)?, judged_at).await?;
        Ok(match commit {
            Commit::Refused { .. } if self.has(Flaw::LastRefusalNamed) => {
                Commit::Refused { index: count - 1 }
            }
            commit => commit,
        })
    }

    async fn scan(
        &self,
        prefix: &Prefix,
        after: Option<&Cursor>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Page> {
        let now = if self.has(Flaw::ScanThatShowsTheExpired) { Timestamp::ZERO } else { self.read_time(now) };
        let mut page = self.inner.scan(prefix, after, limit, now).await?;
        if self.has(Flaw::PageThatForgetsItsCursor) && page.items.len() > 1 {
            // The cursor of the record before: the last one of the page comes again.
            let before = &page.items[page.items.len() - 2].0;
            page.next = page.next.map(|_| Cursor::from_bytes(before.as_bytes()));
        }
        Ok(page)
    }

    async fn sweep(&self, until: Timestamp, budget: &Budget) -> Result<Swept> {
        if self.has(Flaw::SweepThatIsNotStrict) {
            return self.inner.sweep(until.checked_add(Duration::from_millis(1))?, budget).await;
        }
        if !self.has(Flaw::SweepOfWhatIsListed) {
            return self.inner.sweep(until, budget).await;
        }
        let mut swept = Swept::default();
        for &kind in Kind::PROBES {
            let listed = self.inner.scan_all(&Prefix::kind_wide(kind), Timestamp::ZERO).await?;
            tokio::task::yield_now().await;
            for (key, _) in listed.into_iter().filter(|(_, record)| record.is_swept(until)) {
                let _ = self.inner.delete(key, until).await?;
                swept.add(kind, 1);
                tokio::task::yield_now().await;
            }
        }
        Ok(swept)
    }

    async fn stats(&self, now: Timestamp) -> Result<Stats> {
        self.inner.stats(now).await
    }
}

async fn failing_cases(flaw: Flaw) -> Vec<&'static str> {
    let mut failing = Vec::new();
    for case in CASES {
        let store = Flawed { inner: Memory::default(), flaw };
        let run = ebbtide_conformance::run(case, Arc::new(store), 1);
        // A flawed engine may also keep a case from ending.
        let ended = tokio::time::timeout(Duration::from_secs(20), run).await;
        if !matches!(ended, Ok(Ok(()))) {
            failing.push(case.name);
        }
    }
    failing
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_flaw_fails_the_case_that_is_about_it() {
    // Hundreds of panics are expected here, each the finding of a case.
    std::panic::set_hook(Box::new(|panic| {
        if std::thread::current().name() == Some("main") {
            eprintln!("{panic}");
        }
    }));
    for (flaw, case) in [
        (Flaw::ValidAtItsExpiry, "get_ends_at_the_instant"),
        (Flaw::InsertWithoutItsCondition, "one_insert_wins"),
        (Flaw::SweepThatIsNotStrict, "a_sweep_is_strict"),
        (Flaw::SweepOfWhatIsListed, "a_sweep_beside_extensions_removes_none_of_the_extended"),
        (Flaw::TakeAsReadThenDelete, "one_take_wins"),
        (Flaw::ConditionsJudgedBeforeTheWrite, "one_insert_wins"),
        (Flaw::ChecksLeftOut, "check_holds_for_the_live_version_alone"),
        (Flaw::AbsencesLeftOut, "absent_holds_where_nothing_is_live"),
        (Flaw::ReplaceThatRevives, "replace_never_revives"),
        (Flaw::BatchWrittenOneByOne, "a_batch_is_all_or_nothing"),
        (Flaw::LastRefusalNamed, "the_first_refused_write_is_named"),
        (Flaw::PageThatForgetsItsCursor, "pages_join_to_the_whole"),
        (Flaw::ScanThatShowsTheExpired, "scan_ends_at_the_instant"),
        (Flaw::DeleteThatIsLost, "delete_has_no_condition"),
    ] {
        let failing = failing_cases(flaw).await;
        println!("{flaw:?}: {}", failing.join(", "));
        assert!(failing.contains(&case), "{flaw:?} was not caught by {case}, but by {failing:?}");
    }
}
