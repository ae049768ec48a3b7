//! OAuth state on a shared engine: its cost in round trips and row locks, and processes that pause.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ebbtide::engines::postgres;
use ebbtide::stores::Builder;
use ebbtide::stores::access_tokens::{AccessDraft, AccessRequest, IntrospectOutcome, IssueOutcome};
use ebbtide::stores::approvals::Approval;
use ebbtide::stores::attributes::SwapOutcome;
use ebbtide::stores::audit::AuditContext;
use ebbtide::stores::codes::{CodeRequest, Redeem, RedeemOutcome};
use ebbtide::stores::grants::{GrantRequest, Holder, Rotate, RotateOutcome};
use ebbtide::stores::records::{
    GetOutcome, Increment, PutOutcome, PutRecord, RecordAddress, TouchOutcome as RecordTouched, TouchRecord,
};
use ebbtide::stores::replays::{Proof, ReplayOutcome};
use ebbtide::stores::sessions::{SessionRequest, TouchOutcome};
use ebbtide::{
    Admin, Backend, Batch, Commit, Keyring, Result, Scope, Secret, SeededRng, Stopwatch, Stores, SystemClock,
    SystemRng, Timestamp, Ttl, async_trait, delegate,
};
use serde_json::json;
use tokio::sync::Notify;

use crate::proxy::Proxy;
use crate::service::{OwnServer, cases, connect, fresh_on, migrated, open_at};

cases! {
    an_answer_costs_the_round_trips_of_the_law
    records_attributes_and_approvals_cost_the_round_trips_of_the_law
    a_process_without_leases_costs_the_round_trips_of_the_law
    issuing_for_one_client_locks_no_row_together
    what_a_paused_process_commits_after_a_raise_is_dead
}

const URI: &str = "https://app.example/cb";

fn context() -> AuditContext {
    AuditContext::new("root", "a test").unwrap()
}

/// The same keyring in every process.
fn keyring() -> Keyring {
    Keyring::generate(&SeededRng::new(7), Timestamp::from_millis(1_800_000_000_000).unwrap())
}

fn stores(backend: Arc<dyn Admin>) -> Stores {
    builder(backend).build()
}

fn builder(backend: Arc<dyn Admin>) -> Builder {
    Stores::builder_for_tests(backend).clock(SystemClock).rng(SystemRng).keyring(keyring())
}

const LATENCY: Duration = Duration::from_millis(60);

/// Sequential round trips of a call, by its time through a network that delays every answer.
async fn trips<T>(call: impl Future<Output = T>) -> (u128, T) {
    let begin = Stopwatch::start();
    let answer = call.await;
    (begin.elapsed().as_millis() / LATENCY.as_millis(), answer)
}

/// Asserts the round trips of a call. The first ones prepare statements and open connections; a call that the machine
/// held up is not taken for a dear one.
macro_rules! costs {
    ($dear:ident, $most:literal, $what:literal, $call:expr) => {{
        let (mut least, mut last) = (u128::MAX, None);
        for _ in 0..6 {
            let (trips, answer) = trips($call).await;
            (least, last) = (least.min(trips), Some(answer));
        }
        println!("{}: {least}", $what);
        // All of them are measured before the test fails.
        if least > $most {
            $dear.push(format!("{} takes {least} round trips", $what));
        }
        last.unwrap()
    }};
}

async fn an_answer_costs_the_round_trips_of_the_law() {
    let proxy = Proxy::start(&migrated().await).await;
    let stores = &stores(open_at(&proxy.url).await);
    let scope = &Scope::Global;
    let (codes, grants) = (&stores.codes(scope), &stores.grants(scope));
    let (tokens, sessions) = (&stores.access_tokens(scope), &stores.sessions(scope));
    // A revoked client costs no more than any other.
    let _ = grants.revoke(Holder::Client("app"), Some(&context())).await.unwrap();
    proxy.delay(LATENCY);
    let mut dear = Vec::<String>::new();
    let number = &AtomicUsize::new(0);
    let subject = || format!("user {}", number.fetch_add(1, Ordering::SeqCst));
    costs!(dear, 1, "a replay check", async {
        let fresh = stores.replays(scope).check(&Proof::new("dpop", subject())).await.unwrap();
        assert!(matches!(fresh, ReplayOutcome::Fresh { .. }));
    });
    let code = || async { codes.issue(CodeRequest::new("app", subject(), URI)).await.unwrap().code };
    costs!(dear, 1, "a code", code());
    let _ = stores.owners(scope).sign_out("once", &context()).await.unwrap();
    costs!(dear, 1, "a code for a subject that was signed out once", async {
        codes.issue(CodeRequest::new("app", "once", URI)).await.unwrap()
    });
    costs!(dear, 1, "a grant", async { grants.issue(GrantRequest::new(subject(), "app")).await.unwrap() });
    let mut redeemed = Vec::new();
    for _ in 0..6 {
        redeemed.push(code().await);
    }
    let redeemed = std::cell::RefCell::new(redeemed);
    costs!(dear, 2, "a redemption with its tokens", async {
        let code = redeemed.borrow_mut().pop().unwrap();
        let redeem = Redeem::new(code, "app").redirect_uri(URI).with_grant();
        let answer = codes.redeem(redeem.access_token(AccessDraft::default())).await.unwrap();
        assert!(matches!(answer, RedeemOutcome::Redeemed(_)));
    });
    let grant = grants.issue(GrantRequest::new("ada", "app")).await.unwrap();
    let present = std::cell::RefCell::new(grant.refresh_token.clone());
    let access = costs!(dear, 2, "a rotation with an access token", async {
        let rotate = Rotate::new(present.borrow().clone(), "app").access_token(AccessDraft::default());
        let RotateOutcome::Rotated(next) = grants.rotate(rotate).await.unwrap() else { panic!() };
        *present.borrow_mut() = next.refresh_token;
        next.access_token.unwrap().access_token
    });
    costs!(dear, 2, "an introspection", async {
        let answer = tokens.introspect(&access).await.unwrap();
        assert!(matches!(answer, IntrospectOutcome::Active(_)));
    });
    let session = sessions.create(SessionRequest::new().subject("ada")).await.unwrap().session_id;
    costs!(dear, 2, "a touch of a session", async {
        let touched = sessions.touch(&session, None).await.unwrap();
        assert!(matches!(touched, TouchOutcome::Touched { .. }));
    });
    // The same for a subject that was signed out before.
    let _ = stores.owners(scope).sign_out("ada", &context()).await.unwrap();
    let grant = grants.issue(GrantRequest::new("ada", "app")).await.unwrap();
    *present.borrow_mut() = grant.refresh_token;
    costs!(dear, 2, "a rotation after a sign-out", async {
        let token = present.borrow().clone();
        let answer = grants.rotate(Rotate::new(token, "app")).await.unwrap();
        let RotateOutcome::Rotated(next) = answer else { panic!() };
        *present.borrow_mut() = next.refresh_token;
    });
    let mut redeemed = Vec::new();
    for _ in 0..6 {
        redeemed.push(codes.issue(CodeRequest::new("app", "ada", URI)).await.unwrap().code);
    }
    let redeemed = std::cell::RefCell::new(redeemed);
    costs!(dear, 2, "a redemption after a sign-out", async {
        let code = redeemed.borrow_mut().pop().unwrap();
        let redeem = Redeem::new(code, "app").redirect_uri(URI).with_grant();
        let answer = codes.redeem(redeem.access_token(AccessDraft::default())).await.unwrap();
        assert!(matches!(answer, RedeemOutcome::Redeemed(_)));
    });
    assert!(dear.is_empty(), "{dear:#?}");
}

async fn records_attributes_and_approvals_cost_the_round_trips_of_the_law() {
    let proxy = Proxy::start(&migrated().await).await;
    // The default number of connections: a put reads three kinds at once, each on one that is kept for gets.
    let stores = &stores(open_at(&proxy.url.replace("&pool=8", "")).await);
    let scope = &Scope::Global;
    let (records, approvals) = (&stores.records(scope), &stores.approvals(scope));
    let bucket = &stores.attributes(scope).bucket("alice", "b").unwrap();
    approvals.grant(&Approval::new("alice", "doc", "GET", "admin")).await.unwrap();
    bucket.set("a", json!(0)).await.unwrap();
    let (hour, number) = (Ttl::from_secs(3_600).unwrap(), &AtomicUsize::new(0));
    let next = || number.fetch_add(1, Ordering::SeqCst);
    let put = |id: &str| PutRecord::new("c", id, json!(1)).life(hour);
    let tied = |id: &str| put(id).keys([format!("key of {id}")]).group("g");
    let by_id = |id: &str| RecordAddress::id("c", id);
    // The first call checks the naming key.
    let _ = records.put(&put("first")).await.unwrap();
    let _ = records.put(&tied("tied")).await.unwrap();
    for taken in 0..6 {
        let _ = records.put(&put(&format!("taken {taken}"))).await.unwrap();
        let _ = records.put(&tied(&format!("taken with its keys {taken}"))).await.unwrap();
    }
    proxy.delay(LATENCY);
    let mut dear = Vec::<String>::new();
    costs!(dear, 1, "a check of an approval", async {
        assert!(approvals.check("alice", "doc", "GET").await.unwrap());
    });
    costs!(dear, 1, "a put of a record", async {
        let stored = records.put(&put(&format!("new {}", next()))).await.unwrap();
        assert!(matches!(stored, PutOutcome::Stored { created: true, .. }));
    });
    costs!(dear, 1, "a get of a record", async {
        assert!(matches!(records.get(&by_id("first")).await.unwrap(), GetOutcome::Found(_)));
    });
    costs!(dear, 1, "a touch of a record", async {
        let touched = records.touch(&TouchRecord::new(by_id("first"), hour)).await.unwrap();
        assert!(matches!(touched, RecordTouched::Touched(_)));
    });
    costs!(dear, 1, "an increment", async {
        let _ = records.increment(&Increment::new("c", "hits").life(hour)).await.unwrap();
    });
    number.store(0, Ordering::SeqCst);
    costs!(dear, 1, "a take of a record", async {
        assert!(records.take(&by_id(&format!("taken {}", next()))).await.unwrap().is_some());
    });
    costs!(dear, 2, "a put of a record with a key and a group", async {
        let stored = records.put(&tied(&format!("tied {}", next()))).await.unwrap();
        assert!(matches!(stored, PutOutcome::Stored { created: true, .. }));
    });
    costs!(dear, 2, "a get of a record with a key and a group", async {
        assert!(matches!(records.get(&by_id("tied")).await.unwrap(), GetOutcome::Found(_)));
    });
    costs!(dear, 2, "a touch of a record with a key and a group", async {
        let touched = records.touch(&TouchRecord::new(by_id("tied"), hour)).await.unwrap();
        assert!(matches!(touched, RecordTouched::Touched(_)));
    });
    number.store(0, Ordering::SeqCst);
    costs!(dear, 2, "a take of a record with a key and a group", async {
        let taken = by_id(&format!("taken with its keys {}", next()));
        assert!(records.take(&taken).await.unwrap().is_some());
    });
    number.store(0, Ordering::SeqCst);
    costs!(dear, 2, "a compare-and-swap of an attribute", async {
        let old = next();
        let swapped = bucket.compare_and_swap("a", &json!(old), json!(old + 1)).await.unwrap();
        assert!(matches!(swapped, SwapOutcome::Swapped(_)));
    });
    assert!(dear.is_empty(), "{dear:#?}");
}

/// It reads the epoch of the client together with the record.
async fn a_process_without_leases_costs_the_round_trips_of_the_law() {
    let proxy = Proxy::start(&migrated().await).await;
    let stores = &builder(open_at(&proxy.url).await).without_leases().build();
    let scope = &Scope::Global;
    let (codes, grants) = (&stores.codes(scope), &stores.grants(scope));
    let _ = grants.revoke(Holder::Client("app"), Some(&context())).await.unwrap();
    let mut redeemed = Vec::new();
    for _ in 0..6 {
        redeemed.push(codes.issue(CodeRequest::new("app", "ada", URI)).await.unwrap().code);
    }
    let redeemed = std::cell::RefCell::new(redeemed);
    let grant = grants.issue(GrantRequest::new("ada", "app")).await.unwrap();
    let present = std::cell::RefCell::new(grant.refresh_token);
    proxy.delay(LATENCY);
    let mut dear = Vec::<String>::new();
    costs!(dear, 2, "a redemption without leases", async {
        let code = redeemed.borrow_mut().pop().unwrap();
        let redeem = Redeem::new(code, "app").redirect_uri(URI).with_grant();
        let answer = codes.redeem(redeem.access_token(AccessDraft::default())).await.unwrap();
        assert!(matches!(answer, RedeemOutcome::Redeemed(_)));
    });
    let access = costs!(dear, 2, "a rotation without leases", async {
        let rotate = Rotate::new(present.borrow().clone(), "app").access_token(AccessDraft::default());
        let RotateOutcome::Rotated(next) = grants.rotate(rotate).await.unwrap() else { panic!() };
        *present.borrow_mut() = next.refresh_token;
        next.access_token.unwrap().access_token
    });
    costs!(dear, 2, "an introspection without leases", async {
        let answer = stores.access_tokens(scope).introspect(&access).await.unwrap();
        assert!(matches!(answer, IntrospectOutcome::Active(_)));
    });
    assert!(dear.is_empty(), "{dear:#?}");
    // A revoked client gets nothing: the epoch that is read with the record counts.
    let code = codes.issue(CodeRequest::new("app", "ada", URI)).await.unwrap().code;
    let _ = grants.revoke(Holder::Client("app"), Some(&context())).await.unwrap();
    let redeem = Redeem::new(code, "app").redirect_uri(URI).with_grant();
    assert_eq!(codes.redeem(redeem).await.unwrap(), RedeemOutcome::Unknown);
    let token = present.borrow().clone();
    let answer = grants.rotate(Rotate::new(token, "app")).await.unwrap();
    assert!(matches!(answer, RotateOutcome::Revoked { .. }), "{answer:?}");
}

/// Number of the next multixact of the server: a row that several transactions lock together takes one.
async fn next_multixact(server: &str) -> i64 {
    let client = connect(server).await;
    client.batch_execute("CHECKPOINT").await.unwrap();
    let row =
        client.query_one("SELECT next_multixact_id::text FROM pg_control_checkpoint()", &[]).await.unwrap();
    row.get::<_, String>(0).parse().unwrap()
}

async fn issuing_for_one_client_locks_no_row_together() {
    let server = OwnServer::start();
    let url = fresh_on(&server.url).await;
    postgres::migrate(&url).await.unwrap();
    let stores = stores(open_at(&url).await);
    let scope = Scope::Global;
    // Its epoch is raised, so that there is something to lock.
    let _ = stores.grants(&scope).revoke(Holder::Client("app"), Some(&context())).await.unwrap();
    let before = next_multixact(&server.url).await;
    let issuers: Vec<_> = (0..64)
        .map(|issuer| {
            let (stores, scope) = (stores.clone(), scope.clone());
            tokio::spawn(async move {
                for number in 0..94 {
                    let request = GrantRequest::new(format!("user {issuer} {number}"), "app");
                    let _ = stores.grants(&scope).issue(request).await.unwrap();
                }
            })
        })
        .collect();
    for issuer in issuers {
        issuer.await.unwrap();
    }
    assert_eq!(next_multixact(&server.url).await - before, 0, "in {} issues", 64 * 94);
}

/// Backend whose commits wait for a word of the parent, once they are judged.
struct Paused {
    inner: Arc<dyn Admin>,
    waiting: AtomicUsize,
    armed: AtomicUsize,
    go: Notify,
}

#[async_trait]
impl Backend for Paused {
    async fn commit(&self, batch: Batch, now: Timestamp) -> Result<Commit> {
        let go = self.go.notified();
        let armed = self.armed.load(Ordering::SeqCst);
        if armed > 0 && self.waiting.fetch_add(1, Ordering::SeqCst) < armed {
            go.await;
        }
        self.inner.commit(batch, now).await
    }

    delegate!(self => self.inner; get get_many take alter commit_each scan sweep info);
}

#[async_trait]
impl Admin for Paused {
    delegate!(self => self.inner; list count clear erase);
    delegate!(self => self.inner; stats stats_at_hand clock_mark set_clock_mark engine_clock warnings backup);
}

const VARIABLE: &str = "EBBTIDE_TEST_PAUSE";
const CALLS: usize = 4;

/// Process that judges four calls, and commits them when it is told to.
pub(crate) struct Pause {
    url: String,
    refresh_token: Secret,
    code: Secret,
}

impl Pause {
    pub(crate) fn from_environment() -> Option<Self> {
        let variable = std::env::var(VARIABLE).ok()?;
        let mut words = variable.splitn(3, ' ').map(str::to_owned);
        let (refresh_token, code, url) = (words.next()?, words.next()?, words.next()?);
        Some(Self { url, refresh_token: Secret::new(refresh_token), code: Secret::new(code) })
    }

    pub(crate) fn run(self) -> ExitCode {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.unwrap().block_on(self.play());
        ExitCode::SUCCESS
    }

    async fn play(self) {
        let inner = open_at(&self.url).await;
        let paused = Arc::new(Paused {
            inner,
            waiting: AtomicUsize::new(0),
            armed: AtomicUsize::new(0),
            go: Notify::new(),
        });
        let stores = stores(Arc::clone(&paused) as Arc<dyn Admin>);
        let (scope, grants) = (Scope::Global, stores.grants(&Scope::Global));
        // The first call reads the epochs of clients, and has a lease from then on.
        let warm = grants.issue(GrantRequest::new("warm", "other")).await.unwrap();
        drop(warm);
        paused.armed.store(CALLS, Ordering::SeqCst);
        let rotate = {
            let (grants, token) = (grants.clone(), self.refresh_token);
            tokio::spawn(async move {
                match grants.rotate(Rotate::new(token, "app").access_token(AccessDraft::default())).await {
                    Ok(RotateOutcome::Rotated(next)) => Some(next.refresh_token),
                    _ => None,
                }
            })
        };
        let issue = {
            let grants = grants.clone();
            tokio::spawn(async move {
                grants.issue(GrantRequest::new("bob", "app")).await.ok().map(|grant| grant.refresh_token)
            })
        };
        let redeem = {
            let (codes, code) = (stores.codes(&scope), self.code);
            tokio::spawn(async move {
                match codes.redeem(Redeem::new(code, "app").redirect_uri(URI).with_grant()).await {
                    Ok(RedeemOutcome::Redeemed(redeemed)) => redeemed.grant.map(|grant| grant.refresh_token),
                    _ => None,
                }
            })
        };
        let token = {
            let tokens = stores.access_tokens(&scope);
            tokio::spawn(async move {
                match tokens.issue(AccessRequest::alone("eve", "app")).await {
                    Ok(IssueOutcome::Issued(issued)) => Some(issued.access_token),
                    _ => None,
                }
            })
        };
        while paused.waiting.load(Ordering::SeqCst) < CALLS {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        println!("judged");
        tokio::task::spawn_blocking(|| std::io::stdin().lines().next().unwrap().unwrap()).await.unwrap();
        paused.go.notify_waiters();
        for call in [rotate, issue, redeem, token] {
            let secret = call.await.unwrap();
            println!("{}", secret.as_ref().map_or("refused", Secret::expose));
        }
    }
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([name, &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

async fn what_a_paused_process_commits_after_a_raise_is_dead() {
    let url = migrated().await;
    let (stores, scope) = (stores(open_at(&url).await), Scope::Global);
    let grants = stores.grants(&scope);
    let grant = grants.issue(GrantRequest::new("ada", "app")).await.unwrap();
    let code = stores.codes(&scope).issue(CodeRequest::new("app", "ada", URI)).await.unwrap().code;
    let mut child = Command::new(std::env::current_exe().unwrap())
        .env(VARIABLE, format!("{} {} {url}", grant.refresh_token.expose(), code.expose()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(said.next().unwrap().unwrap(), "judged");
    signal(&child, "-STOP");
    // It is answered after a lease: from then on everything of the client is dead.
    let _ = grants.revoke(Holder::Client("app"), Some(&context())).await.unwrap();
    tokio::time::sleep(Duration::from_secs(6)).await;
    signal(&child, "-CONT");
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let secrets: Vec<_> = said.map(|line| line.unwrap()).collect();
    assert!(child.wait().unwrap().success());
    println!(
        "{} of {CALLS} were committed after the raise",
        secrets.iter().filter(|s| *s != "refused").count()
    );
    assert_eq!(secrets.len(), CALLS);
    for secret in secrets.into_iter().filter(|secret| secret != "refused") {
        let secret = Secret::new(secret);
        if secret.expose().starts_with("eba_") {
            let answer = stores.access_tokens(&scope).introspect(&secret).await.unwrap();
            assert_eq!(answer, IntrospectOutcome::Inactive);
        } else {
            let answer = grants.rotate(Rotate::new(&secret, "app")).await.unwrap();
            assert!(matches!(answer, RotateOutcome::Revoked { .. }), "{answer:?}");
        }
    }
    let later = grants.issue(GrantRequest::new("ada", "app")).await.unwrap();
    let answer = grants.rotate(Rotate::new(&later.refresh_token, "app")).await.unwrap();
    assert!(matches!(answer, RotateOutcome::Rotated(_)), "the client itself lives on");
}
