//! `ebbtide dev`

use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::{Args as _, Command, FromArgMatches as _};

use super::serve;
use crate::config::Settings;
use crate::output::outln;

/// Serve a temporary store, with a key and a first call to copy
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Serve a temporary store, with a key and a first call to copy.\n\n\
        The store is in a folder of its own below the system's temporary folder, and is removed when the command ends \
        (Ctrl-C). For trying things out; use `ebbtide serve` for data that must stay.",
    after_help = "Examples:\n  ebbtide dev\n  ebbtide dev --listen 127.0.0.1:0"
)]
pub(crate) struct Args {
    /// Address to listen on; port 0 selects a free port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7878")]
    listen: String,

    /// Log filter: error, warn, info, debug, or target=level, separated by commas
    #[arg(long, value_name = "FILTER", default_value = "warn,ebbtide::request=debug")]
    log_filter: String,
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    if cfg!(not(feature = "fjall")) {
        bail!("this build has no embedded engine: use `ebbtide serve --store memory:`");
    }
    let folder = tempfile::Builder::new().prefix("ebbtide-dev-").tempdir().context("no temporary folder")?;
    let data = folder.path().join("data");
    let store = format!("fjall:{}", data.display());
    let flags = [
        "--listen",
        &args.listen,
        "--store",
        &store,
        "--sweep-interval",
        "30s",
        "--drain-delay",
        "0s",
        "--log-filter",
        &args.log_filter,
    ];
    let command = Settings::augment_args(Command::new("dev").no_binary_name(true));
    let settings = Settings::from_arg_matches(&command.try_get_matches_from(flags)?)?;
    let key = data.join("root.key");
    serve::serve(settings, move |url| {
        // The environment's key takes precedence over the file of the store.
        let key = match std::env::var("EBBTIDE_ROOT_KEY") {
            Ok(key) => key,
            Err(_) => std::fs::read_to_string(&key).context("cannot read the root key")?.trim().to_owned(),
        };
        outln!("key: {key}")?;
        outln!("docs: {url}/docs")?;
        outln!("try:")?;
        outln!(
            "curl -sS -H 'Authorization: Bearer {key}' -H 'Content-Type: application/json' \
             -d '{{\"namespace\": \"dpop\", \"jti\": \"n-0S6\"}}' {url}/v1/replays/check"
        )?;
        outln!("a second time it is refused with 409 `replay`; Ctrl-C ends the server and removes the store")
    })
    .await
}
