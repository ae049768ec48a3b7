//! Requests of each operation.

use ebbtide::{Backend, BackendExt, Batch, Commit, Prefix, Scope, Write};

use crate::site::{Site, at, key, record};

crate::trials! {
    opening_sends_nothing
    a_foreground_operation_is_one_request
    a_rotation_is_two_requests
}

async fn opening_sends_nothing(site: &Site) {
    let (proxy, _through, _) = site.proxied().await;
    assert_eq!(proxy.take_total(), 0);
}

async fn a_foreground_operation_is_one_request(site: &Site) {
    let (proxy, store, _) = site.proxied().await;
    let (first, second) = (record("v", 100), record("w", 100));

    assert!(store.insert(key("a"), first.clone(), at(0)).await.unwrap().is_applied());
    assert_eq!((proxy.requests("PutItem"), proxy.take_total()), (1, 1), "insert");

    assert!(!store.insert(key("a"), record("x", 100), at(0)).await.unwrap().is_applied());
    assert_eq!((proxy.requests("PutItem"), proxy.take_total()), (1, 1), "a refused insert");

    assert_eq!(store.get(&key("a"), at(0)).await.unwrap(), Some(first.clone()));
    assert_eq!((proxy.requests("GetItem"), proxy.take_total()), (1, 1), "get");

    assert!(store.replace(key("a"), first.version, second.clone(), at(0)).await.unwrap().is_applied());
    assert_eq!((proxy.requests("PutItem"), proxy.take_total()), (1, 1), "replace");

    let check = Write::Check { key: key("a"), expected: second.version };
    assert!(store.write(check, at(0)).await.unwrap().is_applied());
    assert_eq!((proxy.requests("GetItem"), proxy.take_total()), (1, 1), "check");

    assert!(store.write(Write::Absent { key: key("b") }, at(0)).await.unwrap().is_applied());
    assert_eq!((proxy.requests("GetItem"), proxy.take_total()), (1, 1), "absent");

    let partition = Prefix::partition(key("a").kind(), &Scope::Global, &["a".into()], &[]).unwrap();
    assert_eq!(store.scan(&partition, None, 10, at(0)).await.unwrap().items.len(), 1);
    assert_eq!((proxy.requests("Query"), proxy.take_total()), (1, 1), "a page of a partition");

    assert_eq!(store.take(&key("a"), at(0)).await.unwrap(), Some(second));
    assert_eq!((proxy.requests("DeleteItem"), proxy.take_total()), (1, 1), "take");

    assert_eq!(store.take(&key("a"), at(0)).await.unwrap(), None);
    assert_eq!((proxy.requests("DeleteItem"), proxy.take_total()), (1, 1), "a take of nothing");

    let writes = (0..100).map(|n| Write::Insert { key: key(&n.to_string()), record: record("v", 100) });
    let batch = Batch::new(writes.collect()).unwrap();
    assert_eq!(store.commit(batch, at(0)).await.unwrap(), Commit::Applied);
    assert_eq!((proxy.requests("TransactWriteItems"), proxy.take_total()), (1, 1), "a hundred inserts");
}

async fn a_rotation_is_two_requests(site: &Site) {
    let (proxy, store, past) = site.proxied().await;
    let grant = record("generation 1", 100);
    assert!(past.insert(key("grant"), grant, at(0)).await.unwrap().is_applied());
    let present = store.get(&key("grant"), at(1)).await.unwrap().unwrap();
    let advanced = record("generation 2", 200);
    assert!(store.replace(key("grant"), present.version, advanced, at(1)).await.unwrap().is_applied());
    assert_eq!(proxy.take_total(), 2);
}
