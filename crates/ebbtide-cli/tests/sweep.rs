//! The command `sweep`, and the sweeper of `serve`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/server.rs"]
mod server;

use std::io::{BufRead as _, BufReader};
use std::ops::ControlFlow;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use ebbtide::stores::replays::{Proof, ReplayOutcome};
use ebbtide::{Ebbtide, Ttl};

fn ebbtide(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ebbtide"))
        .args(arguments)
        .env_remove("EBBTIDE_STORE")
        .env_remove("EBBTIDE_SWEEP_BUDGET")
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    let text = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    String::from_utf8(text).unwrap()
}

/// Creates a store with three proofs that have expired when it returns, and a live one.
fn prepared(dir: &tempfile::TempDir) -> String {
    let url = format!("fjall:{}", dir.path().join("store").display());
    let fill = async {
        let db = Ebbtide::open(&url).await.unwrap();
        for (name, seconds) in [("a", 1), ("b", 1), ("c", 1), ("d", 3_600)] {
            let proof = Proof::new("test", name).ttl(Ttl::from_secs(seconds).unwrap());
            let outcome = db.scope("global").unwrap().replays().check(&proof).await.unwrap();
            assert!(matches!(outcome, ReplayOutcome::Fresh { .. }), "{outcome:?}");
        }
    };
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(fill);
    std::thread::sleep(Duration::from_millis(1_500));
    url
}

fn serve(url: &str, more: &[&str]) -> Child {
    let mut server = Command::new(env!("CARGO_BIN_EXE_ebbtide"))
        .args(["serve", "--listen", "127.0.0.1:0", "--store", url])
        .args(more)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("listening on"), "{line}");
    server
}

#[test]
fn a_dry_run_counts_and_a_sweep_removes_expired_records() {
    let dir = tempfile::tempdir().unwrap();
    let url = prepared(&dir);
    for _ in 0..2 {
        let dry = ebbtide(&["sweep", "--store", &url, "--dry-run"]);
        assert_eq!(dry.status.code(), Some(0), "{}", said(&dry));
        assert!(said(&dry).contains("3 replays, the oldest expired"), "{}", said(&dry));
    }
    let swept = ebbtide(&["sweep", "--store", &url, "--json", "--budget", "0.5"]);
    assert_eq!(swept.status.code(), Some(0), "{}", said(&swept));
    assert_eq!(String::from_utf8(swept.stdout).unwrap(), "{\"replays\":3}\n");
    // The log keeps the bytes until their segment retires, so that another process counts them again; nothing live goes.
    let again = ebbtide(&["sweep", "--store", &url, "--json"]);
    assert_eq!(again.status.code(), Some(0), "{}", said(&again));
    let seen = ebbtide(&["explain", "--store", &url, "--scope", "global", "replay", "test", "d"]);
    assert_eq!(seen.status.code(), Some(0), "{}", said(&seen));
}

#[test]
fn a_sweep_of_one_kind_leaves_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let url = prepared(&dir);
    let swept = ebbtide(&["sweep", "--store", &url, "--kind", "approvals", "--json"]);
    assert_eq!(swept.status.code(), Some(0), "{}", said(&swept));
    assert_eq!(String::from_utf8(swept.stdout).unwrap(), "{\"approvals\":0}\n");
    let dry = ebbtide(&["sweep", "--store", &url, "--dry-run"]);
    assert!(said(&dry).contains("3 replays, the oldest expired"), "{}", said(&dry));
    let swept = ebbtide(&["sweep", "--store", &url, "--kind", "replays,approvals", "--json"]);
    assert_eq!(String::from_utf8(swept.stdout).unwrap(), "{\"approvals\":0,\"replays\":3}\n");
    let unknown = ebbtide(&["sweep", "--store", &url, "--kind", "replay"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(said(&unknown).contains("replays"), "{}", said(&unknown));
}

#[test]
fn more_for_the_next_sweep_is_a_status_of_its_own_or_none() {
    let dir = tempfile::tempdir().unwrap();
    let url = prepared(&dir);
    // A sweep that was killed in the midst of its turn.
    let killed = async {
        let db = Ebbtide::open(&url).await.unwrap();
        let sweeper = db.sweeper();
        let sweep = sweeper.sweep(|_| std::future::pending::<ControlFlow<()>>());
        assert!(tokio::time::timeout(Duration::from_millis(500), sweep).await.is_err(), "it rests");
    };
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(killed);
    for (more, status) in [(&[][..], 1), (&["--more-is-ok"][..], 0)] {
        let swept = ebbtide(&[&["sweep", "--store", &url, "--json"], more].concat());
        assert_eq!(swept.status.code(), Some(status), "{}", said(&swept));
        assert_eq!(String::from_utf8(swept.stdout).unwrap(), "{\"more\":true}\n");
    }
}

#[test]
fn a_store_that_a_server_has_open_is_left_to_that_server() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("fjall:{}", dir.path().join("store").display());
    let mut server = serve(&url, &[]);
    let swept = ebbtide(&["sweep", "--store", &url]);
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!(swept.status.code(), Some(2));
    assert!(said(&swept).contains("--sweep-interval"), "{}", said(&swept));
}

#[test]
fn the_sweeper_of_the_server_sweeps_at_its_interval_and_stops_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let url = prepared(&dir);
    let arguments = ["--store", &url, "--sweep-interval", "700ms", "--sweep-budget", "0.5"];
    let key = [("EBBTIDE_ROOT_KEY", "ebk_the-root-key-of-the-test")];
    let mut server = server::Server::start_with(dir.path(), &arguments, &key);
    let swept = || server.get("/metrics").text.contains(r#"ebbtide_swept_total{kind="replays"} 3"#);
    assert!(server::until(swept), "{}", server.get("/metrics").text);
    let stats = server.get("/v1/stats").ok(200);
    assert_eq!(stats["kinds"]["replays"]["expired"], 0, "{stats}");
    server.signal("-TERM");
    assert_eq!(server.wait().code(), Some(0), "{}", server.logged());
}

#[test]
fn a_server_does_not_start_with_an_invalid_interval_or_budget() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("fjall:{}", dir.path().join("store").display());
    let serve = |flag: &str, value: &str| {
        let flag = format!("{flag}={value}");
        ebbtide(&["serve", "--listen", "127.0.0.1:0", "--store", &url, &flag])
    };
    for interval in ["0", "0s", "0ms", "-30s", "30", "soon", "", "1.5h"] {
        let output = serve("--sweep-interval", interval);
        assert_eq!(output.status.code(), Some(2), "{interval:?}: {}", said(&output));
        assert!(said(&output).contains("30s, 5m, 1h"), "{interval:?}: {}", said(&output));
    }
    for budget in ["0", "-1", "1.5", "25%", ""] {
        let output = serve("--sweep-budget", budget);
        assert_eq!(output.status.code(), Some(2), "{budget:?}: {}", said(&output));
    }
    assert!(!dir.path().join("store").exists(), "no store was created");
    let output = Command::new(env!("CARGO_BIN_EXE_ebbtide"))
        .args(["serve", "--listen", "127.0.0.1:0", "--store", &url])
        .env("EBBTIDE_SWEEP_INTERVAL", "0s")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "the variable is checked too: {}", said(&output));
}
