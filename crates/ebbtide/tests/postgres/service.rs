//! The server that the tests run on, and a schema of its own for each.

use std::path::PathBuf;
use std::pin::Pin;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ebbtide::engines::postgres;
use ebbtide::{Admin, BackendExt, Key, Kind, Record, Scope, SystemRng, Timestamp};

/// A test by its name.
pub(crate) type Case = (&'static str, fn() -> Pin<Box<dyn Future<Output = ()>>>);

/// Names the cases of a module, so that one that is forgotten is dead code.
macro_rules! cases {
    ($($name:ident)+) => {
        pub(crate) const CASES: &[crate::service::Case] =
            &[$((stringify!($name), || Box::pin($name())),)+];
    };
}
pub(crate) use cases;

pub(crate) fn is_there() -> bool {
    std::env::var_os("EBBTIDE_TEST_POSTGRES").is_some()
}

/// The server's URL, without a schema.
pub(crate) fn server() -> String {
    std::env::var("EBBTIDE_TEST_POSTGRES")
        .expect("EBBTIDE_TEST_POSTGRES says where the server is: scripts/test")
}

/// A URL with a schema that nothing is in yet.
pub(crate) async fn fresh() -> String {
    fresh_on(&server()).await
}

pub(crate) async fn fresh_on(server: &str) -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let schema = format!("test_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::SeqCst));
    sql(server, &format!("DROP SCHEMA IF EXISTS {schema} CASCADE")).await;
    format!("{server}?schema={schema}&pool=8")
}

/// A migrated store in a schema of its own.
pub(crate) async fn open() -> Arc<dyn Admin> {
    open_at(&migrated().await).await
}

pub(crate) async fn migrated() -> String {
    let url = fresh().await;
    postgres::migrate(&url).await.unwrap();
    url
}

pub(crate) async fn open_at(url: &str) -> Arc<dyn Admin> {
    ebbtide::open_engine(url).await.unwrap()
}

/// A plain connection, to look at the tables and to meddle with them.
pub(crate) async fn connect(server: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(server, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

pub(crate) async fn sql(server: &str, text: &str) {
    connect(server).await.batch_execute(text).await.unwrap();
}

/// The schema of a URL that [`fresh`] made.
pub(crate) fn schema_of(url: &str) -> String {
    let rest = url.split_once("schema=").unwrap().1;
    rest.split('&').next().unwrap().to_owned()
}

pub(crate) fn key(name: &str) -> Key {
    Key::new(Kind::Probe, &Scope::Global, &[name.into()], &[]).unwrap()
}

pub(crate) fn record(value: &str, expires_at: u64) -> Record {
    Record::new(value.to_owned(), at(expires_at), &SystemRng)
}

/// Stores a record, whatever is there.
pub(crate) async fn put(store: &Arc<dyn Admin>, key: Key, record: Record) {
    assert!(store.put(key, record, at(0)).await.unwrap().is_applied());
}

pub(crate) fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis).unwrap()
}

/// Fails a test that hangs.
pub(crate) async fn within<T>(seconds: u64, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(seconds), work).await.expect("it ends in time")
}

/// A server of the test's own, which it may kill.
pub(crate) struct OwnServer {
    dir: PathBuf,
    pub(crate) url: String,
}

impl OwnServer {
    pub(crate) fn start() -> Self {
        let mut server = Self::nowhere();
        server.url = url_of(&server.script("start", None));
        server
    }

    /// A standby of another, whose commits wait for it from then on.
    pub(crate) fn standby_of(primary: &Self) -> Self {
        let mut server = Self::nowhere();
        server.follow(primary);
        server
    }

    fn nowhere() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::SeqCst);
        let dir = std::env::temp_dir().join(format!("ebbtide-postgres-{}-{number}", std::process::id()));
        Self { dir, url: String::new() }
    }

    /// Becomes a standby of another, on the port that it had.
    pub(crate) fn follow(&mut self, primary: &Self) {
        self.url = url_of(&self.script("standby", Some(&primary.dir)));
    }

    /// A standby becomes a primary.
    pub(crate) fn promote(&self) {
        self.script("promote", None);
    }

    pub(crate) fn kill(&self) {
        self.script("kill", None);
    }

    pub(crate) fn restart(&self) {
        self.script("start", None);
    }

    fn script(&self, action: &str, other: Option<&PathBuf>) -> String {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/services/postgres");
        let mut command = Command::new(script);
        let run = command.arg(action).arg(&self.dir).args(other).stderr(Stdio::null()).output().unwrap();
        assert!(run.status.success(), "{action} of the server failed");
        String::from_utf8(run.stdout).unwrap()
    }
}

/// URL in the output of the script.
fn url_of(variables: &str) -> String {
    variables.lines().find_map(|line| line.strip_prefix("EBBTIDE_TEST_POSTGRES=")).unwrap().to_owned()
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        self.script("stop", None);
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
