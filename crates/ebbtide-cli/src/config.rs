//! Configuration of a server, from one table of settings. Precedence: flag, variable, file, default.

mod file;
mod resolved;
mod settings;
mod values;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use ebbtide::TtlPolicies;
use ebbtide::ops::sweeper::{Share, SweepSettings};
use ebbtide::stores::attributes::BucketTtls;
use ebbtide::stores::profile::Profile;
use ebbtide_server::http::limits::Limits;
use ebbtide_server::http::quota::Quota;
use ebbtide_server::http::scoping::ScopeRules;

pub(crate) use resolved::{Resolved, SettingRow};
pub(crate) use settings::Settings;
pub(crate) use values::{LogFormat, duration};

/// Configuration of `ebbtide serve`.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) listen: SocketAddr,
    pub(crate) operator_listen: Option<SocketAddr>,
    /// Address of the Redis protocol.
    pub(crate) resp: Option<SocketAddr>,
    pub(crate) store: String,
    pub(crate) keyring: Option<PathBuf>,
    /// Files with root keys, one on each line.
    pub(crate) root_key_files: Vec<PathBuf>,
    pub(crate) auto_migrate: bool,
    pub(crate) require_pkce: bool,
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) sweep_interval: Option<Duration>,
    pub(crate) sweep_budget: Share,
    pub(crate) sweep: SweepSettings,
    pub(crate) scope_rules: ScopeRules,
    pub(crate) bucket_lives: BucketTtls,
    pub(crate) quotas: Vec<Quota>,
    pub(crate) limits: Limits,
    /// File that the time service touches at every synchronization.
    pub(crate) synchronized_file: PathBuf,
    pub(crate) profile: Profile,
    /// Profiles of the file, which a grant can select by name.
    pub(crate) profiles: BTreeMap<String, Profile>,
    pub(crate) policies: TtlPolicies,
    pub(crate) log_format: LogFormat,
    pub(crate) log_filter: String,
    pub(crate) otel_endpoint: Option<String>,
}

/// Hands the policies, the lives of buckets and the profiles of a configuration file to the builder of a store.
pub(crate) fn configured(builder: ebbtide::Builder, file: &Path) -> Result<ebbtide::Builder> {
    let resolved = Resolved::of(&Settings { file: Some(file.to_owned()), given: Vec::new() })?;
    let builder = builder.policies(resolved.policies()?).bucket_lives(resolved.bucket_lives()?);
    let builder = builder.profile(resolved.profile()?);
    let named =
        |builder: ebbtide::Builder, (name, profile): (String, Profile)| builder.profile_named(name, profile);
    Ok(resolved.profiles()?.into_iter().fold(builder, named))
}

impl Config {
    /// Reads every setting. An error names the flag, variable or line of the invalid value.
    pub(crate) fn read(resolved: &Resolved) -> Result<Self> {
        let config = Self {
            listen: resolved.required("listen", values::address)?,
            operator_listen: resolved.optional("operator_listen", values::address)?,
            resp: resolved.optional("resp", values::address)?,
            store: match resolved.optional("store", values::text)? {
                Some(store) => store,
                // A default would give a node that has lost its variable a store of its own, which knows no replay.
                None => bail!(
                    "no store: name one with --store, EBBTIDE_STORE or `store` in the file, such as fjall:./data"
                ),
            },
            keyring: resolved.optional("keyring", values::path)?,
            root_key_files: resolved.optional("root_key_file", values::paths)?.unwrap_or_default(),
            auto_migrate: resolved.required("auto_migrate", values::switch)?,
            require_pkce: resolved.required("require_pkce", values::switch)?,
            tls: tls(resolved)?,
            sweep_interval: resolved.optional("sweep.interval", duration)?,
            sweep_budget: resolved.required("sweep.budget", values::parsed)?,
            sweep: SweepSettings {
                turn: resolved.required("sweep.turn", duration)?,
                silence: resolved.required("sweep.silence", duration)?,
                overdue: resolved.optional("sweep.overdue", duration)?,
            },
            scope_rules: ScopeRules {
                warn: resolved.required("warn_unscoped", values::switch)?,
                require: resolved.required("require_scope", values::switch)?,
                global_for_admins: resolved.required("global_for_admins", values::switch)?,
            },
            bucket_lives: resolved.bucket_lives()?,
            quotas: resolved.optional("quotas", values::quotas)?.unwrap_or_default(),
            limits: Limits {
                body_bytes: resolved.required("limits.body_bytes", values::count)?,
                body_timeout: resolved.required("limits.body_timeout", duration)?,
                header_timeout: resolved.required("limits.header_timeout", duration)?,
                send_timeout: resolved.required("limits.send_timeout", duration)?,
                resp_idle_timeout: resolved.required("limits.resp_idle_timeout", duration)?,
                requests: resolved.required("limits.requests", values::count)?,
                key_requests: resolved.required("limits.key_requests", values::count)?,
                key_bytes: resolved.required("limits.key_bytes", values::count)?,
                connections: resolved.required("limits.connections", values::count)?,
                drain_delay: resolved.required("drain_delay", values::delay)?,
                shutdown_timeout: resolved.required("limits.shutdown_timeout", duration)?,
            },
            synchronized_file: resolved.required("clock.synchronized_file", values::path)?,
            profile: resolved.profile()?,
            profiles: resolved.profiles()?,
            policies: resolved.policies()?,
            log_format: resolved.required("log.format", values::log_format)?,
            log_filter: resolved.required("log.filter", values::log_filter)?,
            otel_endpoint: resolved.optional("otel.endpoint", values::endpoint)?,
        };
        if cfg!(not(feature = "otel")) && config.otel_endpoint.is_some() {
            let place = resolved.place("otel.endpoint");
            bail!(
                "{place}: this build has no OpenTelemetry; install with `cargo install --path crates/ebbtide-cli --features otel`"
            );
        }
        Ok(config)
    }
}

/// PEM files of TLS.
#[derive(Debug, Clone)]
pub(crate) struct TlsFiles {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) client_ca: Option<PathBuf>,
}

fn tls(resolved: &Resolved) -> Result<Option<TlsFiles>> {
    let certificate = resolved.optional("tls.cert", values::path)?;
    let key = resolved.optional("tls.key", values::path)?;
    let client_ca = resolved.optional("tls.client_ca", values::path)?;
    match (certificate, key, client_ca) {
        (Some(certificate), Some(key), client_ca) => Ok(Some(TlsFiles { certificate, key, client_ca })),
        (None, None, None) => Ok(None),
        (Some(_), None, _) => {
            bail!("{}: a certificate needs a key: add --tls-key", resolved.place("tls.cert"))
        }
        (None, Some(_), _) => {
            bail!("{}: a key needs a certificate: add --tls-cert", resolved.place("tls.key"))
        }
        (None, None, Some(_)) => bail!(
            "{}: authorities of clients need TLS: add --tls-cert and --tls-key",
            resolved.place("tls.client_ca")
        ),
    }
}

#[cfg(test)]
mod tests;
