//! `ebbtide serve`

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use ebbtide::backend::skew::{DEFAULT_BOUND, check_engine_clock};
use ebbtide::clock_guard::ClockGuard;
use ebbtide::keyring::Keyring;
use ebbtide::{Clock, Stores, Sweeper, SystemChance, SystemClock};
use ebbtide_server::App;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::interval;

use crate::args::Serve;
use crate::commands::migrate_schema;
use crate::root_key;
use crate::sweeping::Sweeping;

pub(crate) async fn run(args: Serve) -> Result<ExitCode> {
    if args.auto_migrate && migrate_schema::has_schema(&args.store) {
        migrate_schema::migrate(&args.store).await?;
    }
    let store = ebbtide::open(&args.store).await.context("the store cannot be opened")?;
    check_engine_clock(store.as_ref(), &SystemClock, DEFAULT_BOUND).await?;
    let guard = Arc::new(ClockGuard::new(Arc::clone(&store), SystemClock, ClockGuard::DEFAULT_BOUND).await?);
    // After the store: what is made beside its data is made in a folder that is a store's.
    let keyring = Keyring::for_store(&args.store, args.keyring.as_deref(), &SystemChance, guard.now())?;
    let root_key = root_key::find(&args.store)?;
    let stores = Stores::builder(Arc::clone(&store)).clock(Arc::clone(&guard)).keyring(keyring).build();
    let app = App::new(stores, Arc::clone(&store), Arc::clone(&guard), &root_key);

    let listener =
        TcpListener::bind(args.listen).await.with_context(|| format!("cannot listen on {}", args.listen))?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::spawn(keep_the_mark(Arc::clone(&guard)));
    let sweeper = Sweeper::new(store, guard, SystemChance).share(args.sweep_budget);
    let sweeping = Sweeping::start(sweeper, args.sweep_interval);
    println!("listening on http://{}", listener.local_addr()?);
    ebbtide_server::serve(listener, app, async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
    })
    .await?;
    sweeping.stop().await;
    Ok(ExitCode::SUCCESS)
}

/// So that a quiet week is no leap of the clock.
async fn keep_the_mark(guard: Arc<ClockGuard>) {
    let mut minutes = interval(Duration::from_secs(60));
    loop {
        minutes.tick().await;
        if let Err(error) = guard.tick().await {
            tracing::warn!(%error, "the clock mark was not kept");
        }
    }
}
