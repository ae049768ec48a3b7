//! Turns the conformance kit into tests: one for each case, so that filters and counts work.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ebbtide::Admin;
use ebbtide_conformance::CASES;
use ebbtide_conformance::stores::{self, STORE_CASES};
use libtest_mimic::{Arguments, Failed, Trial};

/// Runs both tables of the kit, with a store of its own for each case.
pub(crate) fn conformance<F>(open: impl Fn() -> F + Clone + Send + Sync + 'static) -> ExitCode
where
    F: Future<Output = Arc<dyn Admin>>,
{
    libtest_mimic::run(&Arguments::from_args(), trials("", open)).exit_code()
}

/// Runs the trials, then those that measure time, one after the other: beside the rest their processors are taken.
#[allow(dead_code, reason = "only the engines that are servers measure time")]
pub(crate) fn in_turn(
    arguments: &Arguments,
    trials: Vec<Trial>,
    measures_time: impl Fn(&str) -> bool,
) -> ExitCode {
    let (timed, trials): (Vec<_>, Vec<_>) = trials.into_iter().partition(|trial| measures_time(trial.name()));
    let first = libtest_mimic::run(arguments, trials);
    let mut alone = arguments.clone();
    alone.test_threads = Some(1);
    let second = libtest_mimic::run(&alone, timed);
    if first.has_failed() { first.exit_code() } else { second.exit_code() }
}

/// A test for each case of both tables, named with `group` before it.
pub(crate) fn trials<F>(group: &str, open: impl Fn() -> F + Clone + Send + Sync + 'static) -> Vec<Trial>
where
    F: Future<Output = Arc<dyn Admin>>,
{
    let contract = CASES.iter().map(|case| {
        let open = open.clone();
        Trial::test(format!("{group}{}::{}", case.group, case.name), move || {
            run(async { ebbtide_conformance::run(case, open().await, 1).await })
        })
    });
    let typed = STORE_CASES.iter().map(|case| {
        let open = open.clone();
        Trial::test(format!("{group}stores::{}::{}", case.group, case.name), move || {
            run(async { stores::run(case, open().await, 1).await })
        })
    });
    contract.chain(typed).collect()
}

/// Runs one test on a runtime of its own.
pub(crate) fn run(case: impl Future<Output = Result<(), String>>) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build()?;
    runtime.block_on(case).map_err(Into::into)
}

/// Runs both tables on an embedded engine, each case in a new folder.
#[allow(dead_code, reason = "the engines that are servers do not use it")]
pub(crate) fn conformance_in_folders(engine: &'static str) -> ExitCode {
    let all = tempfile::tempdir().expect("a folder for temporary files");
    let (path, number) = (all.path().to_owned(), Arc::new(AtomicUsize::new(0)));
    conformance(move || {
        let folder = path.join(number.fetch_add(1, Ordering::Relaxed).to_string());
        async move {
            ebbtide::open_engine(&format!("{engine}:{}", folder.display())).await.expect("the store opens")
        }
    })
}
