//! `ebbtide serve`

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use ebbtide::keyring::Keyring;
use ebbtide::layers::gated::{Gate, Gated};
use ebbtide::ops::clock_guard::ClockGuard;
use ebbtide::ops::skew::check_engine_clock;
use ebbtide::stores::Builder;
use ebbtide::stores::profile::Profile;
use ebbtide::{Backend, Clock, Metered, Scope, Stores, Sweeper, SystemClock, SystemRng};
use ebbtide_server::http::limits::Limits;
use ebbtide_server::http::quota::Quotas;
use ebbtide_server::http::tls::tls;
use ebbtide_server::upkeep::Upkeep;
use ebbtide_server::{App, metrics, serve, serve_tls};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::Serve;
use crate::commands::migrate_schema;
use crate::config::{Config, Resolved};
use crate::sweeping::Sweeping;
use crate::{logging, root_key};

pub(crate) async fn run(args: Serve) -> Result<ExitCode> {
    let config = Config::read(&Resolved::of(&args.settings)?)?;
    let _logging = logging::start(&config)?;
    // Before anything is measured.
    metrics::recorder();
    let tls = config.tls.as_ref().map(|(certificate, key)| tls(certificate, key)).transpose()?;
    let gate = Gate::default();
    let (app, sweeper) = open(&config, gate.clone()).await?;
    let app = app.within(within_files(config.limits), gate);

    let listener = TcpListener::bind(config.listen)
        .await
        .with_context(|| format!("cannot listen on {}", config.listen))?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::spawn(Upkeep::new(app.clone(), SystemClock, config.clock_bound).run());
    let sweeping = Sweeping::start(sweeper, config.sweep_interval);
    let scheme = if tls.is_some() { "https" } else { "http" };
    println!("listening on {scheme}://{}", listener.local_addr()?);
    let stop = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("told to stop: what has begun is answered");
    };
    match tls {
        Some(tls) => serve_tls(listener, app, tls, stop).await?,
        None => serve(listener, app, stop).await?,
    }
    sweeping.stop().await;
    Ok(ExitCode::SUCCESS)
}

/// Opens the store behind its gate, and what stands on it.
async fn open(config: &Config, gate: Gate) -> Result<(App, Sweeper)> {
    if config.auto_migrate && migrate_schema::has_schema(&config.store) {
        migrate_schema::migrate(&config.store).await?;
    }
    let engine = ebbtide::open(&config.store).await.context("the store cannot be opened")?;
    check_engine_clock(engine.as_ref(), &SystemClock, config.clock_bound).await?;
    let store: Arc<dyn Backend> = Arc::new(Metered::new(Gated::new(engine, gate)));
    let guard = Arc::new(ClockGuard::new(Arc::clone(&store), SystemClock, config.clock_leap).await?);
    // After the store: what is made beside its data is made in a folder that is a store's.
    let keyring = Keyring::for_store(&config.store, config.keyring.as_deref(), &SystemRng, guard.now())?;
    let root_key = root_key::find(&config.store)?;
    let builder = Stores::builder(Arc::clone(&store))
        .clock(Arc::clone(&guard))
        .keyring(keyring)
        .policies(config.policies.clone())
        .profile(config.profile);
    let named =
        |builder: Builder, (name, profile): (&String, &Profile)| builder.profile_named(name, *profile);
    let stores = config.profiles.iter().fold(builder, named).build();
    stores.policies(&Scope::Global).reload().await.context("the stored policies cannot be read")?;
    let app = App::new(stores, Arc::clone(&store), Arc::clone(&guard), &root_key)
        .with_quotas(Quotas::new(config.quotas.clone()));
    Ok((app, Sweeper::new(store, guard, SystemRng).share(config.sweep_budget)))
}

/// As many connections as the system lets this process have files for, and some for the store.
fn within_files(mut limits: Limits) -> Limits {
    const OTHERS: u64 = 512;
    let files = rlimit::increase_nofile_limit(u64::MAX).unwrap_or(1_024);
    let most = usize::try_from(files.saturating_sub(OTHERS).max(files / 2)).unwrap_or(usize::MAX);
    if limits.connections > most {
        tracing::warn!(files, connections = most, "the system's limit of open files bounds the connections");
        limits.connections = most;
    }
    limits
}
