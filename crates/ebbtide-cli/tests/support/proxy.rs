//! A proxy in front of several nodes, which asks them whether they are ready.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

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
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    /// Nodes that were ready when they were asked last.
    ready: Arc<Mutex<Vec<SocketAddr>>>,
}

impl Proxy {
    pub(crate) fn start(stop: &Arc<AtomicBool>, nodes: &Arc<Mutex<Vec<SocketAddr>>>) -> Self {
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

    /// Returns true if the node was ready when it was asked last.
    pub(crate) fn sees(&self, node: SocketAddr) -> bool {
        self.ready.lock().unwrap().contains(&node)
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
