//! Faults planted in the memory engine: the conformance kit must catch each of them, and nothing else.
//!
//! No test here depends on a race that may or may not happen. Every case runs on a single thread, the engine yields as
//! often as a seeded schedule says, and a planted fault has a gate between its read and its write ([`Flawed::gate`])
//! that stays closed until every other task has read too. The same seed gives the same run on any machine.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;

use ebbtide::model::alteration::Outcome;
use ebbtide::{
    Admin, Alteration, Altered, Backend, BackendExt, Batch, Budget, Commit, Cursor, Effect, Error, Key, Kind,
    Memory, Page, Prefix, Record, Result, SeededRng, Swept, Timestamp, Write, async_trait, delegate, provide,
};
use ebbtide_conformance::CASES;
use ebbtide_conformance::stores::{self, STORE_CASES};

/// Seeds of the schedules that every case runs on.
const SCHEDULES: std::ops::Range<u64> = 0..8;

/// Calls after which the engine fails: a flaw may keep a case from ending.
const MOST_CALLS: u64 = 200_000;

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
    EachWithoutItsCondition,
    AlterationAsReadThenWrite,
    AdditionWithoutItsLimit,
}

/// The memory engine with a flaw, or with none.
struct Flawed {
    inner: Memory,
    flaw: Option<Flaw>,
    schedule: SeededRng,
    calls: AtomicU64,
    at_the_gate: AtomicU64,
}

impl Flawed {
    fn new(flaw: Option<Flaw>, seed: u64) -> Self {
        let schedule = SeededRng::new(seed);
        Self {
            inner: Memory::default(),
            flaw,
            schedule,
            calls: AtomicU64::new(0),
            at_the_gate: AtomicU64::new(0),
        }
    }

    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    /// Yields to other tasks as the schedule says. Every call begins with it.
    async fn begin(&self) -> Result<()> {
        if self.calls.fetch_add(1, Ordering::SeqCst) >= MOST_CALLS {
            return Err(Error::unavailable("the case does not end"));
        }
        for _ in 0..self.schedule.below(4) {
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Gate between the read and the write of a flawed call. It opens once no other task arrives: a task that yields
    /// is behind all that are ready, and a call yields three times at most before it reads.
    async fn gate(&self) {
        let mut arrived = self.at_the_gate.fetch_add(1, Ordering::SeqCst) + 1;
        let mut quiet = 0;
        while quiet < 8 {
            tokio::task::yield_now().await;
            let now = self.at_the_gate.load(Ordering::SeqCst);
            quiet = if now == arrived { quiet + 1 } else { 0 };
            arrived = now;
        }
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
        self.begin().await?;
        self.inner.get(key, self.read_time(now)).await
    }

    async fn take(&self, key: &Key, now: Timestamp) -> Result<Option<Record>> {
        self.begin().await?;
        if !self.has(Flaw::TakeAsReadThenDelete) {
            return self.inner.take(key, self.read_time(now)).await;
        }
        let record = self.inner.get(key, now).await?;
        self.gate().await;
        let _ = self.inner.delete(key.clone(), now).await?;
        Ok(record)
    }

    async fn alter(&self, key: &Key, alteration: &Alteration, now: Timestamp) -> Result<Altered> {
        self.begin().await?;
        if !self.has(Flaw::AlterationAsReadThenWrite) && !self.has(Flaw::AdditionWithoutItsLimit) {
            return self.inner.alter(key, alteration, self.read_time(now)).await;
        }
        let mut alteration = alteration.clone();
        if let (Alteration::Add(add), true) = (&mut alteration, self.has(Flaw::AdditionWithoutItsLimit)) {
            add.limit = i64::MAX;
            return self.inner.alter(key, &alteration, now).await;
        }
        let (outcome, altered) = alteration.judge(self.inner.get(key, now).await?)?;
        self.gate().await;
        let _ = match outcome {
            Outcome::Store(record) => self.inner.put(key.clone(), record, now).await?,
            Outcome::Erase => self.inner.delete(key.clone(), now).await?,
            Outcome::Nothing => return Ok(altered),
        };
        Ok(altered)
    }

    async fn commit(&self, batch: Batch, now: Timestamp) -> Result<Commit> {
        self.begin().await?;
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
            self.gate().await;
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

    async fn commit_each(&self, batches: Vec<Batch>, now: Timestamp) -> Result<Vec<Commit>> {
        let mut commits = Vec::new();
        for batch in batches {
            let flawed = self.has(Flaw::EachWithoutItsCondition);
            let put = |write| match write {
                Write::Insert { key, record } if flawed => Write::Put { key, record },
                other => other,
            };
            let batch = Batch::new(batch.into_writes().into_iter().map(put).collect())?;
            commits.push(self.commit(batch, now).await?);
        }
        Ok(commits)
    }

    async fn scan(
        &self,
        prefix: &Prefix,
        after: Option<&Cursor>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Page> {
        self.begin().await?;
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
        self.begin().await?;
        if self.has(Flaw::SweepThatIsNotStrict) {
            return self.inner.sweep(until.checked_add(Duration::from_millis(1))?, budget).await;
        }
        if !self.has(Flaw::SweepOfWhatIsListed) {
            return self.inner.sweep(until, budget).await;
        }
        let mut swept = Swept::default();
        for &kind in Kind::PROBES {
            let listed = self.inner.scan_all(&Prefix::kind_wide(kind), Timestamp::ZERO).await?;
            self.gate().await;
            for (key, _) in listed.into_iter().filter(|(_, record)| record.is_swept(until)) {
                let _ = self.inner.delete(key, until).await?;
                swept.add(kind, 1);
                tokio::task::yield_now().await;
            }
        }
        Ok(swept)
    }

    delegate!(self => self.inner; info);
    provide!(get_many);
}

#[async_trait]
impl Admin for Flawed {
    delegate!(self => self.inner; stats);
    // By the flawed methods above.
    provide!(stats_at_hand list count clear erase clock_mark set_clock_mark engine_clock warnings backup);
}

thread_local! {
    /// Set while a case runs, whose panic is its finding.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs a case on a single thread, where tasks run in the order in which they became ready. The error is its finding.
fn finding(case: impl Future<Output = std::result::Result<(), String>>) -> std::result::Result<(), String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !QUIET.get() {
                usual(panic);
            }
        }));
    });
    QUIET.set(true);
    let found = tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(case);
    QUIET.set(false);
    found
}

/// Runs the case of the contract with that name.
fn contract(case: &str, flaw: Flaw, seed: u64) -> std::result::Result<(), String> {
    let case = CASES.iter().find(|known| known.name == case).expect("the case is in the table");
    finding(ebbtide_conformance::run(case, Arc::new(Flawed::new(Some(flaw), seed)), seed))
}

#[test]
fn every_flaw_fails_the_case_that_is_about_it() {
    for (flaw, case) in [
        (Flaw::ValidAtItsExpiry, "get_ends_at_the_instant"),
        (Flaw::InsertWithoutItsCondition, "one_insert_wins"),
        (Flaw::SweepThatIsNotStrict, "a_sweep_is_strict"),
        (Flaw::SweepOfWhatIsListed, "a_sweep_beside_extensions_removes_none_of_the_extended"),
        (Flaw::TakeAsReadThenDelete, "one_take_wins"),
        (Flaw::TakeAsReadThenDelete, "a_take_and_a_replace_do_not_both_win"),
        (Flaw::ConditionsJudgedBeforeTheWrite, "one_insert_wins"),
        (Flaw::ConditionsJudgedBeforeTheWrite, "one_replace_wins"),
        (Flaw::ConditionsJudgedBeforeTheWrite, "one_remove_wins"),
        (Flaw::ConditionsJudgedBeforeTheWrite, "crossing_checks_do_not_both_win"),
        (Flaw::ConditionsJudgedBeforeTheWrite, "crossing_absences_do_not_both_win"),
        (Flaw::ConditionsJudgedBeforeTheWrite, "an_inserted_tombstone_and_an_absence_check_do_not_cross"),
        (Flaw::ConditionsJudgedBeforeTheWrite, "a_counter_loses_no_increment"),
        (Flaw::ChecksLeftOut, "check_holds_for_the_live_version_alone"),
        (Flaw::AbsencesLeftOut, "absent_holds_where_nothing_is_live"),
        (Flaw::ReplaceThatRevives, "replace_never_revives"),
        (Flaw::BatchWrittenOneByOne, "a_batch_is_all_or_nothing"),
        (Flaw::LastRefusalNamed, "the_first_refused_write_is_named"),
        (Flaw::PageThatForgetsItsCursor, "pages_join_to_the_whole"),
        (Flaw::ScanThatShowsTheExpired, "scan_ends_at_the_instant"),
        (Flaw::DeleteThatIsLost, "delete_has_no_condition"),
        (Flaw::AlterationAsReadThenWrite, "additions_of_many_callers_add_up"),
        (Flaw::AlterationAsReadThenWrite, "a_limit_is_never_passed"),
        (Flaw::AlterationAsReadThenWrite, "of_many_swaps_each_record_is_answered_once"),
        (Flaw::AdditionWithoutItsLimit, "a_limit_is_never_passed"),
        (Flaw::ValidAtItsExpiry, "a_touch_moves_the_end_alone"),
        (Flaw::EachWithoutItsCondition, "each_of_several_batches_is_judged_by_itself"),
        (Flaw::EachWithoutItsCondition, "one_of_the_inserts_of_several_batches_wins"),
    ] {
        for seed in SCHEDULES {
            let found = contract(case, flaw, seed);
            assert!(found.is_err(), "{flaw:?} was not caught by {case} on schedule {seed}");
            assert!(contract(case, flaw, seed) == found, "{flaw:?} on schedule {seed} is not repeatable");
        }
    }
}

#[test]
fn an_engine_without_a_flaw_fails_no_case_on_any_schedule() {
    for case in CASES {
        for seed in SCHEDULES {
            let run = ebbtide_conformance::run(case, Arc::new(Flawed::new(None, seed)), seed);
            assert_eq!(finding(run), Ok(()), "{case:?} on schedule {seed}");
        }
    }
}

/// The layers of the store cases pass every method on to the engine.
#[test]
fn a_flaw_in_an_engines_own_commit_each_fails_a_case_of_the_stores() {
    let is_it = |case: &&stores::StoreCase| case.name == "a_batch_records_what_is_fresh";
    let case = STORE_CASES.iter().find(is_it).expect("the case is in the table");
    for (flaw, fails) in [(Some(Flaw::EachWithoutItsCondition), true), (None, false)] {
        for seed in SCHEDULES {
            let found = finding(stores::run(case, Arc::new(Flawed::new(flaw, seed)), seed));
            assert_eq!(found.is_err(), fails, "{flaw:?} on schedule {seed}: {found:?}");
        }
    }
}
