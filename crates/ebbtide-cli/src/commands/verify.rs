//! `ebbtide verify`

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use ebbtide::{Backend, Stopwatch};
use ebbtide_conformance::{CASES, Case};

use crate::args::Verify;

pub(crate) async fn run(args: Verify) -> Result<ExitCode> {
    let backend = ebbtide::open(&args.store).await.context("the store cannot be opened")?;
    let cases: Vec<_> = CASES.iter().filter(|case| full_name(case).contains(&args.filter)).collect();
    if cases.is_empty() {
        bail!("no case has {:?} in its name", args.filter);
    }
    // What a case found is in its line; the panic that carried it there is not printed again.
    std::panic::set_hook(Box::new(|_| {}));
    let stopwatch = Stopwatch::start();
    let mut failed = 0;
    for case in &cases {
        if let Err(found) = run_one(&backend, case, args.seed).await? {
            failed += 1;
            println!("failed  {}\n        {}", full_name(case), found.replace('\n', "\n        "));
        } else {
            println!("ok      {}", full_name(case));
        }
    }
    let passed = cases.len() - failed;
    println!(
        "\n{} on {}: {passed} passed, {failed} failed, in {:.1} s (seed {})",
        if failed == 0 { "the contract is kept" } else { "the contract is NOT kept" },
        backend.engine(),
        stopwatch.elapsed().as_secs_f64(),
        args.seed,
    );
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn full_name(case: &Case) -> String {
    format!("{}::{}", case.group, case.name)
}

async fn run_one(backend: &Arc<dyn Backend>, case: &Case, seed: u64) -> Result<Result<(), String>> {
    // Before, for what an interrupted run left; after, so that this one leaves nothing.
    ebbtide_conformance::clear(backend.as_ref()).await.context("the kit's own records cannot be cleared")?;
    let found = ebbtide_conformance::run(case, Arc::clone(backend), seed).await;
    ebbtide_conformance::clear(backend.as_ref()).await.context("the kit's own records cannot be cleared")?;
    Ok(found)
}
