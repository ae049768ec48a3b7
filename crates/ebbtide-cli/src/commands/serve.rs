//! `ebbtide serve`

use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ebbtide::timekeeping::SystemClocks;
use ebbtide::{Admin, Ebbtide, Sweeper};
use ebbtide_server::http::limits::Limits;
use ebbtide_server::http::quota::Quotas;
use ebbtide_server::http::tls::tls;
use ebbtide_server::upkeep::Upkeep;
use ebbtide_server::{App, Cores, Serving, metrics, resp};
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::migrate_schema;
use crate::config::{Config, Resolved, Settings, TlsFiles};
use crate::logging::Logging;
use crate::output::outln;
use crate::store;
use crate::{logging, root_key};

/// Serve the HTTP API, and the Redis protocol
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Serve the HTTP API, over HTTP/1.1 and HTTP/2, and with --resp the Redis protocol.\n\n\
        Prints `listening on URL` to standard output when it is ready, a line for each; the log goes to standard error. On SIGTERM it \
        is not ready from then on, accepts connections for the drain delay, drains the requests in flight and ends; on SIGINT \
        without the delay. On SIGHUP it reloads the files of TLS and the filter of the log. The root key comes from EBBTIDE_ROOT_KEY; an embedded store \
        has one in the file root.key of its folder, created at the first start.",
    after_help = "Precedence: flag, variable, file, default.\n\n\
    Examples:\n  \
        ebbtide serve --listen 127.0.0.1:7878 --store fjall:./data --sweep-interval 30s\n  \
        ebbtide serve --store fjall:./data --resp 127.0.0.1:7879\n  \
        ebbtide serve --config /etc/ebbtide.toml --log-format json\n  \
        ebbtide serve --store fjall:./data --tls-cert chain.pem --tls-key key.pem"
)]
pub(crate) struct Args {
    #[command(flatten)]
    settings: Settings,
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    serve(args.settings, |_| Ok(())).await
}

/// Serves with these settings; `listening` is called with the URL once it listens.
pub(super) async fn serve(
    settings: Settings,
    listening: impl FnOnce(&str) -> Result<()>,
) -> Result<ExitCode> {
    // Before anything else: without a handler, SIGHUP ends the process.
    let hangup = signal(SignalKind::hangup())?;
    let config = Config::read(&Resolved::of(&settings)?)?;
    let logging = logging::start(&config)?;
    // Before the first measurement.
    metrics::recorder();
    let tls = config.tls.as_ref().map(load).transpose()?.map(watch::channel);
    let (files, tls) = tls.unzip();
    let (app, sweeper, db) = open(&config).await?;
    let app = app.within(within_files(config.limits));

    let listener = bind(config.listen).await?;
    let operator = match config.operator_listen {
        Some(address) => Some(bind(address).await?),
        None => None,
    };
    let resp = match config.resp {
        Some(address) => Some(bind(address).await.context("the Redis protocol")?),
        None => None,
    };
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::spawn(reload_on_hangup(app.clone(), signal(SignalKind::hangup())?));
    tokio::spawn(Upkeep::new(app.clone()).run());
    let sweeping = Sweeping::start(sweeper, config.sweep_interval);
    let failed = Arc::<AtomicBool>::default();
    let has_failed = until_failed(Arc::clone(db.engine()), Arc::clone(&failed));
    let scheme = if tls.is_some() { "https" } else { "http" };
    let url = format!("{scheme}://{}", listener.local_addr()?);
    outln!("listening on {url}")?;
    if let Some(resp) = &resp {
        let scheme = if tls.is_some() { "rediss" } else { "redis" };
        outln!("listening on {scheme}://{}", resp.local_addr()?)?;
    }
    if let Some(operator) = &operator {
        outln!("operator listening on http://{}", operator.local_addr()?)?;
    }
    listening(&url)?;
    let (stopping, stopped) = watch::channel(());
    let draining = app.clone();
    let stop = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            // A person at a terminal does not wait for a load balancer.
            _ = interrupt.recv() => draining.skip_drain_delay(),
            () = has_failed => {
                draining.skip_drain_delay();
                return tracing::error!("the store has failed; ending the process");
            }
        }
        tracing::info!("shutting down; draining in-flight requests");
        tokio::spawn(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            draining.skip_drain_delay();
        });
        drop(stopping);
    };
    let reloads = Reloads { settings, logging, files };
    let cores = Arc::new(Cores::start_all().context("cannot start the threads of the server")?);
    let redis = async {
        let Some(listener) = resp else { return Ok(()) };
        let mut stopped = stopped;
        let stop = async move {
            // The sender is dropped, and never sends.
            let _ = stopped.changed().await;
        };
        let cores = Some(Arc::clone(&cores));
        resp::Listening { listener, tls: tls.clone(), cores }.run(app.clone(), stop).await
    };
    let http = Serving { listener, operator, tls: tls.clone(), cores: Some(Arc::clone(&cores)) };
    let http = http.run(app.clone(), stop);
    tokio::select! {
        served = async { tokio::try_join!(http, redis) } => drop(served?),
        () = reloads.run(hangup) => {}
    }
    sweeping.stop().await;
    if !failed.load(Ordering::Acquire)
        && let Err(error) = db.stores().checkpoint_audit().await
    {
        tracing::warn!(%error, "cannot write the last checkpoint of the audit log");
    }
    // After the last step of a sweep: connections to a shared engine may belong to these threads.
    drop(cores);
    if failed.load(Ordering::Acquire) {
        bail!(
            "a write to the store failed, so that it answers no more; look at the disk, then start again: \
             what was acknowledged is checked when the store is opened"
        );
    }
    Ok(ExitCode::SUCCESS)
}

async fn bind(address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))
}

fn load(files: &TlsFiles) -> Result<Arc<ServerConfig>> {
    Ok(tls(&files.certificate, &files.key, files.client_ca.as_deref())?)
}

/// Reloads on SIGHUP: the files of TLS, and the filter of the log.
struct Reloads {
    settings: Settings,
    logging: Logging,
    files: Option<watch::Sender<Arc<ServerConfig>>>,
}

impl Reloads {
    async fn run(self, mut hangup: Signal) {
        while hangup.recv().await.is_some() {
            match self.reload() {
                Ok(()) => tracing::info!("reloaded the files of TLS and the filter of the log"),
                Err(error) => {
                    tracing::error!("cannot reload, the previous settings stay in force: {error:#}");
                }
            }
        }
        std::future::pending::<()>().await;
    }

    fn reload(&self) -> Result<()> {
        let config = Config::read(&Resolved::of(&self.settings)?)?;
        // A file that cannot be read changes nothing.
        let tls = config.tls.as_ref().map(load).transpose()?;
        self.logging.set_filter(&config.log_filter)?;
        match (&self.files, tls) {
            (Some(files), Some(tls)) => drop(files.send_replace(tls)),
            (None, Some(_)) => tracing::warn!("TLS cannot be turned on while the server runs"),
            (Some(_), None) => tracing::warn!("TLS cannot be turned off while the server runs"),
            (None, None) => {}
        }
        Ok(())
    }
}

/// Time between two looks at the state of the engine.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Waits until the engine has failed for good, and notes it.
async fn until_failed(engine: Arc<dyn Admin>, failed: Arc<AtomicBool>) {
    while !engine.info().has_failed {
        sleep(LOOK_EVERY).await;
    }
    failed.store(true, Ordering::Release);
}

/// Opens the store, and builds the application and the sweeper on it.
async fn open(config: &Config) -> Result<(App, Sweeper, Ebbtide)> {
    store::require_engine(&config.store)?;
    if config.auto_migrate && store::has_schema(&config.store) {
        migrate_schema::migrate(&config.store).await?;
    }
    let mut builder = Ebbtide::builder(&config.store)
        .clocks(SystemClocks::new().with_synchronized_file(&config.synchronized_file))
        .policies(config.policies.clone())
        .bucket_lives(config.bucket_lives.clone())
        .profile(config.profile)
        .require_pkce(config.require_pkce);
    for (name, profile) in &config.profiles {
        builder = builder.profile_named(name, *profile);
    }
    if let Some(keyring) = &config.keyring {
        builder = builder.keyring_file(keyring);
    }
    let db = builder.open().await.context("cannot open the store")?;
    // After the store: the root key is created only in the folder of a store.
    let root_keys = root_key::find(&config.store, &config.root_key_files)?;
    if root_keys.len() > 1 {
        tracing::warn!(
            keys = root_keys.len(),
            "several root keys are valid; remove the old one when it is not used"
        );
    }
    let app = App::new(&db, &root_keys[0])
        .with_root_keys(&root_keys)
        .with_quotas(Quotas::new(config.quotas.clone()));
    let sweeper = db.sweeper().share(config.sweep_budget).settings(config.sweep)?;
    let app = app.with_sweep_settings(config.sweep).with_scope_rules(config.scope_rules);
    Ok((app, sweeper, db))
}

/// Reads the keyring again at each SIGHUP.
async fn reload_on_hangup(app: App, mut hangup: Signal) {
    while hangup.recv().await.is_some() {
        app.reload_keyring().await;
    }
}

/// Raises the limit of open files, and lowers the maximum of connections to fit it, with a reserve for the store.
fn within_files(mut limits: Limits) -> Limits {
    const RESERVE: u64 = 512;
    let files = rlimit::increase_nofile_limit(u64::MAX).unwrap_or(1_024);
    let most = usize::try_from(files.saturating_sub(RESERVE).max(files / 2)).unwrap_or(usize::MAX);
    if limits.connections > most {
        tracing::warn!(
            files,
            connections = most,
            "the limit of open files lowers the maximum of connections"
        );
        limits.connections = most;
    }
    limits
}

/// The sweeper task of the server.
struct Sweeping {
    stop: watch::Sender<()>,
    task: JoinHandle<()>,
}

impl Sweeping {
    /// Time for the current step to end at shutdown. An interrupted step loses nothing.
    const TIMEOUT: Duration = Duration::from_secs(5);

    /// Sweeps at every interval. Without an interval, it only watches for sweeps by another process.
    fn start(sweeper: Sweeper, interval: Option<Duration>) -> Self {
        let (stop, stopped) = watch::channel(());
        let rest = move |time| {
            let mut stopped = stopped.clone();
            async move {
                tokio::select! {
                    biased;
                    _ = stopped.changed() => ControlFlow::Break(()),
                    () = sleep(time) => ControlFlow::Continue(()),
                }
            }
        };
        Self {
            stop,
            task: tokio::spawn(async move {
                if let Err(error) = sweeper.run(interval, rest).await {
                    tracing::error!(%error, "cannot sweep");
                }
            }),
        }
    }

    /// Stops after the current step.
    async fn stop(self) {
        drop(self.stop);
        if timeout(Self::TIMEOUT, self.task).await.is_err() {
            tracing::info!("interrupted a sweep; the next one resumes it");
        }
    }
}
