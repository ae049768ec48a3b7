//! Walks through a whole scope or table: listing, erasing, reconciling.

use std::sync::Arc;

use ebbtide::Admin as _;
use ebbtide::AdminExt as _;
use ebbtide::engines::dynamodb::DynamoDb;
use ebbtide::stores::access_tokens::{AccessRequest, IssueOutcome};
use ebbtide::stores::grants::GrantRequest;
use ebbtide::stores::records::{PutRecord, Records};
use ebbtide::stores::scopes::Scopes;
use ebbtide::stores::sessions::SessionRequest;
use ebbtide::{
    Backend, BackendExt, Batch, Budget, Cursor, ErrorKind, Key, Kind, ManualClock, Prefix, Reach, Record,
    Scope, Stores, Write,
};
use serde_json::json;

use crate::proxy::Act;
use crate::site::{Site, at, open, record};

crate::trials! {
    a_cursor_is_checked
    records_have_no_order_to_scan_them_in
    a_scope_is_listed_in_pages
    a_large_table_is_gone_through_and_no_cursor_names_anothers_record
    erasing_goes_on_with_what_the_engine_did_not_do
    erasing_a_partition_reads_that_partition_alone
    a_sweep_removes_index_records_whose_record_is_gone
    a_walk_goes_on_where_its_last_step_ended
    a_sweep_is_gone_on_with_by_another_process
    a_slow_table_is_walked_in_smaller_pages
    counts_are_at_hand_from_the_first_step_on_and_whole_for_who_ends_the_walk
    a_role_that_may_not_describe_the_table_walks_all_the_same
    a_scope_is_cleared_by_one_walk_for_all_kinds
    a_count_and_a_deletion_are_gone_on_with_by_another_process
    what_is_gone_takes_its_index_records_with_it
}

async fn records_have_no_order_to_scan_them_in(site: &Site) {
    let stores = Stores::builder_for_tests(Arc::new(site.open().await)).clock(ManualClock::at(at(0))).build();
    let records = stores.records(&Scope::Global);
    let _ = records.put(&PutRecord::new(Records::REDIS, "k", json!(1))).await.unwrap();
    let refused = records.scan(Records::REDIS, 0, 10).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert!(refused.message().contains("keeps no order"), "{refused}");
    let listed = records.list(Records::REDIS, None, 10).await.unwrap().items;
    assert_eq!(listed.len(), 1, "an administrator lists them in any order");
}

fn key_in(scope: &Scope, kind: Kind, number: u64) -> Key {
    Key::new(kind, scope, &[number.into()], &["s".into()]).unwrap()
}

fn wide(scope: &Scope) -> Prefix {
    Prefix::reach(Kind::Probe, &Reach::Exact(scope.clone())).unwrap()
}

async fn fill(store: &DynamoDb, scope: &Scope, kind: Kind, count: u64, value: &str) {
    let writes: Vec<_> = (0..count)
        .map(|number| Write::Put { key: key_in(scope, kind, number), record: record(value, 100) })
        .collect();
    for some in writes.chunks(10) {
        assert!(store.commit(Batch::new(some.to_vec()).unwrap(), at(0)).await.unwrap().is_applied());
    }
}

async fn a_cursor_is_checked(site: &Site) {
    let store = site.open().await;
    let (acme, other) = (Scope::tenant("acme").unwrap(), Scope::tenant("other").unwrap());
    fill(&store, &acme, Kind::Probe, 3, "v").await;
    let page = store.scan(&wide(&acme), None, 1, at(0)).await.unwrap();
    let next = page.next.unwrap();
    let partition = Prefix::partition(Kind::Probe, &acme, &[0.into()], &[]).unwrap();
    let mut cursors: Vec<Vec<u8>> = vec![
        vec![],
        vec![0],
        vec![1],
        vec![2],
        vec![9, 9],
        [&[2], [7; 16].as_slice()].concat(),
        vec![0xFF; 64],
    ];
    cursors.push(next.as_bytes()[..next.as_bytes().len() - 1].to_vec());
    for bytes in cursors {
        for prefix in [wide(&acme), partition.clone()] {
            let error =
                store.scan(&prefix, Some(&Cursor::from_bytes(bytes.clone())), 1, at(0)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{bytes:?}");
        }
    }
    let error = store.scan(&wide(&other), Some(&next), 1, at(0)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "a cursor of one scope is none of another");
}

async fn a_scope_is_listed_in_pages(site: &Site) {
    let store = site.open().await;
    let (acme, other) = (Scope::tenant("acme").unwrap(), Scope::tenant("other").unwrap());
    fill(&store, &acme, Kind::Probe, 23, "v").await;
    fill(&store, &other, Kind::Probe, 23, "v").await;
    for limit in [1, 7, 23, 100] {
        let (mut listed, mut after) = (Vec::new(), None);
        loop {
            let page = store.scan(&wide(&acme), after.as_ref(), limit, at(0)).await.unwrap();
            assert!(page.items.len() <= limit);
            listed.extend(page.items.into_iter().map(|(key, _)| key));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        listed.sort();
        let expected: Vec<_> = (0..23).map(|number| key_in(&acme, Kind::Probe, number)).collect();
        assert_eq!(listed, expected, "pages of {limit}");
    }
}

async fn a_large_table_is_gone_through_and_no_cursor_names_anothers_record(site: &Site) {
    // More of another tenant than one page goes through: megabytes, in a table of their own.
    let table = format!("ebbtide-test-{}", ebbtide::Version::mint(&ebbtide::SystemRng));
    let store = site.store(&format!("dynamodb:{table}")).await;
    store.create_table().await.unwrap();
    let (acme, other) = (Scope::tenant("acme").unwrap(), Scope::tenant("secret-tenant").unwrap());
    fill(&store, &other, Kind::Probe, 80, &"x".repeat(300_000)).await;
    let (mut pages, mut after) = (0, None);
    loop {
        let page = store.scan(&wide(&acme), after.as_ref(), 5, at(0)).await.unwrap();
        assert_eq!(page.items, []);
        pages += 1;
        after = page.next;
        let Some(cursor) = &after else { break };
        let bytes = cursor.as_bytes();
        assert!(!bytes.windows(6).any(|window| window == b"secret"), "a cursor names another's record");
    }
    assert!(pages > 1, "a page has an end, also where it finds nothing");
    fill(&store, &acme, Kind::Probe, 2, "v").await;
    assert_eq!(store.scan_all(&wide(&acme), at(0)).await.unwrap().len(), 2);
    // Each segment of a walk is many pages here, and all of them count.
    assert_eq!(store.stats(at(0)).await.unwrap()[&Kind::Probe].live, 82);
    assert_eq!(store.erase_all(&wide(&other), at(0)).await.unwrap(), 80);
    assert_eq!(store.stats(at(0)).await.unwrap()[&Kind::Probe].live, 2);
    site.client().delete_table().table_name(table).send().await.unwrap();
}

async fn erasing_goes_on_with_what_the_engine_did_not_do(site: &Site) {
    let (proxy, store, past) = site.proxied().await;
    let acme = Scope::tenant("acme").unwrap();
    fill(&past, &acme, Kind::Probe, 60, "v").await;
    proxy.next_times("BatchWriteItem", 2, || Act::Leave);
    proxy.next_times("BatchWriteItem", 2, || Act::error("ThrottlingException"));
    assert_eq!(store.erase_all(&wide(&acme), at(0)).await.unwrap(), 60);
    assert_eq!(past.scan_all(&wide(&acme), at(0)).await.unwrap(), []);
    proxy.next_times("BatchWriteItem", 40, || Act::error("ThrottlingException"));
    fill(&past, &acme, Kind::Probe, 1, "v").await;
    assert_eq!(store.erase_all(&wide(&acme), at(0)).await.unwrap_err().kind(), ErrorKind::Unavailable);
}

async fn erasing_a_partition_reads_that_partition_alone(site: &Site) {
    let (proxy, store, past) = site.proxied().await;
    let acme = Scope::tenant("acme").unwrap();
    fill(&past, &acme, Kind::Probe, 3, "v").await;
    let partition = Prefix::partition(Kind::Probe, &acme, &[1.into()], &["s".into()]).unwrap();
    assert_eq!(store.erase_all(&partition, at(0)).await.unwrap(), 1);
    assert_eq!((proxy.requests("Scan"), proxy.requests("Query")), (0, 1));
    let other = Prefix::partition(Kind::Probe, &acme, &[2.into()], &["t".into()]).unwrap();
    assert_eq!(store.erase_all(&other, at(0)).await.unwrap(), 0);
    assert_eq!(past.scan_all(&wide(&acme), at(0)).await.unwrap().len(), 2);
}

/// The index record and the record have one key but for the kind.
fn target(index: &Key, _: &Record) -> Option<Key> {
    Key::new(Kind::Probe, &index.scope(), &index.partition(), &index.sort()).ok()
}

async fn a_sweep_removes_index_records_whose_record_is_gone(site: &Site) {
    let acme = Scope::tenant("acme").unwrap();
    let url = site.url().await;
    let store = open(&url).await.reconciling(Kind::ProbeIndex, target);
    fill(&store, &acme, Kind::Probe, 4, "v").await;
    fill(&store, &acme, Kind::ProbeIndex, 4, "v").await;
    for number in 0..2 {
        assert!(store.delete(key_in(&acme, Kind::Probe, number), at(1)).await.unwrap().is_applied());
    }
    let budget = Budget { kinds: Kind::PROBES.to_vec(), ..Budget::default() };
    let swept = store.sweep_all(at(2), &budget).await.unwrap();
    assert_eq!((swept.removed.get(&Kind::ProbeIndex), swept.total()), (Some(&2), 2));
    for number in 0..4 {
        let index = store.get(&key_in(&acme, Kind::ProbeIndex, number), at(2)).await.unwrap();
        assert_eq!(index.is_some(), number >= 2, "{number}");
    }
    // The next look is a day away, for it reads the whole table.
    assert!(store.delete(key_in(&acme, Kind::Probe, 2), at(3)).await.unwrap().is_applied());
    assert_eq!(store.sweep_all(at(4), &budget).await.unwrap().total(), 0);
    let plain = open(&url).await;
    assert_eq!(plain.sweep_all(at(5), &budget).await.unwrap().total(), 0, "nothing is known of this index");
}

async fn a_walk_goes_on_where_its_last_step_ended(site: &Site) {
    let store = site.open().await;
    let acme = Scope::tenant("acme").unwrap();
    fill(&store, &acme, Kind::Probe, 50, "v").await;
    let budget = Budget { records: 9, ..Budget::everything(&[Kind::Probe]) };
    let (mut steps, mut removed) = (0, 0);
    loop {
        let step = store.sweep(at(101), &budget).await.unwrap();
        assert!(step.total() <= 9, "a step keeps to its budget");
        removed += step.total();
        steps += 1;
        if !step.more {
            break;
        }
    }
    assert_eq!(removed, 50);
    assert!((6..=12).contains(&steps), "{steps} steps");
}

async fn a_sweep_is_gone_on_with_by_another_process(site: &Site) {
    let (proxy, first, second) = site.proxied().await;
    let acme = Scope::tenant("acme").unwrap();
    fill(&second, &acme, Kind::Probe, 50, "v").await;
    let budget = Budget { records: 40, ..Budget::everything(&[Kind::Probe]) };
    let step = second.sweep(at(101), &budget).await.unwrap();
    assert!(step.more && step.total() == 40, "{step:?}");
    // The other knows nothing of it but the time, and reads the place where it ended.
    proxy.take_total();
    let rest = first.sweep(at(101), &Budget::everything(&[Kind::Probe])).await.unwrap();
    assert_eq!((rest.total(), rest.more), (10, false));
    assert_eq!(proxy.requests("GetItem"), 1);
    // A finished walk is forgotten: the same call starts from the beginning.
    fill(&second, &acme, Kind::Probe, 50, "v").await;
    let again = second.sweep_all(at(101), &Budget::everything(&[Kind::Probe])).await.unwrap();
    assert_eq!(again.total(), 50);
}

async fn a_slow_table_is_walked_in_smaller_pages(site: &Site) {
    let (proxy, store, past) = site.proxied().await;
    let acme = Scope::tenant("acme").unwrap();
    fill(&past, &acme, Kind::Probe, 60, "v").await;
    proxy.next_times("Scan", 4, || Act::LoseRequest);
    let swept = store.sweep_all(at(101), &Budget::everything(&[Kind::Probe])).await.unwrap();
    assert_eq!(swept.total(), 60);
    // A segment may lose its second page too, and then asks for an eighth of it.
    let smaller: Vec<_> = proxy.page_limits().into_iter().flatten().collect();
    assert!(
        smaller.len() >= 2 && smaller.iter().all(|limit| [1_000, 125, 15, 10].contains(limit)),
        "{smaller:?}"
    );
}

async fn counts_are_at_hand_from_the_first_step_on_and_whole_for_who_ends_the_walk(site: &Site) {
    const COUNT: u64 = 500;
    let (proxy, first, second) = site.proxied().await;
    let acme = Scope::tenant("acme").unwrap();
    fill(&second, &acme, Kind::Probe, COUNT, "v").await;
    let budget = Budget { kinds: Kind::PROBES.to_vec(), ..Budget::default() };
    assert_eq!(first.stats_at_hand(at(1)).await.unwrap(), None);
    // Pages of a slow table are small, so that one step does not reach the end.
    proxy.next_times("Scan", 16, || Act::LoseRequest);
    let step = first.sweep(at(1), &budget).await.unwrap();
    let seen = first.stats_at_hand(at(1)).await.unwrap().unwrap()[&Kind::Probe].live;
    assert!(step.more && seen > 0 && seen < COUNT, "{step:?}: {seen}");
    let progress = u64::from(step.progress.unwrap());
    assert!(progress > 0 && progress < 100, "{progress} %");
    // The other has not seen what the first one counted.
    let rest = second.sweep(at(1), &budget).await.unwrap();
    assert_eq!((rest.more, rest.progress), (false, Some(100)));
    assert_eq!(second.stats_at_hand(at(1)).await.unwrap().unwrap()[&Kind::Probe].live, COUNT);
}

async fn a_role_that_may_not_describe_the_table_walks_all_the_same(site: &Site) {
    let (proxy, store, past) = site.proxied().await;
    let acme = Scope::tenant("acme").unwrap();
    fill(&past, &acme, Kind::Probe, 10, "v").await;
    proxy.next("DescribeTable", Act::error("AccessDeniedException"));
    let swept = store.sweep_all(at(101), &Budget::everything(&[Kind::Probe])).await.unwrap();
    assert_eq!((swept.total(), proxy.requests("DescribeTable"), proxy.requests("Scan")), (10, 1, 4));
}

fn of_every_kind(scope: &Scope) -> Vec<Prefix> {
    let reach = Reach::Exact(scope.clone());
    Scopes::deletable().chain([Kind::Owner]).map(|kind| Prefix::reach(kind, &reach).unwrap()).collect()
}

async fn a_scope_is_cleared_by_one_walk_for_all_kinds(site: &Site) {
    let (proxy, store, past) = site.proxied().await;
    let (acme, other) = (Scope::tenant("acme").unwrap(), Scope::tenant("other").unwrap());
    let (kinds, prefixes) = ([Kind::Grant, Kind::Approval, Kind::ApiKey], of_every_kind(&acme));
    for kind in kinds {
        fill(&past, &acme, kind, 5, "v").await;
        fill(&past, &other, kind, 5, "v").await;
    }
    proxy.take_total();
    let cleared = store.clear(&prefixes, None, at(0)).await.unwrap();
    assert_eq!(cleared.removed, kinds.map(|kind| (kind, 5)).into());
    assert_eq!((cleared.next, cleared.done), (None, (4, 4)));
    assert_eq!((proxy.requests("Scan"), proxy.requests("PutItem")), (4, 0), "four segments, once");
    let left = past.list(&of_every_kind(&other), None, 100, at(0)).await.unwrap().items;
    assert_eq!(left.len(), 15, "the other's");
    // Records under a tombstone go before it: one that is live needs a second walk.
    for (expires, walks) in [(50, 1), (200, 2)] {
        fill(&past, &acme, Kind::Grant, 5, "v").await;
        let tombstone = key_in(&acme, Kind::Owner, 0);
        assert!(past.put(tombstone.clone(), record("", expires), at(0)).await.unwrap().is_applied());
        proxy.take_total();
        let (mut steps, mut after) = (0, None);
        loop {
            let step = store.clear(&prefixes, after.as_ref(), at(60)).await.unwrap();
            steps += 1;
            after = step.next;
            if steps < walks {
                assert_eq!(step.removed, [(Kind::Grant, 5)].into());
                assert!(past.get(&tombstone, at(60)).await.unwrap().is_some(), "it stands");
            }
            if after.is_none() {
                break;
            }
        }
        assert_eq!((steps, proxy.requests("Scan")), (walks, 4 * walks));
        assert!(past.get(&tombstone, at(0)).await.unwrap().is_none());
    }
    let error = store.clear(&prefixes, Some(&Cursor::from_bytes([9])), at(0)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

async fn a_count_and_a_deletion_are_gone_on_with_by_another_process(site: &Site) {
    // More than the 32 megabytes that a step reads, of one tenant.
    let (proxy, first, second) = site.proxied().await;
    let (acme, other) = (Scope::tenant("acme").unwrap(), Scope::tenant("other").unwrap());
    fill(&second, &acme, Kind::Approval, 140, &"x".repeat(300_000)).await;
    fill(&second, &acme, Kind::Grant, 7, "v").await;
    let prefixes = of_every_kind(&acme);
    let step = second.count(&prefixes, None, at(0)).await.unwrap();
    let next = step.next.expect("a step has an end");
    assert!(step.done.0 < step.done.1, "{:?}", step.done);
    let (mut counted, mut after) = (step.live, Some(next.clone()));
    while let Some(place) = after {
        let step = first.count(&prefixes, Some(&place), at(0)).await.unwrap();
        assert!(proxy.requests("Scan") <= 24, "it goes on, and does not begin again");
        for (kind, live) in step.live {
            *counted.entry(kind).or_default() += live;
        }
        after = step.next;
    }
    assert_eq!(counted, [(Kind::Approval, 140), (Kind::Grant, 7)].into());
    let error = first.count(&prefixes[..1], Some(&next), at(0)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "the place of one count is none of another");
    // The few of another are found among these.
    fill(&second, &other, Kind::Approval, 40, "v").await;
    let prefixes = of_every_kind(&other);
    let step = second.clear(&prefixes, None, at(0)).await.unwrap();
    let mut removed = step.removed.values().sum::<u64>();
    assert!(step.done.0 < step.done.1, "{:?}", step.done);
    let mut after = step.next;
    assert!(after.is_some(), "a step has an end");
    proxy.take_total();
    while let Some(place) = after {
        let step = first.clear(&prefixes, Some(&place), at(0)).await.unwrap();
        assert!(proxy.requests("Scan") <= 24, "it goes on, and does not begin again");
        removed += step.removed.values().sum::<u64>();
        after = step.next;
    }
    assert_eq!(removed, 40);
    assert_eq!(second.list(&of_every_kind(&acme), None, 1, at(0)).await.unwrap().items.len(), 1);
}

async fn what_is_gone_takes_its_index_records_with_it(site: &Site) {
    let url = site.url().await;
    let store = ebbtide::open_engine(&url).await.unwrap();
    let clock = ManualClock::at(at(0));
    let stores = Stores::builder_for_tests(store.clone()).clock(clock.clone()).build();
    let acme = Scope::tenant("acme").unwrap();
    let grants = stores.grants(&acme);
    let [kept, gone] = ["alice", "bob"].map(|subject| GrantRequest::new(subject, "app"));
    grants.issue(kept).await.unwrap();
    let gone = grants.issue(gone).await.unwrap();
    let alone = stores.access_tokens(&acme);
    let issued = alone.issue(AccessRequest::alone("carol", "app")).await.unwrap();
    assert!(matches!(issued, IssueOutcome::Issued(_)));
    let index = Prefix::kind_wide(Kind::GrantIndex);
    assert_eq!(store.scan_all(&index, at(0)).await.unwrap().len(), 6);
    // As the engine's TTL does it: the record goes, and nobody tells the index.
    let id = gone.grant_id;
    let key = Key::new(Kind::Grant, &acme, &[id.as_bytes().into()], &[]).unwrap();
    assert!(store.delete(key, at(1)).await.unwrap().is_applied());
    stores.sessions(&acme).create(SessionRequest::default().subject("dave")).await.unwrap();
    let (session, _) = store.scan_all(&Prefix::kind_wide(Kind::Session), at(0)).await.unwrap().remove(0);
    assert!(store.delete(session, at(1)).await.unwrap().is_applied());
    let swept = store.sweep_all(at(2), &Budget::default()).await.unwrap();
    assert_eq!(swept.removed, [(Kind::GrantIndex, 2), (Kind::SessionIndex, 1)].into());
    assert_eq!(store.scan_all(&index, at(2)).await.unwrap().len(), 4, "what is there stays listed");
}
