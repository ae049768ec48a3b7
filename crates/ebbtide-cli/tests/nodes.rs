//! Two server processes on one shared engine: of all requests that race over HTTP, one wins.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/server.rs"]
mod server;

use std::process::ExitCode;
use std::sync::{Arc, Barrier};
use std::time::SystemTime;

use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;
use server::{Answer, Client, Server, ebbtide, proof, said};
use tempfile::TempDir;

const KEY: &str = "ebk_the-root-key-of-both-nodes";
const CLIENTS: usize = 64;
const ROUNDS: usize = 4;

/// A shared engine, and the variable with its address.
struct Engine {
    name: &'static str,
    variable: &'static str,
    built: bool,
    /// Creates an empty store at that address.
    fresh: fn(&str) -> String,
}

const ENGINES: [Engine; 2] = [
    Engine {
        name: "postgres",
        variable: "EBBTIDE_TEST_POSTGRES",
        built: cfg!(feature = "postgres"),
        fresh: fresh_schema,
    },
    Engine {
        name: "dynamodb",
        variable: "EBBTIDE_TEST_DYNAMODB",
        built: cfg!(feature = "dynamodb"),
        fresh: fresh_table,
    },
];

type Race = fn(&Nodes, usize);

const RACES: [(&str, Race); 3] = [
    ("one_redemption_of_a_code_wins_over_two_nodes", race_for_a_code),
    ("one_proof_is_fresh_over_two_nodes", race_for_a_proof),
    ("one_rotation_wins_over_two_nodes", race_for_a_rotation),
];

fn main() -> ExitCode {
    let mut trials = Vec::new();
    for engine in ENGINES.iter().filter(|engine| engine.built) {
        let place = std::env::var(engine.variable).ok().filter(|place| !place.is_empty());
        let missing = place.is_none() && std::env::var_os("CI").is_none();
        let place =
            move || place.clone().ok_or_else(|| Failed::from(format!("{} is not set", engine.variable)));
        let mut add = |name: &str, run: Box<dyn FnOnce() -> Result<(), Failed> + Send>| {
            trials.push(Trial::test(format!("{}::{name}", engine.name), run).with_ignored_flag(missing));
        };
        for (name, race) in RACES {
            let place = place.clone();
            add(name, Box::new(move || run(engine, &place()?, race)));
        }
        if engine.name == "postgres" {
            let at = place.clone();
            add("a_schema_is_created_once_and_found_afterwards", Box::new(move || migrate(&at()?)));
            add("the_pool_and_the_clock_are_watched", Box::new(move || run(engine, &place()?, look)));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

#[expect(clippy::disallowed_methods, reason = "names a store that no other run has")]
fn unique() -> u128 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos()
}

fn schema_url(server: &str) -> String {
    format!("{server}?schema=nodes_{}&pool=8", unique())
}

fn done(arguments: &[&str]) -> String {
    let output = ebbtide(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", said(&output));
    said(&output)
}

fn fresh_schema(server: &str) -> String {
    let url = schema_url(server);
    done(&["migrate-schema", "--store", &url]);
    url
}

fn fresh_table(endpoint: &str) -> String {
    let url = format!("dynamodb:ebbtide-nodes-{}?endpoint={endpoint}", unique());
    done(&["table", "create", "--store", &url]);
    url
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
