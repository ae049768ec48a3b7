//! Two server processes on one shared engine: of all requests that race over HTTP, one wins.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/engines.rs"]
mod engines;
#[path = "nodes/naming.rs"]
mod naming;
#[path = "support/server.rs"]
mod server;

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use ebbtide::Stopwatch;
use engines::{ENGINES, Engine, done, schema_url};
use libtest_mimic::{Arguments, Failed, Trial};
use naming::find_through_rotation;
use serde_json::{Value, json};
use server::{Answer, Client, Server, ebbtide, proof, said, until};
use tempfile::TempDir;

const KEY: &str = "ebk_the-root-key-of-both-nodes";
const CLIENTS: usize = 64;
const ROUNDS: usize = 4;

type Race = fn(&Nodes, usize);

const RACES: [(&str, Race); 3] = [
    ("one_redemption_of_a_code_wins_over_two_nodes", race_for_a_code),
    ("one_proof_is_fresh_over_two_nodes", race_for_a_proof),
    ("one_rotation_wins_over_two_nodes", race_for_a_rotation),
];

fn main() -> ExitCode {
    let mut trials = Vec::new();
    for engine in ENGINES.iter().filter(|engine| engine.built) {
        let (missing, place) = (engine.is_missing(), || engine.place());
        let mut add = |name: &str, run: Box<dyn FnOnce() -> Result<(), Failed> + Send>| {
            trials.push(Trial::test(format!("{}::{name}", engine.name), run).with_ignored_flag(missing));
        };
        for (name, race) in RACES {
            add(name, Box::new(move || run(engine, &place()?, race)));
        }
        add(
            "records_stay_findable_while_a_ring_is_rotated",
            Box::new(move || find_through_rotation(engine, &place()?)),
        );
        if engine.name == "postgres" {
            add("a_schema_is_created_once_and_found_afterwards", Box::new(move || migrate(&place()?)));
            add(
                "a_ring_is_rotated_under_load_without_a_failed_request",
                Box::new(move || rotate_ring(engine, &place()?)),
            );
            add(
                "audited_calls_of_one_tenant_are_all_served",
                Box::new(move || run(engine, &place()?, audited_at_once)),
            );
            if std::env::var_os("EBBTIDE_TEST_RATES").is_some() {
                add(
                    "audited_calls_are_nearly_as_fast_as_others",
                    Box::new(move || run(engine, &place()?, compare_rates)),
                );
            }
            add(
                "rotations_of_a_locked_grant_hold_up_no_check",
                Box::new(move || rotate_a_locked_grant(engine, &place()?)),
            );
            add(
                "a_policy_is_in_force_on_the_other_node_within_five_seconds",
                Box::new(move || run(engine, &place()?, policy)),
            );
            add("the_pool_and_the_clock_are_watched", Box::new(move || run(engine, &place()?, look)));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn migrate(server: &str) -> Result<(), Failed> {
    let url = schema_url(server);
    let folder = tempfile::tempdir()?;
    let keyring = folder.path().join("keyring.json");
    let keyring = keyring.to_str().unwrap();
    done(&["keyring", "--keyring", keyring, "init"]);
    let serve = ["serve", "--store", &url, "--keyring", keyring];
    let refused = ebbtide(&serve).env("EBBTIDE_ROOT_KEY", KEY).output()?;
    assert_eq!(
        refused.status.code(),
        Some(2),
        "a server does not create a schema unasked: {}",
        said(&refused)
    );
    assert!(said(&refused).contains("migrate-schema"), "{}", said(&refused));
    assert!(done(&["migrate-schema", "--store", &url]).starts_with("created the schema in version"));
    assert!(done(&["migrate-schema", "--store", &url]).contains("already"));
    assert!(done(&["migrate-schema", "--store", &url, "--wait", "1m"]).contains("already"));
    let nobody = ["migrate-schema", "--store", "postgres://u@127.0.0.1:1/d", "--wait", "2s"];
    let away = ebbtide(&nobody).output()?;
    assert_eq!(away.status.code(), Some(2), "{}", said(&away));
    assert!(said(&away).contains("waiting for the database"), "{}", said(&away));
    let other = ebbtide(&["migrate-schema", "--store", "memory:"]).output()?;
    assert_eq!(other.status.code(), Some(2), "only PostgreSQL has a schema");
    Ok(())
}

/// Two nodes on one store.
struct Nodes {
    nodes: [Server; 2],
    _folder: TempDir,
}

fn run(engine: &Engine, place: &str, race: Race) -> Result<(), Failed> {
    let (url, folder) = ((engine.fresh)(place), tempfile::tempdir()?);
    let keyring = folder.path().join("keyring.json");
    let keyring = keyring.to_str().unwrap();
    done(&["keyring", "--keyring", keyring, "init"]);
    let start = || {
        let arguments = ["--store", &url, "--keyring", keyring];
        Server::start_with(folder.path(), &arguments, &[("EBBTIDE_ROOT_KEY", KEY)])
    };
    let nodes = Nodes { nodes: [start(), start()], _folder: folder };
    for round in 0..ROUNDS {
        race(&nodes, round);
    }
    Ok(())
}

impl Nodes {
    fn ask(&self, path: &str, body: &str) -> Value {
        self.nodes[0].post(path, body).ok(201)
    }

    /// Sends the request from every client at once, half of them to each node.
    fn all_at_once(&self, path: &'static str, body: &str) -> Vec<Answer> {
        let start = Arc::new(Barrier::new(CLIENTS));
        let contenders: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let (start, body) = (Arc::clone(&start), body.to_owned());
                let mut client = Client::new(self.nodes[number % 2].address, KEY);
                std::thread::spawn(move || {
                    start.wait();
                    client.post(path, &body)
                })
            })
            .collect();
        contenders.into_iter().map(|contender| contender.join().unwrap()).collect()
    }
}

/// A session of the database that has locked every grant until it ends.
struct Locked(Child);

impl Locked {
    fn new(server: &str, schema: &str) -> Self {
        let mut psql = Command::new("psql")
            .args(["--no-psqlrc", "--quiet", "-v", "ON_ERROR_STOP=1", server])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lock = format!("BEGIN;\nSELECT FROM {schema}.grants FOR UPDATE;\n\\echo locked\n");
        psql.stdin.as_mut().unwrap().write_all(lock.as_bytes()).unwrap();
        let mut lines = BufReader::new(psql.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap() == "locked"), "the grants are locked");
        Self(psql)
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // The end of its input ends the session.
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Clients that wait for the row of one grant take no connection from checks, and readiness knows nothing of them.
fn rotate_a_locked_grant(engine: &Engine, place: &str) -> Result<(), Failed> {
    const CHECKS: u64 = 20;
    let url = (engine.fresh)(place);
    let schema = url.split_once("schema=").unwrap().1.split('&').next().unwrap();
    // Nothing but the end of the lock ends their wait within the test.
    let url = format!("{url}&lock_timeout_ms=60000&statement_timeout_ms=60000");
    let folder = tempfile::tempdir()?;
    let keyring = folder.path().join("keyring.json");
    let keyring = keyring.to_str().unwrap();
    done(&["keyring", "--keyring", keyring, "init"]);
    let arguments = ["--store", &url, "--keyring", keyring];
    let node = Server::start_with(folder.path(), &arguments, &[("EBBTIDE_ROOT_KEY", KEY)]);
    let grant = node.post("/v1/grants", r#"{"client_id":"app","subject":"alice"}"#).ok(201);
    let rotate = json!({"refresh_token": grant["refresh_token"], "client_id": "app"}).to_string();
    let locked = Locked::new(place, schema);
    let answered = Arc::new(AtomicU64::new(0));
    let rotations: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let (mut client, rotate, answered) =
                (Client::new(node.address, KEY), rotate.clone(), Arc::clone(&answered));
            std::thread::spawn(move || {
                let answer = client.try_post("/v1/grants/rotate", &rotate);
                answered.fetch_add(1, Ordering::SeqCst);
                answer.map(|answer| answer.status)
            })
        })
        .collect();
    let mut longest = Duration::ZERO;
    for number in 0..CHECKS {
        let began = Stopwatch::start();
        assert_eq!(node.post("/v1/replays/check", &proof(&format!("beside {number}"))).status, 200);
        longest = longest.max(began.elapsed());
        assert_eq!(node.get("/readyz").status, 200, "{}", node.logged());
    }
    let early = answered.load(Ordering::SeqCst);
    println!(
        "the longest of {CHECKS} checks beside {CLIENTS} rotations of a locked grant: {longest:?}; {early} answered"
    );
    assert!(longest < Duration::from_secs(2), "{longest:?}");
    drop(locked);
    let statuses: Vec<_> = rotations.into_iter().map(|rotation| rotation.join().unwrap()).collect();
    assert!(statuses.contains(&Some(200)), "one goes on: {statuses:?}");
    Ok(())
}

/// Checks the metrics of a node on a shared engine.
fn look(nodes: &Nodes, _: usize) {
    let text = nodes.nodes[0].get("/metrics").text;
    for state in ["most", "idle", "in_use", "waited_for"] {
        assert!(text.contains(&format!(r#"ebbtide_pool_connections{{state="{state}"}}"#)), "{text}");
    }
    let difference =
        text.lines().find_map(|line| line.strip_prefix("ebbtide_clock_engine_difference_seconds "));
    let seconds: f64 = difference.unwrap_or_else(|| panic!("no difference in {text}")).parse().unwrap();
    assert!(seconds.abs() < 2.0, "{seconds}");
    assert_eq!(nodes.nodes[1].get("/readyz").ok(200)["status"], "ready");
}

/// Sets a policy on one node: the other one refuses by it within 5 seconds.
fn policy(nodes: &Nodes, round: usize) {
    let longest = 1_000 - 100 * u64::try_from(round).unwrap();
    let policy = json!({"kind": "nonces", "scope": "tenant:acme", "min_ttl_seconds": 1, "max_ttl_seconds": longest,
        "enforce_ttl": true});
    let json = [("Content-Type", "application/json")];
    let set =
        Client::new(nodes.nodes[0].address, KEY).call("PUT", "/v1/policies", &json, &policy.to_string());
    assert_eq!(set.status, 200, "{set:?}");
    let (time, mut second) = (Stopwatch::start(), Client::new(nodes.nodes[1].address, KEY));
    let scope = [("Ebbtide-Scope", "tenant:acme"), ("Content-Type", "application/json")];
    let body = json!({"ttl_seconds": longest + 1}).to_string();
    let mut status = 0;
    until(|| {
        status = second.call("POST", "/v1/nonces", &scope, &body).status;
        status == 400 || time.elapsed() > Duration::from_secs(5)
    });
    assert_eq!(status, 400, "after {:?}", time.elapsed());
}

/// Checks that one answer is a success, and every other the refusal or 503.
fn one_wins(answers: &[Answer], refusal: &str) {
    assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 1, "{answers:?}");
    let others = answers.iter().filter(|answer| answer.status != 200);
    let fair = |answer: &&Answer| answer.status == 503 || answer.body["title"] == refusal;
    assert_eq!(others.filter(fair).count(), CLIENTS - 1, "{answers:?}");
}

fn race_for_a_code(nodes: &Nodes, _: usize) {
    let issue = r#"{"client_id":"app","subject":"alice","redirect_uri":"https://app/cb"}"#;
    let code = nodes.ask("/v1/codes", issue)["code"].to_string();
    let redeem =
        format!(r#"{{"code":{code},"client_id":"app","redirect_uri":"https://app/cb","grant":{{}}}}"#);
    one_wins(&nodes.all_at_once("/v1/codes/redeem", &redeem), "reused");
}

fn race_for_a_proof(nodes: &Nodes, round: usize) {
    one_wins(&nodes.all_at_once("/v1/replays/check", &proof(&format!("jti-{round}"))), "replay");
}

/// A request within the retry window receives the successor of the winner, and no other.
fn race_for_a_rotation(nodes: &Nodes, _: usize) {
    let token =
        nodes.ask("/v1/grants", r#"{"subject":"alice","client_id":"app"}"#)["refresh_token"].to_string();
    let rotate = format!(r#"{{"refresh_token":{token},"client_id":"app"}}"#);
    let answers = nodes.all_at_once("/v1/grants/rotate", &rotate);
    let answered: Vec<_> = answers.iter().filter(|answer| answer.status == 200).collect();
    assert!(answers.iter().all(|answer| [200, 503].contains(&answer.status)), "{answers:?}");
    assert_eq!(answered.iter().filter(|answer| answer.body["retried"] == false).count(), 1, "{answers:?}");
    let successor = &answered[0].body["refresh_token"];
    assert!(answered.iter().all(|answer| answer.body["refresh_token"] == *successor), "the family forked");
}

/// Grants of approvals by every client at once: each is served, and the log of the tenant is whole.
fn audited_at_once(nodes: &Nodes, round: usize) {
    let start = Arc::new(Barrier::new(CLIENTS));
    let callers: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let (start, mut client) = (Arc::clone(&start), Client::new(nodes.nodes[number % 2].address, KEY));
            std::thread::spawn(move || {
                let body = json!({"identity": format!("user-{round}-{number}"), "resource": "doc", "action": "GET",
                    "granted_by": "admin", "ttl_seconds": 600});
                let scope = [("Ebbtide-Scope", "tenant:acme"), ("Content-Type", "application/json")];
                start.wait();
                client.call("PUT", "/v1/approvals", &scope, &body.to_string())
            })
        })
        .collect();
    let answers: Vec<_> = callers.into_iter().map(|caller| caller.join().unwrap()).collect();
    assert!(answers.iter().all(|answer| answer.status == 200), "{answers:?}");
    let log = nodes.nodes[round % 2].get("/v1/audit/verify?scope=tenant:acme").ok(200);
    assert_eq!(log["entries"], json!((round + 1) * CLIENTS), "one entry for each: {log}");
}

/// Compares grants of approvals with the creation of sessions, which write as many records but no audit entry. The sides
/// take turns. Only `scripts/proof` runs it: a machine that others use makes a time say little.
fn compare_rates(nodes: &Nodes, round: usize) {
    const CALLS: usize = 50;
    let side = |path: &'static str, method: &'static str, body: fn(&str) -> Value| {
        let (start, time) = (Barrier::new(CLIENTS), Stopwatch::start());
        std::thread::scope(|scope| {
            for number in 0..CLIENTS {
                let (start, node) = (&start, nodes.nodes[number % 2].address);
                scope.spawn(move || {
                    let mut client = Client::new(node, KEY);
                    let scope = [("Ebbtide-Scope", "tenant:acme"), ("Content-Type", "application/json")];
                    start.wait();
                    for call in 0..CALLS {
                        let body = body(&format!("user-{round}-{number}-{call}")).to_string();
                        let answer = client.call(method, path, &scope, &body);
                        assert!(answer.status < 300, "{answer:?}");
                    }
                });
            }
        });
        time.elapsed()
    };
    let approval = |name: &str| json!({"identity": name, "resource": "doc", "action": "GET", "granted_by": "admin", "ttl_seconds": 600});
    let (mut audited, mut others) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..2 {
        others += side("/v1/sessions", "POST", |name| json!({"subject": name}));
        audited += side("/v1/approvals", "PUT", approval);
    }
    let ratio = audited.as_secs_f64() / others.as_secs_f64();
    println!("round {round}: {audited:?} audited, {others:?} not: {ratio:.2}");
    if round > 0 {
        assert!(ratio <= 1.5, "{ratio:.2}");
    }
}

/// The documented rotation, with the file copied from node to node, while clients rotate tokens on both.
fn rotate_ring(engine: &Engine, place: &str) -> Result<(), Failed> {
    let (url, folder) = ((engine.fresh)(place), tempfile::tempdir()?);
    let files = ["one.json", "two.json"].map(|name| folder.path().join(name).display().to_string());
    let ring = |arguments: &[&str]| {
        let all = [&["keyring", "--keyring", files[0].as_str()], arguments].concat();
        ebbtide(&all).output().unwrap()
    };
    assert!(ring(&["init"]).status.success());
    std::fs::copy(&files[0], &files[1])?;
    let nodes = files.each_ref().map(|file| {
        let arguments = ["--store", &url, "--keyring", file];
        Server::start_with(folder.path(), &arguments, &[("EBBTIDE_ROOT_KEY", KEY)])
    });
    let shown = || -> Value {
        let output = ring(&["show", "--json", "--store", &url]);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", said(&output)))
    };
    let old = shown()["active"].as_str().unwrap().to_owned();
    let (over, rotations) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let loads: Vec<_> = (0..8)
        .map(|number| {
            let clients = nodes.each_ref().map(|node| Client::new(node.address, KEY));
            let (over, rotations) = (Arc::clone(&over), Arc::clone(&rotations));
            std::thread::spawn(move || load(clients, number, &over, &rotations))
        })
        .collect();
    let reported = |id: &str, nodes: usize| {
        let has = |node: &&Value| node["keys"].as_array().unwrap().contains(&json!(id));
        shown()["nodes"].as_array().unwrap().iter().filter(has).count() == nodes
    };
    assert!(until(|| reported(&old, 2)), "{}", shown());
    assert!(ring(&["add", "--standby"]).status.success());
    let new =
        shown()["keys"].as_array().unwrap().iter().find(|key| key["state"] == "accepted").unwrap()["id"]
            .clone();
    let new = new.as_str().unwrap();
    let refused = ring(&["activate", new, "--store", &url]);
    assert!(
        !refused.status.success() && said(&refused).contains("do not have the key"),
        "{}",
        said(&refused)
    );
    std::fs::copy(&files[0], &files[1])?;
    for node in &nodes {
        node.signal("-HUP");
    }
    assert!(until(|| reported(new, 2)), "{}", shown());
    let activated = ring(&["activate", new, "--store", &url]);
    assert!(activated.status.success(), "{}", said(&activated));
    let refused = ring(&["retire", &old, "--store", &url]);
    assert!(!refused.status.success(), "a node still makes tokens with it: {}", said(&refused));
    std::fs::copy(&files[0], &files[1])?;
    for node in &nodes {
        node.signal("-HUP");
    }
    let active = |node: &Value| node["active"] == json!(new);
    assert!(until(|| shown()["nodes"].as_array().unwrap().iter().all(active)), "{}", shown());
    let before = rotations.load(Ordering::Relaxed);
    assert!(until(|| rotations.load(Ordering::Relaxed) > before + 64));
    let resealed = ring(&["reseal", "--store", &url]);
    assert!(resealed.status.success(), "{}", said(&resealed));
    let retired = ring(&["retire", &old, "--store", &url]);
    assert!(retired.status.success(), "{}", said(&retired));
    std::fs::copy(&files[0], &files[1])?;
    for node in &nodes {
        node.signal("-HUP");
    }
    let before = rotations.load(Ordering::Relaxed);
    assert!(until(|| rotations.load(Ordering::Relaxed) > before + 64));
    over.store(true, Ordering::Relaxed);
    for load in loads {
        assert_eq!(load.join().unwrap(), Vec::<String>::new(), "no request fails");
    }
    Ok(())
}

/// Rotates one family on both nodes in turn, and returns the failures.
fn load(mut clients: [Client; 2], number: usize, over: &AtomicBool, rotations: &AtomicU64) -> Vec<String> {
    let body = json!({"subject": format!("user-{number}"), "client_id": "app", "data": {"n": number},
        "grace_seconds": 0});
    let mut token = clients[0].post("/v1/grants", &body.to_string()).ok(201)["refresh_token"].clone();
    let mut failures = Vec::new();
    for client in (0..2).cycle() {
        if over.load(Ordering::Relaxed) {
            break;
        }
        let body = json!({"refresh_token": token, "client_id": "app"}).to_string();
        let answer = clients[client].post("/v1/grants/rotate", &body);
        if answer.status == 200 {
            token = answer.body["refresh_token"].clone();
            rotations.fetch_add(1, Ordering::Relaxed);
        } else {
            failures.push(answer.text);
        }
    }
    failures
}
