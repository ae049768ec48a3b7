//! `ebbtide clock`

use std::process::ExitCode;

use anyhow::{Context, Result};
use ebbtide::SystemClock;
use ebbtide::ops::clock_guard::ClockGuard;

use crate::args::{Clock, ClockAction};

pub(crate) async fn run(args: Clock) -> Result<ExitCode> {
    let store = ebbtide::open(&args.store).await.context("the store cannot be opened")?;
    let guard = ClockGuard::new(store, SystemClock, ClockGuard::DEFAULT_BOUND).await?;
    match (args.action, guard.leap().await?) {
        (ClockAction::Show, None) => println!("the clock agrees with the store"),
        (ClockAction::Show, Some(leap)) => {
            println!("{leap} (mark {}, clock {})", leap.mark, leap.clock);
            return Ok(ExitCode::from(1));
        }
        (ClockAction::Confirm, _) => println!("confirmed: the store's mark is {}", guard.confirm().await?),
    }
    Ok(ExitCode::SUCCESS)
}
