//! Several hosts: one that is silent costs a bound, and the one that answered last is tried first.

use std::time::Duration;

use ebbtide::engines::postgres;
use ebbtide::{Backend as _, BackendExt as _, Stopwatch};
use tokio::net::{TcpListener, TcpStream};

use crate::proxy::Proxy;
use crate::service::{at, cases, fresh, key, open_at, put, record, within};

cases! {
    a_silent_first_host_costs_one_handshake
    a_refused_first_host_costs_nothing
    a_host_that_falls_silent_is_left_for_the_next
    hosts_that_are_all_silent_are_unavailable_within_their_bounds
}

/// A host that accepts connections and says nothing.
async fn silent() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let mut kept: Vec<TcpStream> = Vec::new();
        while let Ok((client, _)) = listener.accept().await {
            kept.push(client);
        }
    });
    address
}

/// The URL with another host in front.
fn behind(host: &str, url: &str) -> String {
    url.replacen('@', &format!("@{host},"), 1)
}

async fn store() -> String {
    let url = fresh().await;
    postgres::migrate(&url).await.unwrap();
    url
}

async fn a_silent_first_host_costs_one_handshake() {
    let url = store().await;
    let began = Stopwatch::start();
    let store = open_at(&format!("{}&connect_timeout=1", behind(&silent().await, &url))).await;
    put(&store, key("a"), record("v", 10)).await;
    let took = began.elapsed();
    assert!(took >= Duration::from_secs(1), "{took:?}");
    assert!(
        took < Duration::from_millis(1_900),
        "the second connection asks the host that answered: {took:?}"
    );
    let again = Stopwatch::start();
    assert!(store.get(&key("a"), at(0)).await.unwrap().is_some());
    assert!(again.elapsed() < Duration::from_millis(500), "{:?}", again.elapsed());
}

async fn a_refused_first_host_costs_nothing() {
    let url = store().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed = listener.local_addr().unwrap().to_string();
    drop(listener);
    let began = Stopwatch::start();
    let store = open_at(&behind(&closed, &url)).await;
    put(&store, key("a"), record("v", 10)).await;
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
}

async fn a_host_that_falls_silent_is_left_for_the_next() {
    let url = store().await;
    let proxy = Proxy::start(&url).await;
    let first = proxy.url.split_once('@').unwrap().1.split('/').next().unwrap().to_owned();
    let options = "&connect_timeout=1&statement_timeout_ms=500&lock_timeout_ms=500";
    let store = open_at(&format!("{}{options}", behind(&first, &url))).await;
    put(&store, key("a"), record("v", 10)).await;
    assert!(store.get(&key("a"), at(0)).await.unwrap().is_some());
    proxy.hang(true);
    assert!(within(10, store.get(&key("a"), at(0))).await.is_err(), "the answer does not come");
    let began = Stopwatch::start();
    for name in ["b", "c", "d", "e"] {
        assert!(store.insert(key(name), record("v", 10), at(0)).await.unwrap().is_applied());
        assert!(store.get(&key("a"), at(0)).await.unwrap().is_some());
    }
    assert!(
        began.elapsed() < Duration::from_secs(4),
        "one handshake, not one wait for each: {:?}",
        began.elapsed()
    );
}

async fn hosts_that_are_all_silent_are_unavailable_within_their_bounds() {
    let url = format!("postgres://u@{},{}/d?connect_timeout=1", silent().await, silent().await);
    let began = Stopwatch::start();
    let error = ebbtide::open_engine(&url).await.err().unwrap();
    assert_eq!(error.kind(), ebbtide::ErrorKind::Unavailable);
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
}
