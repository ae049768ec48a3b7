//! Batches: rows that are written once, and attempts that are sent again.

use std::collections::BTreeMap;
use std::time::Duration;

use ebbtide::stores::codes::{CodeRequest, Redeem, RedeemOutcome};
use ebbtide::{Batch, Commit, Scope, Stores, Write};

use crate::service::{
    at, cases, connect, key, migrated, open, open_at, put, record, schema_of, server, within,
};

cases! {
    records_of_a_batch_are_inserted_and_not_updated
    a_batch_that_is_sent_again_removes_nothing_of_the_first
    values_too_large_for_the_lock_are_stored_all_the_same
    a_batch_overwrites_what_has_expired
}

async fn records_of_a_batch_are_inserted_and_not_updated() {
    const CODES: i64 = 20;
    let url = migrated().await;
    let stores = Stores::for_tests(open_at(&url).await);
    let codes = stores.codes(&Scope::Global);
    for number in 0..CODES {
        let request = CodeRequest::new("app", format!("user {number}"), "https://app.example/cb");
        let code = codes.issue(request).await.unwrap().code;
        let redeem = Redeem::new(code, "app").redirect_uri("https://app.example/cb").with_grant();
        assert!(matches!(codes.redeem(redeem).await.unwrap(), RedeemOutcome::Redeemed(_)));
    }
    // Connections tell their counts when they end.
    drop((codes, stores));
    let client = connect(&server()).await;
    let counts = "SELECT relname::text, n_tup_ins, n_tup_upd, n_tup_del FROM pg_stat_user_tables \
                  WHERE schemaname = $1 AND n_tup_ins > 0";
    let schema = schema_of(&url);
    let told = async || {
        let rows = client.query(counts, &[&schema]).await.unwrap();
        let counts = rows.iter().map(|row| (row.get(0), (row.get(1), row.get(2), row.get(3))));
        counts.collect::<BTreeMap<String, (i64, i64, i64)>>()
    };
    within(60, async {
        loop {
            let told = told().await;
            let has = |table: &str, enough: fn(&(i64, i64, i64)) -> bool| told.get(table).is_some_and(enough);
            if has("codes", |counts| counts.1 >= CODES) && has("grants", |counts| counts.0 >= CODES) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    let told = told().await;
    println!("inserts, updates, deletes: {told:?}");
    assert_eq!(told["codes"], (CODES, CODES, 0), "issued, and marked as redeemed");
    assert_eq!(told["grants"], (CODES, 0, 0));
    for (table, counts) in told.iter().filter(|(table, _)| *table != "codes" && *table != "meta") {
        assert_eq!((counts.1, counts.2), (0, 0), "{table}: {told:?}");
    }
}

/// The answer to the first attempt was lost, and the caller sends the same versions again.
async fn a_batch_that_is_sent_again_removes_nothing_of_the_first() {
    let store = open().await;
    let before = record("before", 100);
    put(&store, key("b"), before.clone()).await;
    let (inserted, replaced) = (record("inserted", 100), record("after", 100));
    let batch = |first: &str, second: &str| {
        let insert = Write::Insert { key: key(first), record: inserted.clone() };
        let replace = Write::Replace { key: key(second), expected: before.version, record: replaced.clone() };
        Batch::new(if first < second { vec![insert, replace] } else { vec![replace, insert] }).unwrap()
    };
    assert!(store.commit(batch("a", "b"), at(0)).await.unwrap().is_applied());
    assert_eq!(store.commit(batch("a", "b"), at(1)).await.unwrap(), Commit::Refused { index: 0 });
    assert_eq!(store.get(&key("a"), at(1)).await.unwrap(), Some(inserted.clone()));
    // With the refusal before the insert too.
    assert_eq!(store.commit(batch("c", "b"), at(1)).await.unwrap(), Commit::Refused { index: 0 });
    assert_eq!(store.get(&key("c"), at(1)).await.unwrap(), None);
    assert_eq!(store.get(&key("b"), at(1)).await.unwrap(), Some(replaced.clone()));
}

async fn values_too_large_for_the_lock_are_stored_all_the_same() {
    let store = open().await;
    let records: Vec<_> =
        [4_096, 4_097, 100_000].iter().map(|&length| record(&"x".repeat(length), 100)).collect();
    let named = || records.iter().enumerate().map(|(number, record)| (key(&number.to_string()), record));
    let inserts = named().map(|(key, record)| Write::Insert { key, record: record.clone() });
    let refused = inserts.clone().chain([Write::Check { key: key("none"), expected: records[0].version }]);
    let commit = store.commit(Batch::new(refused.collect()).unwrap(), at(0)).await.unwrap();
    assert_eq!(commit, Commit::Refused { index: 3 });
    for (key, _) in named() {
        assert_eq!(store.get(&key, at(0)).await.unwrap(), None);
    }
    assert!(store.commit(Batch::new(inserts.collect()).unwrap(), at(0)).await.unwrap().is_applied());
    for (key, record) in named() {
        assert_eq!(store.get(&key, at(1)).await.unwrap().as_ref(), Some(record));
    }
}

async fn a_batch_overwrites_what_has_expired() {
    let store = open().await;
    put(&store, key("a"), record("old", 10)).await;
    let (first, second) = (record("new", 100), record("other", 100));
    let batch = vec![
        Write::Insert { key: key("a"), record: first.clone() },
        Write::Put { key: key("b"), record: second.clone() },
        Write::Delete { key: key("c") },
    ];
    assert!(store.commit(Batch::new(batch).unwrap(), at(10)).await.unwrap().is_applied());
    assert_eq!(store.get(&key("a"), at(10)).await.unwrap(), Some(first));
    assert_eq!(store.get(&key("b"), at(10)).await.unwrap(), Some(second));
    assert_eq!(store.get(&key("c"), at(10)).await.unwrap(), None);
}
