//! A rolling restart of two nodes behind a proxy that asks for readiness: no request fails.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/proxy.rs"]
mod proxy;
#[path = "support/server.rs"]
mod server;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use proxy::Proxy;
use server::{Client, Server, proof, until};

const KEY: &str = "ebk_the-root-key-of-both-nodes";

/// Start of a node. The nodes have stores of their own: the proxy and the shutdown are tested, not the engine.
fn node() -> (tempfile::TempDir, Server) {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_with(
        folder.path(),
        &["--drain-delay", "3s", "--store", "memory:"],
        &[("EBBTIDE_ROOT_KEY", KEY)],
    );
    (folder, server)
}

/// Asks until it is stopped, on connections that are kept until the server says that it closes them. Returns the number
/// of answers.
fn ask(proxy: SocketAddr, caller: usize, stop: &AtomicBool) -> usize {
    let mut client = Client::new(proxy, KEY);
    let mut asked = 0;
    while !stop.load(Ordering::Relaxed) {
        let answer = client.try_post("/v1/replays/check", &proof(&format!("{caller}-{asked}")));
        let answer = answer.unwrap_or_else(|| panic!("request {asked} of caller {caller} was not answered"));
        assert_eq!(answer.status, 200, "{}", answer.text);
        if answer.header("connection") == Some("close") {
            client = Client::new(proxy, KEY);
        }
        asked += 1;
    }
    asked
}

#[test]
fn a_rolling_restart_of_two_nodes_fails_no_request() {
    let mut running = vec![node(), node()];
    let nodes: Vec<_> = running.iter().map(|(_, server)| server.address).collect();
    let nodes = Arc::new(Mutex::new(nodes));
    let stop = Arc::new(AtomicBool::new(false));
    let proxy = Proxy::start(&stop, &nodes);
    let address = proxy.address;
    let callers: Vec<_> = (0..8)
        .map(|caller| {
            let stop = Arc::clone(&stop);
            thread::spawn(move || ask(address, caller, &stop))
        })
        .collect();
    for place in 0..2 {
        let (_folder, mut old) = running.remove(0);
        old.signal("-TERM");
        assert_eq!(old.wait().code(), Some(0));
        let new = node();
        nodes.lock().unwrap()[place] = new.1.address;
        assert!(until(|| proxy.sees(new.1.address)), "the new node takes part");
        running.push(new);
    }
    stop.store(true, Ordering::Relaxed);
    let asked: usize = callers.into_iter().map(|caller| caller.join().unwrap()).sum();
    assert!(asked > 100, "{asked} requests");
}
