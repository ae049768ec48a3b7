//! `ebbtide table` on a real endpoint.

use std::process::{Command, ExitCode, Output};
use std::time::SystemTime;

use libtest_mimic::{Arguments, Failed, Trial};

const ENDPOINT: &str = "EBBTIDE_TEST_DYNAMODB";

fn main() -> ExitCode {
    let endpoint = std::env::var(ENDPOINT).ok().filter(|endpoint| !endpoint.is_empty());
    let missing = endpoint.is_none() && std::env::var_os("CI").is_none();
    let trial = Trial::test("a_table_is_made_described_and_made_again", move || match &endpoint {
        Some(endpoint) => {
            a_table_is_made_described_and_made_again(endpoint);
            Ok(())
        }
        None => Err(Failed::from(format!("{ENDPOINT} is not set"))),
    });
    let wrong = Trial::test("a_store_that_has_no_table_is_refused", || {
        a_store_that_has_no_table_is_refused();
        Ok(())
    });
    libtest_mimic::run(&Arguments::from_args(), vec![trial.with_ignored_flag(missing), wrong]).exit_code()
}

fn table(action: &str, store: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ebbtide"));
    command.args(["table", action, "--store", store]).output().expect("the command runs")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[expect(clippy::disallowed_methods, reason = "names a table that no other run has")]
fn unique() -> u128 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_nanos()
}

fn a_table_is_made_described_and_made_again(endpoint: &str) {
    let store = format!("dynamodb:ebbtide-cli-{}?endpoint={endpoint}", unique());
    let before = table("describe", &store);
    assert_eq!(before.status.code(), Some(1), "{before:?}");

    let made = table("create", &store);
    assert_eq!(made.status.code(), Some(0), "{made:?}");
    assert!(text(&made).contains("made the table") && text(&made).contains("turned TTL on"), "{made:?}");

    let described = table("describe", &store);
    assert_eq!(described.status.code(), Some(0), "{described:?}");
    assert!(text(&described).contains("on demand") && text(&described).contains("ttl"), "{described:?}");

    let again = table("create", &store);
    assert_eq!(again.status.code(), Some(0), "{again:?}");
    assert!(text(&again).contains("is there already"), "{again:?}");

    let enabled = table("enable-ttl", &store);
    assert_eq!(enabled.status.code(), Some(0), "{enabled:?}");
    assert!(text(&enabled).contains("on already"), "{enabled:?}");
}

fn a_store_that_has_no_table_is_refused() {
    for store in ["memory:", "dynamodb:", "dynamodb:tide?regoin=x"] {
        let refused = table("create", store);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    }
}
