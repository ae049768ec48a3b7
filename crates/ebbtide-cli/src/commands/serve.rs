//! `ebbtide serve`

use std::process::ExitCode;

use anyhow::{Context, Result};
use ebbtide::SystemClock;
use ebbtide::backend::skew::{DEFAULT_BOUND, check_engine_clock};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::Serve;
use crate::commands::migrate_schema;

pub(crate) async fn run(args: Serve) -> Result<ExitCode> {
    if args.auto_migrate && migrate_schema::has_schema(&args.store) {
        migrate_schema::migrate(&args.store).await?;
    }
    let store = ebbtide::open(&args.store).await.context("the store cannot be opened")?;
    check_engine_clock(store.as_ref(), &SystemClock, DEFAULT_BOUND).await?;
    let listener =
        TcpListener::bind(args.listen).await.with_context(|| format!("cannot listen on {}", args.listen))?;
    let mut terminate = signal(SignalKind::terminate())?;
    println!("listening on http://{}", listener.local_addr()?);
    ebbtide_server::serve(listener, async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
    })
    .await?;
    Ok(ExitCode::SUCCESS)
}
