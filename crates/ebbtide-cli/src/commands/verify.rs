//! `ebbtide verify`

use crate::args::StoreArg;

/// Check that a store keeps the contract: one line per case
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Check that a store keeps the contract.\n\n\
        Runs the conformance suite on a live store: conditions, expiry at the instant, races, scans, sweeps, scopes, \
        and a random run that is compared with a model. The suite writes only records of its own kinds, with a clock \
        of its own, and removes them; it neither reads nor changes other records. Run it once at a time on a store.",
    after_help = "Examples:\n  \
        ebbtide verify --store memory:\n  \
        ebbtide verify --store fjall:data --filter races::\n\n\
        Exit status: 0 every case passed, 1 a case failed, 2 the store could not be opened."
)]
pub(crate) struct Args {
    #[command(flatten)]
    store: StoreArg,

    /// Run only the cases whose name contains this text
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,

    /// Seed of the random runs, to repeat a failed one
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[cfg(not(feature = "verify"))]
#[expect(clippy::unused_async, reason = "the build with the suite awaits it")]
pub(crate) async fn run(args: Args) -> anyhow::Result<std::process::ExitCode> {
    let Args { store: _, filter: _, seed: _ } = args;
    Err(crate::store::without("verify", "verify"))
}

#[cfg(feature = "verify")]
pub(crate) use suite::run;

#[cfg(feature = "verify")]
mod suite {
    use std::process::ExitCode;
    use std::sync::Arc;

    use anyhow::{Context, Result, bail};
    use ebbtide::{Admin, Stopwatch};
    use ebbtide_conformance::{CASES, Case};

    use crate::output::outln;
    use crate::store::{self, Access};

    pub(crate) async fn run(args: super::Args) -> Result<ExitCode> {
        let db = store::open(&args.store.url, Access::Write).await?;
        let backend = db.engine();
        let cases: Vec<_> = CASES.iter().filter(|case| full_name(case).contains(&args.filter)).collect();
        if cases.is_empty() {
            bail!("no case has {:?} in its name", args.filter);
        }
        // A case fails by panicking. Its message is in the line of the case; the hook would print it again.
        std::panic::set_hook(Box::new(|_| {}));
        let stopwatch = Stopwatch::start();
        let mut failed = 0;
        for case in &cases {
            if let Err(found) = run_one(backend, case, args.seed).await? {
                failed += 1;
                outln!("failed  {}\n        {}", full_name(case), found.replace('\n', "\n        "))?;
            } else {
                outln!("ok      {}", full_name(case))?;
            }
        }
        let passed = cases.len() - failed;
        outln!(
            "\n{} on {}: {passed} passed, {failed} failed, in {:.1} s (seed {})",
            if failed == 0 { "the contract is kept" } else { "the contract is NOT kept" },
            backend.info().engine,
            stopwatch.elapsed().as_secs_f64(),
            args.seed,
        )?;
        Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
    }

    fn full_name(case: &Case) -> String {
        format!("{}::{}", case.group, case.name)
    }

    /// Runs a case. The suite's records are cleared before it, in case an earlier run was interrupted, and after it.
    async fn run_one(backend: &Arc<dyn Admin>, case: &Case, seed: u64) -> Result<Result<(), String>> {
        const CLEARING: &str = "cannot clear the records of the suite";
        ebbtide_conformance::clear(backend.as_ref()).await.context(CLEARING)?;
        let found = ebbtide_conformance::run(case, Arc::clone(backend), seed).await;
        ebbtide_conformance::clear(backend.as_ref()).await.context(CLEARING)?;
        Ok(found)
    }
}
