//! The conformance kit on PostgreSQL, and what only a shared engine has to show.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

#[path = "postgres/batches.rs"]
mod batches;
#[path = "postgres/clocks.rs"]
mod clocks;
#[path = "postgres/crash.rs"]
mod crash;
#[path = "postgres/failover.rs"]
mod failover;
#[path = "postgres/forged.rs"]
mod forged;
#[path = "postgres/gathering.rs"]
mod gathering;
#[path = "postgres/giving_up.rs"]
mod giving_up;
#[path = "postgres/oauth.rs"]
mod oauth;
#[path = "postgres/pooler.rs"]
mod pooler;
#[path = "postgres/processes.rs"]
mod processes;
#[path = "postgres/promotion.rs"]
mod promotion;
#[path = "postgres/proxy.rs"]
mod proxy;
#[path = "postgres/schemas.rs"]
mod schemas;
#[path = "postgres/service.rs"]
mod service;
#[path = "postgres/sweeping.rs"]
mod sweeping;
#[path = "postgres/tls.rs"]
mod tls;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

use service::Case;

fn main() -> ExitCode {
    // The other process of a race across processes is this program again.
    if let Some(race) = processes::Race::from_environment() {
        return race.run();
    }
    if let Some(pause) = oauth::Pause::from_environment() {
        return pause.run();
    }
    let mut trials = support::trials("", service::open);
    let mut own: Vec<&[Case]> = vec![
        batches::CASES,
        clocks::CASES,
        crash::CASES,
        failover::CASES,
        forged::CASES,
        gathering::CASES,
        oauth::CASES,
        giving_up::CASES,
        processes::CASES,
        promotion::CASES,
        schemas::CASES,
        sweeping::CASES,
        tls::CASES,
    ];
    // The same store behind a transaction pooler, where there is one.
    if pooler::is_there() {
        let mut pooled = support::trials("pooled::", pooler::open);
        // The stores rest on the kit; `make proof` asks them once more.
        if std::env::var_os("EBBTIDE_TEST_POOLED_STORES").is_none() {
            pooled.retain(|trial| !trial.name().contains("stores::"));
        }
        trials.extend(pooled);
        own.push(pooler::CASES);
    }
    for &(name, case) in own.into_iter().flatten() {
        let run = async move || {
            case().await;
            Ok(())
        };
        trials.push(Trial::test(name, move || support::run(run())));
    }
    let ignored = !service::is_there() && std::env::var_os("CI").is_none();
    let trials = trials.into_iter().map(|trial| trial.with_ignored_flag(ignored)).collect();
    let timed: Vec<_> = failover::CASES.iter().chain(giving_up::CASES).map(|&(name, _)| name).collect();
    let measures_time = |name: &str| timed.contains(&name) || name.contains("round_trips");
    support::in_turn(&Arguments::from_args(), trials, measures_time)
}
