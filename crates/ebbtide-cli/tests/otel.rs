//! Spans to a collector.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/server.rs"]
mod server;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;

use server::{Server, proof};

/// Reads what a collector is sent, and says thank you.
fn receive(stream: TcpStream) -> (String, Vec<u8>) {
    let mut stream = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(stream.read_line(&mut head).unwrap(), 0, "{head}");
    }
    let lower = head.to_ascii_lowercase();
    let length = lower.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body).unwrap();
    stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").unwrap();
    (head, body)
}

#[test]
fn a_request_and_its_call_to_the_engine_are_spans_without_secrets() {
    let collector = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", collector.local_addr().unwrap());
    let (sender, received) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in collector.incoming() {
            let _ = sender.send(receive(stream.unwrap()));
        }
    });
    let mut server = Server::start(&["--otel-endpoint", &endpoint]);
    assert_eq!(server.post("/v1/replays/check", &proof("the-jti-of-the-test")).status, 200);
    server.signal("-TERM");
    assert_eq!(server.wait().code(), Some(0), "{}", server.logged());
    let mut sent = Vec::new();
    while let Ok((head, body)) = received.recv_timeout(std::time::Duration::from_millis(500)) {
        assert!(head.starts_with("POST /v1/traces "), "{head}");
        sent.extend(body);
    }
    let text = String::from_utf8_lossy(&sent);
    for word in ["ebbtide", "request", "/v1/replays/check", "backend", "commit", "replays"] {
        assert!(text.contains(word), "{word} is in no span: {text}");
    }
    for secret in ["the-jti-of-the-test", server.key.as_str()] {
        assert!(!text.contains(secret), "a span holds a secret");
    }
}
