//! Listing: order, pages, ranges.

use super::Rig;
use ebbtide::backend::Cursor;
use ebbtide::model::key::{Key, Part, Prefix};
use ebbtide::model::kind::Kind;
use ebbtide::model::write::Write;

fn keys(items: &[(Key, ebbtide::model::record::Record)]) -> Vec<Key> {
    items.iter().map(|(key, _)| key.clone()).collect()
}

pub(super) async fn a_partition_is_listed_in_order(rig: Rig) {
    let sorts: Vec<Vec<Part<'_>>> = vec![
        vec![],
        vec!["a".into()],
        vec!["a".into(), "b".into()],
        vec!["a".into(), u64::MAX.into()],
        vec!["aa".into()],
        vec!["é".into()],
        vec![(&[0u8, 0xFF]).into()],
        vec![(&[0u8, 0]).into()],
        vec![(&[0u8]).into()],
        vec![0.into()],
        vec![256.into()],
        vec![255.into()],
    ];
    for sort in &sorts {
        rig.stored(&rig.sorted_key("p", sort), "v", 100).await;
    }
    let listed = keys(&rig.scan(&rig.partition("p", &[]), 0).await);
    let mut in_order = sorts.clone();
    in_order.sort();
    let expected: Vec<_> = in_order.iter().map(|sort| rig.sorted_key("p", sort)).collect();
    assert_eq!(listed, expected, "in the order of the tuples");
}

pub(super) async fn pages_join_to_the_whole(rig: Rig) {
    const COUNT: u64 = 23;
    for number in 0..COUNT {
        // Every third record has expired: a page holds live records.
        let expires = if number % 3 == 0 { 10 } else { 100 };
        rig.stored(&rig.sorted_key("p", &[number.into()]), "v", expires).await;
    }
    let prefix = rig.partition("p", &[]);
    let whole = keys(&rig.scan(&prefix, 50).await);
    assert_eq!(whole.len(), 15);
    for limit in [1, 2, 5, 14, 15, 16, 100] {
        let mut joined = Vec::new();
        let mut after: Option<Cursor> = None;
        loop {
            let page = rig.backend.scan(&prefix, after.as_ref(), limit, rig.at(50)).await.expect("scan");
            assert!(page.items.len() <= limit, "a page holds at most its limit");
            joined.extend(keys(&page.items));
            assert!(joined.len() <= whole.len(), "a scan comes to its end");
            let Some(next) = page.next else { break };
            // A caller sends the cursor back as bytes.
            after = Some(Cursor::from_bytes(next.as_bytes()));
        }
        assert_eq!(joined, whole, "pages of {limit}");
    }
}

pub(super) async fn a_scan_goes_on_from_what_was_deleted(rig: Rig) {
    for number in 0..4u64 {
        rig.stored(&rig.sorted_key("p", &[number.into()]), "v", 100).await;
    }
    let prefix = rig.partition("p", &[]);
    let page = rig.backend.scan(&prefix, None, 2, rig.at(0)).await.expect("scan");
    for (key, _) in &page.items {
        assert!(rig.applied(Write::Delete { key: key.clone() }, 0).await);
    }
    let next = rig.backend.scan(&prefix, page.next.as_ref(), 10, rig.at(0)).await.expect("scan");
    assert_eq!(keys(&next.items), [rig.sorted_key("p", &[2.into()]), rig.sorted_key("p", &[3.into()])]);
}

pub(super) async fn a_sort_prefix_is_whole_parts(rig: Rig) {
    for bucket in ["a", "ab", "a:b", "a/b", "b"] {
        rig.stored(&rig.sorted_key("owner", &[bucket.into(), "name".into()]), "v", 100).await;
    }
    for bucket in ["a", "ab", "a:b", "a/b", "b"] {
        let listed = keys(&rig.scan(&rig.partition("owner", &[bucket.into()]), 0).await);
        assert_eq!(listed, [rig.sorted_key("owner", &[bucket.into(), "name".into()])], "{bucket}");
    }
    assert!(rig.scan(&rig.partition("owner", &["c".into()]), 0).await.is_empty());
}

pub(super) async fn partitions_and_kinds_are_kept_apart(rig: Rig) {
    let partitions = ["p", "pp", "p:", "p/q", "%70"];
    for partition in partitions {
        rig.stored(&rig.sorted_key(partition, &["s".into()]), partition, 100).await;
    }
    let other = Key::new(Kind::ProbeIndex, &rig.scope, &["p".into()], &["s".into()]).expect("good names");
    rig.stored(&other, "index", 100).await;
    for partition in partitions {
        let listed = rig.scan(&rig.partition(partition, &[]), 0).await;
        assert_eq!(listed.len(), 1, "{partition}");
        assert_eq!(listed[0].1.value, partition);
    }
    let prefix = Prefix::partition(Kind::ProbeIndex, &rig.scope, &["p".into()], &[]).expect("good names");
    assert_eq!(keys(&rig.scan(&prefix, 0).await), [other]);
}

pub(super) async fn an_expired_record_takes_no_place_in_a_listing(rig: Rig) {
    for number in 0..20u64 {
        rig.stored(&rig.sorted_key("p", &[number.into()]), "v", 10).await;
    }
    let live = rig.sorted_key("p", &[20.into()]);
    rig.stored(&live, "v", 100).await;
    assert_eq!(keys(&rig.scan(&rig.partition("p", &[]), 10).await), [live]);
}

pub(super) async fn a_record_that_stays_is_listed_once_while_others_change(rig: Rig) {
    let stays: Vec<Key> = (0..40u64).step_by(2).map(|n| rig.sorted_key("p", &[n.into()])).collect();
    for key in &stays {
        rig.stored(key, "v", 100).await;
    }
    let prefix = rig.partition("p", &[]);
    let answers = rig.together(16, |rig, index| {
        let (prefix, stays) = (prefix.clone(), stays.clone());
        async move {
            if index % 2 == 0 {
                let key = rig.sorted_key("p", &[(2 * index as u64 + 1).into()]);
                rig.stored(&key, "w", 100).await;
                return rig.applied(Write::Delete { key }, 0).await;
            }
            let mut listed = Vec::new();
            let mut after = None;
            loop {
                let page = rig.backend.scan(&prefix, after.as_ref(), 3, rig.at(0)).await.expect("scan");
                listed.extend(keys(&page.items));
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            listed.retain(|key| stays.contains(key));
            listed == stays
        }
    });
    assert!(answers.await.into_iter().all(|right| right), "a record that stayed was left out or came twice");
}
