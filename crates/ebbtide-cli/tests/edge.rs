//! The edge of a running server: limits, slow clients, shutdown, request ids, the log, metrics.

#[path = "support/server.rs"]
mod server;

use std::time::Duration;

use ebbtide::Stopwatch;
use server::{Client, Server, ebbtide, proof, request, said, until};

const CHECK: &str = "/v1/replays/check";

/// Sends a request without the end of its body.
fn begin(server: &Server) -> Client {
    let whole = request("POST", CHECK, &server.key, &[], &proof("slow"));
    let mut client = server.client();
    client.send(&whole[..whole.len() - 5]);
    client
}

/// Waits until this number of requests is in flight.
fn wait_for_in_flight(server: &Server, count: u32) {
    let line = format!("ebbtide_http_requests_in_flight {count}\n");
    let in_flight = until(|| server.get("/metrics").text.contains(&line));
    assert!(in_flight, "{count} requests are never in flight: {}", server.get("/metrics").text);
}

#[test]
fn unfinished_bodies_take_no_place_and_are_bounded_for_each_tenant() {
    let server = Server::start(&["--limits-requests", "2", "--limits-key-requests", "3"]);
    let mut slow: Vec<_> = (0..3).map(|_| begin(&server)).collect();
    wait_for_in_flight(&server, 3);
    let key = r#"{"scope":"tenant:other","role":"writer","ttl_seconds":60}"#;
    // The bodies of the root key are at their bound.
    let refused = server.post("/v1/keys", key).refused(429, "limited");
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(server.get("/healthz").status, 200);
    assert_eq!(server.get("/readyz").status, 200);
    assert_eq!(server.get("/v1/stats").status, 200, "a request without a body is answered");
    slow[0].send("3600}");
    assert_eq!(slow[0].answer().unwrap().status, 200, "a request in flight is answered");
    let other = server.post("/v1/keys", key).ok(201)["key"].as_str().unwrap().to_owned();
    slow.push(begin(&server));
    wait_for_in_flight(&server, 3);
    let answer = Client::new(server.address, &other).post(CHECK, &proof("a"));
    assert_eq!(answer.status, 200, "another tenant has bounds of its own");
}

#[test]
fn connections_beyond_the_limit_are_refused_while_all_are_busy() {
    let mut server = Server::start(&["--limits-connections", "3", "--operator-listen", "127.0.0.1:0"]);
    let operator = server.operator().unwrap();
    let mut held: Vec<_> = (0..3).map(|_| begin(&server)).collect();
    let in_flight = || Client::new(operator, "").call("GET", "/metrics", &[], "").text;
    assert!(until(|| in_flight().contains("ebbtide_http_requests_in_flight 3\n")), "{}", in_flight());
    let refused = server.client().answer().unwrap().refused(503, "unavailable");
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(refused.body["request_id"].as_str(), refused.header("x-request-id"));
    held[0].send("3600}");
    assert_eq!(held[0].answer().unwrap().status, 200);
    held.pop();
    let served = until(|| server.client().call("GET", "/healthz", &[], "").status == 200);
    assert!(served, "a connection that has ended makes room");
}

#[test]
fn a_connection_whose_head_does_not_arrive_in_time_is_closed() {
    let server = Server::start(&["--limits-header-timeout", "1s"]);
    for begun in ["", "P", "PRI * HT", "POST /v1/replays/check HTTP/1.1\r\nhost: e"] {
        // Started before the server can start its own.
        let stopwatch = Stopwatch::start();
        let mut client = server.client();
        client.send(begun);
        let answer = client.answer();
        assert!(answer.as_ref().is_none_or(|answer| answer.status == 408), "{begun}: {answer:?}");
        let waited = stopwatch.elapsed();
        assert!(waited >= Duration::from_secs(1) && waited < Duration::from_secs(30), "{begun}: {waited:?}");
    }
    assert_eq!(server.post(CHECK, &proof("a")).status, 200, "other connections are served");
}

#[test]
fn a_body_that_does_not_arrive_in_time_is_refused() {
    let server = Server::start(&["--limits-body-timeout", "1s"]);
    begin(&server).answer().unwrap().refused(408, "invalid");
}

#[test]
fn a_body_that_is_too_large_is_refused_and_nothing_of_it_kept() {
    let server = Server::start(&["--limits-body-bytes", "1000"]);
    let large = format!(r#"{{"namespace":"test","jti":"{}"}}"#, "x".repeat(2_000));
    server.post(CHECK, &large).refused(413, "invalid");
    // With a content length, it is refused before it is sent.
    let mut client = server.client();
    client.send(&format!(
        "POST {CHECK} HTTP/1.1\r\nhost: e\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
         content-length: 10000000\r\n\r\n",
        server.key
    ));
    client.answer().unwrap().refused(413, "invalid");
}

#[test]
fn a_server_is_not_ready_before_it_refuses_connections() {
    let mut server = Server::start(&["--drain-delay", "30s"]);
    assert_eq!(server.get("/readyz").status, 200);
    server.signal("-TERM");
    assert!(until(|| server.get("/readyz").status == 503), "readiness turns first");
    let answer = server.post(CHECK, &proof("a"));
    assert_eq!(
        (answer.status, answer.header("connection")),
        (200, Some("close")),
        "requests are still answered"
    );
    assert_eq!(server.get("/healthz").status, 200);
    server.signal("-TERM");
    assert!(
        until(|| std::net::TcpStream::connect(server.address).is_err()),
        "a second signal ends the delay"
    );
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn a_client_that_does_not_read_is_cut_and_holds_up_no_shutdown() {
    let mut server = Server::start(&["--limits-send-timeout", "2s", "--drain-delay", "0s"]);
    let value = format!(r#"{{"data":"{}"}}"#, "x".repeat(200_000));
    assert_eq!(server.client().call("PUT", "/v1/attributes/o/b/n", &[], &value).status, 200);
    let unread = || {
        let mut client = server.client();
        let get = request("GET", "/v1/attributes/o/b/n", &server.key, &[], "");
        client.send(&get.repeat(100));
        client
    };
    let _held = unread();
    let cut = until(|| server.get("/metrics").text.contains("ebbtide_connections_cut_total 1\n"));
    assert!(cut, "{}", server.get("/metrics").text);
    let _other = unread();
    let stopwatch = Stopwatch::start();
    server.signal("-TERM");
    assert_eq!(server.wait().code(), Some(0));
    assert!(stopwatch.elapsed() < Duration::from_secs(20), "{:?}", stopwatch.elapsed());
}

#[test]
fn a_refusal_leaves_the_connection_usable_or_says_that_it_closes() {
    let server = Server::start(&[]);
    let mut client = server.client();
    for _ in 0..3 {
        let bad = client.call("POST", CHECK, &[("ebbtide-scope", "nonsense")], &proof("a"));
        assert_eq!(bad.refused(400, "invalid").header("connection"), None);
    }
    assert_eq!(client.post(CHECK, &proof("a")).status, 200, "the next request is answered");
    let limited = r#"{"scope":"global","role":"writer","ttl_seconds":60,"rate_limit":5}"#;
    let key = server.post("/v1/keys", limited).ok(201)["key"].as_str().unwrap().to_owned();
    let mut client = Client::new(server.address, &key);
    let statuses: Vec<_> = (0..60).map(|n| client.post(CHECK, &proof(&n.to_string())).status).collect();
    assert!(
        statuses.contains(&429) && statuses.iter().all(|status| [200, 429].contains(status)),
        "{statuses:?}"
    );
    let mut client = Client::new(server.address, "not a key");
    let answer = client.call("POST", CHECK, &[], &"x".repeat(500_000)).refused(401, "unauthorized");
    assert_eq!(answer.header("connection"), Some("close"), "a large body is not read");
}

#[test]
fn a_hangup_reloads_the_filter_of_the_log_and_kills_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ebbtide.toml");
    std::fs::write(&file, "[log]\nfilter = \"info\"\n").unwrap();
    let server = Server::start_in(folder.path(), &["--config", file.to_str().unwrap()]);
    assert_eq!(server.post(CHECK, &proof("before")).status, 200);
    std::fs::write(&file, "[log]\nfilter = \"nonsense=nonsense\"\n").unwrap();
    server.signal("-HUP");
    server.logged_with(&["cannot reload"]);
    std::fs::write(&file, "[log]\nfilter = \"info,ebbtide::request=debug\"\n").unwrap();
    server.signal("-HUP");
    server.logged_with(&["reloaded the files"]);
    assert!(!server.logged().contains("ebbtide::request"));
    assert_eq!(server.post(CHECK, &proof("after")).status, 200);
    server.logged_with(&["ebbtide::request", CHECK]);
}

#[test]
fn the_operators_listener_has_the_metrics_and_the_other_has_not() {
    let mut server = Server::start(&["--operator-listen", "127.0.0.1:0"]);
    let operator = server.operator().unwrap();
    let get = |path: &str| Client::new(operator, "").call("GET", path, &[], "").status;
    for path in ["/healthz", "/readyz", "/metrics", "/openapi.json", "/docs"] {
        assert_eq!(get(path), 200, "{path}");
    }
    for path in ["/metrics", "/openapi.json", "/docs"] {
        server.get(path).refused(404, "not-found");
    }
    assert_eq!(server.get("/healthz").status, 200);
    assert_eq!(get("/v1/stats"), 404);
    assert_eq!(server.get("/v1/stats").status, 200);
}

#[test]
fn a_server_drains_requests_in_flight_at_shutdown() {
    let mut server = Server::start(&["--drain-delay", "0s"]);
    let mut slow = begin(&server);
    let idle = server.client();
    wait_for_in_flight(&server, 1);
    server.signal("-TERM");
    let gone = until(|| std::net::TcpStream::connect(server.address).is_err());
    assert!(gone, "nobody new is let in");
    slow.send("3600}");
    assert_eq!(slow.answer().unwrap().status, 200);
    assert_eq!(server.wait().code(), Some(0));
    drop(idle);
}

#[test]
fn a_shutdown_has_a_time_limit() {
    let mut server = Server::start(&["--limits-shutdown-timeout", "1s"]);
    let _slow = begin(&server);
    wait_for_in_flight(&server, 1);
    server.signal("-TERM");
    assert_eq!(server.wait().code(), Some(0));
    server.logged_with(&["shutdown timeout reached"]);
}

#[test]
fn a_request_id_is_in_the_answer_the_problem_and_the_log() {
    let server = Server::start(&["--log-format", "json", "--log-filter", "info,ebbtide::request=debug"]);
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
    let log = server.logged_with(&["mine-1", &id]);
    let line = |id: &str| -> serde_json::Value {
        serde_json::from_str(log.lines().find(|line| line.contains(id)).unwrap()).unwrap()
    };
    assert_eq!((&line("mine-1")["status"], &line("mine-1")["outcome"]), (&400.into(), &"invalid".into()));
    assert_eq!(line(&id)["route"], "/v1/attributes/{owner}/{bucket}/{name}");
    assert!(line(&id)["duration_us"].is_u64());
    assert_eq!((&line(&id)["key_id"], &line(&id)["scope"]), (&"root".into(), &"global".into()));
    assert_eq!(line(&id)["cause"], "never-here");
    assert_eq!(line(&id)["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(line("mine-1")["trace_id"], serde_json::Value::Null, "only if the caller sends one");
    for secret in ["in-the-query", "alice", &server.key] {
        assert!(!log.contains(secret), "the log holds {secret}: {log}");
    }
}

#[test]
fn the_line_of_a_request_is_off_by_default() {
    let mut server = Server::start(&[]);
    assert_eq!(server.post(CHECK, &proof("a")).status, 200);
    server.signal("-TERM");
    assert_eq!(server.wait().code(), Some(0));
    assert!(!server.logged().contains("ebbtide::request"), "{}", server.logged());
}

#[test]
fn the_cause_of_a_refusal_is_told_by_its_request_id() {
    let server = Server::start(&[]);
    assert_eq!(server.post(CHECK, &proof("a")).status, 200);
    let refused = server.post(CHECK, &proof("a")).refused(409, "replay");
    let why = |id: &str| {
        let why = ["why", id, "--server", &server.url()];
        ebbtide(&why).env("EBBTIDE_API_KEY", &server.key).output().unwrap()
    };
    let told = why(refused.body["request_id"].as_str().unwrap());
    assert_eq!(told.status.code(), Some(0), "{}", said(&told));
    assert!(said(&told).contains("409 replay") && said(&told).contains("cause   used"), "{}", said(&told));
    assert_eq!(why("never").status.code(), Some(1));
}

#[test]
fn metrics_cover_requests_records_and_the_store() {
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
        "ebbtide_clock_state{state=\"normal\"} 1",
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
fn a_ready_server_lists_its_warnings() {
    let server = Server::start(&[]);
    let ready = server.get("/readyz").ok(200);
    assert_eq!(ready["status"], "ready");
    assert!(ready["warnings"].is_array());
}

/// By processor time, which does not grow with what else the machine does; `make bench` measures the time that passes.
#[cfg(target_os = "linux")]
#[test]
fn an_empty_server_listens_after_a_fifth_of_a_second_of_work() {
    let used = Server::start(&[]).processor_time();
    assert!(used < Duration::from_millis(200), "{used:?}");
}

#[test]
fn a_server_does_not_start_with_an_invalid_setting() {
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
        (&["--tls-cert", file], "--tls-cert: a certificate needs a key"),
        (&["--tls-client-ca", file], "--tls-client-ca: authorities of clients need TLS"),
        (&["--limits-requests", "none"], "--limits-requests"),
    ] {
        let all = [&["serve", "--listen", "127.0.0.1:0", "--store", "memory:"], arguments].concat();
        let output = ebbtide(&all).env("EBBTIDE_ROOT_KEY", "a-key-of-some-length").output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", said(&output));
        assert!(said(&output).contains(place), "{arguments:?}: {}", said(&output));
    }
    let unnamed = ebbtide(&["serve", "--listen", "127.0.0.1:0"]).current_dir(folder.path()).output().unwrap();
    assert_eq!(unnamed.status.code(), Some(2), "{}", said(&unnamed));
    assert!(said(&unnamed).contains("no store: name one with --store"), "{}", said(&unnamed));
    assert!(
        !folder.path().join("data").exists(),
        "a node that has lost its variable makes no store of its own"
    );
    for key in ["a key of some length\n", " a-key-of-some-length", "a-key-of-some-length\r\n"] {
        let spaced = ebbtide(&["serve", "--listen", "127.0.0.1:0", "--store", "memory:"])
            .env("EBBTIDE_ROOT_KEY", key)
            .output()
            .unwrap();
        assert_eq!(spaced.status.code(), Some(2), "{}", said(&spaced));
        assert!(said(&spaced).contains("EBBTIDE_ROOT_KEY: the key has white space"), "{}", said(&spaced));
        assert!(!said(&spaced).contains("key-of-some"), "{}", said(&spaced));
    }
    let variable =
        ebbtide(&["serve", "--store", "memory:"]).env("EBBTIDE_SWEEP_INTERVAL", "0").output().unwrap();
    assert_eq!(variable.status.code(), Some(2));
    assert!(
        said(&variable).contains("EBBTIDE_SWEEP_INTERVAL: expected a whole number"),
        "{}",
        said(&variable)
    );
}

#[test]
fn config_check_shows_every_value_with_its_source_and_no_password() {
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
    assert!(said(&bad).contains("ebbtide.toml:2: limits.request: unknown setting"), "{}", said(&bad));
}
