//! Changes that answer with the record.

use super::Rig;
use super::rig::together;
use ebbtide::model::alteration::{Add, Alteration, Altered, decode_count};
use ebbtide::model::key::Key;
use ebbtide::model::record::{Record, Version};
use ebbtide::model::rng::SystemRng;
use ebbtide::model::time::Timestamp;

fn add(by: i64, limit: i64, expires_if_new: Timestamp) -> Alteration {
    Alteration::Add(Add { by, limit, expires_if_new, version: Version::mint(&SystemRng) })
}

async fn alter(rig: &Rig, key: &Key, alteration: &Alteration, now: Timestamp) -> Altered {
    rig.backend.alter(key, alteration, now).await.expect("alter")
}

fn count(altered: &Altered) -> Option<i64> {
    altered.record.as_ref().map(|record| decode_count(&record.value).expect("a count"))
}

pub(super) async fn an_addition_counts_from_zero(rig: Rig) {
    let (key, now, end) = (rig.key("n"), rig.at(0), rig.at(10));
    for (by, sum) in [(1, 1), (1, 2), (5, 7), (-10, -3), (0, -3)] {
        let added = alter(&rig, &key, &add(by, i64::MAX, end), now).await;
        assert!(added.applied);
        assert_eq!(count(&added), Some(sum));
        let record = added.record.expect("the counter");
        assert_eq!(record.expires_at, end);
        let read = rig.backend.get(&key, now).await.expect("get");
        assert_eq!(read, Some(record), "what is answered is what is stored");
    }
}

pub(super) async fn a_counter_lives_from_its_first_addition(rig: Rig) {
    let key = rig.key("n");
    assert_eq!(count(&alter(&rig, &key, &add(1, i64::MAX, rig.at(10)), rig.at(0)).await), Some(1));
    let later = alter(&rig, &key, &add(1, i64::MAX, rig.at(100)), rig.at(9)).await;
    assert_eq!(later.record.as_ref().map(|record| record.expires_at), Some(rig.at(10)), "it keeps its end");
    let anew = alter(&rig, &key, &add(1, i64::MAX, rig.at(20)), rig.at(10)).await;
    assert_eq!(count(&anew), Some(1), "at its end it is absent");
    assert_eq!(anew.record.map(|record| record.expires_at), Some(rig.at(20)));
    let endless = rig.key("endless");
    assert_eq!(count(&alter(&rig, &endless, &add(1, i64::MAX, Timestamp::NEVER), rig.at(0)).await), Some(1));
    let kept = alter(&rig, &endless, &add(1, i64::MAX, rig.at(5)), rig.at(1)).await;
    assert_eq!(kept.record.map(|record| record.expires_at), Some(Timestamp::NEVER));
}

pub(super) async fn an_addition_beyond_the_limit_is_refused(rig: Rig) {
    let (key, now, end) = (rig.key("n"), rig.at(0), rig.at(10));
    let refused = alter(&rig, &key, &add(4, 3, end), now).await;
    assert_eq!(refused, Altered { applied: false, record: None }, "nothing is created");
    assert!(rig.backend.get(&key, now).await.expect("get").is_none());
    assert!(alter(&rig, &key, &add(3, 3, end), now).await.applied);
    let refused = alter(&rig, &key, &add(1, 3, end), now).await;
    assert_eq!((refused.applied, count(&refused)), (false, Some(3)));
    assert!(alter(&rig, &key, &add(-1, 3, end), now).await.applied, "a subtraction is not bound");
    assert_eq!(count(&alter(&rig, &key, &add(1, 3, end), now).await), Some(3));
    assert!(alter(&rig, &key, &add(i64::MAX, 3, end), rig.at(10)).await.record.is_none());
    let most = rig.key("most");
    assert!(alter(&rig, &most, &add(i64::MAX, i64::MAX, end), now).await.applied);
    assert!(!alter(&rig, &most, &add(1, i64::MAX, end), now).await.applied, "no sum has more than 64 bits");
    let least = rig.key("least");
    assert!(alter(&rig, &least, &add(i64::MIN, 0, end), now).await.applied);
    assert!(!alter(&rig, &least, &add(-1, 0, end), now).await.applied);
    let refused = alter(&rig, &least, &add(1, i64::MIN, end), now).await;
    assert_eq!((refused.applied, count(&refused)), (false, Some(i64::MIN)), "a limit that no sum is within");
    assert!(
        alter(&rig, &least, &add(5, 3, end), now).await.applied,
        "a sum below the limit, where zero is not"
    );
}

pub(super) async fn additions_of_many_callers_add_up(rig: Rig) {
    let (key, now, end) = (rig.key("n"), rig.at(0), rig.at(10));
    let answers = together(64, |_| {
        let (rig, key) = (rig.clone(), key.clone());
        async move { count(&alter(&rig, &key, &add(1, i64::MAX, end), now).await) }
    });
    let mut counts: Vec<_> = answers.await.into_iter().map(|count| count.expect("a count")).collect();
    counts.sort_unstable();
    assert_eq!(counts, (1..=64).collect::<Vec<_>>(), "each sum is answered once");
}

pub(super) async fn a_limit_is_never_passed(rig: Rig) {
    let now = rig.at(20);
    let key = rig.key("n");
    // The first round begins with a counter that has expired.
    assert!(alter(&rig, &key, &add(9, i64::MAX, rig.at(10)), rig.at(0)).await.applied);
    let answers = together(64, |_| {
        let (rig, key) = (rig.clone(), key.clone());
        async move { alter(&rig, &key, &add(1, 10, rig.at(30)), now).await.applied }
    });
    assert_eq!(answers.await.into_iter().filter(|applied| *applied).count(), 10);
    assert_eq!(count(&alter(&rig, &key, &add(0, 10, rig.at(30)), now).await), Some(10));
}

pub(super) async fn a_swap_answers_what_it_replaced(rig: Rig) {
    let (key, now) = (rig.key("a"), rig.at(0));
    let (first, second) = (rig.record("one", 10), rig.record("two", 20));
    let swap = |record: &Record| Alteration::Swap { record: record.clone() };
    assert_eq!(alter(&rig, &key, &swap(&first), now).await, Altered { applied: true, record: None });
    let swapped = alter(&rig, &key, &swap(&second), now).await;
    assert_eq!(swapped, Altered { applied: true, record: Some(first.clone()) });
    assert_eq!(rig.backend.get(&key, now).await.expect("get"), Some(second));
    let over_expired = alter(&rig, &key, &swap(&rig.record("three", 40)), rig.at(20)).await;
    assert_eq!(over_expired.record, None, "at its end it is absent");
}

pub(super) async fn of_many_swaps_each_record_is_answered_once(rig: Rig) {
    let (key, now) = (rig.key("a"), rig.at(0));
    let answers = together(32, |index| {
        let (rig, key) = (rig.clone(), key.clone());
        async move {
            let record = rig.record(&index.to_string(), 10);
            let before = alter(&rig, &key, &Alteration::Swap { record: record.clone() }, now).await.record;
            (record.version, before.map(|before| before.version))
        }
    });
    let answers = answers.await;
    let last = rig.backend.get(&key, now).await.expect("get").expect("the last one").version;
    let mut replaced: Vec<_> = answers.iter().filter_map(|(_, before)| *before).collect();
    assert_eq!(replaced.len(), 31, "one found nothing");
    replaced.push(last);
    let mut written: Vec<_> = answers.into_iter().map(|(version, _)| version).collect();
    written.sort_unstable();
    replaced.sort_unstable();
    assert_eq!(written, replaced);
}

pub(super) async fn a_touch_moves_the_end_alone(rig: Rig) {
    let (key, now) = (rig.key("a"), rig.at(0));
    let touch = |first: u8, end: Timestamp| Alteration::Touch {
        first,
        expires_at: end,
        version: Version::mint(&SystemRng),
    };
    assert_eq!(
        alter(&rig, &key, &touch(b'p', rig.at(20)), now).await,
        Altered { applied: false, record: None }
    );
    let record = rig.stored(&key, "plain", 10).await;
    let refused = alter(&rig, &key, &touch(b'x', rig.at(20)), now).await;
    assert_eq!(refused, Altered { applied: false, record: Some(record.clone()) });
    let touched = alter(&rig, &key, &touch(b'p', rig.at(20)), rig.at(9)).await;
    assert!(touched.applied);
    let touched = touched.record.expect("the record");
    assert_eq!((&touched.value, touched.expires_at), (&record.value, rig.at(20)));
    assert_ne!(touched.version, record.version, "a new end is a new version");
    assert_eq!(rig.backend.get(&key, rig.at(19)).await.expect("get"), Some(touched));
    let endless = alter(&rig, &key, &touch(b'p', Timestamp::NEVER), rig.at(19)).await;
    assert!(endless.applied && endless.record.is_some_and(|record| record.expires_at.is_never()));
    let sooner = alter(&rig, &key, &touch(b'p', rig.at(30)), rig.at(20)).await;
    assert!(sooner.applied);
    assert!(!alter(&rig, &key, &touch(b'p', rig.at(90)), rig.at(30)).await.applied, "it never revives");
}

pub(super) async fn a_take_by_shape_leaves_the_others(rig: Rig) {
    let (key, now) = (rig.key("a"), rig.at(0));
    let record = rig.stored(&key, "plain", 10).await;
    let refused = alter(&rig, &key, &Alteration::Take { first: b'x' }, now).await;
    assert_eq!(refused, Altered { applied: false, record: Some(record.clone()) });
    assert_eq!(alter(&rig, &key, &Alteration::Take { first: b'p' }, rig.at(10)).await.record, None);
    let answers = together(16, |_| {
        let (rig, key) = (rig.clone(), key.clone());
        async move { alter(&rig, &key, &Alteration::Take { first: b'p' }, now).await }
    });
    let taken: Vec<_> = answers.await.into_iter().filter(|altered| altered.applied).collect();
    assert_eq!(taken, [Altered { applied: true, record: Some(record) }]);
}
