//! Answers that are lost after the write, and requests that are lost before it.

use std::sync::Arc;

use ebbtide::engines::dynamodb::DynamoDb;
use ebbtide::model::alteration::decode_count;
use ebbtide::{
    Add, Alteration, Backend, BackendExt, Batch, Commit, ErrorKind, Key, Record, SystemRng, Version, Write,
};

use crate::proxy::Act;
use crate::site::{Site, at, key, record};

crate::trials! {
    an_insert_whose_answer_is_lost_is_applied
    a_put_whose_answer_is_lost_is_applied
    a_replace_whose_answer_is_lost_is_applied
    a_replace_whose_request_is_lost_is_applied
    a_refused_insert_whose_answer_is_lost_is_not_applied
    an_insert_that_another_has_taken_does_not_come_back
    a_replace_that_another_has_followed_is_not_answered
    a_remove_whose_request_is_lost_is_applied
    a_remove_whose_answer_is_lost_is_not_answered
    a_delete_whose_answer_is_lost_is_not_repeated
    a_take_whose_answer_is_lost_is_had_by_nobody
    a_take_whose_request_is_lost_is_not_repeated
    an_addition_whose_answer_is_lost_is_counted_once_and_not_answered
    an_addition_whose_request_is_lost_is_not_counted
    a_transaction_whose_answer_is_lost_is_applied
    a_transaction_of_removes_whose_answer_is_lost_is_applied
    a_transaction_whose_request_is_lost_is_applied
    a_refused_transaction_whose_answer_is_lost_is_refused
    an_endpoint_that_never_answers_is_unavailable
    one_insert_wins_though_answers_are_lost
}

async fn stored(store: &DynamoDb, key: &Key, value: &str) -> Record {
    let record = record(value, 100);
    assert!(store.put(key.clone(), record.clone(), at(0)).await.unwrap().is_applied());
    record
}

async fn an_insert_whose_answer_is_lost_is_applied(site: &Site) {
    let (proxy, store, past) = site.proxied().await;
    proxy.next("PutItem", Act::LoseAnswer);
    let record = record("v", 100);
    assert_eq!(store.insert(key("a"), record.clone(), at(0)).await.unwrap(), Commit::Applied);
    assert_eq!(proxy.requests("PutItem"), 1, "what could happen twice is not sent twice");
    assert_eq!(past.get(&key("a"), at(0)).await.unwrap(), Some(record));
}

async fn a_put_whose_answer_is_lost_is_applied(site: &Site) {
    let (proxy, store, past) = site.proxied().await;
    stored(&past, &key("a"), "old").await;
    proxy.next("PutItem", Act::LoseAnswer);
    let record = record("v", 100);
    assert_eq!(store.put(key("a"), record.clone(), at(0)).await.unwrap(), Commit::Applied);
    assert_eq!(past.get(&key("a"), at(0)).await.unwrap(), Some(record));
}

async fn a_replace_whose_answer_is_lost_is_applied(site: &Site) {
    let (proxy, store, past) = site.proxied().await;
    let old = stored(&past, &key("a"), "old").await;
    proxy.next_times("PutItem", 2, || Act::LoseAnswer);
    let new = record("new", 100);
    assert_eq!(store.replace(key("a"), old.version, new.clone(), at(0)).await.unwrap(), Commit::Applied);
    assert_eq!(proxy.requests("PutItem"), 3);
    assert_eq!(past.get(&key("a"), at(0)).await.unwrap(), Some(new));
}

async fn a_replace_whose_request_is_lost_is_applied(site: &Site) {
    let (proxy, store, past) = site.proxied().await;
    let old = stored(&past, &key("a"), "old").await;
    proxy.next("PutItem", Act::LoseRequest);
    let new = record("new", 100);
    assert_eq!(store.replace(key("a"), old.version, new.clone(), at(0)).await.unwrap(), Commit::Applied);
    assert_eq!(past.get(&key("a"), at(0)).await.unwrap(), Some(new));
}

async fn a_refused_insert_whose_answer_is_lost_is_not_applied(site: &Site) {
    let (proxy, store, past) = site.proxied().await;
    let other = stored(&past, &key("a"), "other").await;
    proxy.next("PutItem", Act::LoseAnswer);
    let answer = store.insert(key("a"), record("v", 100), at(0)).await;
    assert_eq!(answer.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(past.get(&key("a"), at(0)).await.unwrap(), Some(other));
}

async fn an_insert_that_another_has_taken_does_not_come_back(site: &Site) {
    let (proxy, store, past) = site.proxied().await;
    let past = Arc::new(past);
    let (taker, record) = (Arc::clone(&past), record("code", 100));
    let expected = record.clone();
    proxy.next(
        "PutItem",
        Act::LoseAnswerAfter(Box::new(|| {
            Box::pin(async move {
                assert_eq!(taker.take(&key("a"), at(0)).await.unwrap(), Some(expected));
            })
        })),
    );
    let answer = store.insert(key("a"), record, at(0)).await;
    assert_eq!(answer.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(past.get(&key("a"), at(0)).await.unwrap(), None, "what was consumed was written again");
}

async fn a_replace_that_another_has_followed_is_not_answered(site: &Site) {
    let (proxy, store, past) = site.proxied().await;
    let past = Arc::new(past);
    let (old, ours, theirs) =
        (stored(&past, &key("a"), "old").await, record("ours", 100), record("theirs", 100));
    let (follower, version, following) = (Arc::clone(&past), ours.version, theirs.clone());
    proxy.next(
        "PutItem",
        Act::LoseAnswerAfter(Box::new(move || {
            Box::pin(async move {
                assert!(follower.replace(key("a"), version, following, at(0)).await.unwrap().is_applied());
            })
        })),
    );
    let answer = store.replace(key("a"), old.version, ours, at(0)).await;
    assert_eq!(
        answer.unwrap_err().kind(),
        ErrorKind::Unavailable,
        "neither applied nor refused can be known"
    );
    assert_eq!(past.get(&key("a"), at(0)).await.unwrap(), Some(theirs));
}

async fn a_remove_whose_request_is_lost_is_applied(site: &Site) {
    let (proxy, store, past) = site.proxied().await;
    let old = stored(&past, &key("a"), "old").await;
    proxy.next("DeleteItem", Act::LoseRequest);
    assert_eq!(store.remove(key("a"), old.version, at(0)).await.unwrap(), Commit::Applied);
    assert_eq!(past.get(&key("a"), at(0)).await.unwrap(), None);
}

async fn a_remove_whose_answer_is_lost_is_not_answered(site: &Site) {
    let (proxy, store, past) = site.proxied().await;
    let old = stored(&past, &key("a"), "old").await;
    proxy.next("DeleteItem", Act::LoseAnswer);
    let answer = store.remove(key("a"), old.version, at(0)).await;
    assert_eq!(answer.unwrap_err().kind(), ErrorKind::Unavailable, "another may have removed it");
    assert_eq!(past.get(&key("a"), at(0)).await.unwrap(), None);
}

async fn a_delete_whose_answer_is_lost_is_not_repeated(site: &Site) {
    let (proxy, store, past) = site.proxied().await;
    stored(&past, &key("a"), "old").await;
    proxy.next("DeleteItem", Act::LoseAnswer);
    assert_eq!(store.delete(key("a"), at(0)).await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(proxy.requests("DeleteItem"), 1, "a second could remove what came after the first");
}

async fn a_take_whose_answer_is_lost_is_had_by_nobody(site: &Site) {
    let (proxy, store, past) = site.proxied().await;
    stored(&past, &key("a"), "code").await;
    proxy.next("DeleteItem", Act::LoseAnswer);
    assert_eq!(store.take(&key("a"), at(0)).await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(proxy.requests("DeleteItem"), 1, "a second take could find what came after the first");
    assert_eq!(store.take(&key("a"), at(0)).await.unwrap(), None);
}

async fn a_take_whose_request_is_lost_is_not_repeated(site: &Site) {
    let (proxy, store, past) = site.proxied().await;
    let record = stored(&past, &key("a"), "code").await;
    proxy.next("DeleteItem", Act::LoseRequest);
    assert_eq!(store.take(&key("a"), at(0)).await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(store.take(&key("a"), at(0)).await.unwrap(), Some(record), "it is still to be had");
}

fn addition() -> Alteration {
    let version = Version::mint(&SystemRng);
    Alteration::Add(Add { by: 1, limit: 10, expires_if_new: at(100), version })
}

async fn count(store: &DynamoDb, key: &Key) -> Option<i64> {
    let counter = store.get(key, at(0)).await.unwrap();
    counter.map(|counter| decode_count(&counter.value).unwrap())
}

async fn an_addition_whose_answer_is_lost_is_counted_once_and_not_answered(site: &Site) {
    let (proxy, store, past) = site.proxied().await;
    proxy.next("UpdateItem", Act::LoseAnswer);
    let answer = store.alter(&key("n"), &addition(), at(0)).await;
    assert_eq!(answer.unwrap_err().kind(), ErrorKind::Unavailable, "it cannot be known again");
    assert_eq!(proxy.requests("UpdateItem"), 1, "a second would count twice");
    assert_eq!(count(&past, &key("n")).await, Some(1));
    assert!(store.alter(&key("n"), &addition(), at(0)).await.unwrap().applied);
    assert_eq!(count(&past, &key("n")).await, Some(2), "the caller's own repetition is another addition");
}

async fn an_addition_whose_request_is_lost_is_not_counted(site: &Site) {
    let (proxy, store, past) = site.proxied().await;
    proxy.next("UpdateItem", Act::LoseRequest);
    let answer = store.alter(&key("n"), &addition(), at(0)).await;
    assert_eq!(answer.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!((proxy.requests("UpdateItem"), count(&past, &key("n")).await), (1, None));
}

fn transaction(old: &Record) -> Batch {
    let writes = vec![
        Write::Insert { key: key("new"), record: record("v", 100) },
        Write::Remove { key: key("old"), expected: old.version },
        Write::Absent { key: key("none") },
    ];
    Batch::new(writes).unwrap()
}

async fn a_transaction_whose_answer_is_lost_is_applied(site: &Site) {
    let (proxy, store, past) = site.proxied().await;
    let old = stored(&past, &key("old"), "old").await;
    proxy.next_times("TransactWriteItems", 2, || Act::LoseAnswer);
    assert_eq!(store.commit(transaction(&old), at(0)).await.unwrap(), Commit::Applied);
    assert_eq!(proxy.requests("TransactWriteItems"), 3);
    assert!(past.get(&key("new"), at(0)).await.unwrap().is_some());
    assert_eq!(past.get(&key("old"), at(0)).await.unwrap(), None);
}

async fn a_transaction_of_removes_whose_answer_is_lost_is_applied(site: &Site) {
    // No record of ours stands anywhere by which to know it again: the token does it.
    let (proxy, store, past) = site.proxied().await;
    let mut removes = Vec::new();
    for name in ["a", "b"] {
        let expected = stored(&past, &key(name), "old").await.version;
        removes.push(Write::Remove { key: key(name), expected });
    }
    proxy.next("TransactWriteItems", Act::LoseAnswer);
    assert_eq!(store.commit(Batch::new(removes).unwrap(), at(0)).await.unwrap(), Commit::Applied);
    assert_eq!(proxy.requests("TransactWriteItems"), 2);
}

async fn a_transaction_whose_request_is_lost_is_applied(site: &Site) {
    let (proxy, store, past) = site.proxied().await;
    let old = stored(&past, &key("old"), "old").await;
    proxy.next("TransactWriteItems", Act::LoseRequest);
    assert_eq!(store.commit(transaction(&old), at(0)).await.unwrap(), Commit::Applied);
    assert_eq!(past.get(&key("old"), at(0)).await.unwrap(), None);
}

async fn a_refused_transaction_whose_answer_is_lost_is_refused(site: &Site) {
    let (proxy, store, past) = site.proxied().await;
    let old = stored(&past, &key("old"), "old").await;
    stored(&past, &key("none"), "somebody's").await;
    proxy.next("TransactWriteItems", Act::LoseAnswer);
    assert_eq!(store.commit(transaction(&old), at(0)).await.unwrap(), Commit::Refused { index: 2 });
    assert_eq!(past.get(&key("new"), at(0)).await.unwrap(), None);
    assert_eq!(past.get(&key("old"), at(0)).await.unwrap(), Some(old));
}

async fn an_endpoint_that_never_answers_is_unavailable(site: &Site) {
    let (proxy, store, _) = site.proxied().await;
    for operation in ["GetItem", "PutItem", "TransactWriteItems"] {
        proxy.next_times(operation, 40, || Act::LoseRequest);
    }
    let errors = [
        store.get(&key("a"), at(0)).await.unwrap_err(),
        store.insert(key("a"), record("v", 100), at(0)).await.unwrap_err(),
        store.commit(transaction(&record("v", 100)), at(0)).await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }
    assert_eq!(proxy.requests("TransactWriteItems"), 3, "the repetitions have an end");
}

async fn one_insert_wins_though_answers_are_lost(site: &Site) {
    let (proxy, store, _) = site.proxied().await;
    let store = Arc::new(store);
    proxy.next_times("PutItem", 8, || Act::LoseAnswer);
    let tasks: Vec<_> = (0..24)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.insert(key("a"), record("v", 100), at(0)).await })
        })
        .collect();
    let (mut applied, mut unanswered) = (0, 0);
    for task in tasks {
        match task.await.unwrap() {
            Ok(commit) => applied += usize::from(commit.is_applied()),
            Err(_) => unanswered += 1,
        }
    }
    assert_eq!(applied, 1, "the winner is told, lost answer or not");
    assert!(unanswered <= 8, "who was refused and not told knows nothing");
}
