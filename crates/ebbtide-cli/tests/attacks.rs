//! One greedy or hostile client, and a second tenant beside it that must not notice: law 10.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/server.rs"]
mod server;

use std::net::SocketAddr;
use std::time::Duration;

use ebbtide::Stopwatch;
use h2::client::SendRequest;
use server::{Client, Server, proof, request, until};
use tokio::net::TcpStream;

const CHECK: &str = "/v1/replays/check";

/// Key of another tenant.
fn tenant(server: &Server, name: &str, role: &str) -> String {
    let body = format!(r#"{{"scope":"tenant:{name}","role":"{role}","ttl_seconds":3600}}"#);
    server.post("/v1/keys", &body).ok(201)["key"].as_str().unwrap().to_owned()
}

/// Longest of 100 checks but one, by a tenant on one connection.
fn p99(server: &Server, key: &str, run: &str) -> Duration {
    let mut client = Client::new(server.address, key);
    let mut times: Vec<_> = (0..100)
        .map(|n| {
            let stopwatch = Stopwatch::start();
            assert_eq!(client.post(CHECK, &proof(&format!("{run}-{n}"))).status, 200);
            stopwatch.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[98]
}

/// The p99 beside an attack at most doubles; below 250 ms, the noise of a machine that others use is larger than that.
fn unharmed(before: Duration, beside: Duration) {
    assert!(beside <= (before * 2).max(Duration::from_millis(250)), "{before:?} before, {beside:?} beside");
}

/// An HTTP/2 connection with this window for each answer. Its task answers pings.
async fn connect(address: SocketAddr, window: u32) -> SendRequest<bytes::Bytes> {
    let stream = TcpStream::connect(address).await.unwrap();
    let mut builder = h2::client::Builder::new();
    let (send, connection) = builder.initial_window_size(window).handshake(stream).await.unwrap();
    tokio::spawn(connection);
    send
}

fn get(address: SocketAddr, path: &str, key: Option<&str>) -> axum::http::Request<()> {
    let mut request = axum::http::Request::builder().uri(format!("http://{address}{path}"));
    if let Some(key) = key {
        request = request.header("authorization", format!("Bearer {key}"));
    }
    request.body(()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_are_not_read_take_little_memory_and_their_connections_end() {
    let server = Server::start(&["--limits-send-timeout", "15s"]);
    let key = tenant(&server, "quiet", "writer");
    let before = p99(&server, &key, "before");
    let resident = server.resident();
    let (mut asked, mut held, mut refused) = (Vec::new(), Vec::new(), 0);
    for _ in 0..40 {
        let mut send = connect(server.address, 0).await;
        for _ in 0..50 {
            let request = get(server.address, "/metrics", None);
            let Ok(ready) = send.clone().ready().await else { break };
            send = ready;
            let (answer, _) = send.send_request(request, true).unwrap();
            asked.push(tokio::spawn(answer));
        }
    }
    // The heads arrive, and the bodies are held back by the window.
    for answer in asked {
        if let Ok(Ok(Ok(answer))) = tokio::time::timeout(Duration::from_secs(30), answer).await {
            refused += u32::from(answer.status() == 503);
            held.push(answer);
        }
    }
    unharmed(before, p99(&server, &key, "beside"));
    assert_eq!(server.get("/healthz").status, 200);
    let grown = server.resident().saturating_sub(resident);
    assert!(grown < 64 << 20, "{} MiB for answers that nobody reads", grown >> 20);
    assert!(refused > 1_000, "of 2,000 answers {refused} were refused");
    assert!(until(|| server.get("/metrics").status == 200), "the places come back");
    drop(held);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_end_although_they_answer_pings() {
    let server = Server::start(&["--limits-connections", "20", "--limits-header-timeout", "2s"]);
    let mut held = Vec::new();
    for _ in 0..20 {
        held.push(connect(server.address, 65_535).await);
    }
    let full =
        || Client::new(server.address, "").try_get("/healthz").is_none_or(|answer| answer.status == 503);
    assert!(full(), "the connections are all taken");
    assert!(until(|| !full()), "idle connections make room");
}

#[test]
fn walks_of_one_tenant_take_no_time_from_another() {
    let server = Server::start(&[]);
    let (greedy, quiet) = (tenant(&server, "greedy", "writer"), tenant(&server, "quiet", "writer"));
    let mut client = Client::new(server.address, &greedy);
    // Forty hubs of forty names each, below one subject.
    let edge = |subject: &str, object: &str| {
        format!(
            r#"{{"subject":"{subject}","relation":"member","object":"{object}","relation_type":"membership","created_by":"a"}}"#
        )
    };
    for hub in 0..40 {
        assert_eq!(
            client.call("PUT", "/v1/relationships", &[], &edge("root", &format!("hub{hub}"))).status,
            200
        );
        for name in 0..40 {
            let edge = edge(&format!("hub{hub}"), &format!("name{hub}-{name}"));
            assert_eq!(client.call("PUT", "/v1/relationships", &[], &edge).status, 200);
        }
    }
    let before = p99(&server, &quiet, "before");
    let stop = std::sync::atomic::AtomicBool::new(false);
    let beside = std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                let mut client = Client::new(server.address, &greedy);
                let walk = r#"{"subject":"root","relation":"member","object":"nobody","relation_type":"membership","transitive":true}"#;
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    assert_eq!(client.post("/v1/relationships/check", walk).status, 404);
                }
            });
        }
        let beside = p99(&server, &quiet, "beside");
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        beside
    });
    unharmed(before, beside);
}

#[test]
fn pages_of_large_values_are_bounded_in_bytes() {
    let server = Server::start(&[]);
    let (greedy, quiet) = (tenant(&server, "greedy", "writer"), tenant(&server, "quiet", "writer"));
    let mut client = Client::new(server.address, &greedy);
    let value = format!(r#"{{"data":"{}"}}"#, "x".repeat(250_000));
    for n in 0..60 {
        assert_eq!(client.call("PUT", &format!("/v1/attributes/o/b/{n:03}"), &[], &value).status, 200);
    }
    let before = p99(&server, &quiet, "before");
    let resident = server.resident();
    let held: Vec<_> = (0..8)
        .map(|_| {
            let mut client = Client::new(server.address, &greedy);
            client.send(&request("GET", "/v1/attributes/o/b?limit=1000", &greedy, &[], ""));
            client
        })
        .collect();
    unharmed(before, p99(&server, &quiet, "beside"));
    let grown = server.resident().saturating_sub(resident);
    assert!(grown < 128 << 20, "{} MiB for eight pages", grown >> 20);
    let mut names = 0;
    let mut after = String::new();
    // The first connection may have been closed as idle while the others were measured.
    let mut client = Client::new(server.address, &greedy);
    loop {
        let page = client.call("GET", &format!("/v1/attributes/o/b?limit=1000{after}"), &[], "");
        assert!(page.text.len() < 8 << 20, "{} bytes", page.text.len());
        let page = page.ok(200);
        names += page["items"].as_array().unwrap().len();
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert_eq!(names, 60, "no name is left out");
    drop(held);
}

#[test]
fn invented_keys_keep_nobody_out() {
    let server = Server::start(&[]);
    let quiet = tenant(&server, "quiet", "writer");
    let before = p99(&server, &quiet, "before");
    let stop = std::sync::atomic::AtomicBool::new(false);
    let beside = std::thread::scope(|scope| {
        for thread in 0..16 {
            let (stop, server) = (&stop, &server);
            scope.spawn(move || {
                let mut client = Client::new(server.address, &format!("ebk_{thread}-invented"));
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    assert_eq!(client.post(CHECK, &proof("x")).status, 401);
                }
            });
        }
        let beside = p99(&server, &quiet, "beside");
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        beside
    });
    unharmed(before, beside);
}
