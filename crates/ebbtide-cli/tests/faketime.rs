//! The real binary under wall clocks that are wrong: set back, leapt, and of a machine that was paused. The boot-time
//! clock is not faked.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/server.rs"]
mod server;

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, SystemTime};

use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;
use server::{Answer, Server, ebbtide, proof, said, until};
use tempfile::TempDir;

const KEY: &str = "ebk_the-root-key-of-these-nodes";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Engine {
    Embedded,
    Postgres,
    DynamoDb,
    /// The same, where sweeps delete.
    DynamoDbSwept,
}

use Engine::{DynamoDb, DynamoDbSwept, Embedded, Postgres};

impl Engine {
    /// Variable that names its server, if this build has the engine and it has one.
    fn variable(self) -> Option<&'static str> {
        match self {
            Embedded => None,
            Postgres => Some("EBBTIDE_TEST_POSTGRES"),
            DynamoDb | DynamoDbSwept => Some("EBBTIDE_TEST_DYNAMODB"),
        }
    }

    fn is_built(self) -> bool {
        match self {
            Embedded => true,
            Postgres => cfg!(feature = "postgres"),
            DynamoDb | DynamoDbSwept => cfg!(feature = "dynamodb"),
        }
    }
}

/// The test, and the engines that it runs on.
type Test = (&'static str, &'static [Engine], fn(&Site));

const TESTS: &[Test] = &[
    ("a_clock_set_back_stops_no_expiry", &[Embedded, Postgres], set_back),
    ("a_clock_set_back_across_a_restart_stops_no_expiry", &[Embedded, Postgres], set_back_across_a_restart),
    (
        "a_sweep_by_a_clock_23_hours_ahead_is_refused",
        &[Embedded, Postgres, DynamoDb, DynamoDbSwept],
        sweep_ahead,
    ),
    ("a_leap_beside_a_healthy_node_harms_nothing", &[Postgres], leap_beside_a_healthy_node),
    ("400_days_ahead_and_back_issues_nothing", &[Embedded, Postgres], far_ahead_and_back),
    ("a_stopped_process_goes_on_by_itself", &[Embedded, Postgres], stopped),
    ("a_paused_machine_goes_on_by_itself", &[Embedded], paused),
];

fn main() -> ExitCode {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let library = variable("EBBTIDE_TEST_FAKETIME");
    let in_ci = std::env::var_os("CI").is_some();
    let mut trials = Vec::new();
    for &(name, engines, test) in TESTS {
        for &engine in engines.iter().filter(|engine| engine.is_built()) {
            let (library, server) = (library.clone(), engine.variable().and_then(variable));
            let missing = library.is_none() || engine.variable().is_some() && server.is_none();
            let run = move || {
                let library = library.ok_or("EBBTIDE_TEST_FAKETIME is not set")?;
                if let Some(variable) = engine.variable().filter(|_| server.is_none()) {
                    return Err(Failed::from(format!("{variable} is not set")));
                }
                test(&Site::new(library, engine, server.as_deref().unwrap_or_default()));
                Ok(())
            };
            let trial = Trial::test(format!("{engine:?}::{name}").to_lowercase(), run);
            trials.push(trial.with_ignored_flag(missing && !in_ci));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

#[expect(clippy::disallowed_methods, reason = "names a store that no other run has")]
fn unique() -> u128 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos()
}

/// A store, and the nodes on it, each with a wall clock of its own.
struct Site {
    library: String,
    folder: TempDir,
    url: String,
    keyring: PathBuf,
    engine: Engine,
}

impl Site {
    fn new(library: String, engine: Engine, server: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let table = format!("dynamodb:ebbtide-faketime-{}?endpoint={server}", unique());
        let url = match engine {
            Embedded => format!("fjall:{}", folder.path().join("data").display()),
            Postgres => format!("{server}?schema=faketime_{}&pool=8", unique()),
            DynamoDb => table,
            DynamoDbSwept => format!("{table}&sweep=delete"),
        };
        let keyring = folder.path().join("keyring.json");
        done(&mut ebbtide(&["keyring", "--keyring", keyring.to_str().unwrap(), "init"]));
        match engine {
            Embedded => {}
            Postgres => drop(done(&mut ebbtide(&["migrate-schema", "--store", &url]))),
            DynamoDb | DynamoDbSwept => drop(done(&mut ebbtide(&["table", "create", "--store", &url]))),
        }
        Self { library, folder, url, keyring, engine }
    }

    fn clock(&self, node: &str) -> Clock {
        let clock = Clock(self.folder.path().join(format!("{node}.clock")));
        clock.set("+0");
        clock
    }

    fn serve(&self, clock: &Clock, arguments: &[&str]) -> Server {
        let (file, keyring) = (clock.0.to_str().unwrap(), self.keyring.to_str().unwrap());
        let all = [&["--store", &self.url, "--keyring", keyring], arguments].concat();
        let variables = [
            ("EBBTIDE_ROOT_KEY", KEY),
            ("LD_PRELOAD", &self.library),
            ("FAKETIME_TIMESTAMP_FILE", file),
            ("FAKETIME_NO_CACHE", "1"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
        ];
        Server::start_with(self.folder.path(), &all, &variables)
    }

    /// A command whose wall clock is wrong by this much.
    fn command(&self, off: &str, arguments: &[&str]) -> Command {
        let mut command = ebbtide(arguments);
        command.args(["--store", &self.url]);
        command
            .env("LD_PRELOAD", &self.library)
            .env("FAKETIME", off)
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        command
    }

    /// The clock by the command, with the right time.
    fn shown(&self) -> Value {
        let output = ebbtide(&["clock", "show", "--json", "--store", &self.url]).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", said(&output)))
    }
}

/// The wall clock of one node.
struct Clock(PathBuf);

impl Clock {
    /// Moves it, relative to the right time. It is replaced at once, so that nobody reads half of it.
    fn set(&self, off: &str) {
        let new = self.0.with_extension("new");
        std::fs::write(&new, format!("{off}\n")).unwrap();
        std::fs::rename(&new, &self.0).unwrap();
    }
}

fn done(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    said(&output)
}

fn sleep(seconds: u64) {
    std::thread::sleep(Duration::from_secs(seconds));
}

/// Credentials that live for so many seconds.
struct Credentials {
    nonce: String,
    code: String,
    key: String,
}

const CODE: &str = r#""client_id":"app","subject":"alice","redirect_uri":"https://app/cb""#;

impl Credentials {
    fn issue(node: &Server, seconds: u32) -> Self {
        let nonce =
            node.post("/v1/nonces", &format!(r#"{{"audience":"as","ttl_seconds":{seconds}}}"#)).ok(201);
        let code = node.post("/v1/codes", &format!(r#"{{{CODE},"ttl_seconds":{seconds}}}"#)).ok(201);
        let key = format!(r#"{{"scope":"tenant:a","role":"writer","ttl_seconds":{seconds}}}"#);
        let key = node.post("/v1/keys", &key).ok(201);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        Self { nonce: text(&nonce["nonce"]), code: text(&code["code"]), key: text(&key["key"]) }
    }

    /// The statuses of the answers to the use of nonce and key, which use neither up.
    fn used(&self, node: &Server) -> (u16, u16) {
        let nonce = format!(r#"{{"audience":"as","nonce":"{}"}}"#, self.nonce);
        let mut keyed = server::Client::new(node.address, &self.key);
        (
            node.post("/v1/nonces/check", &nonce).status,
            keyed.post("/v1/replays/check", &proof(&unique().to_string())).status,
        )
    }

    /// Checks that the nonce is good, which needs no new end.
    fn assert_read(&self, node: &Server) {
        let nonce = format!(r#"{{"audience":"as","nonce":"{}"}}"#, self.nonce);
        assert_eq!(node.post("/v1/nonces/check", &nonce).status, 200, "{}", node.logged());
    }

    fn assert_live(&self, node: &Server) {
        assert_eq!(self.used(node), (200, 200), "live: {}", node.logged());
    }

    fn assert_expired(&self, node: &Server) {
        let (nonce, key) = self.used(node);
        // The store remembers for a while that there was a nonce.
        assert!([404, 410].contains(&nonce), "{nonce}: {}", node.logged());
        let code = format!(r#"{{"code":"{}","client_id":"app","redirect_uri":"https://app/cb"}}"#, self.code);
        let code = node.post("/v1/codes/redeem", &code).status;
        assert_eq!((code, key), (410, 401), "expired: {}", node.logged());
    }
}

fn warned(node: &Server) -> String {
    // An answer is reused for a second.
    sleep(2);
    node.get("/readyz").ok(200)["warnings"].to_string()
}

/// True once the node issues.
fn issues(node: &Server) -> bool {
    until(|| node.post("/v1/nonces", r#"{"audience":"as"}"#).status == 201)
}

/// Checks that nothing is issued: no answer is a success.
fn assert_issues_nothing(node: &Server) {
    let code = format!("{{{CODE}}}");
    let calls: [(&str, &str); 4] = [
        ("/v1/nonces", r#"{"audience":"as","ttl_seconds":2}"#),
        ("/v1/codes", &code),
        ("/v1/replays/check", &proof("new")),
        ("/v1/sessions", r#"{"subject":"alice"}"#),
    ];
    for (path, body) in calls {
        node.post(path, body).refused(503, "unavailable");
    }
}

fn set_back(site: &Site) {
    let clock = site.clock("a");
    let node = site.serve(&clock, &[]);
    let credentials = Credentials::issue(&node, 5);
    credentials.assert_live(&node);
    clock.set("-1h");
    sleep(6);
    credentials.assert_expired(&node);
    assert!(warned(&node).contains("behind"), "{}", warned(&node));
    let credentials = Credentials::issue(&node, 3);
    sleep(4);
    credentials.assert_expired(&node);
    clock.set("+0");
    assert_eq!(warned(&node), "[]");
}

fn set_back_across_a_restart(site: &Site) {
    let clock = site.clock("a");
    let node = site.serve(&clock, &[]);
    let credentials = Credentials::issue(&node, 4);
    assert_eq!(node.post("/v1/replays/check", &proof("seen")).status, 200);
    // The timer has written the mark.
    sleep(2);
    node.kill();
    clock.set("-1h");
    let node = site.serve(&clock, &[]);
    node.post("/v1/replays/check", &proof("seen")).refused(409, "replay");
    sleep(3);
    credentials.assert_expired(&node);
    assert!(warned(&node).contains("behind"), "{}", warned(&node));
    let credentials = Credentials::issue(&node, 2);
    sleep(3);
    credentials.assert_expired(&node);
}

fn sweep_ahead(site: &Site) {
    let clock = site.clock("a");
    let node = site.serve(&clock, &[]);
    let credentials = Credentials::issue(&node, 600);
    assert_eq!(node.post("/v1/replays/check", &proof("seen")).status, 200);
    node.post("/v1/grants", r#"{"client_id":"app","subject":"bob"}"#).ok(201);
    sleep(2);
    let mut node = Some(node);
    if site.engine == Embedded {
        node.take().unwrap().kill();
    }
    let before = site.shown();
    for off in ["+23h", "+400d", "-1h"] {
        let output = site.command(off, &["sweep"]).output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{off}: {}", said(&output));
        assert!(said(&output).contains("nothing was swept"), "{}", said(&output));
    }
    let after = site.shown();
    assert_eq!(
        (before["state"].as_str(), after["state"].as_str()),
        (Some("normal"), Some("normal")),
        "{after}"
    );
    let passed = |clock: &Value| clock["own"].as_u64().unwrap();
    assert!(passed(&after) - passed(&before) < 120_000, "the mark has moved: {before} {after}");
    let node = node.unwrap_or_else(|| site.serve(&clock, &[]));
    node.post("/v1/replays/check", &proof("seen")).refused(409, "replay");
    credentials.assert_live(&node);
    let revoked = node.post("/v1/grants/revoke", r#"{"subject":"bob"}"#).ok(200);
    assert_eq!(revoked["revoked"], 1, "the index of a live grant is there: {revoked}");
    let credentials = Credentials::issue(&node, 2);
    sleep(3);
    credentials.assert_expired(&node);
    drop(node);
    assert!(done(&mut site.command("+0", &["sweep"])).contains("removed"), "with the right time it sweeps");
}

fn leap_beside_a_healthy_node(site: &Site) {
    let (clock, other) = (site.clock("a"), site.clock("b"));
    let leaping = site.serve(&clock, &["--sweep-interval", "1s"]);
    let healthy = site.serve(&other, &["--sweep-interval", "1s"]);
    let credentials = Credentials::issue(&healthy, 600);
    assert_eq!(healthy.post("/v1/replays/check", &proof("seen")).status, 200);
    for off in ["+60s", "+23h"] {
        clock.set(off);
        for _ in 0..20 {
            for node in [&leaping, &healthy] {
                let answer = node.post("/v1/replays/check", &proof("seen"));
                assert!([409, 503].contains(&answer.status), "a seen proof is never fresh: {answer:?}");
            }
            assert_issues_nothing(&leaping);
            std::thread::sleep(Duration::from_millis(200));
        }
        healthy.post("/v1/replays/check", &proof("seen")).refused(409, "replay");
        credentials.assert_live(&healthy);
        clock.set("+0");
        assert!(issues(&leaping), "without a restart: {}", leaping.logged());
    }
    credentials.assert_live(&leaping);
}

fn far_ahead_and_back(site: &Site) {
    let clock = site.clock("a");
    let node = site.serve(&clock, &["--sweep-interval", "1s"]);
    let credentials = Credentials::issue(&node, 600);
    assert_eq!(node.post("/v1/replays/check", &proof("seen")).status, 200);
    clock.set("+400d");
    for _ in 0..15 {
        assert_issues_nothing(&node);
        std::thread::sleep(Duration::from_millis(200));
    }
    if site.engine == Embedded {
        let problem = node.get("/readyz").refused(503, "unavailable");
        assert!(problem.body["detail"].as_str().unwrap().contains("400 d"), "{problem:?}");
    } else {
        // The engine's clock says that the wall is wrong, so that the time is known: reads go on.
        assert!(warned(&node).contains("400 d"), "{}", warned(&node));
        credentials.assert_read(&node);
    }
    clock.set("+0");
    assert!(issues(&node), "without a restart: {}", node.logged());
    node.post("/v1/replays/check", &proof("seen")).refused(409, "replay");
    credentials.assert_live(&node);
    let credentials = Credentials::issue(&node, 2);
    sleep(3);
    credentials.assert_expired(&node);
}

fn stopped(site: &Site) {
    let clock = site.clock("a");
    let node = site.serve(&clock, &["--sweep-interval", "1s"]);
    let credentials = Credentials::issue(&node, 3);
    node.signal("-STOP");
    sleep(6);
    node.signal("-CONT");
    credentials.assert_expired(&node);
    let credentials = Credentials::issue(&node, 60);
    credentials.assert_live(&node);
    assert_eq!(warned(&node), "[]");
}

/// A machine whose boot-time clock stood still: after it the wall is ahead.
fn paused(site: &Site) {
    let clock = site.clock("a");
    let node = site.serve(&clock, &["--sweep-interval", "1s"]);
    let credentials = Credentials::issue(&node, 300);
    assert_eq!(node.post("/v1/replays/check", &proof("seen")).status, 200);
    node.signal("-STOP");
    clock.set("+10m");
    node.signal("-CONT");
    assert_issues_nothing(&node);
    assert!(issues(&node), "within seconds, without an operator: {}", node.logged());
    // They ended during the pause.
    credentials.assert_expired(&node);
    node.post("/v1/replays/check", &proof("seen")).refused(409, "replay");
    assert!(warned(&node).contains("held"), "{}", warned(&node));
    assert!(logged_adoption(&node), "{}", node.logged());
}

fn logged_adoption(node: &Server) -> bool {
    let is_clock = |entry: &Value| entry["action"] == "clock";
    let adopted = |answer: Answer| answer.ok(200)["items"].as_array().unwrap().iter().any(is_clock);
    until(|| adopted(node.get("/v1/audit")))
}
