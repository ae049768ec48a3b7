//! `ebbtide clock`

use std::process::ExitCode;

use anyhow::Result;
use clap::ValueEnum;
use ebbtide::SystemClock;
use ebbtide::ops::clock_guard::ClockGuard;

use crate::args::StoreArg;
use crate::output::outln;
use crate::store::{self, Access};

/// Compare the clock with a store, or confirm that it is right
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Compare the clock with a store, or confirm that it is right.\n\n\
        A store keeps a mark: the latest time at which it was used. If the clock is behind the mark, the store uses the \
        mark. If the clock is more than a day ahead, requests are answered, but sweeps stop until the clock is \
        confirmed here, so that a wrong year does not erase the store. Confirm the clock, too, after a store was shut \
        down for more than a day.",
    after_help = "Examples:\n  \
        ebbtide clock show --store fjall:/var/lib/ebbtide\n  \
        ebbtide clock confirm --store fjall:/var/lib/ebbtide\n\n\
        Exit status of show: 0 the clock agrees, 1 it is ahead and unconfirmed."
)]
pub(crate) struct Args {
    /// Action
    action: Action,

    #[command(flatten)]
    store: StoreArg,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Action {
    /// Compare the clock with the store's mark
    Show,
    /// Set the store's mark to the clock
    Confirm,
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let access = match args.action {
        Action::Show => Access::Read,
        Action::Confirm => Access::Write,
    };
    let store = store::open_engine(&args.store.url, access).await?;
    let guard = ClockGuard::new(store, SystemClock, ClockGuard::DEFAULT_BOUND).await?;
    match (args.action, guard.leap().await?) {
        (Action::Show, None) => outln!("the clock agrees with the store")?,
        (Action::Show, Some(leap)) => {
            outln!("{leap} (mark {}, clock {})", leap.mark, leap.clock)?;
            return Ok(ExitCode::from(1));
        }
        (Action::Confirm, _) => outln!("confirmed: the store's mark is {}", guard.confirm().await?)?,
    }
    Ok(ExitCode::SUCCESS)
}
