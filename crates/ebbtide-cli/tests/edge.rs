//! The edge of a running server: limits, slow clients, stopping, names of requests, the log, metrics.

#[path = "support/server.rs"]
mod server;

use std::time::Duration;

use ebbtide::Stopwatch;
use server::{Client, Server, ebbtide, proof, request, said};

const CHECK: &str = "/v1/replays/check";

/// A request whose body does not arrive whole.
fn begin(server: &Server) -> Client {
    let whole = request("POST", CHECK, &server.key, &[], &proof("slow"));
    let mut client = server.client();
    client.send(&whole[..whole.len() - 5]);
    client
}

/// Waits until so many requests are worked on.
fn wait_for_in_flight(server: &Server, count: u32) {
    let line = format!("ebbtide_http_requests_in_flight {count}\n");
    for _ in 0..200 {
        if server.get("/metrics").text.contains(&line) {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{count} requests are never in flight: {}", server.get("/metrics").text);
}

#[test]
fn requests_beyond_the_limit_are_refused_at_once_and_the_operators_are_not() {
    let server = Server::start(&["--limits-requests", "2"]);
    let mut slow = begin(&server);
    let _other = begin(&server);
    wait_for_in_flight(&server, 2);
    let refused = server.post(CHECK, &proof("a")).refused(503, "unavailable");
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(server.get("/healthz").status, 200);
    assert_eq!(server.get("/readyz").status, 200);
    slow.send("3600}");
    assert_eq!(slow.answer().unwrap().status, 200, "what was begun is answered");
    assert_eq!(server.post(CHECK, &proof("a")).status, 200, "there is a place again");
}

#[test]
fn connections_beyond_the_limit_are_refused_and_the_open_ones_served() {
    let server = Server::start(&["--limits-connections", "3"]);
    let mut held: Vec<_> = (0..3).map(|_| server.client()).collect();
    for client in &mut held {
        assert_eq!(client.call("GET", "/healthz", &[], "").status, 200);
    }
    let refused = server.client().answer().unwrap().refused(503, "unavailable");
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(held[0].post(CHECK, &proof("a")).status, 200);
    held.pop();
    let served = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        server.client().call("GET", "/healthz", &[], "").status == 200
    });
    assert!(served, "a connection that has ended makes room");
}

#[test]
fn a_head_that_does_not_arrive_in_time_is_hung_up_on() {
    let server = Server::start(&["--limits-header-timeout", "1s"]);
    for begun in ["", "P", "PRI * HT", "POST /v1/replays/check HTTP/1.1\r\nhost: e"] {
        let mut client = server.client();
        client.send(begun);
        let stopwatch = Stopwatch::start();
        let answer = client.answer();
        assert!(answer.as_ref().is_none_or(|answer| answer.status == 408), "{begun}: {answer:?}");
        let waited = stopwatch.elapsed();
        assert!(
            waited > Duration::from_millis(500) && waited < Duration::from_secs(10),
            "{begun}: {waited:?}"
        );
    }
    assert_eq!(server.post(CHECK, &proof("a")).status, 200, "the rest is served");
}

#[test]
fn a_body_that_does_not_arrive_in_time_is_refused() {
    let server = Server::start(&["--limits-body-timeout", "1s"]);
    let mut slow = begin(&server);
    let stopwatch = Stopwatch::start();
    slow.answer().unwrap().refused(408, "invalid");
    assert!(stopwatch.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_body_that_is_too_large_is_refused_and_nothing_of_it_kept() {
    let server = Server::start(&["--limits-body-bytes", "1000"]);
    let large = format!(r#"{{"namespace":"test","jti":"{}"}}"#, "x".repeat(2_000));
    server.post(CHECK, &large).refused(413, "invalid");
    // Said in advance, it is refused before it is sent.
    let mut client = server.client();
    client.send(&format!(
        "POST {CHECK} HTTP/1.1\r\nhost: e\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
         content-length: 10000000\r\n\r\n",
        server.key
    ));
    client.answer().unwrap().refused(413, "invalid");
}

#[test]
fn a_server_that_is_told_to_stop_answers_what_it_has_begun() {
    let mut server = Server::start(&[]);
    let mut slow = begin(&server);
    let idle = server.client();
    wait_for_in_flight(&server, 1);
    server.signal("-TERM");
    let gone = (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        std::net::TcpStream::connect(server.address).is_err()
    });
    assert!(gone, "nobody new is let in");
    slow.send("3600}");
    assert_eq!(slow.answer().unwrap().status, 200);
    assert_eq!(server.wait().code(), Some(0));
    drop(idle);
}

#[test]
fn a_server_that_is_told_to_stop_does_not_wait_for_ever() {
    let mut server = Server::start(&["--limits-shutdown-timeout", "1s"]);
    let _slow = begin(&server);
    wait_for_in_flight(&server, 1);
    let stopwatch = Stopwatch::start();
    server.signal("-TERM");
    assert_eq!(server.wait().code(), Some(0));
    assert!(stopwatch.elapsed() < Duration::from_secs(10));
    assert!(server.logged().contains("shutdown timeout reached"), "{}", server.logged());
}

#[test]
fn a_request_has_a_name_in_its_answer_its_problem_and_the_log() {
    let server = Server::start(&["--log-format", "json"]);
    let mut client = server.client();
    let named =
        client.call("POST", "/v1/replays/check?secret=in-the-query", &[("x-request-id", "mine-1")], "{");
    let named = named.refused(400, "invalid");
    assert_eq!((named.header("x-request-id"), &named.body["request_id"]), (Some("mine-1"), &"mine-1".into()));
    let trace = ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    let insane = [("x-request-id", "not { sane"), trace];
    let made = client.call("GET", "/v1/attributes/alice/bucket/name", &insane, "");
    let made = made.refused(404, "unknown");
    let id = made.header("x-request-id").unwrap().to_owned();
    assert_eq!((id.len(), &made.body["request_id"]), (32, &id.as_str().into()));
    let log = server.logged();
    let line = |id: &str| -> serde_json::Value {
        serde_json::from_str(log.lines().find(|line| line.contains(id)).unwrap()).unwrap()
    };
    assert_eq!((&line("mine-1")["status"], &line("mine-1")["outcome"]), (&400.into(), &"invalid".into()));
    assert_eq!(line(&id)["route"], "/v1/attributes/{owner}/{bucket}/{name}");
    assert!(line(&id)["duration_us"].is_u64());
    assert_eq!(line(&id)["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(line("mine-1")["trace_id"], serde_json::Value::Null, "only where a caller names one");
    for secret in ["in-the-query", "alice", &server.key] {
        assert!(!log.contains(secret), "the log holds {secret}: {log}");
    }
}

#[test]
fn metrics_tell_of_requests_records_and_the_store() {
    let server = Server::start(&["--sweep-interval", "1s"]);
    assert_eq!(server.post(CHECK, &proof("a")).status, 200);
    server.post(CHECK, &proof("a")).refused(409, "replay");
    let text = server.get("/metrics").text;
    for line in [
        r#"ebbtide_http_requests_total{method="POST",route="/v1/replays/check",outcome="ok"} 1"#,
        r#"ebbtide_http_requests_total{method="POST",route="/v1/replays/check",outcome="replay"} 1"#,
        r#"ebbtide_http_request_seconds_count{method="POST",route="/v1/replays/check"} 2"#,
        r#"ebbtide_records_created_total{kind="replays"} 1"#,
        r#"ebbtide_records_refused_total{kind="replays"} 1"#,
        r#"ebbtide_live_records{kind="replays"} 1"#,
        "ebbtide_clock_leapt 0",
        "ebbtide_gate_closed 0",
        "ebbtide_committer_group_size_count",
    ] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
    assert!(!text.contains(&server.key));
    assert_eq!(
        server.get("/metrics").header("content-type"),
        Some("text/plain; version=0.0.4; charset=utf-8")
    );
}

#[test]
fn a_ready_server_says_so_with_its_warnings() {
    let server = Server::start(&[]);
    let ready = server.get("/readyz").ok(200);
    assert_eq!(ready["status"], "ready");
    assert!(ready["warnings"].is_array());
}

#[test]
fn an_empty_server_listens_within_a_fifth_of_a_second() {
    // One of many is enough: other tests share the machine.
    let time = |_| {
        let stopwatch = Stopwatch::start();
        drop(Server::start(&[]));
        stopwatch.elapsed()
    };
    let times: Vec<_> = (0..25)
        .map(time)
        .scan(false, |quick, time| {
            (!std::mem::replace(quick, time < Duration::from_millis(200))).then_some(time)
        })
        .collect();
    println!("empty starts to listening took {times:?}");
    assert!(times.last().is_some_and(|time| *time < Duration::from_millis(200)), "{times:?}");
}

#[test]
fn a_server_does_not_start_with_what_it_cannot_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ebbtide.toml");
    std::fs::write(&file, "[sweep]\ninterval = \"never\"\n").unwrap();
    let file = file.to_str().unwrap();
    for (arguments, place) in [
        (&["--sweep-interval", "0s"][..], "--sweep-interval"),
        (&["--sweep-interval=-5s"], "--sweep-interval"),
        (&["--sweep-interval", "soon"], "--sweep-interval"),
        (&["--config", file], "ebbtide.toml:2: sweep.interval"),
        (&["--tls-cert", file, "--tls-key", file], "ebbtide.toml does not hold certificates"),
        (&["--tls-cert", file], "--tls-cert: a certificate has a key"),
        (&["--limits-requests", "none"], "--limits-requests"),
    ] {
        let all = [&["serve", "--listen", "127.0.0.1:0", "--store", "memory:"], arguments].concat();
        let output = ebbtide(&all).env("EBBTIDE_ROOT_KEY", "a key of some length").output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", said(&output));
        assert!(said(&output).contains(place), "{arguments:?}: {}", said(&output));
    }
    let variable =
        ebbtide(&["serve", "--store", "memory:"]).env("EBBTIDE_SWEEP_INTERVAL", "0").output().unwrap();
    assert_eq!(variable.status.code(), Some(2));
    assert!(said(&variable).contains("EBBTIDE_SWEEP_INTERVAL: a time"), "{}", said(&variable));
}

#[test]
fn config_check_shows_every_value_and_where_it_comes_from_and_no_password() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ebbtide.toml");
    std::fs::write(&file, "store = \"postgres://ebb:hunter2@db/auth\"\n[limits]\nrequests = 9\n").unwrap();
    let check = ["config", "check", "--config", file.to_str().unwrap(), "--listen", "127.0.0.1:1"];
    let output = ebbtide(&check).env("EBBTIDE_LIMITS_REQUESTS", "7").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let text = said(&output);
    let line = |key: &str| {
        let line = text.lines().find(|line| line.starts_with(&format!("{key} "))).unwrap();
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(line("listen"), "listen 127.0.0.1:1 --listen");
    assert_eq!(line("limits.requests"), "limits.requests 7 EBBTIDE_LIMITS_REQUESTS");
    assert!(line("store").contains("ebb:…@db/auth") && line("store").contains("ebbtide.toml:1"), "{text}");
    assert!(!text.contains("hunter2"));
    std::fs::write(&file, "[limits]\nrequest = 9\n").unwrap();
    let bad = ebbtide(&check).output().unwrap();
    assert_eq!(bad.status.code(), Some(1));
    assert!(
        said(&bad).contains("ebbtide.toml:2: limits.request: there is no such setting"),
        "{}",
        said(&bad)
    );
}
