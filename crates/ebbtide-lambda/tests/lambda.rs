//! The function, run by the platform's own runtime interface emulator, on a store in DynamoDB.
//!
//! `EBBTIDE_TEST_LAMBDA` is the emulator, `EBBTIDE_TEST_DYNAMODB` the endpoint.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../ebbtide-cli/tests/support/counting.rs"]
mod counting;
#[path = "lambda/roles.rs"]
mod roles;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use ebbtide::engines::dynamodb::DynamoDb;
use ebbtide::stores::audit::AuditOutcome;
use ebbtide::stores::grants::GrantRequest;
use ebbtide::{
    Admin, BackendExt as _, Batch, Clock as _, Ebbtide, Key, Keyring, Kind, Prefix, Record, Scope, Stores,
    SystemClock, SystemRng, Version, Write,
};
use libtest_mimic::{Arguments, Trial};
use serde_json::{Value, json};

/// Handed the emulator and the endpoint.
type Case = fn(&str, &str);

fn main() -> ExitCode {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let needed = (variable("EBBTIDE_TEST_LAMBDA"), variable("EBBTIDE_TEST_DYNAMODB"));
    let cases: [(&str, Case); 12] = [
        ("a_schedule_event_is_answered_with_counts", a_schedule_event_is_answered_with_counts),
        ("a_bad_event_is_refused_and_sweeps_nothing", a_bad_event_is_refused_and_sweeps_nothing),
        ("a_time_out_that_is_near_stops_in_time", a_time_out_that_is_near_stops_in_time),
        ("nothing_is_opened_before_the_first_event", nothing_is_opened_before_the_first_event),
        ("a_function_url_is_answered_by_the_http_api", a_function_url_is_answered_by_the_http_api),
        ("a_rest_api_is_answered_by_the_http_api", a_rest_api_is_answered_by_the_http_api),
        (
            "a_code_is_redeemed_and_its_client_is_revoked_at_once",
            a_code_is_redeemed_and_its_client_is_revoked_at_once,
        ),
        (
            "a_function_that_was_frozen_knows_of_a_revocation_at_once",
            a_function_that_was_frozen_knows_of_a_revocation_at_once,
        ),
        ("a_function_without_a_keyring_refuses_to_serve", a_function_without_a_keyring_refuses_to_serve),
        ("the_roles_of_the_template_suffice", roles::the_roles_of_the_template_suffice),
        ("a_log_that_is_cut_after_an_answer_is_found", a_log_that_is_cut_after_an_answer_is_found),
        ("a_cold_start_answers", a_cold_start_answers),
    ];
    let trials = cases.into_iter().map(|(name, case)| match needed.clone() {
        (Some(emulator), Some(endpoint)) => Trial::test(name, move || {
            case(&emulator, &endpoint);
            Ok(())
        }),
        _ if std::env::var_os("CI").is_some() => {
            Trial::test(name, || Err("EBBTIDE_TEST_LAMBDA and EBBTIDE_TEST_DYNAMODB are not set".into()))
        }
        _ => Trial::test(name, || Ok(())).with_ignored_flag(true),
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

/// The function in the emulator.
struct Function {
    emulator: Child,
    port: u16,
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Function {
    fn start(emulator: &str, store: &str, timeout: u32) -> Self {
        Self::start_with(emulator, store, timeout, &[])
    }

    /// A function that serves.
    fn serving(emulator: &str, store: &str) -> Self {
        Self::serving_with(emulator, store, &keyring())
    }

    fn serving_with(emulator: &str, store: &str, keyring: &str) -> Self {
        let variables = [("EBBTIDE_ROOT_KEY", ROOT_KEY), ("EBBTIDE_KEYRING_JSON", keyring)];
        Self::start_with(emulator, store, 30, &variables)
    }

    /// Sends a signal to the function itself, a child of the emulator, as the platform freezes it between two events.
    fn signal(&self, name: &str) {
        let found = Command::new("pgrep").args(["-P", &self.emulator.id().to_string()]).output().unwrap();
        let found = String::from_utf8(found.stdout).unwrap();
        let processes: Vec<_> = found.split_whitespace().collect();
        assert!(!processes.is_empty(), "the function runs");
        assert!(Command::new("kill").arg(name).args(processes).status().unwrap().success());
    }

    /// A request over the function's URL: the status, and the body.
    fn call(&self, path: &str, body: &Value) -> (u64, Value) {
        answered(&self.invoke(&request(path, body)))
    }

    fn start_with(emulator: &str, store: &str, timeout: u32, variables: &[(&str, &str)]) -> Self {
        let (port, runtime) = (free_port(), free_port());
        let mut emulator = Command::new(emulator)
            .args(["--log-level", "error"])
            .args(["--runtime-interface-emulator-address", &format!("127.0.0.1:{port}")])
            .args(["--runtime-api-address", &format!("127.0.0.1:{runtime}")])
            .arg(env!("CARGO_BIN_EXE_ebbtide-lambda"))
            .env("EBBTIDE_STORE", store)
            .env("AWS_LAMBDA_FUNCTION_TIMEOUT", timeout.to_string())
            .env("AWS_LAMBDA_FUNCTION_NAME", "ebbtide-sweep")
            .env("AWS_REGION", "us-east-1")
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Read its output, so that the emulator never blocks on a full pipe.
        let printed = BufReader::new(emulator.stdout.take().unwrap());
        std::thread::spawn(move || printed.lines().count());
        Self { emulator, port }
    }

    fn invoke(&self, event: &Value) -> Value {
        Self::exchange(self.connect(), event)
    }

    /// A connection to the emulator, which starts the function with its first event.
    fn connect(&self) -> TcpStream {
        // Only a failure takes a minute.
        let stream = (0..1_200).find_map(|_| {
            std::thread::sleep(Duration::from_millis(50));
            TcpStream::connect(("127.0.0.1", self.port)).ok()
        });
        stream.expect("the emulator listens")
    }

    fn exchange(mut stream: TcpStream, event: &Value) -> Value {
        let body = event.to_string();
        write!(
            stream,
            "POST /2015-03-31/functions/function/invocations HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").expect("an answer has a body");
        serde_json::from_str(body).unwrap_or_else(|_| panic!("not JSON: {answer}"))
    }
}

impl Drop for Function {
    fn drop(&mut self) {
        // It ends its function when it is asked to end, and not when it is killed.
        let _ = Command::new("kill").args(["-TERM", &self.emulator.id().to_string()]).status();
        for _ in 0..40 {
            if self.emulator.try_wait().is_ok_and(|ended| ended.is_some()) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = self.emulator.kill();
        let _ = self.emulator.wait();
    }
}

/// Event of a request over a function's URL.
fn request(path: &str, body: &Value) -> Value {
    json!({
        "version": "2.0", "routeKey": "$default", "rawPath": path, "rawQueryString": "",
        "headers": {"authorization": format!("Bearer {ROOT_KEY}"), "content-type": "application/json"},
        "requestContext": {"http": {"method": "POST", "path": path}, "stage": "$default"},
        "body": body.to_string(), "isBase64Encoded": false,
    })
}

fn scheduled() -> Value {
    json!({
        "version": "0", "id": "53dc4d37-cffa-4f76-80c9-8b7d4a4d2eaa", "detail-type": "Scheduled Event",
        "source": "aws.events", "account": "123456789012", "time": "2026-11-16T03:00:00Z", "region": "us-east-1",
        "resources": ["arn:aws:events:us-east-1:123456789012:rule/ebbtide-sweep"], "detail": {},
    })
}

/// A new table, and the URL of a store in it.
async fn table(endpoint: &str) -> (Arc<DynamoDb>, String) {
    let url =
        format!("dynamodb:ebbtide-lambda-{}?endpoint={endpoint}&region=us-east-1", Version::mint(&SystemRng));
    let store = DynamoDb::open(&url, SystemRng).await.unwrap();
    store.create_table().await.unwrap();
    (Arc::new(store), url)
}

fn on_a_runtime<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// Stores so many records that expired a second ago.
async fn expired(store: &dyn Admin, count: u64, value: &str) {
    let now = SystemClock.now();
    // A sweep of a shared engine goes up to ten seconds before its own time.
    let ended = ebbtide::Timestamp::from_millis(now.as_millis() - 60_000).unwrap();
    let put = |number: u64| Write::Put {
        key: Key::new(Kind::Replay, &Scope::Global, &[number.into()], &[]).unwrap(),
        record: Record::new(value.to_owned(), ended, &SystemRng),
    };
    for some in (0..count).collect::<Vec<_>>().chunks(10) {
        let batch = Batch::new(some.iter().copied().map(put).collect()).unwrap();
        assert!(store.commit(batch, now).await.unwrap().is_applied());
    }
}

fn a_schedule_event_is_answered_with_counts(emulator: &str, endpoint: &str) {
    let url = on_a_runtime(async {
        let (store, url) = table(endpoint).await;
        let stores = Stores::for_tests(store.clone());
        let grants = stores.grants(&Scope::Global);
        grants.issue(GrantRequest::new("alice", "app")).await.unwrap();
        let gone = grants.issue(GrantRequest::new("bob", "app")).await.unwrap().grant_id;
        let key = Key::new(Kind::Grant, &Scope::Global, &[gone.as_bytes().into()], &[]).unwrap();
        assert!(store.delete(key, SystemClock.now()).await.unwrap().is_applied());
        expired(store.as_ref(), 30, "v").await;
        url
    });
    let function = Function::start(emulator, &url, 60);
    let dry = json!({"detail-type": "Scheduled Event", "detail": {"dry_run": true}});
    assert_eq!(function.invoke(&dry), json!({"replays": 30}));
    assert_eq!(function.invoke(&scheduled()), json!({"grant_index": 2}), "what is overdue is the engine's");
    drop(function);
    let function = Function::start(emulator, &format!("{url}&sweep=delete"), 60);
    assert_eq!(function.invoke(&scheduled()), json!({"replays": 30}));
    assert_eq!(function.invoke(&scheduled()), json!({}));
}

fn a_bad_event_is_refused_and_sweeps_nothing(emulator: &str, endpoint: &str) {
    let url = on_a_runtime(async {
        let (store, url) = table(endpoint).await;
        expired(store.as_ref(), 5, "v").await;
        url
    });
    let function = Function::start(emulator, &format!("{url}&sweep=delete"), 60);
    for event in [json!({"Records": []}), json!([1]), json!({"budget": 7})] {
        let answer = function.invoke(&event);
        assert_eq!(answer["errorType"], "InvalidEvent", "{event}: {answer}");
    }
    assert_eq!(function.invoke(&scheduled()), json!({"replays": 5}), "and goes on with good ones");
}

fn a_time_out_that_is_near_stops_in_time(emulator: &str, endpoint: &str) {
    let url = on_a_runtime(async {
        let (store, url) = table(endpoint).await;
        expired(store.as_ref(), 500, "v").await;
        format!("{url}&sweep=delete")
    });
    // With a hundredth of the time there is too little of it, however quick the machine is.
    let function = Function::start(emulator, &url, 10);
    let slow = json!({"detail-type": "Scheduled Event", "detail": {"budget": 0.01}});
    let answer = function.invoke(&slow);
    assert_eq!(answer["more"], true, "{answer}");
    let removed = answer["replays"].as_u64().unwrap();
    assert!(removed > 0 && removed < 500, "{answer}");
    drop(function);
    let function = Function::start(emulator, &url, 120);
    let go_on = json!({"continue": true});
    assert_eq!(function.invoke(&go_on), json!({"replays": 500 - removed}), "the next one goes on");
    on_a_runtime(async {
        let store = DynamoDb::open(&url, SystemRng).await.unwrap();
        expired(&store, 5, "v").await;
    });
    assert_eq!(function.invoke(&go_on), json!({}), "nothing was interrupted");
    assert_eq!(function.invoke(&scheduled()), json!({"replays": 5}));
}

fn nothing_is_opened_before_the_first_event(emulator: &str, _: &str) {
    // A store that cannot be: were it opened at the start, the function would not come to its first event.
    let function = Function::start(emulator, "nowhere:", 10);
    let answer = function.invoke(&json!({"no": "such event"}));
    assert_eq!(answer["errorType"], "InvalidEvent", "{answer}");
    let answer = function.invoke(&scheduled());
    assert_eq!(answer["errorType"], "StoreError", "{answer}");
}

const ROOT_KEY: &str = "a root key of the tests of the function";

/// The text of a new keyring.
fn keyring() -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keyring.json");
    Keyring::generate(&SystemRng, SystemClock.now()).create(&path, &SystemRng).unwrap();
    std::fs::read_to_string(path).unwrap()
}

/// Status and body of an answer in the platform's form.
fn answered(answer: &Value) -> (u64, Value) {
    let status = answer["statusCode"].as_u64().unwrap_or_else(|| panic!("no status: {answer}"));
    let body = answer["body"].as_str().unwrap_or_else(|| panic!("no body: {answer}"));
    (status, serde_json::from_str(body).unwrap_or_default())
}

fn a_function_url_is_answered_by_the_http_api(emulator: &str, endpoint: &str) {
    let (_, url) = on_a_runtime(table(endpoint));
    let function = Function::serving(emulator, &url);
    let began = ebbtide::Stopwatch::start();
    let check = json!({"namespace": "dpop", "jti": "a", "ttl_seconds": 60});
    let (status, body) = function.call("/v1/replays/check", &check);
    println!("the first request, with the start of the function: {:?}", began.elapsed());
    assert_eq!((status, &body["outcome"]), (200, &json!("fresh")), "{body}");
    let began = ebbtide::Stopwatch::start();
    let (status, body) = function.call("/v1/replays/check", &check);
    println!("the second request: {:?}", began.elapsed());
    assert_eq!(status, 409, "{body}");
    assert!(body["type"].as_str().unwrap().ends_with("replay"), "{body}");
    let (status, body) = function.call("/v1/nowhere", &json!({}));
    assert_eq!(status, 404, "{body}");
    assert!(body["type"].as_str().unwrap().ends_with("not-found"), "{body}");
    let (status, body) = function.call("/v1/replays/check", &json!({"namespace": "dpop"}));
    assert_eq!(status, 400, "{body}");
    // The same function sweeps.
    assert!(function.invoke(&scheduled()).get("errorMessage").is_none());
}

fn a_rest_api_is_answered_by_the_http_api(emulator: &str, endpoint: &str) {
    let (_, url) = on_a_runtime(table(endpoint));
    let function = Function::serving(emulator, &url);
    let request = |method: &str, path: &str, key: &str| {
        json!({
            "resource": "/{proxy+}", "path": path, "httpMethod": method,
            "headers": {"Authorization": format!("Bearer {key}")},
            "multiValueHeaders": {"Authorization": [format!("Bearer {key}")]},
            "queryStringParameters": {"limit": "2"}, "multiValueQueryStringParameters": {"limit": ["2"]},
            "requestContext": {"stage": "prod", "path": format!("/prod{path}")}, "body": null, "isBase64Encoded": false,
        })
    };
    let (status, body) = answered(&function.invoke(&request("GET", "/v1/keys", ROOT_KEY)));
    assert_eq!((status, &body["items"]), (200, &json!([])), "{body}");
    let (status, body) = answered(&function.invoke(&request("GET", "/v1/keys", "somebody else's key")));
    assert_eq!(status, 401, "{body}");
}

fn a_code_is_redeemed_and_its_client_is_revoked_at_once(emulator: &str, endpoint: &str) {
    let (_, url) = on_a_runtime(table(endpoint));
    let function = Function::serving(emulator, &url);
    let issue = json!({"client_id": "app", "subject": "alice", "redirect_uri": "https://app.example/cb"});
    let (status, issued) = function.call("/v1/codes", &issue);
    assert_eq!(status, 201, "{issued}");
    let redeem = json!({
        "code": issued["code"], "client_id": "app", "redirect_uri": "https://app.example/cb", "grant": {},
    });
    let (status, granted) = function.call("/v1/codes/redeem", &redeem);
    assert_eq!(status, 200, "{granted}");
    let token = granted["grant"]["refresh_token"].as_str().unwrap_or_else(|| panic!("no token: {granted}"));
    let (status, body) = function.call("/v1/grants/revoke", &json!({"client_id": "app"}));
    assert_eq!(status, 200, "{body}");
    let (status, body) =
        function.call("/v1/grants/rotate", &json!({"refresh_token": token, "client_id": "app"}));
    assert_eq!(status, 410, "{body}");
}

fn a_function_that_was_frozen_knows_of_a_revocation_at_once(emulator: &str, endpoint: &str) {
    let ((_, url), keyring) = (on_a_runtime(table(endpoint)), keyring());
    let [first, frozen] = [(); 2].map(|()| Function::serving_with(emulator, &url, &keyring));
    let grant = |function: &Function| {
        let (status, granted) = function.call("/v1/grants", &json!({"client_id": "app", "subject": "alice"}));
        assert_eq!(status, 201, "{granted}");
        granted["refresh_token"].as_str().unwrap().to_owned()
    };
    let rotate = |function: &Function, token: &str| {
        function.call("/v1/grants/rotate", &json!({"refresh_token": token, "client_id": "app"}))
    };
    let token = grant(&frozen);
    let (status, rotated) = rotate(&frozen, &token);
    assert_eq!(status, 200, "{rotated}");
    let token = rotated["refresh_token"].as_str().unwrap();
    frozen.signal("-STOP");
    let (status, body) = first.call("/v1/grants/revoke", &json!({"client_id": "app"}));
    assert_eq!(status, 200, "{body}");
    frozen.signal("-CONT");
    // Reads from before it was frozen are no excuse.
    let (status, body) = rotate(&frozen, token);
    assert_eq!(status, 410, "{body}");
    let (status, body) = rotate(&frozen, &grant(&first));
    assert_eq!(status, 200, "what is issued afterwards is good: {body}");
}

fn a_function_without_a_keyring_refuses_to_serve(emulator: &str, endpoint: &str) {
    let (_, url) = on_a_runtime(table(endpoint));
    let function = Function::start_with(emulator, &url, 30, &[("EBBTIDE_ROOT_KEY", ROOT_KEY)]);
    let answer = function.invoke(&json!({
        "rawPath": "/v1/replays/check", "requestContext": {"http": {"method": "POST"}},
    }));
    let message = answer["errorMessage"].as_str().unwrap_or_else(|| panic!("it serves: {answer}"));
    assert!(message.contains("keyring"), "{message}");
}

/// The function may not run again after an answer: what it has not checkpointed by then, nothing remembers.
fn a_log_that_is_cut_after_an_answer_is_found(emulator: &str, endpoint: &str) {
    let ((_, url), keyring) = (on_a_runtime(table(endpoint)), keyring());
    let function = Function::serving_with(emulator, &url, &keyring);
    let register = |client: &str| {
        let (status, body) = function.call("/v1/clients", &json!({"client_id": client}));
        assert_eq!(status, 201, "{body}");
    };
    let log = async |store: &dyn Admin| {
        store.scan_all(&Prefix::kind_wide(Kind::Audit), SystemClock.now()).await.unwrap()
    };
    register("a");
    register("b");
    let before = on_a_runtime(async { log(&DynamoDb::open(&url, SystemRng).await.unwrap()).await });
    register("c");
    drop(function);
    on_a_runtime(async {
        let store: Arc<dyn Admin> = Arc::new(DynamoDb::open(&url, SystemRng).await.unwrap());
        let ring = Keyring::from_text(&keyring).unwrap();
        let db = Ebbtide::over(Arc::clone(&store)).keyring(ring).open().await.unwrap();
        let audit = db.scope("global").unwrap().audit();
        let whole = audit.verify(None).await.unwrap();
        assert!(matches!(whole, AuditOutcome::Intact { entries: 3, .. }), "{whole:?}");
        // The log as it was before the last call, its head included.
        for (key, _) in log(store.as_ref()).await {
            let now = SystemClock.now();
            let undone = match before.iter().find(|(there, _)| *there == key) {
                Some((_, record)) => store.put(key, record.clone(), now).await,
                None => store.delete(key, now).await,
            };
            assert!(undone.unwrap().is_applied());
        }
        let cut = audit.verify(None).await.unwrap();
        assert!(matches!(cut, AuditOutcome::Broken { sequence: 3, .. }), "{cut:?}");
    });
}

/// Time from the first event to its answer, with the start of the function, its keyring, the first connection to the table
/// and the checks at opening; and that of the second. `make proof` asks for more starts, of a release.
fn a_cold_start_answers(emulator: &str, endpoint: &str) {
    let starts = std::env::var("EBBTIDE_TEST_COLD_STARTS").map_or(1, |starts| starts.parse().unwrap());
    let (_, url) = on_a_runtime(table(endpoint));
    let (mut cold, mut warm) = (Vec::new(), Vec::new());
    let variables = [("EBBTIDE_ROOT_KEY", ROOT_KEY), ("EBBTIDE_KEYRING_JSON", &keyring())];
    for start in 0..starts {
        let function = Function::start_with(emulator, &url, 30, &variables);
        for (times, name) in [(&mut cold, "first"), (&mut warm, "second")] {
            let check = json!({"namespace": "dpop", "jti": format!("{name} {start}"), "ttl_seconds": 60});
            let (event, stream) = (request("/v1/replays/check", &check), function.connect());
            let began = ebbtide::Stopwatch::start();
            let (status, body) = answered(&Function::exchange(stream, &event));
            times.push(began.elapsed());
            assert_eq!((status, &body["outcome"]), (200, &json!("fresh")), "{body}");
        }
    }
    for (name, mut times) in [("cold", cold), ("warm", warm)] {
        times.sort_unstable();
        let (median, last) = (times[starts / 2], times[starts - 1]);
        println!("{name}: {starts} starts, median {median:?}, {:?} to {last:?}", times[0]);
    }
}
