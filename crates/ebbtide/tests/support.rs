//! Turns the conformance kit into tests: one for each case, so that filters and counts work.

use std::process::ExitCode;
use std::sync::Arc;

use ebbtide::Backend;
use ebbtide::conformance::stores::{self, STORE_CASES};
use ebbtide::conformance::{self, CASES};
use libtest_mimic::{Arguments, Failed, Trial};

/// Runs both tables of the kit, with a store of its own for each case.
pub(crate) fn conformance<F>(open: impl Fn() -> F + Copy + Send + Sync + 'static) -> ExitCode
where
    F: Future<Output = Arc<dyn Backend>>,
{
    libtest_mimic::run(&Arguments::from_args(), trials(open)).exit_code()
}

/// A test for each case of both tables.
pub(crate) fn trials<F>(open: impl Fn() -> F + Copy + Send + Sync + 'static) -> Vec<Trial>
where
    F: Future<Output = Arc<dyn Backend>>,
{
    let contract = CASES.iter().map(|case| {
        Trial::test(format!("{}::{}", case.group, case.name), move || {
            run(async { conformance::run(case, open().await, 1).await })
        })
    });
    let typed = STORE_CASES.iter().map(|case| {
        Trial::test(format!("stores::{}::{}", case.group, case.name), move || {
            run(async { stores::run(case, open().await, 1).await })
        })
    });
    contract.chain(typed).collect()
}

/// Runs a case on a runtime of its own.
pub(crate) fn run(case: impl Future<Output = Result<(), String>>) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build()?;
    runtime.block_on(case).map_err(Into::into)
}
