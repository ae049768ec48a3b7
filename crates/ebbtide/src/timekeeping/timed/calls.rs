//! Calls of the handle with a time source behind it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::*;
use crate::backend::Backend;
use crate::model::alteration::Alteration;
use crate::model::error::ErrorKind;
use crate::model::kind::Kind;
use crate::model::rng::SystemRng;
use crate::model::scope::Scope;
use crate::model::ttl::Ttl;
use crate::timekeeping::{EngineClock, ManualClocks};
use crate::{Memory, delegate, provide};

/// The memory engine, whose commits take long, and those of the clock mark too.
struct Slow {
    inner: Memory,
    clocks: ManualClocks,
    takes: Duration,
    mark_takes: Duration,
}

#[async_trait]
impl Backend for Slow {
    delegate!(self => self.inner; get take scan sweep info);
    provide!(get_many alter commit_each);

    async fn commit(&self, batch: Batch, now: Timestamp) -> Result<Commit> {
        let takes = if writes_the_mark(&batch) { self.mark_takes } else { self.takes };
        let commit = self.inner.commit(batch, now).await;
        self.clocks.advance(takes);
        commit
    }
}

#[async_trait]
impl Admin for Slow {
    delegate!(self => self.inner; stats stats_at_hand list count clear erase clock_mark set_clock_mark engine_clock
        warnings backup);
}

/// True for the batch with which the handle writes the clock mark, after a commit of its caller.
pub(super) fn writes_the_mark(batch: &Batch) -> bool {
    batch.writes().iter().all(|write| write.key().kind() == Kind::System)
}

fn handle(takes: Duration) -> (Timed, ManualClocks) {
    slow(takes, Duration::ZERO)
}

fn slow(takes: Duration, mark_takes: Duration) -> (Timed, ManualClocks) {
    let clocks = ManualClocks::at(Timestamp::from_millis(1_800_000_000_000).unwrap());
    let time = TimeSource::new(Arc::new(clocks.clone()), EngineClock::None, None);
    let engine = Slow { inner: Memory::default(), clocks: clocks.clone(), takes, mark_takes };
    (Timed::new(Arc::new(engine), Arc::new(time)), clocks)
}

fn key(name: &str) -> Key {
    Key::new(Kind::Probe, &Scope::Global, &[name.into()], &[]).unwrap()
}

fn insert(name: &str, end: Timestamp) -> Batch {
    Write::Insert { key: key(name), record: Record::new("", end, &SystemRng) }.try_into().unwrap()
}

fn ttl(seconds: i64) -> Ttl {
    Ttl::from_secs(seconds).unwrap()
}

#[tokio::test]
async fn a_commit_that_outlasts_the_record_is_unavailable() {
    let (timed, _) = handle(Duration::from_secs(10));
    let now = timed.now().unwrap();
    assert!(timed.commit_judged(insert("a", now.end(ttl(11)).unwrap()), now).await.unwrap().is_applied());
    let now = timed.now().unwrap();
    let error = timed.commit_judged(insert("b", now.end(ttl(10)).unwrap()), now).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let error = timed.commit_each(vec![insert("c", now.end(ttl(5)).unwrap())], now).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn an_answer_that_the_mark_delays_past_the_end_is_unavailable() {
    let ten = Duration::from_secs(10);
    for (seconds, in_time) in [(10, false), (11, true)] {
        let (timed, clocks) = slow(Duration::ZERO, ten);
        let now = timed.now().unwrap();
        let outcome = timed.commit_judged(insert("a", now.end(ttl(seconds)).unwrap()), now).await;
        assert_eq!(timed.now().unwrap().latest().since(now.latest()), ten, "the mark is written");
        assert_eq!(outcome.is_ok(), in_time, "{outcome:?}");
        clocks.advance(ten);
        let now = timed.now().unwrap();
        let outcomes = timed.commit_each(vec![insert("b", now.end(ttl(seconds)).unwrap())], now).await;
        assert_eq!(outcomes.is_ok(), in_time, "{outcomes:?}");
        clocks.advance(ten);
        let now = timed.now().unwrap();
        let record = Record::new("", now.end(ttl(seconds)).unwrap(), &SystemRng);
        let swapped = timed.alter(&key("c"), &Alteration::Swap { record }, now).await;
        assert_eq!(swapped.is_ok(), in_time, "{swapped:?}");
    }
}

#[tokio::test]
async fn what_has_ended_is_not_written() {
    let (timed, clocks) = handle(Duration::ZERO);
    let start = timed.now().unwrap().latest();
    clocks.advance(Duration::from_secs(1));
    let now = timed.now().unwrap();
    let expired = TimedCommit::Expired { index: 0 };
    assert_eq!(timed.commit_judged(insert("a", now.latest()), now).await.unwrap(), expired);
    let batches = vec![insert("b", start), insert("c", now.end(ttl(1)).unwrap()), insert("d", now.latest())];
    let outcomes = timed.commit_each(batches, now).await.unwrap();
    assert_eq!(outcomes, [expired, TimedCommit::Applied, expired]);
    let page = timed.scan(&Prefix::kind_wide(Kind::Probe), None, 10, now).await.unwrap();
    assert_eq!(page.items.len(), 1);
}

#[tokio::test]
async fn a_page_with_a_record_that_may_have_ended_is_unavailable_and_in_a_hold_leaves_it_out() {
    let (timed, clocks) = handle(Duration::ZERO);
    let now = timed.now().unwrap();
    for (name, seconds) in [("a", 30), ("b", 3_600)] {
        assert!(
            timed
                .commit_judged(insert(name, now.end(ttl(seconds)).unwrap()), now)
                .await
                .unwrap()
                .is_applied()
        );
    }
    clocks.step_wall(Duration::from_secs(60));
    let prefix = Prefix::kind_wide(Kind::Probe);
    let doubt = timed.now().unwrap();
    assert!(timed.scan(&prefix, None, 10, doubt).await.is_err());
    assert!(timed.sweep(&Budget::default()).await.is_err());
    clocks.advance(Duration::from_secs(11));
    let held = timed.now().unwrap();
    assert!(held.is_confirmed() && !held.is_exact());
    let page = timed.scan(&prefix, None, 10, held).await.unwrap();
    assert_eq!(page.items.len(), 1);
    assert_eq!(timed.sweep(&Budget::default()).await.unwrap().total(), 0, "it may have to block yet");
    let error = timed.commit_judged(insert("a", held.end(ttl(1)).unwrap()), held).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    clocks.advance(Duration::from_secs(86_400));
    assert!(timed.now().unwrap().is_exact());
    assert_eq!(timed.sweep(&Budget::default()).await.unwrap().total(), 2);
}
