//! Moves a store over that a build of the old format wrote, and kills the process at every step of the move.
//!
//! `fixtures/format-1.tar.gz` was written by the last commit of that format (`fixtures/format-1.rs` says how): a store
//! with records of every kind, in tables and in the journal, the records that it answered, and the secrets that it issued.
//!
//! The child opens the store. Each step of the move is a log line: at the one that it is to end at, the child says so and
//! waits for the SIGKILL of the parent.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fmt::{Debug, Write as _};
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;

use ebbtide::engines::embedded::doctor;
use ebbtide::stores::access_tokens::IntrospectOutcome;
use ebbtide::stores::api_keys::Role;
use ebbtide::stores::clients::VerifyOutcome;
use ebbtide::stores::codes::{Redeem, RedeemOutcome};
use ebbtide::stores::device_codes::{DeviceRedeem, Inspect, InspectOutcome, PollOutcome};
use ebbtide::stores::grants::{GrantId, Rotate, RotateOutcome};
use ebbtide::stores::nonces::{NonceCheck, NonceOutcome};
use ebbtide::stores::pushed_requests::{Take, TakeOutcome};
use ebbtide::stores::relationships::{Edge, RelationType};
use ebbtide::stores::replays::{Proof, ReplayOutcome};
use ebbtide::stores::sessions::SessionOutcome;
use ebbtide::{
    BackendExt as _, Ebbtide, Key, Kind, ManualClock, Prefix, Record, Scoped, Secret, Timestamp,
    open_engine as open,
};
use libtest_mimic::{Arguments, Trial};
use serde_json::{Value, json};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

/// Target of the log lines that tell the steps.
const STEPS: &str = "ebbtide::moving";
/// Folder of the store that the child opens.
const CHILD: &str = "EBBTIDE_MOVED_CHILD";
/// File with the steps that the child does not end at.
const PASSED: &str = "EBBTIDE_MOVED_PASSED";
/// Most steps at which one test kills.
const KILLS: &str = "EBBTIDE_TEST_KILLS";
/// Time at which the fixture was written, in milliseconds.
const WRITTEN_AT: u64 = 1_800_000_000_000;

fn main() -> ExitCode {
    if let Ok(path) = std::env::var(CHILD) {
        child(Path::new(&path));
        return ExitCode::SUCCESS;
    }
    let trials = vec![
        trial("a_store_of_the_old_format_gives_the_same_answers_when_it_was_moved_over", || {
            let dir = unpacked();
            runtime().block_on(check_records(dir.path()));
            // And once more, as a store of the present format.
            check(dir.path());
        }),
        trial("a_move_that_is_killed_at_any_step_goes_on_and_loses_nothing", kill_at_each_step),
        trial("a_move_that_is_killed_at_every_step_in_turn_ends_and_loses_nothing", kill_in_turn),
        trial("progress_of_a_move_does_not_count_for_a_store_that_was_put_back", put_back),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn trial(name: &str, run: fn()) -> Trial {
    Trial::test(name, move || {
        run();
        Ok(())
    })
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// A folder with the fixture in it.
fn unpacked() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let archive = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/format-1.tar.gz");
    let mut tar = Command::new("tar");
    let tar = tar.args(["--no-same-owner", "-xpzf", archive, "-C"]).arg(dir.path());
    assert!(tar.status().unwrap().success());
    dir
}

fn url(dir: &Path) -> String {
    format!("fjall:{}", dir.join("store").display())
}

/// Most steps at which one test kills. A move has some 270; `scripts/proof moved` kills at each of them.
fn most_kills() -> usize {
    std::env::var(KILLS).map_or(4, |kills| kills.parse().unwrap())
}

/// Some of so many steps, from the first to the last.
fn sampled(steps: usize) -> Vec<usize> {
    let most = most_kills().clamp(2, steps);
    (0..most).map(|number| number * (steps - 1) / (most - 1)).collect()
}

/// Kills at one step only, each time in another store, and compares every answer. Steps of one kind are like those of
/// another: they are taken of the first and of the last kind, and so are those before and after all kinds.
fn kill_at_each_step() {
    let reference = unpacked();
    let steps = steps(reference.path());
    let kinds: Vec<&str> = steps.iter().filter_map(|step| kind_of(step)).collect();
    let (first, last) = (kinds[0], kinds[kinds.len() - 1]);
    let is_between = |step: &str| kind_of(step).is_some_and(|kind| kind != first && kind != last);
    let places: Vec<usize> = (0..steps.len()).filter(|at| !is_between(&steps[*at])).collect();
    let chosen = sampled(places.len());
    for &at in chosen.iter().map(|choice| &places[*choice]) {
        let dir = unpacked();
        let ended = run_and_kill(dir.path(), &steps[..at]);
        assert_eq!(ended.as_ref(), Some(&steps[at]), "the child ended at another step");
        check(dir.path());
    }
    println!("{} steps, {} kills in stores of their own", steps.len(), chosen.len());
}

/// Kills at one step after the other, all in the same store.
fn kill_in_turn() {
    let steps = steps(unpacked().path());
    let dir = unpacked();
    // Steps that only a move has that was killed before.
    let mut more = Vec::new();
    let mut kills = 0;
    for at in sampled(steps.len()) {
        let target = &steps[at];
        while let Some(step) = run_and_kill(dir.path(), &[&steps[..at], &more].concat()) {
            kills += 1;
            assert!(kills < 4_000, "the move comes to no end");
            if step == *target {
                break;
            }
            more.push(step);
        }
    }
    assert!(run_and_kill(dir.path(), &[steps, more].concat()).is_none(), "the move ends");
    check(dir.path());
    println!("{kills} kills in one store");
}

/// Goes back to the old files by hand after a kill that left the progress, and moves them over again.
fn put_back() {
    let dir = unpacked();
    let steps = steps(unpacked().path());
    let moved = steps.iter().position(|step| step.contains("moved the old files")).unwrap();
    assert_eq!(run_and_kill(dir.path(), &steps[..moved]).as_ref(), Some(&steps[moved]));
    let store = dir.path().join("store");
    assert!(store.join("MOVING").is_file(), "the kill was after the progress was removed");
    for name in ["log", "cold"] {
        fs::remove_dir_all(store.join(name)).unwrap();
    }
    for name in ["data", "FORMAT"] {
        fs::rename(store.join("old").join(name), store.join(name)).unwrap();
    }
    check(dir.path());
}

/// Kind that a step belongs to, if it is not before the first. A step after all kinds has the last.
fn kind_of(step: &str) -> Option<&str> {
    step.strip_prefix("kind=\"")?.split_once('"').map(|(kind, _)| kind)
}

/// Steps of a whole move, as a process of its own says them: log lines of one thread may be lost beside other tests.
fn steps(dir: &Path) -> Vec<String> {
    let mut child = Command::new(std::env::current_exe().unwrap());
    let output = child.env(CHILD, dir).env_remove(PASSED).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "the child opens the store");
    let steps: Vec<String> = String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
    assert!(steps.len() > 100, "only {} steps were logged", steps.len());
    steps
}

/// Opens the store in a process of its own, and kills that at the first step that is not in `passed`. Returns the step, or
/// none if the store was opened.
fn run_and_kill(dir: &Path, passed: &[String]) -> Option<String> {
    let list = dir.join("passed");
    fs::write(&list, passed.join("\n")).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .env(CHILD, dir)
        .env(PASSED, &list)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // The child says one line, and holds its end of the pipe open until it is killed.
    let mut said = Vec::new();
    let mut output = child.stdout.take().unwrap();
    let mut byte = [0];
    while output.read(&mut byte).unwrap() == 1 && byte != *b"\n" {
        said.push(byte[0]);
    }
    if said.is_empty() {
        assert!(child.wait().unwrap().success(), "the child opens the store");
        return None;
    }
    // SIGKILL.
    child.kill().unwrap();
    assert!(!child.wait().unwrap().success());
    Some(String::from_utf8(said).unwrap())
}

fn child(dir: &Path) {
    // Without a list, it ends at none.
    let passed = std::env::var(PASSED).ok().map(|path| fs::read_to_string(path).unwrap());
    let passed: Option<Vec<String>> = passed.map(|list| list.lines().map(str::to_owned).collect());
    let note = move |step: String| {
        // Windows that are dropped again are many.
        let is_one_of_many = std::env::var_os(KILLS).is_none() && step.contains("dropped a window");
        let ends = passed.as_ref().is_some_and(|passed| !is_one_of_many && !passed.contains(&step));
        if ends || passed.is_none() {
            std::io::stdout().lock().write_all(format!("{step}\n").as_bytes()).unwrap();
        }
        if ends {
            // Nobody writes to it: this ends with the process.
            let _ = std::io::stdin().read(&mut [0]);
            std::process::abort();
        }
    };
    let subscriber = tracing_subscriber::registry().with(Steps { note, earlier: Mutex::default() });
    tracing::subscriber::with_default(subscriber, || drop(pollster::block_on(open(&url(dir))).unwrap()));
}

/// Compares every record, and the answer to every secret. It uses up what can be used once.
fn check(dir: &Path) {
    runtime().block_on(async {
        check_records(dir).await;
        must_be_whole(dir);
        check_answers(dir).await;
    });
    must_be_whole(dir);
}

/// Compares every record of every kind, and the clock mark, with those that the old build read.
async fn check_records(dir: &Path) {
    let store = open(&url(dir)).await.unwrap();
    let expected = fs::read_to_string(dir.join("records.txt")).unwrap();
    let now = at(2_000);
    let mut found = 0;
    for &kind in Kind::ALL {
        let mut lines = Vec::new();
        for (key, record) in store.scan_all(&Prefix::kind_wide(kind), now).await.unwrap() {
            assert_eq!(
                store.get(&key, now).await.unwrap().as_ref(),
                Some(&record),
                "{kind}: a get and a scan"
            );
            lines.push(line(kind, &key, &record));
        }
        let expected: Vec<_> = lines_of(&expected, kind).collect();
        assert_eq!(lines, expected, "{kind}");
        found += lines.len();
    }
    assert_eq!(found, expected.lines().count(), "the fixture has a kind that this build does not know");
    let mark = store.clock_mark().await.unwrap().map(Timestamp::as_millis);
    assert_eq!(json!(mark), asked(dir)["clock_mark"]);
}

fn lines_of(records: &str, kind: Kind) -> impl Iterator<Item = &str> {
    records.lines().filter(move |line| line.split(' ').next() == Some(kind.name()))
}

/// A record as the program that wrote the fixture lists it.
fn line(kind: Kind, key: &Key, record: &Record) -> String {
    let (key, version) = (hex(key.as_bytes()), hex(record.version.as_bytes()));
    format!("{kind} {key} {version} {} {}", record.expires_at.as_millis(), hex(&record.value))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(WRITTEN_AT + millis).unwrap()
}

/// Secrets that the old build issued.
fn asked(dir: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(dir.join("asked.json")).unwrap()).unwrap()
}

fn must_be_whole(dir: &Path) {
    let report = doctor::examine(&url(dir).parse().unwrap(), None).unwrap();
    assert_eq!(report.damage, []);
    assert!(report.has_old && !dir.join("store/MOVING").exists() && !dir.join("store/data").exists());
}

/// Asks about every secret through the front door, with the keyring of the old build.
async fn check_answers(dir: &Path) {
    let asked = asked(dir);
    let secret = |name: &str| Secret::from(asked[name].as_str().unwrap().to_owned());
    let clock = ManualClock::at(at(1_000));
    let db = Ebbtide::builder(&url(dir)).must_exist().clock(clock).open().await.unwrap();
    let acme = db.scope("tenant:acme").unwrap();

    let outcome = acme.replays().check(&Proof::new("dpop", "jti-1")).await.unwrap();
    assert_eq!(outcome, ReplayOutcome::Replay);
    let nonce = |name| NonceCheck::new("https://as.example", secret(name));
    let outcome = acme.nonces().accept(&nonce("nonce")).await.unwrap();
    assert!(matches!(outcome, NonceOutcome::Accepted { .. }), "{outcome:?}");
    assert_eq!(acme.nonces().accept(&nonce("nonce")).await.unwrap(), NonceOutcome::Used);
    assert_eq!(acme.nonces().accept(&nonce("used_nonce")).await.unwrap(), NonceOutcome::Used);

    check_sessions(&acme, &secret).await;
    check_clients(&acme, &secret).await;
    check_permissions(&db, &acme, &secret).await;
    check_tokens(&acme, &secret, &asked["grant_id"]).await;
    drop(acme);
    db.close().await;
}

async fn check_sessions(acme: &Scoped, secret: &impl Fn(&str) -> Secret) {
    let outcome = acme.sessions().get(&secret("session")).await.unwrap();
    let SessionOutcome::Live(session) = outcome else { panic!("{outcome:?}") };
    assert_eq!(session.subject.as_deref(), Some("ada"));
    assert_eq!(session.fields.data, Some(json!({ "cart": 3 }).into()));
    let outcome = acme.sessions().get(&secret("claimed_session")).await.unwrap();
    assert_eq!(outcome, SessionOutcome::Used);
}

async fn check_clients(acme: &Scoped, secret: &impl Fn(&str) -> Secret) {
    let take = || Take::new(secret("request_uri"), "app");
    let outcome = acme.pushed_requests().take(take()).await.unwrap();
    let TakeOutcome::Taken { client_id, params } = outcome else { panic!("{outcome:?}") };
    assert_eq!((client_id.as_str(), params.expose()), ("app", &json!({ "p": 1 })));
    assert_eq!(acme.pushed_requests().take(take()).await.unwrap(), TakeOutcome::Used);

    let outcome = acme.device_codes().poll(&DeviceRedeem::new(secret("device_code"), "tv")).await.unwrap();
    assert!(matches!(outcome, PollOutcome::Pending { .. }), "{outcome:?}");
    let inspect = Inspect::new(secret("user_code"), "192.0.2.1");
    let outcome = acme.device_codes().inspect(&inspect).await.unwrap();
    assert!(matches!(outcome, InspectOutcome::Pending { .. }), "{outcome:?}");

    let outcome = acme.clients().verify("app", &secret("client_secret")).await.unwrap();
    let VerifyOutcome::Verified(client) = outcome else { panic!("{outcome:?}") };
    assert_eq!(client.name.as_deref(), Some("The app"));
    let outcome = acme.clients().verify("app", &secret("session")).await.unwrap();
    assert_eq!(outcome, VerifyOutcome::Mismatch);
    assert_eq!(acme.clients().list("ada", None, 10).await.unwrap().items.len(), 1);
}

async fn check_permissions(db: &Ebbtide, acme: &Scoped, secret: &impl Fn(&str) -> Secret) {
    let key = db.stores().find_api_key(&secret("api_key")).await.unwrap().unwrap();
    assert_eq!(
        (key.scope.to_string().as_str(), key.role, key.name.as_deref()),
        ("tenant:acme", Role::Admin, Some("ci"))
    );

    let settings = acme.attributes().bucket("ada", "settings").unwrap();
    assert_eq!(settings.get("theme").await.unwrap().unwrap().data, json!({ "name": "light" }));
    assert!(acme.approvals().check("ada", "vault", "open").await.unwrap());
    assert!(!acme.approvals().check("eve", "vault", "open").await.unwrap());
    let edge = Edge::new("ada", "member", "team", RelationType::Membership);
    assert!(acme.relationships().check(&edge).await.unwrap());
    assert_eq!(acme.relationships().list_reverse("team", None, None, 10).await.unwrap().items.len(), 1);
    assert!(acme.owners().is_being_deleted("mallory").await.unwrap());
    assert!(!acme.owners().is_being_deleted("ada").await.unwrap());
}

async fn check_tokens(acme: &Scoped, secret: &impl Fn(&str) -> Secret, grant_id: &Value) {
    let grant_id: GrantId = grant_id.as_str().unwrap().parse().unwrap();
    let outcome = acme.access_tokens().introspect(&secret("access_token")).await.unwrap();
    let IntrospectOutcome::Active(active) = outcome else { panic!("{outcome:?}") };
    assert_eq!((active.subject.as_str(), active.client_id.as_str()), ("ada", "app"));
    assert_eq!((active.scope.as_deref(), active.grant_id), (Some("read"), Some(grant_id)));
    let outcome = acme.access_tokens().introspect(&secret("revoked_token")).await.unwrap();
    assert_eq!(outcome, IntrospectOutcome::Inactive);
    let upstream = acme.provider_tokens().get(grant_id, "upstream").await.unwrap().unwrap();
    assert_eq!(upstream.tokens, json!({ "token": "up" }).into());

    let outcome = acme.grants().rotate(Rotate::new(secret("refresh_token"), "app")).await.unwrap();
    let RotateOutcome::Rotated(rotated) = outcome else { panic!("{outcome:?}") };
    assert_eq!((rotated.generation, rotated.grant_id, rotated.subject.as_str()), (2, grant_id, "ada"));
    let next = acme.grants().rotate(Rotate::new(rotated.refresh_token, "app")).await.unwrap();
    assert!(matches!(next, RotateOutcome::Rotated(_)), "{next:?}");

    let redeem = |name| Redeem::new(secret(name), "app").redirect_uri("https://app.example/cb");
    let outcome = acme.codes().redeem(redeem("open_code")).await.unwrap();
    let RedeemOutcome::Redeemed(redeemed) = outcome else { panic!("{outcome:?}") };
    assert_eq!((redeemed.subject.as_str(), redeemed.data), ("bob", Some(json!({ "acr": "mfa" }).into())));
    let outcome = acme.codes().redeem(redeem("open_code")).await.unwrap();
    assert_eq!(outcome, RedeemOutcome::Reused { grant_id: None });
    // Last, since it revokes the grant.
    let outcome = acme.codes().redeem(redeem("used_code")).await.unwrap();
    assert!(matches!(outcome, RedeemOutcome::Reused { .. }), "{outcome:?}");
}

/// Passes each step to `note`, with the kind and the number of lines like it since, so that no two are the same.
struct Steps<N> {
    note: N,
    /// The kind of the last line that had one, and the lines since.
    earlier: Mutex<(String, BTreeMap<String, u32>)>,
}

#[derive(Default)]
struct Line {
    text: String,
    kind: Option<String>,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        use std::fmt::Write as _;
        if field.name() == "kind" {
            self.kind = Some(format!("{value:?}"));
        } else {
            write!(self.text, "{}={value:?} ", field.name()).unwrap();
        }
    }
}

impl<S: Subscriber, N: Fn(String) + 'static> Layer<S> for Steps<N> {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        if event.metadata().target() != STEPS {
            return;
        }
        let mut line = Line::default();
        event.record(&mut line);
        let step = {
            let mut earlier = self.earlier.lock().unwrap();
            if let Some(kind) = line.kind.take_if(|kind| *kind != earlier.0) {
                *earlier = (kind, BTreeMap::new());
            }
            let count = earlier.1.entry(line.text.clone()).or_default();
            *count += 1;
            let number = *count;
            format!("kind={} {}({number})", earlier.0, line.text)
        };
        (self.note)(step);
    }
}
