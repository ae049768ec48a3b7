//! Families over long and random lives, over faults, and what an answer costs.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ebbtide::stores::access_tokens::{AccessRequest, IntrospectOutcome, IssueOutcome};
use ebbtide::stores::audit::AuditContext;
use ebbtide::stores::codes::{CodeRequest, Redeem, RedeemOutcome};
use ebbtide::stores::grants::{GrantRequest, GrantState, GrantTtls, Holder, Rotate, RotateOutcome, Why};
use ebbtide::stores::nonces::{NonceCheck, NonceOutcome, NonceRequest};
use ebbtide::{
    Admin, Backend, BackendExt, Budget, Clock, ErrorKind, Kind, ManualClock, Memory, Prefix, Result, Scope,
    Secret, SeededRng, Stores, Timestamp, Ttl, async_trait, delegate, provide,
};
use ebbtide_conformance::faulty::{FaultPoint, Faulty};
use proptest::prelude::*;

fn begin() -> ManualClock {
    ManualClock::at(Timestamp::from_millis(1_800_000_000_000).unwrap())
}

fn stores(backend: Arc<dyn Admin>, clock: &ManualClock) -> Stores {
    Stores::builder_for_tests(backend).clock(clock.clone()).rng(SeededRng::new(1)).build()
}

async fn access(stores: &Stores, id: ebbtide::stores::grants::GrantId) -> Option<Secret> {
    match stores.access_tokens(&Scope::Global).issue(AccessRequest::under(id)).await.unwrap() {
        IssueOutcome::Issued(issued) => Some(issued.access_token),
        _ => None,
    }
}

#[tokio::test]
async fn ten_thousand_rotations_leave_a_family_as_small_as_one() {
    let backend = Arc::new(Memory::default());
    let clock = begin();
    let stores = stores(backend.clone(), &clock);
    let bytes = || async {
        let mut bytes = 0;
        for &kind in Kind::ALL {
            let records = backend.scan_all(&Prefix::kind_wide(kind), clock.now()).await.unwrap();
            bytes +=
                records.iter().map(|(key, record)| key.as_bytes().len() + record.value.len()).sum::<usize>();
        }
        bytes
    };
    let grants = stores.grants(&Scope::Global);
    let request =
        GrantRequest::new("ada", "app").scope("read write").data(serde_json::json!({ "acr": "mfa" }));
    let mut token = grants.issue(request).await.unwrap().refresh_token;
    let mut after_one = 0;
    for rotation in 1..=10_000_u64 {
        clock.advance(Duration::from_secs(if rotation % 2 == 0 { 60 } else { 1 }));
        match grants.rotate(Rotate::new(&token, "app")).await.unwrap() {
            RotateOutcome::Rotated(rotated) => {
                assert_eq!(rotated.generation, rotation);
                token = rotated.refresh_token;
            }
            other => panic!("{other:?}"),
        }
        if rotation == 1 {
            after_one = bytes().await;
        }
    }
    let after_all = bytes().await;
    println!("a family takes {after_one} bytes after 1 rotation, {after_all} after 10000");
    assert_eq!(after_all, after_one);
}

/// Event in the life of a family.
#[derive(Debug, Clone)]
enum Step {
    /// Someone rotates with the token that was given so many rotations ago.
    Rotate {
        back: usize,
    },
    /// An access token is issued, and used at once.
    Use,
    Wait {
        millis: u64,
    },
    Revoke,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => prop_oneof![6 => Just(0), 3 => Just(1), 1 => 2..5usize].prop_map(|back| Step::Rotate { back }),
        3 => Just(Step::Use),
        4 => prop_oneof![Just(1), Just(4_999), Just(5_000), Just(10_000), 0..30_000u64]
            .prop_map(|millis| Step::Wait { millis }),
        1 => Just(Step::Revoke),
    ]
}

/// Plays the steps, and returns every answer as text. With `sweeps`, everything that can be is swept in between.
async fn play(steps: &[Step], sweeps: bool) -> Vec<String> {
    let backend = Arc::new(Memory::default());
    let clock = begin();
    let stores = stores(backend.clone(), &clock);
    let grants = stores.grants(&Scope::Global);
    let secs = |seconds| Ttl::from_secs(seconds).unwrap();
    let terms = GrantTtls::default().idle_ttl(secs(30)).max_ttl(secs(120));
    let issued = grants.issue(GrantRequest::new("ada", "app").ttls(terms)).await.unwrap();
    let mut tokens = vec![issued.refresh_token.clone()];
    let (mut ended, mut windows, mut seen) = (false, Vec::new(), false);
    let grace = Duration::from_secs(10);
    let mut answers = Vec::new();
    for step in steps {
        if sweeps {
            backend.sweep_all(clock.now(), &Budget::everything(Kind::ALL)).await.unwrap();
        }
        match step {
            Step::Rotate { back } => {
                let at = tokens.len().saturating_sub(1 + back);
                let is_present = at + 1 == tokens.len();
                let answer = grants.rotate(Rotate::new(&tokens[at], "app")).await.unwrap();
                match &answer {
                    RotateOutcome::Rotated(rotated) => {
                        assert!(!ended && is_present, "only the present token of a living family is rotated");
                        assert!(tokens.iter().all(|token| *token != rotated.refresh_token), "to a new one");
                        tokens.push(rotated.refresh_token.clone());
                        windows.push(clock.now().checked_add(grace).unwrap());
                        seen = false;
                    }
                    RotateOutcome::Retried(rotated) => {
                        assert!(
                            !ended && at + 2 == tokens.len() && !seen,
                            "only the one before, while unseen"
                        );
                        assert_eq!(tokens.last(), Some(&rotated.refresh_token), "with the same successor");
                        assert!(clock.now() < windows[at]);
                    }
                    RotateOutcome::Raced { .. } => {
                        let oldest = if is_present { at.checked_sub(16) } else { Some(at) };
                        assert!(!ended && clock.now() < windows[oldest.unwrap()], "within an open window");
                    }
                    RotateOutcome::Reused { .. } => {
                        assert!(!ended && !is_present);
                        assert!(clock.now() >= windows[at], "no late tab is taken for a thief");
                        ended = true;
                    }
                    RotateOutcome::Revoked { .. } => assert!(ended),
                    RotateOutcome::Expired => ended = true,
                    other => panic!("{other:?}"),
                }
                answers.push(format!("{answer:?}"));
            }
            Step::Use => {
                let token = access(&stores, issued.grant_id).await;
                if let Some(token) = &token {
                    let answer = stores.access_tokens(&Scope::Global).introspect(token).await.unwrap();
                    assert!(matches!(answer, IntrospectOutcome::Active(_)));
                    assert!(!ended, "nothing is issued into a family that has ended");
                    stores.settle().await;
                    seen = true;
                }
                answers.push(format!("use {}", token.is_some()));
            }
            Step::Wait { millis } => clock.advance(Duration::from_millis(*millis)),
            Step::Revoke => {
                let was_active = grants.revoke(issued.grant_id, None).await.unwrap() == 1;
                assert!(!(ended && was_active), "what has ended cannot be revoked");
                ended = true;
                answers.push(format!("revoke {was_active}"));
            }
        }
        let state = grants.get(issued.grant_id).await.unwrap().map(|grant| grant.state);
        assert!(!(ended && state == Some(GrantState::Active)), "what has ended stays so");
        answers.push(format!("{state:?}"));
    }
    answers
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_life_of_a_family_breaks_its_rules_and_no_sweep_changes_it(steps in prop::collection::vec(step(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let unswept = runtime.block_on(play(&steps, false));
        prop_assert_eq!(unswept, runtime.block_on(play(&steps, true)));
    }
}

fn faulty() -> (Arc<Faulty<Memory>>, Stores) {
    let backend = Arc::new(Faulty::new(Memory::default()));
    let stores = stores(backend.clone(), &begin());
    (backend, stores)
}

#[tokio::test]
async fn a_rotation_whose_answer_was_lost_is_retried() {
    for fault in [FaultPoint::Before, FaultPoint::After] {
        let (backend, stores) = faulty();
        let grants = stores.grants(&Scope::Global);
        let issued = grants.issue(GrantRequest::new("ada", "app")).await.unwrap();
        backend.fail(0, fault);
        let error = grants.rotate(Rotate::new(&issued.refresh_token, "app")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "a fault is no answer");
        let again = grants.rotate(Rotate::new(&issued.refresh_token, "app")).await.unwrap();
        let next = match (fault, again) {
            (FaultPoint::Before, RotateOutcome::Rotated(next))
            | (FaultPoint::After, RotateOutcome::Retried(next)) => next,
            other => panic!("{other:?}"),
        };
        assert_eq!(next.generation, 1);
        assert!(matches!(
            grants.rotate(Rotate::new(&next.refresh_token, "app")).await.unwrap(),
            RotateOutcome::Rotated(_)
        ));
    }
}

#[tokio::test]
async fn a_redemption_whose_answer_was_lost_is_taken_back_by_the_next() {
    for fault in [FaultPoint::Before, FaultPoint::After] {
        let (backend, stores) = faulty();
        let codes = stores.codes(&Scope::Global);
        let code = codes.issue(CodeRequest::new("app", "ada", "https://a")).await.unwrap().code;
        let presented = Redeem::new(code, "app").redirect_uri("https://a").with_grant();
        backend.fail(0, fault);
        assert_eq!(codes.redeem(presented.clone()).await.unwrap_err().kind(), ErrorKind::Unavailable);
        match (fault, codes.redeem(presented.clone()).await.unwrap()) {
            (FaultPoint::Before, RedeemOutcome::Redeemed(_)) => {}
            (FaultPoint::After, RedeemOutcome::Reused { grant_id: Some(id) }) => {
                let grant = stores.grants(&Scope::Global).get(id).await.unwrap().unwrap();
                assert!(matches!(grant.state, GrantState::Revoked { .. }), "nobody holds it, and nobody can");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_code_and_its_grant_are_there_together_or_not_at_all() {
    let (backend, stores) = faulty();
    let code =
        stores.codes(&Scope::Global).issue(CodeRequest::new("app", "ada", "https://a")).await.unwrap().code;
    let presented = Redeem::new(code, "app").redirect_uri("https://a").with_grant();
    let before = backend.writes();
    assert!(matches!(
        stores.codes(&Scope::Global).redeem(presented.clone()).await.unwrap(),
        RedeemOutcome::Redeemed(_)
    ));
    assert_eq!(backend.writes() - before, 1, "one commit");
}

#[tokio::test]
async fn a_nonce_whose_acceptance_was_lost_is_used() {
    let (backend, stores) = faulty();
    let nonces = stores.nonces(&Scope::Global);
    let issued = nonces.issue(NonceRequest::new("as")).await.unwrap();
    let nonce = NonceCheck::new("as", issued.nonce);
    backend.fail(0, FaultPoint::After);
    assert!(nonces.accept(&nonce).await.is_err());
    assert_eq!(nonces.accept(&nonce).await.unwrap(), NonceOutcome::Used, "never accepted twice");
}

#[tokio::test]
async fn a_store_that_is_down_answers_nothing() {
    let (backend, stores) = faulty();
    let scope = Scope::Global;
    let issued = stores.grants(&scope).issue(GrantRequest::new("ada", "app")).await.unwrap();
    let token = access(&stores, issued.grant_id).await.unwrap();
    backend.stay_down(0, FaultPoint::Before);
    assert!(stores.grants(&scope).rotate(Rotate::new(&issued.refresh_token, "app")).await.is_err());
    assert!(stores.access_tokens(&scope).introspect(&token).await.is_err(), "not inactive: no answer");
    assert!(stores.grants(&scope).revoke(issued.grant_id, None).await.is_err());
    assert!(stores.grants(&scope).get(issued.grant_id).await.is_err());
    assert!(stores.access_tokens(&scope).issue(AccessRequest::under(issued.grant_id)).await.is_err());
}

/// Counts reads and writes.
#[derive(Default)]
struct Counting {
    inner: Memory,
    reads: AtomicU64,
    writes: AtomicU64,
}

impl Counting {
    async fn read<T>(&self, _method: &str, call: impl Future<Output = Result<T>> + Send) -> Result<T> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        call.await
    }

    async fn write<T>(&self, _method: &str, call: impl Future<Output = Result<T>> + Send) -> Result<T> {
        self.writes.fetch_add(1, Ordering::SeqCst);
        call.await
    }

    fn take_counts(&self) -> (u64, u64) {
        (self.reads.swap(0, Ordering::SeqCst), self.writes.swap(0, Ordering::SeqCst))
    }
}

#[async_trait]
impl Backend for Counting {
    delegate!(self => self.inner, through self.read; get);
    delegate!(self => self.inner, through self.write; take commit);
    delegate!(self => self.inner; scan sweep info);
    provide!(get_many alter commit_each);
}

#[async_trait]
impl Admin for Counting {
    provide!(stats stats_at_hand list count clear erase clock_mark set_clock_mark engine_clock warnings backup);
}

#[tokio::test]
async fn the_cost_of_an_answer_is_known() {
    let backend = Arc::new(Counting::default());
    let stores = stores(backend.clone(), &begin());
    let (grants, tokens) = (stores.grants(&Scope::Global), stores.access_tokens(&Scope::Global));
    let issued = grants.issue(GrantRequest::new("ada", "app")).await.unwrap();
    assert_eq!(backend.take_counts(), (0, 1), "issuing a grant with its indexes");
    stores.settle().await;
    assert_eq!(
        backend.take_counts(),
        (1, 0),
        "beside it, whether its client was used before; not again for a while"
    );
    let RotateOutcome::Rotated(next) =
        grants.rotate(Rotate::new(&issued.refresh_token, "app")).await.unwrap()
    else {
        panic!()
    };
    // The epochs of its subject and client are conditions of the commit.
    assert_eq!(backend.take_counts(), (1, 1), "rotating");
    let token = access(&stores, next.grant_id).await.unwrap();
    assert_eq!(backend.take_counts(), (1, 1), "issuing an access token");
    let _ = tokens.introspect(&token).await.unwrap();
    // The token, and then its grant with the epochs of its subject and client, in one `get_many`.
    assert_eq!(backend.take_counts(), (4, 0), "introspecting");
    stores.settle().await;
    assert_eq!(backend.take_counts(), (1, 1), "the proof of receipt beside it, once for a generation");
    for _ in 0..3 {
        let _ = tokens.introspect(&token).await.unwrap();
        assert_eq!(backend.take_counts(), (4, 0), "introspecting");
    }
    assert_eq!(grants.revoke(next.grant_id, None).await.unwrap(), 1);
    assert_eq!(backend.take_counts(), (1, 1), "revoking, whatever hangs on it");
    assert_eq!(
        grants.rotate(Rotate::new(Secret::new("ebr_x"), "app")).await.unwrap(),
        RotateOutcome::Unknown
    );
    assert_eq!(backend.take_counts(), (0, 0), "garbage does not reach the store");
}

#[tokio::test]
async fn a_subject_that_was_signed_out_once_costs_no_more_than_another() {
    let backend = Arc::new(Counting::default());
    let stores = stores(backend.clone(), &begin());
    let (codes, grants) = (stores.codes(&Scope::Global), stores.grants(&Scope::Global));
    let context = AuditContext::new("root", "a test").unwrap();
    let request = || CodeRequest::new("app", "ada", "https://app.example/cb");
    let dead = codes.issue(request()).await.unwrap().code;
    for _ in 0..2 {
        let _ = stores.owners(&Scope::Global).sign_out("ada", &context).await.unwrap();
        stores.settle().await;
        let live = codes.issue(request()).await.unwrap().code;
        stores.settle().await;
        backend.take_counts();
        let _ = grants.issue(GrantRequest::new("ada", "app")).await.unwrap();
        assert_eq!(backend.take_counts(), (0, 1), "the epoch was seen, and is checked by the commit");
        let redeem =
            |code: &Secret| Redeem::new(code, "app").redirect_uri("https://app.example/cb").with_grant();
        assert_eq!(codes.redeem(redeem(&dead)).await.unwrap(), RedeemOutcome::Unknown);
        let RedeemOutcome::Redeemed(redeemed) = codes.redeem(redeem(&live)).await.unwrap() else { panic!() };
        let token = redeemed.grant.unwrap().refresh_token;
        let answer = grants.rotate(Rotate::new(token, "app")).await.unwrap();
        assert!(matches!(answer, RotateOutcome::Rotated(_)), "{answer:?}");
    }
}

/// `EBBTIDE_TEST_GRANTS=100000` is for a long look.
#[tokio::test]
async fn revoking_a_client_costs_the_same_however_many_grants_it_has() {
    let many = std::env::var("EBBTIDE_TEST_GRANTS").map_or(2_500, |number| number.parse().unwrap());
    let mut costs = Vec::new();
    for number in [1_100, many] {
        let backend = Arc::new(Counting::default());
        let stores = stores(backend.clone(), &begin());
        let grants = stores.grants(&Scope::Global);
        let mut tokens = Vec::new();
        for user in 0..number {
            let request = GrantRequest::new(format!("user {user}"), "app");
            tokens.push(grants.issue(request).await.unwrap().refresh_token);
        }
        stores.settle().await;
        backend.take_counts();
        let revoked = grants.revoke(Holder::Client("app"), None).await.unwrap();
        assert!(revoked >= 1_000, "{revoked}");
        costs.push(backend.take_counts());
        for token in [&tokens[0], &tokens[number / 2], &tokens[number - 1]] {
            let answer = grants.rotate(Rotate::new(token, "app")).await.unwrap();
            assert!(matches!(answer, RotateOutcome::Revoked { why: Why::ClientRevoked, .. }), "{answer:?}");
        }
    }
    assert_eq!(costs[0], costs[1], "reads and writes");
}

#[tokio::test]
async fn a_page_of_grants_ends_before_it_is_too_large() {
    let stores = stores(Arc::new(Memory::default()), &begin());
    let grants = stores.grants(&Scope::Global);
    let large = serde_json::json!("x".repeat(60_000));
    for _ in 0..60 {
        let _ = grants.issue(GrantRequest::new("ada", "app").data(large.clone())).await.unwrap();
    }
    let (mut pages, mut listed, mut after) = (0, 0, None);
    loop {
        let page = grants.list(Holder::Subject("ada"), after.as_ref(), 1_000).await.unwrap();
        assert!(page.items.len() <= 48, "{} grants of 60 kB each", page.items.len());
        (pages, listed) = (pages + 1, listed + page.items.len());
        let Some(next) = page.next else { break };
        after = Some(next);
    }
    assert_eq!((pages, listed), (2, 60));
    for limit in [0, 1_001] {
        assert!(grants.list(Holder::Client("app"), None, limit).await.is_err(), "{limit}");
    }
}
