//! Settings of a store URL: libpq's parameters, which go to the driver, and a few of our own.

use std::path::PathBuf;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{SslMode, TargetSessionAttrs};

use super::names::Names;
use crate::model::error::{Error, Result};

/// Connection settings of a store. They hold the password, and so do not print.
pub(super) struct Settings {
    pub(super) driver: Config,
    pub(super) names: Names,
    pub(super) pool: usize,
    pub(super) statement_timeout: Duration,
    /// Bound of the wait for the lock of a row.
    pub(super) lock_timeout: Duration,
    /// Bound of a whole handshake with one host.
    pub(super) connect_timeout: Duration,
    pub(super) pooler: Pooler,
    pub(super) trust: Trust,
}

/// Pooler between this process and the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pooler {
    /// Detected when the store is opened.
    Detect,
    /// None, or one that pools by session.
    None,
    /// One that pools by transaction.
    Transaction,
}

/// Verification of the server's certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trust {
    /// No verification: encrypted if the server supports it, and not authenticated (`prefer`, `require`).
    Anyone,
    /// Certificate of a trusted authority (`verify-ca`); with `host`, also for the host's name (`verify-full`).
    Authority { roots: Roots, host: bool },
}

/// Trusted authorities.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Roots {
    /// Roots of the operating system.
    System,
    /// Roots in a PEM file.
    File(PathBuf),
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(10);
const DEFAULT_POOL: usize = 16;
const MOST_POOL: usize = 1_000;
const DEFAULT_STATEMENT_TIMEOUT_MS: u64 = 10_000;
const DEFAULT_LOCK_TIMEOUT_MS: u64 = 2_000;
const MOST_STATEMENT_TIMEOUT_MS: u64 = 600_000;

/// Parameters of libpq that go to the driver.
const DRIVER: &[&str] = &[
    "user",
    "password",
    "dbname",
    "options",
    "application_name",
    "host",
    "hostaddr",
    "port",
    "connect_timeout",
    "tcp_user_timeout",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
    "sslnegotiation",
    "channel_binding",
    "target_session_attrs",
];

const UNKNOWN: &str = "unknown parameter of a PostgreSQL URL; it has schema, prefix, pool, pooler, statement_timeout_ms, \
     lock_timeout_ms, sslmode and sslrootcert, and of libpq's parameters user, password, dbname, host, hostaddr, port, \
     options, application_name, connect_timeout, tcp_user_timeout, keepalives, keepalives_idle, keepalives_interval, \
     keepalives_retries, sslnegotiation, channel_binding and target_session_attrs";

impl Settings {
    pub(super) fn parse(url: &str) -> Result<Self> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let mut own = Own::default();
        let mut passed_on = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if !own.take(name, value)? {
                passed_on.push(pair);
            }
        }
        let passed_on = passed_on.join("&");
        let mark = if passed_on.is_empty() { "" } else { "?" };
        // The driver's error about an invalid URL may quote a part of it, such as the password.
        let mut driver: Config = format!("{base}{mark}{passed_on}").parse().map_err(|_| {
            Error::invalid("invalid PostgreSQL URL; expected postgres://USER@HOST:PORT/DATABASE?…")
        })?;
        if driver.get_hosts().is_empty() && driver.get_hostaddrs().is_empty() {
            return Err(Error::invalid("the store URL names no host"));
        }
        check_hosts(&driver)?;
        driver.ssl_mode(match own.ssl {
            Ssl::Disable => SslMode::Disable,
            Ssl::Prefer => SslMode::Prefer,
            Ssl::Require | Ssl::VerifyCa | Ssl::VerifyFull => SslMode::Require,
        });
        // A standby would return stale reads.
        driver.target_session_attrs(TargetSessionAttrs::ReadWrite);
        let connect_timeout =
            driver.get_connect_timeout().copied().filter(|bound| !bound.is_zero()).unwrap_or(CONNECT_TIMEOUT);
        driver.connect_timeout(connect_timeout);
        if driver.get_tcp_user_timeout().is_none() {
            driver.tcp_user_timeout(TCP_USER_TIMEOUT);
        }
        if driver.get_application_name().is_none() {
            driver.application_name("ebbtide");
        }
        let names = Names::new(own.schema.as_deref().unwrap_or(Names::DEFAULT_SCHEMA), &own.prefix)?;
        let roots = own.roots.unwrap_or(Roots::System);
        let trust = match own.ssl {
            Ssl::Disable | Ssl::Prefer | Ssl::Require => Trust::Anyone,
            Ssl::VerifyCa => Trust::Authority { roots, host: false },
            Ssl::VerifyFull => Trust::Authority { roots, host: true },
        };
        let Own { pool, statement_timeout, lock_timeout, pooler, .. } = own;
        Ok(Self { driver, names, pool, statement_timeout, lock_timeout, connect_timeout, pooler, trust })
    }
}

/// Refuses lists of hosts, addresses and ports that do not fit each other.
fn check_hosts(driver: &Config) -> Result<()> {
    let (hosts, addresses, ports) =
        (driver.get_hosts().len(), driver.get_hostaddrs().len(), driver.get_ports().len());
    if (hosts > 0 && addresses > 0 && hosts != addresses) || (ports > 1 && ports != hosts.max(addresses)) {
        return Err(Error::invalid("host, hostaddr and port of the store URL must list the same number"));
    }
    Ok(())
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Settings({}, …)", self.names.schema())
    }
}

#[derive(Clone, Copy)]
enum Ssl {
    Disable,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

/// Parameters that the driver does not know, or interprets differently.
struct Own {
    schema: Option<String>,
    prefix: String,
    pool: usize,
    statement_timeout: Duration,
    lock_timeout: Duration,
    pooler: Pooler,
    ssl: Ssl,
    roots: Option<Roots>,
}

impl Default for Own {
    fn default() -> Self {
        Self {
            schema: None,
            prefix: String::new(),
            pool: DEFAULT_POOL,
            statement_timeout: Duration::from_millis(DEFAULT_STATEMENT_TIMEOUT_MS),
            lock_timeout: Duration::from_millis(DEFAULT_LOCK_TIMEOUT_MS),
            pooler: Pooler::Detect,
            ssl: Ssl::Prefer,
            roots: None,
        }
    }
}

impl Own {
    /// Stores a parameter of our own; returns false for any other.
    fn take(&mut self, name: &str, value: &str) -> Result<bool> {
        match name {
            "schema" => self.schema = Some(decode(name, value)?),
            "prefix" => self.prefix = decode(name, value)?,
            "pool" => self.pool = number(name, value, 1, MOST_POOL)?,
            "statement_timeout_ms" => {
                let millis = number(name, value, 1, MOST_STATEMENT_TIMEOUT_MS)?;
                self.statement_timeout = Duration::from_millis(millis);
            }
            "lock_timeout_ms" => {
                let millis = number(name, value, 1, MOST_STATEMENT_TIMEOUT_MS)?;
                self.lock_timeout = Duration::from_millis(millis);
            }
            "pooler" => {
                self.pooler = match value {
                    "detect" => Pooler::Detect,
                    "none" => Pooler::None,
                    "transaction" => Pooler::Transaction,
                    _ => return Err(Error::invalid("pooler must be detect, none or transaction")),
                }
            }
            "sslmode" => {
                self.ssl = match value {
                    "disable" => Ssl::Disable,
                    "prefer" => Ssl::Prefer,
                    "require" => Ssl::Require,
                    "verify-ca" => Ssl::VerifyCa,
                    "verify-full" => Ssl::VerifyFull,
                    _ => {
                        return Err(Error::invalid(
                            "sslmode must be disable, prefer, require, verify-ca or verify-full",
                        ));
                    }
                }
            }
            "sslrootcert" => {
                self.roots = Some(match decode(name, value)?.as_str() {
                    "system" => Roots::System,
                    path => Roots::File(path.into()),
                });
            }
            // The clock mark and the store's own writes need a primary, whatever the URL says.
            "target_session_attrs" if value != "read-write" => {
                return Err(Error::invalid("target_session_attrs must be read-write or omitted"));
            }
            _ if DRIVER.contains(&name) => return Ok(false),
            // The name is not repeated: a slip may have put a part of the password there.
            _ => return Err(Error::invalid(UNKNOWN)),
        }
        Ok(true)
    }
}

fn number<N>(name: &str, value: &str, least: N, most: N) -> Result<N>
where
    N: std::str::FromStr + PartialOrd + std::fmt::Display + Copy,
{
    let read = value.parse().ok().filter(|number| (least..=most).contains(number));
    read.ok_or_else(|| Error::invalid(format!("{name} must be a number from {least} to {most}")))
}

fn decode(name: &str, value: &str) -> Result<String> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = rest.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let read = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(read.ok_or_else(|| Error::invalid(format!("{name} is not valid percent-encoding")))?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).map_err(|_| Error::invalid(format!("{name} is not UTF-8")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_words_are_kept_and_the_others_passed_on() {
        let url = "postgres://me:hunter2@db:5433/auth?schema=tokens&connect_timeout=3&pool=4&prefix=a_";
        let settings = Settings::parse(url).unwrap();
        assert_eq!(settings.names, Names::new("tokens", "a_").unwrap());
        assert_eq!(settings.pool, 4);
        assert_eq!(settings.driver.get_connect_timeout(), Some(&Duration::from_secs(3)));
        assert_eq!(settings.driver.get_dbname(), Some("auth"));
        assert!(!format!("{settings:?}").contains("hunter2"));
    }

    #[test]
    fn verification_is_asked_for_by_name() {
        let trust = |query: &str| Settings::parse(&format!("postgres://u@h/d?{query}")).unwrap().trust;
        assert_eq!(trust(""), Trust::Anyone);
        assert_eq!(trust("sslmode=require"), Trust::Anyone);
        let file = Roots::File("/etc/a b.pem".into());
        assert_eq!(
            trust("sslmode=verify-full&sslrootcert=/etc/a%20b.pem"),
            Trust::Authority { roots: file, host: true }
        );
        assert_eq!(trust("sslmode=verify-ca"), Trust::Authority { roots: Roots::System, host: false });
    }

    #[test]
    fn a_bad_word_is_named_and_the_url_is_not_repeated() {
        for (query, named) in [
            ("schema=a%22b", "schema"),
            ("prefix=A", "prefix"),
            ("pool=0", "pool"),
            ("pool=x", "pool"),
            ("statement_timeout_ms=0", "statement_timeout_ms"),
            ("lock_timeout_ms=0", "lock_timeout_ms"),
            ("pooler=session", "pooler"),
            ("hostaddr=127.0.0.1,127.0.0.2", "hostaddr"),
            ("sslmode=maybe", "sslmode"),
            ("sslrootcert=%zz", "sslrootcert"),
            ("sslrootcert=%", "sslrootcert"),
            ("target_session_attrs=any", "target_session_attrs"),
            ("unheard_of=1", "PostgreSQL"),
        ] {
            let error = Settings::parse(&format!("postgres://u:hunter2@h/d?{query}")).unwrap_err();
            assert!(error.message().contains(named), "{query}: {error}");
            assert!(!format!("{error:?}").contains("hunter2"), "{query}");
        }
    }
}
