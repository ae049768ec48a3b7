//! Calls of the handle with a time source behind it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::*;
use crate::backend::Backend;
use crate::model::error::ErrorKind;
use crate::model::kind::Kind;
use crate::model::rng::SystemRng;
use crate::model::scope::Scope;
use crate::model::ttl::Ttl;
use crate::timekeeping::{EngineClock, ManualClocks};
use crate::{Memory, delegate, provide};

/// The memory engine, whose commits take long.
struct Slow {
    inner: Memory,
    clocks: ManualClocks,
    takes: Duration,
}

#[async_trait]
impl Backend for Slow {
    delegate!(self => self.inner; get take scan sweep info);
    provide!(get_many alter commit_each);

    async fn commit(&self, batch: Batch, now: Timestamp) -> Result<Commit> {
        let commit = self.inner.commit(batch, now).await;
        self.clocks.advance(self.takes);
        commit
    }
}

#[async_trait]
impl Admin for Slow {
    delegate!(self => self.inner; stats stats_at_hand list count clear erase clock_mark set_clock_mark engine_clock
        warnings backup);
}

fn handle(takes: Duration) -> (Timed, ManualClocks) {
    let clocks = ManualClocks::at(Timestamp::from_millis(1_800_000_000_000).unwrap());
    let time = TimeSource::new(Arc::new(clocks.clone()), EngineClock::None, None);
    let engine = Slow { inner: Memory::default(), clocks: clocks.clone(), takes };
    (Timed::new(Arc::new(engine), Arc::new(time)), clocks)
}

fn insert(name: &str, end: Timestamp) -> Batch {
    let key = Key::new(Kind::Probe, &Scope::Global, &[name.into()], &[]).unwrap();
    Write::Insert { key, record: Record::new("", end, &SystemRng) }.try_into().unwrap()
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
