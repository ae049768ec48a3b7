//! A rolling restart of two nodes behind a proxy that asks for readiness: no request fails.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/server.rs"]
mod server;

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

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

/// Asks a node that may be gone.
fn is_ready(address: SocketAddr) -> bool {
    let ask = || -> std::io::Result<String> {
        let (mut stream, mut answer) = (TcpStream::connect(address)?, String::new());
        stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: proxy\r\nconnection: close\r\n\r\n")?;
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    ask().is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
}

/// Proxy that gives each connection to the next node that is ready.
struct Proxy {
    address: SocketAddr,
    /// Nodes that were ready when they were asked last.
    ready: Arc<Mutex<Vec<SocketAddr>>>,
}

impl Proxy {
    fn start(stop: &Arc<AtomicBool>, nodes: &Arc<Mutex<Vec<SocketAddr>>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let ready = Arc::new(Mutex::new(nodes.lock().unwrap().clone()));
        let (probe, of_probe, of_nodes) = (Arc::clone(&ready), Arc::clone(stop), Arc::clone(nodes));
        thread::spawn(move || {
            while !of_probe.load(Ordering::Relaxed) {
                let all = of_nodes.lock().unwrap().clone();
                let now: Vec<_> = all.into_iter().filter(|node| is_ready(*node)).collect();
                if !now.is_empty() {
                    *probe.lock().unwrap() = now;
                }
                thread::sleep(Duration::from_millis(50));
            }
        });
        let (to, turn) = (Arc::clone(&ready), AtomicUsize::new(0));
        thread::spawn(move || {
            for client in listener.incoming() {
                let nodes = to.lock().unwrap().clone();
                let node = nodes[turn.fetch_add(1, Ordering::Relaxed) % nodes.len()];
                let client = client.unwrap();
                thread::spawn(move || splice(client, TcpStream::connect(node).unwrap()));
            }
        });
        Self { address, ready }
    }
}

/// Passes bytes on in both directions, until one side ends.
fn splice(client: TcpStream, node: TcpStream) {
    let pass = |mut from: TcpStream, mut to: TcpStream| {
        let mut buffer = [0; 4_096];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            if to.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    };
    let (from, to) = (client.try_clone().unwrap(), node.try_clone().unwrap());
    let back = thread::spawn(move || pass(node, client));
    pass(from, to);
    let _ = back.join();
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
        assert!(until(|| proxy.ready.lock().unwrap().contains(&new.1.address)), "the new node takes part");
        running.push(new);
    }
    stop.store(true, Ordering::Relaxed);
    let asked: usize = callers.into_iter().map(|caller| caller.join().unwrap()).sum();
    assert!(asked > 100, "{asked} requests");
}
