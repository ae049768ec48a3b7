//! Connections to one of several hosts, and detection of a pooler in front of them.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use deadpool_postgres::Connect;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::config::Host;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, Error, SimpleQueryMessage};
use tokio_postgres_rustls::MakeRustlsConnect;

/// Number of times that two connections are compared to detect a pooler.
const COMPARISONS: usize = 8;

/// Setting that has no effect. A server gives it to the connection that asks for it.
const MARK: &str = "ebbtide.direct";

/// Answers of a pooler to a setting that it does not know.
const REFUSALS: [&SqlState; 2] = [&SqlState::PROTOCOL_VIOLATION, &SqlState::FEATURE_NOT_SUPPORTED];

/// Hosts of a store. The one that answered last is tried first; a host that is silent is given up after a bound.
#[derive(Clone)]
pub(super) struct Hosts {
    each: Arc<[Config]>,
    last_good: Arc<AtomicUsize>,
    tls: MakeRustlsConnect,
    bound: Duration,
}

impl Hosts {
    /// Bounds TCP, TLS, authentication and the question for a primary of each host together.
    pub(super) fn new(config: &Config, tls: MakeRustlsConnect, bound: Duration) -> Self {
        let count = config.get_hosts().len().max(config.get_hostaddrs().len());
        let each = (0..count).map(|index| only(config, index)).collect();
        Self { each, last_good: Arc::default(), tls, bound }
    }

    /// Time after which every host has been tried.
    pub(super) fn all_tried(&self) -> Duration {
        self.bound.saturating_mul(u32::try_from(self.each.len()).unwrap_or(u32::MAX))
    }

    /// Host that is tried first.
    pub(super) fn first(&self) -> usize {
        self.last_good.load(Ordering::Relaxed)
    }

    /// Tries the host after this one first from now on: a statement had no answer. It may be a primary that waits for a
    /// standby which has taken its place.
    pub(super) fn leave(&self, host: usize) {
        let next = (host + 1) % self.each.len().max(1);
        let _ = self.last_good.compare_exchange(host, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Bound of one handshake.
    pub(super) fn bound(&self) -> Duration {
        self.bound
    }

    pub(super) fn tls(&self) -> MakeRustlsConnect {
        self.tls.clone()
    }

    pub(super) async fn open(&self) -> Result<(Client, JoinHandle<()>), Error> {
        let first = self.first();
        let others = (0..self.each.len()).filter(|index| *index != first);
        let mut failed: Option<Error> = None;
        for index in std::iter::once(first).chain(others) {
            let error = match timeout(self.bound, self.each[index].connect(self.tls.clone())).await {
                Ok(Ok((client, connection))) => {
                    self.last_good.store(index, Ordering::Relaxed);
                    let task = tokio::spawn(async move {
                        if let Err(error) = connection.await {
                            tracing::debug!(%error, "a connection to the database ended");
                        }
                    });
                    return Ok((client, task));
                }
                Ok(Err(error)) => error,
                Err(_) => Error::__private_api_timeout(),
            };
            // A server that answers says more than one that does not.
            if failed.as_ref().is_none_or(|failed| failed.as_db_error().is_none()) {
                failed = Some(error);
            }
        }
        Err(failed.unwrap_or_else(Error::__private_api_timeout))
    }

    /// Returns true if a pooler may be in front of the hosts. A connection is asked for with a setting of its own: a
    /// server keeps it, while a pooler refuses it or leaves it out. A pooler that passes it on gives itself away by
    /// serving two connections with one process of the server.
    pub(super) async fn are_pooled(&self) -> Result<bool, Error> {
        let one = match self.marked().open().await {
            Ok((one, _)) => one,
            Err(error) if error.code().is_some_and(|code| REFUSALS.contains(&code)) => return Ok(true),
            Err(error) => return Err(error),
        };
        if first_value(&one, &format!("SELECT current_setting('{MARK}', true)")).await?.as_deref()
            != Some("on")
        {
            return Ok(true);
        }
        let (other, _) = self.open().await?;
        for _ in 0..COMPARISONS {
            let process = "SELECT pg_backend_pid()";
            if first_value(&one, process).await? == first_value(&other, process).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The same hosts, with a setting for the connection in the first message.
    fn marked(&self) -> Self {
        let each = self.each.iter().map(|config| {
            let mut config = config.clone();
            let options = config.get_options().unwrap_or_default();
            let options = format!("{options} -c {MARK}=on");
            config.options(options.trim_start());
            config
        });
        Self { each: each.collect(), ..self.clone() }
    }
}

async fn first_value(client: &Client, sql: &str) -> Result<Option<String>, Error> {
    let answer = client.simple_query(sql).await?;
    Ok(answer.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0).map(ToOwned::to_owned),
        _ => None,
    }))
}

impl Connect for Hosts {
    fn connect(
        &self,
        _: &Config,
    ) -> Pin<Box<dyn Future<Output = Result<(Client, JoinHandle<()>), Error>> + Send + '_>> {
        Box::pin(self.open())
    }
}

/// Settings for one of the hosts alone.
fn only(config: &Config, index: usize) -> Config {
    let mut one = Config::new();
    match config.get_hosts().get(index) {
        Some(Host::Tcp(name)) => {
            one.host(name);
        }
        #[cfg(unix)]
        Some(Host::Unix(path)) => {
            one.host_path(path);
        }
        None => {}
    }
    if let Some(address) = config.get_hostaddrs().get(index) {
        one.hostaddr(*address);
    }
    if let Some(port) = config.get_ports().get(index).or_else(|| config.get_ports().first()) {
        one.port(*port);
    }
    if let Some(user) = config.get_user() {
        one.user(user);
    }
    if let Some(password) = config.get_password() {
        one.password(password);
    }
    if let Some(name) = config.get_dbname() {
        one.dbname(name);
    }
    if let Some(options) = config.get_options() {
        one.options(options);
    }
    if let Some(name) = config.get_application_name() {
        one.application_name(name);
    }
    if let Some(timeout) = config.get_connect_timeout() {
        one.connect_timeout(*timeout);
    }
    if let Some(timeout) = config.get_tcp_user_timeout() {
        one.tcp_user_timeout(*timeout);
    }
    one.ssl_mode(config.get_ssl_mode())
        .ssl_negotiation(config.get_ssl_negotiation())
        .channel_binding(config.get_channel_binding())
        .target_session_attrs(config.get_target_session_attrs())
        .keepalives(config.get_keepalives())
        .keepalives_idle(config.get_keepalives_idle());
    if let Some(interval) = config.get_keepalives_interval() {
        one.keepalives_interval(interval);
    }
    if let Some(retries) = config.get_keepalives_retries() {
        one.keepalives_retries(retries);
    }
    one
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_host_has_its_own_port_and_every_other_setting() {
        let url = "postgres://me:hunter2@a:1,b:2/auth?connect_timeout=3&application_name=x&target_session_attrs=read-write";
        let config: Config = url.parse().unwrap();
        for (index, (host, port)) in [("a", 1), ("b", 2)].into_iter().enumerate() {
            let one = only(&config, index);
            assert_eq!(one.get_hosts(), [Host::Tcp(host.to_owned())]);
            assert_eq!(one.get_ports(), [port]);
            assert_eq!(one.get_password(), Some(b"hunter2".as_slice()));
            assert_eq!(one.get_connect_timeout(), Some(&Duration::from_secs(3)));
            assert_eq!(one.get_target_session_attrs(), config.get_target_session_attrs());
            assert_eq!((one.get_user(), one.get_dbname()), (Some("me"), Some("auth")));
        }
        let shared: Config = "postgres://me@a,b:5433/auth".parse().unwrap();
        assert_eq!(only(&shared, 0).get_ports().len(), 1);
    }
}
