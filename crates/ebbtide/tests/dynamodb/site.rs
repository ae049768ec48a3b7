//! An endpoint with a table for the tests, and short words for what they do there.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use ebbtide::engines::dynamodb::DynamoDb;
use ebbtide::{Key, Kind, Record, Scope, SystemRng, Timestamp, Version};
use tokio::sync::OnceCell;

use crate::proxy::Proxy;

/// One endpoint. Its table is made when the first test needs it.
pub(crate) struct Site {
    endpoint: String,
    table: OnceCell<String>,
    own_tables: Mutex<Vec<String>>,
    proxies: Mutex<Vec<Proxy>>,
}

impl Site {
    pub(crate) fn new(endpoint: String) -> Self {
        Self { endpoint, table: OnceCell::new(), own_tables: Mutex::default(), proxies: Mutex::default() }
    }

    /// Deletes the tables that the tests used.
    pub(crate) async fn clean(&self) {
        let own = std::mem::take(&mut *self.own_tables.lock().unwrap());
        for table in self.table.get().into_iter().chain(&own) {
            self.client().delete_table().table_name(table).send().await.expect("the table is deleted");
        }
    }

    /// The endpoint deletes by TTL while a test waits: the first emulator does. The second says that it does
    /// and deletes nothing; a service of its own takes days.
    pub(crate) fn deletes_by_ttl(&self) -> bool {
        self.is_local() && std::env::var("EBBTIDE_TEST_DYNAMODB").is_ok_and(|first| first == self.endpoint)
    }

    fn is_local(&self) -> bool {
        self.endpoint.contains("127.0.0.1") || self.endpoint.contains("localhost")
    }

    /// The table that tests share, each with a prefix of its own.
    pub(crate) async fn table(&self) -> &str {
        self.table.get_or_init(|| self.make_table()).await
    }

    async fn make_table(&self) -> String {
        let table = format!("ebbtide-test-{}", Version::mint(&SystemRng));
        let store = self.store(&format!("dynamodb:{table}")).await;
        store.create_table().await.expect("the table is made");
        table
    }

    /// A table for one store where tables cost nothing: what is asked of a whole scope reads the whole table, and
    /// would read what every other test has written. Elsewhere the one that all share.
    async fn table_of_a_store(&self) -> String {
        if !self.is_local() {
            return self.table().await.to_owned();
        }
        let table = self.make_table().await;
        self.own_tables.lock().unwrap().push(table.clone());
        table
    }

    /// The URL of a store of its own.
    pub(crate) async fn url(&self) -> String {
        static STORES: AtomicU64 = AtomicU64::new(0);
        let number = STORES.fetch_add(1, Ordering::SeqCst);
        let table = self.table_of_a_store().await;
        format!(
            "dynamodb:{table}?endpoint={}&prefix=store%20{number}%20of%20{}",
            self.endpoint,
            std::process::id()
        )
    }

    /// A store of its own.
    pub(crate) async fn open(&self) -> DynamoDb {
        open(&self.url().await).await
    }

    /// A store of its own behind the limits of the service.
    pub(crate) async fn open_limited(&self) -> DynamoDb {
        let (proxy, store, _) = self.proxied().await;
        proxy.limit();
        self.proxies.lock().unwrap().push(proxy);
        store
    }

    /// The same store twice: through a proxy, and past it.
    pub(crate) async fn proxied(&self) -> (Proxy, DynamoDb, DynamoDb) {
        let url = self.url().await;
        let proxy = Proxy::start(&self.endpoint).await;
        let through = open(&url.replace(&self.endpoint, &proxy.endpoint())).await;
        (proxy, through, open(&url).await)
    }

    /// The URL of a store of its own, through a proxy.
    pub(crate) async fn url_through(&self, proxy: &Proxy) -> String {
        credentials();
        self.url().await.replace(&self.endpoint, &proxy.endpoint())
    }

    /// The store at a URL without its endpoint.
    pub(crate) async fn store(&self, url: &str) -> DynamoDb {
        let separator = if url.contains('?') { '&' } else { '?' };
        open(&format!("{url}{separator}endpoint={}", self.endpoint)).await
    }

    /// The SDK's own client, for looking at what is stored.
    pub(crate) fn client(&self) -> Client {
        let config = aws_sdk_dynamodb::Config::builder()
            .behavior_version(BehaviorVersion::v2026_01_12())
            .endpoint_url(&self.endpoint)
            .region(Region::from_static("us-east-1"))
            .credentials_provider(Credentials::new("test", "test", None, None, "test"))
            .http_client(aws_smithy_http_client::Builder::new().build_http());
        Client::from_conf(config.build())
    }
}

pub(crate) async fn open(url: &str) -> DynamoDb {
    credentials();
    DynamoDb::open(url, SystemRng).await.expect("a good URL")
}

/// The emulators take any credentials, and the SDK sends nothing without.
fn credentials() {
    static CHECKED: OnceLock<()> = OnceLock::new();
    CHECKED.get_or_init(|| {
        assert!(
            std::env::var_os("AWS_ACCESS_KEY_ID").is_some() || std::env::var_os("AWS_PROFILE").is_some(),
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY: any will do for an emulator"
        );
    });
}

/// The time so many milliseconds after 2100 began.
pub(crate) fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(4_102_444_800_000 + millis).expect("before 9999")
}

pub(crate) fn key(name: &str) -> Key {
    Key::new(Kind::Probe, &Scope::Global, &[name.into()], &[]).expect("a good name")
}

pub(crate) fn record(value: &str, expires: u64) -> Record {
    Record::new(value.to_owned(), at(expires), &SystemRng)
}
