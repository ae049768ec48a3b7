//! Real clients of Redis, unmodified, against the binary; and `kill -9` under a pipeline.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/server.rs"]
mod server;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use libtest_mimic::{Arguments, Failed, Trial};
use redis::Commands as _;

use server::{Server, ebbtide, said, until};

const PYTHON: &str = "EBBTIDE_TEST_REDIS_PYTHON";
const NODE: &str = "EBBTIDE_TEST_REDIS_NODE";
/// Set for release builds: the suite of connect-redis runs as it is.
const UNMODIFIED: &str = "EBBTIDE_TEST_UNMODIFIED";

static TURN: RwLock<()> = RwLock::new(());

fn main() -> ExitCode {
    let ci = std::env::var_os("CI").is_some();
    let has = |program: &str| Command::new(program).arg("--version").output().is_ok();
    let set = |name: &str| std::env::var(name).is_ok_and(|value| !value.is_empty());
    let trial = |name: &str, there: bool, run: fn()| {
        // The suite of connect-redis has a second to load a thousand sessions: it runs alone.
        let alone = name.starts_with("connect");
        let test = move || {
            let _alone = alone.then(|| TURN.write().unwrap_or_else(PoisonError::into_inner));
            let _together = (!alone).then(|| TURN.read().unwrap_or_else(PoisonError::into_inner));
            run();
            Ok::<(), Failed>(())
        };
        Trial::test(name, test).with_ignored_flag(!there && !ci)
    };
    let trials = vec![
        trial("redis_cli_is_served", has("redis-cli"), redis_cli),
        trial("redis_benchmark_runs", has("redis-benchmark"), redis_benchmark),
        trial("redis_py_is_served", set(PYTHON), redis_py),
        trial("node_redis_and_ioredis_are_served", set(NODE), node),
        trial("connect_redis_passes_its_own_suite", set(NODE), connect_redis),
        trial("the_redis_crate_is_served", true, redis_crate),
        trial("tls_has_the_files_of_http", has("redis-cli"), tls),
        trial("nothing_acknowledged_is_lost_by_kill_9", true, kill_9),
        trial("shutting_down_answers_what_has_begun", true, shutdown),
        trial("an_import_from_redis_keeps_values_and_ends", has("redis-server"), import),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// A server with a listener for the Redis protocol, and the port of that.
fn start(arguments: &[&str]) -> (Server, u16) {
    let mut server = Server::start(&[&["--resp", "127.0.0.1:0"], arguments].concat());
    let line = server.next_line();
    let port = line.trim().rsplit(':').next().unwrap().parse().unwrap();
    assert!(line.contains("listening on redis"), "{line}");
    (server, port)
}

fn tests() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/redis"))
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn redis_cli() {
    let (server, port) = start(&[]);
    let script = "SET k v EX 100 NX\nSET k w NX\nGET k\nTTL k\nINCR n\nMULTI\nINCR n\nGET k\nEXEC\nDELEX k IFEQ v\n\
                  GET k\nEVAL x 0\nSCAN 0\n";
    let expected = "OK\n\nv\n100\n1\nOK\nQUEUED\nQUEUED\n2\nv\n1\n\n";
    for protocol in ["-2", "-3"] {
        let mut cli = Command::new("redis-cli");
        cli.args(["-p", &port.to_string(), "--no-auth-warning", "-a", &server.key, protocol]);
        let mut process = cli.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        process.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        let output = process.wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let rest = text.strip_prefix(expected).unwrap_or_else(|| panic!("{text:?}"));
        assert!(rest.starts_with("ERR unknown command 'EVAL': scripts do not run here"), "{rest:?}");
        assert!(rest.trim_end().ends_with("\n0\nn"), "{rest:?}");
        run(Command::new("redis-cli").args(["-p", &port.to_string(), "-a", &server.key, "DEL", "n"]));
    }
}

fn redis_benchmark() {
    let (server, port) = start(&[]);
    for pipeline in ["1", "16"] {
        let text = run(Command::new("redis-benchmark")
            .args(["-p", &port.to_string(), "-a", &server.key])
            .args(["-t", "set,get,incr", "-n", "2000", "-c", "16", "-P", pipeline, "-r", "1000", "-q"]));
        assert!(["SET: ", "GET: ", "INCR: "].iter().all(|test| text.contains(test)), "{text}");
        assert!(!text.contains("rror"), "{text}");
    }
}

fn redis_py() {
    let (server, port) = start(&[]);
    let mut python = Command::new(std::env::var(PYTHON).expect("the variable is set"));
    let text = run(python.arg(tests().join("client.py")).args([&port.to_string(), &server.key]));
    assert!(text.contains("redis-py is served"), "{text}");
}

fn node() {
    let (server, port) = start(&[]);
    let mut node = Command::new("node");
    node.arg(tests().join("clients.mjs")).args([&port.to_string(), &server.key]);
    let text = run(node.current_dir(std::env::var(NODE).expect("the variable is set")));
    assert!(text.contains("node-redis and ioredis are served"), "{text}");
}

/// The suite loads a thousand sessions of one second one after the other, and counts them. So a debug build runs it on a
/// store in memory, with ten seconds in place of one, and again if the machine was too busy. With [`UNMODIFIED`] it runs
/// once, as it is, on an embedded store.
fn connect_redis() {
    let unmodified = std::env::var_os(UNMODIFIED).is_some();
    let folder = tempfile::tempdir().unwrap();
    let key = "ebk_the-root-key-of-these-tests";
    let embedded = format!("fjall:{}", folder.path().join("data").display());
    let store = if unmodified { embedded.as_str() } else { "memory:" };
    let arguments = ["--store", store, "--resp", "127.0.0.1:0"];
    let mut server = Server::start_with(folder.path(), &arguments, &[("EBBTIDE_ROOT_KEY", key)]);
    let port = server.next_line().trim().rsplit(':').next().unwrap().to_owned();
    let suite = Path::new(&std::env::var(NODE).expect("the variable is set")).join("connect-redis");
    fs::create_dir_all(suite.join("testdata")).unwrap();
    fs::copy(tests().join("server.ts"), suite.join("testdata/server.ts")).unwrap();
    fs::copy(tests().join("vitest.config.ts"), suite.join("vitest.config.ts")).unwrap();
    let mut said_last = String::new();
    let tries = if unmodified { 1 } else { 8 };
    for _ in 0..tries {
        let output = Command::new("npx")
            .args(["vitest", "run", "--root", "."])
            .env("EBBTIDE_PORT", &port)
            .env("EBBTIDE_KEY", key)
            .current_dir(&suite)
            .output()
            .unwrap();
        said_last = said(&output);
        if output.status.success() && said_last.contains("4 passed") {
            return;
        }
    }
    panic!("{said_last}");
}

fn redis_crate() {
    let (server, port) = start(&[]);
    let url = format!("redis://tenant%3Aacme:{}@127.0.0.1:{port}/0?protocol=resp3", server.key);
    let client = redis::Client::open(url).unwrap();
    let mut connection = client.get_connection().unwrap();
    let () = connection.set_ex("k", "v", 60).unwrap();
    let value: String = connection.get("k").unwrap();
    assert_eq!(value, "v");
    let fresh: bool = connection.set_nx("k", "w").unwrap();
    assert!(!fresh);
    let count: i64 = connection.incr("n", 5).unwrap();
    assert_eq!(count, 5);
    let (first, second): (i64, Option<String>) =
        redis::pipe().atomic().incr("n", 1).get("none").query(&mut connection).unwrap();
    assert_eq!((first, second), (6, None));
    let found: BTreeSet<String> = connection.scan().unwrap().map(Result::unwrap).collect();
    assert_eq!(found, BTreeSet::from(["k".to_owned(), "n".to_owned()]));
    let taken: Option<String> = connection.get_del("k").unwrap();
    assert_eq!(taken.as_deref(), Some("v"));
    let wrong = redis::Client::open(format!("redis://:wrong@127.0.0.1:{port}")).unwrap();
    let error = wrong.get_connection().map(drop).unwrap_err();
    assert_eq!(error.kind(), redis::ErrorKind::AuthenticationFailed, "{error}");
}

fn tls() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    fs::write(&cert, made.cert.pem()).unwrap();
    fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let arguments = ["--tls-cert", cert.to_str().unwrap(), "--tls-key", key.to_str().unwrap()];
    let (server, port) = start(&arguments);
    let ask = |command: &[&str]| {
        run(Command::new("redis-cli")
            .args(["-h", "localhost", "-p", &port.to_string(), "--no-auth-warning", "-a", &server.key])
            .args(["--tls", "--cacert", cert.to_str().unwrap()])
            .args(command))
    };
    assert_eq!(ask(&["SET", "k", "v"]), "OK\n");
    let renewed = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    fs::write(&cert, renewed.cert.pem()).unwrap();
    fs::write(&key, renewed.signing_key.serialize_pem()).unwrap();
    server.signal("-HUP");
    server.logged_with(&["reloaded the files"]);
    assert_eq!(ask(&["GET", "k"]), "v\n", "the new certificate is presented");
    let plain = Command::new("redis-cli").args(["-p", &port.to_string(), "PING"]).output().unwrap();
    assert!(!said(&plain).contains("PONG"), "TLS alone");
}

/// Sends `SET … NX` in pipelines until the connection breaks; returns the keys that were acknowledged.
fn insert(port: u16, key: &str, name: usize, acknowledged: &AtomicUsize) -> Vec<String> {
    const PIPELINE: usize = 16;
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut replies = BufReader::new(stream.try_clone().unwrap());
    stream.write_all(format!("AUTH {key}\r\n").as_bytes()).unwrap();
    let mut line = String::new();
    replies.read_line(&mut line).unwrap();
    assert_eq!(line, "+OK\r\n");
    let mut known = Vec::new();
    for round in 0.. {
        let keys: Vec<_> = (0..PIPELINE).map(|index| format!("{name}:{round}:{index}")).collect();
        let all =
            keys.iter().map(|key| format!("SET {key} {key} EX 3600 NX\r\n")).collect::<Vec<_>>().concat();
        if stream.write_all(all.as_bytes()).is_err() {
            break;
        }
        for key in keys {
            line.clear();
            if !matches!(replies.read_line(&mut line), Ok(1..)) || !line.ends_with('\n') {
                return known;
            }
            assert_eq!(line, "+OK\r\n", "a new key is free");
            known.push(key);
            acknowledged.fetch_add(1, Ordering::Relaxed);
        }
    }
    known
}

fn kill_9() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["--resp", "127.0.0.1:0"];
    let mut server = Server::start_in(folder.path(), &arguments);
    let port = server.next_line().trim().rsplit(':').next().unwrap().parse().unwrap();
    let acknowledged = Arc::new(AtomicUsize::new(0));
    let writers: Vec<_> = (0..8)
        .map(|name| {
            let (acknowledged, key) = (Arc::clone(&acknowledged), server.key.clone());
            std::thread::spawn(move || insert(port, &key, name, &acknowledged))
        })
        .collect();
    assert!(until(|| acknowledged.load(Ordering::Relaxed) > 2_000));
    server.kill();
    let known: Vec<String> = writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect();
    assert!(known.len() > 2_000);
    let mut server = Server::start_in(folder.path(), &arguments);
    let port: u16 = server.next_line().trim().rsplit(':').next().unwrap().parse().unwrap();
    let client = redis::Client::open(format!("redis://:{}@127.0.0.1:{port}", server.key)).unwrap();
    let mut connection = client.get_connection().unwrap();
    for part in known.chunks(500) {
        let values: Vec<Option<String>> = connection.mget(part).unwrap();
        for (key, value) in part.iter().zip(values) {
            assert_eq!(value.as_ref(), Some(key), "an acknowledged key is there");
        }
        let mut again = redis::pipe();
        for key in part {
            again.cmd("SET").arg(key).arg("other").arg("NX");
        }
        let answers: Vec<Option<String>> = again.query(&mut connection).unwrap();
        assert!(answers.iter().all(Option::is_none), "and is no more free");
    }
}

fn shutdown() {
    let (mut server, port) = start(&[]);
    let client = redis::Client::open(format!("redis://:{}@127.0.0.1:{port}", server.key)).unwrap();
    let mut connection = client.get_connection().unwrap();
    let () = connection.set("k", "v").unwrap();
    server.signal("-TERM");
    assert!(server.wait().success(), "an idle connection does not hold it");
    assert!(connection.get::<_, String>("k").is_err());
    let (mut server, port) = start(&["--drain-delay", "60s"]);
    server.signal("-TERM");
    assert!(until(|| server.get("/readyz").status == 503));
    let client = redis::Client::open(format!("redis://:{}@127.0.0.1:{port}", server.key)).unwrap();
    let () = client.get_connection().unwrap().set("k", "v").unwrap();
    // A second signal ends the delay of both listeners.
    server.signal("-TERM");
    assert!(server.wait().success());
}

fn import() {
    let folder = tempfile::tempdir().unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut redis = Command::new("redis-server")
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--requirepass", "secret"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let source = format!("redis://:secret@127.0.0.1:{port}");
    let mut there = None;
    assert!(until(|| {
        there = redis::Client::open(source.as_str()).unwrap().get_connection().ok();
        there.is_some()
    }));
    let mut old = there.unwrap();
    let () = old.set("plain", "v").unwrap();
    let () = old.set("binary", &[0_u8, 255, 13, 10][..]).unwrap();
    let () = old.pset_ex("session", "s", 600_000).unwrap();
    let () = old.incr("hits", 41).unwrap();
    let () = old.lpush("list", "x").unwrap();
    for number in 0..300 {
        let () = old.set_ex(format!("many:{number}"), number, 600).unwrap();
    }
    let (mut server, new_port) = start(&[]);
    let url = format!("redis://:{}@127.0.0.1:{new_port}", server.key);
    let mut new = redis::Client::open(url).unwrap().get_connection().unwrap();
    let () = new.set("plain", "newer").unwrap();
    drop(new);
    // A server takes them as well, into a scope of its own.
    let output = ebbtide(&["import", "--server", &server.url(), "--scope", "tenant:acme", "--from", &source])
        .env("EBBTIDE_API_KEY", &server.key)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "a list is told: {}", said(&output));
    assert!(said(&output).contains("wrote 304 keys in tenant:acme; 1 keys skipped"), "{}", said(&output));
    let store = server.store();
    server.signal("-TERM");
    assert!(server.wait().success());
    let import = |more: &[&str]| {
        let output =
            ebbtide(&[&["import", "--store", &store, "--scope", "global", "--from", &source], more].concat())
                .output()
                .unwrap();
        assert_eq!(output.status.code(), Some(1), "a list and a conflict are told: {}", said(&output));
        said(&output)
    };
    let dry = import(&["--dry-run"]);
    assert!(dry.contains("would write 303 keys"), "{dry}");
    let told = import(&[]);
    assert!(told.contains("wrote 303 keys") && told.contains("1 × it is a list"), "{told}");
    assert!(told.contains("1 × it is there already"), "{told}");
    assert!(!told.contains("secret"), "no password is printed: {told}");
    let again = import(&[]);
    assert!(again.contains("wrote 0 keys") && again.contains("304 × it is there already"), "{again}");
    redis.kill().unwrap();
    redis.wait().unwrap();

    let mut server = Server::start_with(folder.path(), &["--store", &store, "--resp", "127.0.0.1:0"], &[]);
    let key = fs::read_to_string(Path::new(store.strip_prefix("fjall:").unwrap()).join("root.key")).unwrap();
    let port = server.next_line().trim().rsplit(':').next().unwrap().to_owned();
    let url = format!("redis://:{}@127.0.0.1:{port}", key.trim());
    let mut new = redis::Client::open(url).unwrap().get_connection().unwrap();
    let plain: String = new.get("plain").unwrap();
    let binary: Vec<u8> = new.get("binary").unwrap();
    assert_eq!((plain.as_str(), binary.as_slice()), ("newer", &[0_u8, 255, 13, 10][..]));
    let left: i64 = new.pttl("session").unwrap();
    assert!((1..=600_000).contains(&left), "{left}");
    let count: i64 = new.incr("hits", 1).unwrap();
    assert_eq!(count, 42);
    let last: String = new.get("many:299").unwrap();
    assert_eq!(last, "299");
}
