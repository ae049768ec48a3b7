//! The conformance kit on DynamoDB, and what is DynamoDB's alone: lost answers, throttling, requests, TTL.
//!
//! `EBBTIDE_TEST_DYNAMODB` names the endpoint. `EBBTIDE_TEST_DYNAMODB_SECOND`, which `make test-all` sets, names another
//! one for the same tests; without it they are not listed a second time.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

#[path = "dynamodb/busy.rs"]
mod busy;
#[path = "dynamodb/costs.rs"]
mod costs;
#[path = "dynamodb/limits.rs"]
mod limits;
#[path = "dynamodb/lost.rs"]
mod lost;
#[path = "dynamodb/processes.rs"]
mod processes;
#[path = "dynamodb/proxy.rs"]
mod proxy;
#[path = "dynamodb/requests.rs"]
mod requests;
#[path = "dynamodb/shared.rs"]
mod shared;
#[path = "dynamodb/site.rs"]
mod site;
#[path = "dynamodb/tables.rs"]
mod tables;
#[path = "dynamodb/ttl.rs"]
mod ttl;
#[path = "dynamodb/walks.rs"]
mod walks;

use std::process::ExitCode;
use std::sync::Arc;

use ebbtide::Admin;
use libtest_mimic::{Arguments, Trial};

use site::Site;

/// Variables that name the endpoints, prefixes of the names of their tests, and whether `make test` needs the endpoint.
const ENDPOINTS: [(&str, &str, bool); 2] =
    [("EBBTIDE_TEST_DYNAMODB", "", true), ("EBBTIDE_TEST_DYNAMODB_SECOND", "second::", false)];

fn main() -> ExitCode {
    if let Some(code) = processes::play() {
        return code;
    }
    let arguments = Arguments::from_args();
    let (mut trials, mut sites) = (Vec::new(), Vec::new());
    for (variable, group, needed) in ENDPOINTS {
        let endpoint = std::env::var(variable).ok().filter(|endpoint| !endpoint.is_empty());
        let missing = endpoint.is_none();
        if missing && !needed {
            continue;
        }
        let site = Arc::new(Site::new(endpoint.unwrap_or_default()));
        let fails = missing && std::env::var_os("CI").is_some();
        for trial in of(group, &site) {
            trials.push(if fails {
                Trial::test(trial.name().to_owned(), move || Err(format!("{variable} is not set").into()))
            } else {
                trial.with_ignored_flag(missing)
            });
        }
        sites.push(site);
    }
    let conclusion = support::in_turn(&arguments, trials, |name| {
        name.contains("within_the_time_of_a_login") || name.contains("of_a_thousand_issues")
    });
    let cleaning = support::run(async {
        for site in &sites {
            site.clean().await;
        }
        Ok(())
    });
    cleaning.map_or(ExitCode::FAILURE, |()| conclusion)
}

fn of(group: &str, site: &Arc<Site>) -> Vec<Trial> {
    let opened = Arc::clone(site);
    let mut trials = support::trials(group, move || {
        let site = Arc::clone(&opened);
        async move { Arc::new(site.open().await) as Arc<dyn Admin> }
    });
    // The stores rest on the kit; `make proof` asks them once more on the second endpoint.
    if !group.is_empty() && std::env::var_os("EBBTIDE_TEST_SECOND_STORES").is_none() {
        trials.retain(|trial| !trial.name().contains("stores::"));
    }
    // The same behind conflicts of transactions, throttled items and batches that are dealt with in part.
    let limited = Arc::clone(site);
    let mut limited = support::trials(&format!("{group}limited::"), move || {
        let site = Arc::clone(&limited);
        async move { Arc::new(site.open_limited().await) as Arc<dyn Admin> }
    });
    // Crowds that cross on the same items are refused for as long as they try, which is no answer. The stores are not
    // asked again here: what they rest on is the kit.
    limited.retain(|trial| !trial.name().contains("races::") && !trial.name().contains("stores::"));
    trials.extend(limited);
    for own in [
        busy::trials(group, site),
        costs::trials(group, site),
        lost::trials(group, site),
        processes::trials(group, site),
        requests::trials(group, site),
        shared::trials(group, site),
        tables::trials(group, site),
        ttl::trials(group, site),
        walks::trials(group, site),
    ] {
        trials.extend(own);
    }
    // Only an endpoint that deletes within minutes can be waited for.
    trials.retain(|trial| !trial.name().contains("ttl::the_engine_deletes") || site.deletes_by_ttl());
    trials
}

/// Makes a test of each of these functions, which are handed the site.
#[macro_export]
macro_rules! trials {
    ($($name:ident)+) => {
        pub(crate) fn trials(group: &str, site: &std::sync::Arc<$crate::site::Site>) -> Vec<libtest_mimic::Trial> {
            let module = module_path!().rsplit("::").next().expect("a module has a name");
            vec![$({
                let site = std::sync::Arc::clone(site);
                libtest_mimic::Trial::test(format!("{group}{module}::{}", stringify!($name)), move || {
                    $crate::support::run(async move {
                        $name(&site).await;
                        Ok(())
                    })
                })
            },)+]
        }
    };
}
