//! Throttling and conflicts: waited out for a while, then no answer. No emulator produces them, so they are made up.

use ebbtide::{Backend, BackendExt, Batch, Commit, ErrorKind, Write};

use crate::proxy::Act;
use crate::site::{Site, at, key, record};

crate::trials! {
    throttling_is_waited_out
    throttling_that_lasts_is_no_answer
    a_throttled_take_is_repeated
    a_conflict_of_transactions_is_waited_out
    a_conflict_of_transactions_that_lasts_is_no_answer
    a_throttled_transaction_is_repeated
    a_conflict_before_a_refusal_is_not_a_refusal
    a_refusal_before_a_conflict_is_a_refusal
    a_transaction_in_progress_is_waited_for
    an_error_names_no_key_and_no_value
}

/// Errors of an engine that is overloaded.
const THROTTLES: [&str; 4] = [
    "ProvisionedThroughputExceededException",
    "ThrottlingException",
    "RequestLimitExceeded",
    "TransactionConflictException",
];

const ATTEMPTS: usize = 10;

fn two_inserts() -> Batch {
    let insert = |name: &str| Write::Insert { key: key(name), record: record("v", 100) };
    Batch::new(vec![insert("a"), insert("b")]).unwrap()
}

async fn throttling_is_waited_out(site: &Site) {
    let (proxy, store, _) = site.proxied().await;
    for code in THROTTLES {
        for operation in ["PutItem", "GetItem"] {
            proxy.next_times(operation, 2, || Act::error(code));
        }
        let record = record("v", 100);
        assert!(store.insert(key(code), record.clone(), at(0)).await.unwrap().is_applied(), "{code}");
        assert_eq!(proxy.requests("PutItem"), 3, "{code}");
        assert_eq!(store.get(&key(code), at(0)).await.unwrap(), Some(record), "{code}");
        assert_eq!(proxy.take_total(), 6, "{code}");
    }
}

async fn throttling_that_lasts_is_no_answer(site: &Site) {
    let (proxy, store, past) = site.proxied().await;
    for operation in ["PutItem", "GetItem", "DeleteItem", "Query"] {
        proxy.next_times(operation, 40, || Act::error("ThrottlingException"));
    }
    let errors = [
        store.insert(key("a"), record("v", 100), at(0)).await.unwrap_err(),
        store.get(&key("a"), at(0)).await.unwrap_err(),
        store.take(&key("a"), at(0)).await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }
    for operation in ["PutItem", "GetItem", "DeleteItem"] {
        assert_eq!(proxy.requests(operation), ATTEMPTS, "{operation}");
    }
    assert_eq!(past.get(&key("a"), at(0)).await.unwrap(), None);
}

async fn a_throttled_take_is_repeated(site: &Site) {
    let (proxy, store, _) = site.proxied().await;
    let record = record("v", 100);
    assert!(store.insert(key("a"), record.clone(), at(0)).await.unwrap().is_applied());
    proxy.next_times("DeleteItem", 2, || Act::error("ThrottlingException"));
    assert_eq!(store.take(&key("a"), at(0)).await.unwrap(), Some(record));
    assert_eq!(proxy.requests("DeleteItem"), 3);
}

async fn a_conflict_of_transactions_is_waited_out(site: &Site) {
    let (proxy, store, _) = site.proxied().await;
    proxy.next_times("TransactWriteItems", 3, || Act::cancelled(&["None", "TransactionConflict"]));
    assert_eq!(store.commit(two_inserts(), at(0)).await.unwrap(), Commit::Applied);
    assert_eq!(proxy.requests("TransactWriteItems"), 4);
}

async fn a_conflict_of_transactions_that_lasts_is_no_answer(site: &Site) {
    let (proxy, store, past) = site.proxied().await;
    let conflict = || Act::cancelled(&["TransactionConflict", "None"]);
    proxy.next_times("TransactWriteItems", 40, conflict);
    let error = store.commit(two_inserts(), at(0)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(proxy.requests("TransactWriteItems"), ATTEMPTS);
    assert_eq!(past.get(&key("a"), at(0)).await.unwrap(), None);
}

async fn a_throttled_transaction_is_repeated(site: &Site) {
    let (proxy, store, _) = site.proxied().await;
    for code in ["ThrottlingError", "ProvisionedThroughputExceeded"] {
        proxy.next("TransactWriteItems", Act::cancelled(&["None", code]));
    }
    proxy.next("TransactWriteItems", Act::error("ThrottlingException"));
    assert_eq!(store.commit(two_inserts(), at(0)).await.unwrap(), Commit::Applied);
    assert_eq!(proxy.requests("TransactWriteItems"), 4);
}

async fn a_conflict_before_a_refusal_is_not_a_refusal(site: &Site) {
    // The write in conflict was not judged, and may be the first that is refused.
    let (proxy, store, past) = site.proxied().await;
    assert!(past.insert(key("a"), record("other", 100), at(0)).await.unwrap().is_applied());
    let reasons = ["TransactionConflict", "ConditionalCheckFailed"];
    proxy.next("TransactWriteItems", Act::cancelled(&reasons));
    assert_eq!(store.commit(two_inserts(), at(0)).await.unwrap(), Commit::Refused { index: 0 });
    assert_eq!(proxy.requests("TransactWriteItems"), 2);
}

async fn a_refusal_before_a_conflict_is_a_refusal(site: &Site) {
    let (proxy, store, _) = site.proxied().await;
    let reasons = ["ConditionalCheckFailed", "TransactionConflict"];
    proxy.next("TransactWriteItems", Act::cancelled(&reasons));
    assert_eq!(store.commit(two_inserts(), at(0)).await.unwrap(), Commit::Refused { index: 0 });
    assert_eq!(proxy.requests("TransactWriteItems"), 1);
}

async fn a_transaction_in_progress_is_waited_for(site: &Site) {
    let (proxy, store, _) = site.proxied().await;
    proxy.next("TransactWriteItems", Act::LoseAnswer);
    proxy.next_times("TransactWriteItems", 2, || Act::error("TransactionInProgressException"));
    assert_eq!(store.commit(two_inserts(), at(0)).await.unwrap(), Commit::Applied);
    assert_eq!(proxy.requests("TransactWriteItems"), 4);
}

async fn an_error_names_no_key_and_no_value(site: &Site) {
    let (proxy, store, _) = site.proxied().await;
    let body = r#"{"__type":"x#ValidationException","message":"hunter2 is not valid"}"#;
    proxy.next("PutItem", Act::Fail(400, body.to_owned()));
    let error = store.insert(key("hunter2"), record("hunter2", 100), at(0)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    proxy.next(
        "PutItem",
        Act::Fail(500, r#"{"__type":"x#InternalServerError","message":"hunter2"}"#.to_owned()),
    );
    let failed = store.insert(key("hunter2"), record("hunter2", 100), at(0)).await.unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Unavailable);
    for error in [error, failed] {
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
    }
}
