//! A node whose clock is not that of the engine which it shares, and a node that reads policies.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use ebbtide::stores::audit::AuditContext;
use ebbtide::timekeeping::ManualClocks;
use ebbtide::{
    Admin, Backend, Clock as _, Ebbtide, Info, Kind, ManualClock, Memory, Scope, Secret, Stores, Timestamp,
    TtlPolicy, async_trait, delegate,
};
use ebbtide_server::App;
use ebbtide_server::upkeep::Upkeep;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const KEY: &str = "ebk_the-root-key-of-these-tests";

/// An engine with a clock of its own.
struct Shared {
    records: Arc<Memory>,
    clock: ManualClock,
}

#[async_trait]
impl Backend for Shared {
    delegate!(self => self.records; get get_many take alter commit commit_each scan sweep);

    fn info(&self) -> Info {
        Info::new("shared").shared()
    }
}

#[async_trait]
impl Admin for Shared {
    delegate!(self => self.records; stats stats_at_hand list count clear erase);
    delegate!(self => self.records; clock_mark set_clock_mark warnings backup);

    async fn engine_clock(&self) -> ebbtide::Result<Option<Timestamp>> {
        Ok(Some(self.clock.now()))
    }
}

struct Node {
    port: u16,
    db: Ebbtide,
    upkeep: Upkeep,
    own: ManualClocks,
    engine: ManualClock,
    records: Arc<Memory>,
}

impl Node {
    async fn start() -> Self {
        let start = Timestamp::from_millis(1_800_000_000_000).unwrap();
        let (own, engine) = (ManualClocks::at(start), ManualClock::at(start));
        let records = Arc::<Memory>::default();
        let shared = Shared { records: Arc::clone(&records), clock: engine.clone() };
        let db = Ebbtide::over(Arc::new(shared)).clocks(own.clone()).open().await.unwrap();
        let app = App::new(&db, &Secret::new(KEY));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(ebbtide_server::http::serve(listener, app.clone(), std::future::pending()));
        let upkeep = Upkeep::new(app);
        Self { port, db, upkeep, own, engine, records }
    }

    async fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: e\r\nconnection: close\r\nauthorization: Bearer {KEY}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), serde_json::from_str(body).unwrap_or_default())
    }

    /// The status of a check of a proof, and of the readiness.
    async fn serves(&self, jti: &str) -> (u16, u16) {
        let body = format!(r#"{{"namespace":"n","jti":"{jti}"}}"#);
        (self.ask("POST", "/v1/replays/check", &body).await.0, self.ask("GET", "/readyz", "").await.0)
    }
}

#[tokio::test]
async fn a_node_whose_clock_leaps_issues_nothing_at_once_and_recovers_by_itself() {
    let node = Node::start().await;
    assert_eq!(node.serves("a").await, (200, 200));
    // No timer has run yet: the clock is compared in every call.
    node.own.step_wall(Duration::from_secs(10));
    assert_eq!(node.serves("b").await, (503, 200));
    assert_eq!(node.serves("a").await.0, 409, "evidence still blocks");
    node.own.step_wall(Duration::from_secs(3_600));
    assert_eq!(node.serves("b").await, (503, 503), "an hour is too wide for any answer");
    let (_, problem) = node.ask("GET", "/readyz", "").await;
    assert!(problem["detail"].as_str().unwrap().contains("in doubt by 1 h"), "{problem}");
    assert_eq!(node.ask("GET", "/healthz", "").await.0, 200);
    let (status, clock) = node.ask("GET", "/v1/clock", "").await;
    assert_eq!((status, clock["state"].as_str()), (200, Some("not-ready")), "an operator can see why");
    assert_eq!(
        node.ask("POST", "/v1/clock/accept", "{}").await.0,
        503,
        "the engine says that the wall is wrong"
    );
    node.own.step_wall_back(Duration::from_secs(3_610));
    node.db.tick().await;
    assert_eq!(node.serves("b").await, (200, 200));
}

#[tokio::test]
async fn a_node_that_was_paused_goes_on_when_the_engine_vouches_for_its_clock() {
    let node = Node::start().await;
    assert_eq!(node.serves("a").await, (200, 200));
    let pause = Duration::from_secs(600);
    node.own.step_wall(pause);
    node.engine.advance(pause);
    node.db.tick().await;
    assert_eq!(node.serves("b").await, (200, 200), "without an operator");
}

#[tokio::test]
async fn a_clock_that_is_set_back_warns_and_expiry_goes_on() {
    let node = Node::start().await;
    let body = r#"{"audience":"as","ttl_seconds":2}"#;
    let (status, nonce) = node.ask("POST", "/v1/nonces", body).await;
    assert_eq!(status, 201);
    node.own.step_wall_back(Duration::from_secs(3_600));
    node.own.advance(Duration::from_secs(3));
    node.engine.advance(Duration::from_secs(3));
    let check = format!(r#"{{"audience":"as","nonce":{}}}"#, nonce["nonce"]);
    assert_eq!(node.ask("POST", "/v1/nonces/check", &check).await.0, 410);
    let (status, ready) = node.ask("GET", "/readyz", "").await;
    assert_eq!(status, 200);
    assert!(ready["warnings"].to_string().contains("the wall clock is 1 h 0 min behind"), "{ready}");
}

#[tokio::test]
async fn a_policy_that_another_node_sets_holds_after_a_round() {
    let mut node = Node::start().await;
    let other = Stores::builder_for_tests(Arc::clone(&node.records) as Arc<dyn Admin>)
        .clock(node.engine.clone())
        .build();
    let context = AuditContext::new("operator", "less is more").unwrap();
    let policies = other.policies(&Scope::Global);
    policies.set(Kind::Nonce, &Scope::Global, TtlPolicy::temporary(), &context).await.unwrap();
    let long = r#"{"audience":"as","ttl_seconds":172800}"#;
    assert_eq!(node.ask("POST", "/v1/nonces", long).await.0, 201);
    node.upkeep.round().await;
    assert_eq!(node.ask("POST", "/v1/nonces", long).await.0, 400);
}
