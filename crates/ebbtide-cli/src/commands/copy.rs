//! `ebbtide copy`

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use ebbtide::ops::transfer::Copier;
use ebbtide::{Admin, Reach, Scope, Timestamp};
use indicatif::{ProgressBar, ProgressStyle};

use crate::output::outln;
use crate::store::{self, Access};

/// Copy the live records of one store to another
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Copy the live records of one store to another.\n\n\
        Expiries and versions are kept, and every record is compared after the copy. Records that the target already \
        has are never overwritten, so an interrupted copy can be run again. Stop writes to the source during the copy.",
    after_help = "Example:\n  ebbtide copy --from fjall:data --to postgres://localhost/ebbtide --below tenant:acme\n\n\
    Exit status: 0 the target holds every record, 1 it does not, 2 the copy failed."
)]
pub(crate) struct Args {
    /// URL of the store to copy from
    #[arg(long, value_name = "URL")]
    from: String,

    /// URL of the store to copy to; an embedded store is created if there is none
    #[arg(long, value_name = "URL")]
    to: String,

    /// Copy only this scope and the scopes below it
    #[arg(long, value_name = "SCOPE")]
    below: Option<Scope>,
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let source = store::open(&args.from, Access::Read).await.context("--from")?;
    let target = store::open(&args.to, Access::Create).await.context("--to")?;
    // The earlier end: nothing that may be live is left behind.
    let now = source.time().now().context("--from")?.earliest();
    let (from, to) = (Arc::clone(source.engine()), Arc::clone(target.engine()));
    let total = if args.below.is_none() { expected(from.as_ref(), now).await } else { None };
    let reach = Reach::Below(args.below.unwrap_or(Scope::Global));
    let mut copy = Copier::new(from, to, &reach, now)?;
    let bar = total.map_or_else(ProgressBar::no_length, ProgressBar::new);
    bar.set_style(ProgressStyle::with_template(
        "{msg:9} {wide_bar} {human_pos}/{human_len} {per_sec} {eta}",
    )?);
    bar.set_message("copying");
    let mut verifying = false;
    while let Some(count) = copy.step().await.context("the copy was interrupted; run it again to continue")? {
        bar.inc(count);
        if copy.is_verifying() && !verifying {
            verifying = true;
            bar.set_message("verifying");
            bar.reset();
        }
    }
    bar.finish_and_clear();
    let copied = copy.copied();
    for (kind, count) in &copied.written {
        outln!("{count:>12} {kind}")?;
    }
    outln!(
        "{} copied, {} already in the target, {} in conflict; compared: {} equal, {} different",
        copied.written.values().sum::<u64>(),
        copied.already,
        copied.conflicts,
        copied.verified,
        copied.different,
    )?;
    let known = target.rings().known().await?.map(|known| known.keys).unwrap_or_default();
    let keys: Vec<_> = known.iter().map(ToString::to_string).collect();
    let file = store::keyring(&args.from).map(|path| format!(", {}", path.display())).unwrap_or_default();
    outln!(
        "serve the copy with the keyring of the source{file}: its records are sealed and authenticated with the keys {}",
        if keys.is_empty() { "of that".to_owned() } else { keys.join(", ") }
    )?;
    Ok(if copied.is_whole() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Estimated number of records, for the progress bar; none if the engine cannot count them.
async fn expected(from: &dyn Admin, now: Timestamp) -> Option<u64> {
    let stats = from.stats(now).await.ok()?;
    Some(stats.values().map(|kind| kind.live).sum())
}
