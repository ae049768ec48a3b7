//! The command `table`, on an endpoint.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/counting.rs"]
mod counting;
#[path = "support/server.rs"]
mod server;

use std::process::{Command, ExitCode, Output};
use std::time::SystemTime;

use counting::Counting;
use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;
use server::{Server, ebbtide, said, until};

const ENDPOINT: &str = "EBBTIDE_TEST_DYNAMODB";

fn main() -> ExitCode {
    let endpoint = std::env::var(ENDPOINT).ok().filter(|endpoint| !endpoint.is_empty());
    let missing = endpoint.is_none() && std::env::var_os("CI").is_none();
    // The table without TTL is created with an unsigned request, which only an emulator accepts.
    let local = endpoint.as_ref().is_some_and(|endpoint| endpoint.contains("//127.0.0.1"));
    let on = |name: &str, run: fn(&str)| {
        let endpoint = endpoint.clone();
        Trial::test(name, move || match &endpoint {
            Some(endpoint) => {
                run(endpoint);
                Ok(())
            }
            None => Err(Failed::from(format!("{ENDPOINT} is not set"))),
        })
    };
    let made = on("a_table_is_made_described_and_made_again", a_table_is_made_described_and_made_again);
    let warned = on(
        "a_table_without_ttl_is_warned_of_until_it_has_it",
        a_table_without_ttl_is_warned_of_until_it_has_it,
    );
    let idle = on("idle_servers_on_a_new_table_scan_nothing", idle_servers_on_a_new_table_scan_nothing);
    let wrong = Trial::test("a_store_that_has_no_table_is_refused", || {
        a_store_that_has_no_table_is_refused();
        Ok(())
    });
    let foreign = endpoint.is_some() && !local;
    let [warned, idle] = [warned, idle].map(|trial| trial.with_ignored_flag(missing || foreign));
    let trials = vec![made.with_ignored_flag(missing), warned, idle, wrong];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn table(action: &str, store: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ebbtide"));
    command.args(["table", action, "--store", store]).output().expect("the command runs")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[expect(clippy::disallowed_methods, reason = "names a table that no other run has")]
fn unique() -> u128 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_nanos()
}

fn a_table_is_made_described_and_made_again(endpoint: &str) {
    let store = format!("dynamodb:ebbtide-cli-{}?endpoint={endpoint}", unique());
    let before = table("describe", &store);
    assert_eq!(before.status.code(), Some(1), "{before:?}");

    let made = table("create", &store);
    assert_eq!(made.status.code(), Some(0), "{made:?}");
    assert!(text(&made).contains("created the table") && text(&made).contains("turned TTL on"), "{made:?}");

    let described = table("describe", &store);
    assert_eq!(described.status.code(), Some(0), "{described:?}");
    assert!(text(&described).contains("on demand") && text(&described).contains("ttl"), "{described:?}");

    let again = table("create", &store);
    assert_eq!(again.status.code(), Some(0), "{again:?}");
    assert!(text(&again).contains("exists already"), "{again:?}");

    let enabled = table("enable-ttl", &store);
    assert_eq!(enabled.status.code(), Some(0), "{enabled:?}");
    assert!(text(&enabled).contains("on already"), "{enabled:?}");
}

/// Creates a table as an operator might who does not know of TTL.
fn make_table_without_ttl(endpoint: &str, table: &str) {
    let body = serde_json::json!({
        "TableName": table,
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions":
            [{"AttributeName": "pk", "AttributeType": "B"}, {"AttributeName": "sk", "AttributeType": "B"}],
        "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
    });
    let credential = "AWS4-HMAC-SHA256 Credential=test/20250101/us-east-1/dynamodb/aws4_request";
    let made = ureq::post(endpoint)
        .header("x-amz-target", "DynamoDB_20120810.CreateTable")
        .header("x-amz-date", "20250101T000000Z")
        .header("authorization", format!("{credential}, SignedHeaders=host, Signature=0"))
        .header("content-type", "application/x-amz-json-1.0")
        .send(body.to_string());
    assert!(made.unwrap().status().is_success());
}

fn a_table_without_ttl_is_warned_of_until_it_has_it(endpoint: &str) {
    let name = format!("ebbtide-cli-{}", unique());
    make_table_without_ttl(endpoint, &name);
    let store = format!("dynamodb:{name}?endpoint={endpoint}");
    let folder = tempfile::tempdir().unwrap();
    let keyring = folder.path().join("keyring.json");
    let keyring = keyring.to_str().unwrap();
    assert!(ebbtide(&["keyring", "--keyring", keyring, "init"]).output().unwrap().status.success());
    let arguments = ["--store", &store, "--keyring", keyring];
    let server = Server::start_with(
        folder.path(),
        &arguments,
        &[("EBBTIDE_ROOT_KEY", "ebk_the-root-key-of-the-test")],
    );
    let warnings = |of: &Value| -> Vec<String> {
        let warnings = of["warnings"].as_array().unwrap().iter();
        warnings.map(|warning| warning.as_str().unwrap().to_owned()).collect()
    };
    let ready = || warnings(&server.get("/readyz").ok(200));
    let stats = |flag: &str, place: &str| {
        let mut command = ebbtide(&["stats", flag, place]);
        said(&command.env("EBBTIDE_API_KEY", &server.key).output().unwrap())
    };
    let places = [("--store", store.as_str()), ("--server", &server.url())];
    assert!(matches!(ready().as_slice(), [warning] if warning.contains("enable-ttl")), "{:?}", ready());
    for (flag, place) in places {
        let told = stats(flag, place);
        assert!(told.contains("warning: TTL is not enabled on the table"), "{flag}: {told}");
    }
    let enabled = table("enable-ttl", &store);
    assert_eq!(enabled.status.code(), Some(0), "{enabled:?}");
    // A server asks its engine once a second.
    assert!(until(|| ready().is_empty()), "the warning stays: {:?}", ready());
    for (flag, place) in places {
        let told = stats(flag, place);
        assert!(told.contains("KIND") && !told.contains("warning"), "{flag}: {told}");
    }
}

/// Two servers read a handful of items every three seconds, also before the first one has noted its keyring.
fn idle_servers_on_a_new_table_scan_nothing(endpoint: &str) {
    // Each server queries the policies once in a round of three seconds. `make proof` waits for a minute.
    let queries = std::env::var("EBBTIDE_TEST_IDLE_QUERIES").map_or(4, |queries| queries.parse().unwrap());
    let proxy = Counting::start(endpoint);
    let store = format!("dynamodb:ebbtide-cli-{}?endpoint={}", unique(), proxy.endpoint);
    assert!(table("create", &store).status.success());
    proxy.take();
    let folder = tempfile::tempdir().unwrap();
    let keyring = folder.path().join("keyring.json");
    let keyring = keyring.to_str().unwrap();
    assert!(ebbtide(&["keyring", "--keyring", keyring, "init"]).output().unwrap().status.success());
    let arguments = ["--store", &store, "--keyring", keyring];
    let root = [("EBBTIDE_ROOT_KEY", "ebk_the-root-key-of-the-test")];
    let servers = [(); 2].map(|()| Server::start_with(folder.path(), &arguments, &root));
    for server in &servers {
        assert_eq!(server.get("/readyz").status, 200);
    }
    let opening = proxy.take();
    // Each wait has a bound of its own.
    for count in 1..=queries {
        assert!(until(|| proxy.of("Query") >= count));
    }
    let idle = proxy.take();
    println!("opening: {opening:?}; {queries} queries: {idle:?}");
    for counts in [&opening, &idle] {
        assert!(!counts.contains_key("Scan"), "{counts:?}");
    }
    // Beside each query there are the clock every ten seconds, the keyring every twelve, and the checkpoint every 36: twenty
    // requests of them all at first.
    let others = idle.values().sum::<usize>() - idle["Query"];
    assert!(others <= queries + 20, "{idle:?}");
}

fn a_store_that_has_no_table_is_refused() {
    for store in ["memory:", "dynamodb:", "dynamodb:tide?regoin=x"] {
        let refused = table("create", store);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    }
}
