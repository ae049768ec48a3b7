//! Behind `PgBouncer` in transaction mode. `EBBTIDE_TEST_PGBOUNCER` names it; `make test-all` starts one.

use std::sync::Arc;

use ebbtide::engines::postgres;
use ebbtide::{Admin, Backend as _, BackendExt as _};
use tokio::task::JoinSet;

use crate::service::{at, cases, connect, fresh_on, key, open_at, put, record};

cases! {
    nodes_share_the_connections_of_a_pooler
    no_setting_stays_on_a_shared_connection
}

pub(crate) fn is_there() -> bool {
    std::env::var_os("EBBTIDE_TEST_PGBOUNCER").is_some()
}

fn pooler() -> String {
    std::env::var("EBBTIDE_TEST_PGBOUNCER").expect("EBBTIDE_TEST_PGBOUNCER is the pooler's URL")
}

async fn migrated() -> String {
    let url = fresh_on(&pooler()).await;
    postgres::migrate(&url).await.unwrap();
    url
}

/// A migrated store behind the pooler.
pub(crate) async fn open() -> Arc<dyn Admin> {
    open_at(&migrated().await).await
}

async fn nodes_share_the_connections_of_a_pooler() {
    let url = migrated().await;
    let mut nodes = Vec::new();
    for _ in 0..4 {
        nodes.push(open_at(&url).await);
    }
    let mut calls = JoinSet::new();
    for number in 0..40 {
        for node in &nodes {
            let node = Arc::clone(node);
            calls.spawn(async move {
                let name = number.to_string();
                let won = node.insert(key(&name), record("v", 1_000), at(0)).await.unwrap().is_applied();
                assert!(node.get(&key(&name), at(0)).await.unwrap().is_some());
                let put = [format!("{name}-a"), format!("{name}-b")]
                    .map(|name| ebbtide::Write::Put { key: key(&name), record: record("v", 1_000) });
                assert!(
                    node.commit(ebbtide::Batch::new(put.into()).unwrap(), at(0)).await.unwrap().is_applied()
                );
                won
            });
        }
    }
    let won = calls.join_all().await.into_iter().filter(|won| *won).count();
    assert_eq!(won, 40, "of each key, one");
}

async fn no_setting_stays_on_a_shared_connection() {
    let store = open().await;
    for number in 0..50 {
        put(&store, key(&number.to_string()), record("v", 10)).await;
    }
    let other = connect(&pooler()).await;
    for _ in 0..20 {
        for (setting, value) in [("lock_timeout", "0"), ("statement_timeout", "0"), ("enable_seqscan", "on")]
        {
            let rows = other.simple_query(&format!("SHOW {setting}")).await.unwrap();
            let found = rows.iter().find_map(|message| match message {
                tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0),
                _ => None,
            });
            assert_eq!(found, Some(value), "{setting}");
        }
    }
}
