//! Turns the conformance kit into tests: one for each case, so that filters and counts work.

use std::process::ExitCode;
use std::sync::Arc;

use ebbtide::Backend;
use ebbtide::conformance::{self, CASES};
use libtest_mimic::{Arguments, Trial};

/// Runs the kit, with a store of its own for each case.
pub(crate) fn conformance<F>(open: impl Fn() -> F + Copy + Send + Sync + 'static) -> ExitCode
where
    F: Future<Output = Arc<dyn Backend>>,
{
    let trials = CASES.iter().map(|case| {
        Trial::test(format!("{}::{}", case.group, case.name), move || {
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build()?;
            runtime.block_on(async { conformance::run(case, open().await, 1).await }).map_err(Into::into)
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}
