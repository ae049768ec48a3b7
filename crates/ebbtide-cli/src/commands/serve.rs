//! `ebbtide serve`

use std::process::ExitCode;

use anyhow::{Context, Result};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::Serve;

pub(crate) async fn run(args: Serve) -> Result<ExitCode> {
    let _store = ebbtide::open(&args.store).await.context("the store cannot be opened")?;
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
