//! A server on a free port, and what its clients say to it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use ebbtide::stores::attributes::BucketTtls;
use ebbtide::{
    Admin, BackendExt as _, Clock as _, Ebbtide, Keyring, Kind, ManualClock, Memory, Prefix, Secret,
    SeededRng, Timestamp,
};
use ebbtide_server::App;
use ebbtide_server::http::quota::Quotas;
use ebbtide_server::http::scoping::ScopeRules;
use ebbtide_server::upkeep::Upkeep;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

pub(crate) const KEY: &str = "ebk_the-root-key-of-these-tests";

/// One keyring for the nodes of a store.
fn keyring() -> Keyring {
    Keyring::generate(&SeededRng::new(9), Timestamp::ZERO)
}

/// A node on a free port, with a clock that the test moves.
pub(crate) struct Server {
    pub(crate) port: u16,
    pub(crate) clock: ManualClock,
    app: App,
    backend: Arc<Memory>,
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Value,
}

impl Answer {
    /// The body of a success.
    pub(crate) fn ok(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.body);
        self.body
    }

    /// Checks a refusal: its status, its type, its form.
    pub(crate) fn refused(self, status: u16, kind: &str) -> Value {
        assert_eq!(self.status, status, "{}", self.body);
        assert!(self.head.contains("content-type: application/problem+json"), "{}", self.head);
        assert_eq!(self.body["type"], format!("/problems/{kind}"), "{}", self.body);
        assert_eq!(self.body["status"], status);
        self.body
    }
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::start_with(Quotas::default()).await
    }

    pub(crate) async fn start_with(quotas: Quotas) -> Self {
        let clock = ManualClock::at(Timestamp::from_millis(1_800_000_000_000).unwrap());
        Self::node(Arc::default(), clock, quotas).await
    }

    /// Server with other lives of buckets.
    pub(crate) async fn with_bucket_lives(lives: BucketTtls) -> Self {
        let clock = ManualClock::at(Timestamp::from_millis(1_800_000_000_000).unwrap());
        let backend: Arc<Memory> = Arc::default();
        let db = Ebbtide::over(backend.clone()).clock(clock.clone()).keyring(keyring()).bucket_lives(lives);
        let app = App::new(&db.open().await.unwrap(), &Secret::new(KEY));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(ebbtide_server::http::serve(listener, app.clone(), std::future::pending()));
        Self { port, clock, app, backend }
    }

    /// Another node on the same store.
    pub(crate) async fn another(&self) -> Self {
        Self::node(Arc::clone(&self.backend), self.clock.clone(), Quotas::default()).await
    }

    /// A node on the same records, behind another engine.
    pub(crate) async fn behind(&self, engine: impl FnOnce(Arc<Memory>) -> Arc<dyn Admin>) -> Self {
        let (backend, clock) = (Arc::clone(&self.backend), self.clock.clone());
        Self::over(engine(Arc::clone(&backend)), backend, clock, Quotas::default()).await
    }

    async fn node(backend: Arc<Memory>, clock: ManualClock, quotas: Quotas) -> Self {
        Self::over(Arc::clone(&backend) as Arc<dyn Admin>, backend, clock, quotas).await
    }

    async fn over(engine: Arc<dyn Admin>, backend: Arc<Memory>, clock: ManualClock, quotas: Quotas) -> Self {
        let db = Ebbtide::over(engine).clock(clock.clone()).keyring(keyring());
        let app = App::new(&db.open().await.unwrap(), &Secret::new(KEY)).with_quotas(quotas);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(ebbtide_server::http::serve(listener, app.clone(), std::future::pending()));
        Self { port, clock, app, backend }
    }

    /// Another node on the same store, with other rules for scopes.
    pub(crate) async fn ruled(&self, rules: ScopeRules) -> Self {
        let app = self.app.clone().with_scope_rules(rules);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(ebbtide_server::http::serve(listener, app.clone(), std::future::pending()));
        Self { port, clock: self.clock.clone(), app, backend: Arc::clone(&self.backend) }
    }

    /// The store, as another process opens it.
    pub(crate) async fn opened(&self) -> Ebbtide {
        let db = Ebbtide::over(self.backend.clone()).clock(self.clock.clone()).keyring(keyring());
        db.open().await.unwrap()
    }

    /// Does the periodic work of the node once.
    pub(crate) async fn round(&self) {
        self.upkeep().round().await;
    }

    /// Periodic work of the node.
    pub(crate) fn upkeep(&self) -> Upkeep {
        Upkeep::new(self.app.clone())
    }

    /// Scopes that have an audit log.
    pub(crate) async fn audited_scopes(&self) -> BTreeSet<String> {
        let log = Prefix::kind_wide(Kind::Audit);
        let rows = self.backend.scan_all(&log, self.clock.now()).await.unwrap();
        rows.iter().map(|(key, _)| key.scope().to_string()).collect()
    }

    /// Id of an API key.
    pub(crate) async fn key_id(&self, key: &str) -> String {
        let db = Ebbtide::over(self.backend.clone()).clock(self.clock.clone()).keyring(keyring());
        let found = db.open().await.unwrap().stores().find_api_key(&Secret::new(key)).await.unwrap();
        found.map(|key| key.id.to_string()).unwrap_or_default()
    }

    pub(crate) fn pass(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }

    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let mut request = format!("{method} {path} HTTP/1.1\r\nhost: ebbtide\r\nconnection: close\r\n");
        for (name, value) in headers {
            write!(request, "{name}: {value}\r\n").unwrap();
        }
        write!(request, "content-length: {}\r\n\r\n{body}", body.len()).unwrap();
        let stream = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        let (mut reader, mut writer) = stream.into_split();
        let (mut text, mut bytes) = (String::new(), request.as_bytes());
        // A server that has heard enough answers before it has read all, and closes.
        let (_, _) = tokio::join!(writer.write_all_buf(&mut bytes), reader.read_to_string(&mut text));
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head: head.to_owned(), body: serde_json::from_str(body).unwrap_or(Value::Null) }
    }

    pub(crate) async fn call(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Value,
    ) -> Answer {
        self.call_as(KEY, method, path, headers, body).await
    }

    pub(crate) async fn call_as(
        &self,
        key: &str,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Value,
    ) -> Answer {
        let authorization = format!("Bearer {key}");
        let mut all = vec![("authorization", authorization.as_str()), ("content-type", "application/json")];
        all.extend(headers);
        let text = if body.is_null() { String::new() } else { body.to_string() };
        self.send(method, path, &all, &text).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.call("POST", path, &[], body).await
    }

    pub(crate) async fn form(&self, path: &str, body: &str) -> Answer {
        let authorization = format!("Bearer {KEY}");
        let form = "application/x-www-form-urlencoded";
        self.send("POST", path, &[("authorization", &authorization), ("content-type", form)], body).await
    }
}
