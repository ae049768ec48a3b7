//! Spans to a collector.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/server.rs"]
mod server;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;

use server::{Server, proof};

/// Reads one request to the collector, and answers 200.
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
    let address = collector.local_addr().unwrap();
    let endpoint = format!("http://{address}");
    let (sender, received) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in collector.incoming() {
            let _ = sender.send(receive(stream.unwrap()));
        }
    });
    let mut server = Server::start(&["--otel-endpoint", &endpoint]);
    let traces = ["4bf92f3577b34da6a3ce929d0e0e4736", "0af7651916cd43dd8448eb211c80319c"];
    let parent = |trace: &str, flags: &str| format!("00-{trace}-b7ad6b7169203331-{flags}");
    for (trace, flags) in traces.iter().zip(["01", "00"]) {
        let headers = [("traceparent", parent(trace, flags))];
        let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
        let proof = proof(&format!("the-jti-of-the-test-{flags}"));
        assert_eq!(server.client().call("POST", "/v1/replays/check", &headers, &proof).status, 200);
    }
    server.signal("-TERM");
    assert_eq!(server.wait().code(), Some(0), "{}", server.logged());
    // The collector takes one connection after the other: what comes before this was sent by the server.
    let mut last = TcpStream::connect(address).unwrap();
    last.write_all(b"POST /last HTTP/1.1\r\ncontent-length: 0\r\n\r\n").unwrap();
    let mut sent = Vec::new();
    for (head, body) in received.iter().take_while(|(head, _)| !head.starts_with("POST /last ")) {
        assert!(head.starts_with("POST /v1/traces "), "{head}");
        sent.extend(body);
    }
    let text = String::from_utf8_lossy(&sent);
    for word in ["ebbtide", "request", "/v1/replays/check", "backend", "commit", "replays"] {
        assert!(text.contains(word), "{word} is in no span: {text}");
    }
    // Spans carry the trace id and the parent of the caller, and none is sent for an unsampled trace.
    let holds = |hex: &str| {
        let bytes: Vec<_> =
            (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16)).collect();
        let bytes = bytes.into_iter().collect::<Result<Vec<_>, _>>().unwrap();
        sent.windows(bytes.len()).any(|window| window == bytes)
    };
    assert!(holds(traces[0]) && holds("b7ad6b7169203331"), "a span is not part of its caller's trace");
    assert!(!holds(traces[1]), "a span was sent that the caller does not collect");
    for secret in ["the-jti-of-the-test", server.key.as_str()] {
        assert!(!text.contains(secret), "a span holds a secret");
    }
}
