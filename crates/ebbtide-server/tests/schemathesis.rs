//! Generated requests, valid and invalid, to a running server: every answer is described.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "http/server.rs"]
#[allow(dead_code, reason = "the other tests use the rest")]
mod server;

use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Failed, Trial};

use server::{KEY, Server};

const PROGRAM: &str = "EBBTIDE_TEST_SCHEMATHESIS";

fn main() -> ExitCode {
    let program = std::env::var(PROGRAM).ok().filter(|program| !program.is_empty());
    let missing = program.is_none() && std::env::var_os("CI").is_none();
    let trial = Trial::test("no_answer_is_other_than_described", move || match &program {
        Some(program) => run(program),
        None => Err(Failed::from(format!("{PROGRAM} is not set"))),
    });
    libtest_mimic::run(&Arguments::from_args(), vec![trial.with_ignored_flag(missing)]).exit_code()
}

fn run(program: &str) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let server = runtime.block_on(Server::start());
    let checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,\
                  response_schema_conformance,negative_data_rejection,ignored_auth,unsupported_method";
    let output = Command::new(program)
        .args(["run", &format!("http://127.0.0.1:{}/openapi.json", server.port)])
        .args(["--header", &format!("Authorization: Bearer {KEY}")])
        .args(["--checks", checks])
        .args(["--phases", "examples,coverage,fuzzing"])
        .args(["--max-examples", "10", "--seed", "1", "--generation-database", "none", "--no-color"])
        .args(["--suppress-health-check", "all", "--request-timeout", "10"])
        .current_dir(std::env::temp_dir())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    if !output.status.success() {
        return Err(Failed::from(told));
    }
    // Count the requests, so that a run without any does not pass.
    let summary = told.split(" SUMMARY ").nth(1).unwrap_or(&told);
    println!("{summary}");
    let words: Vec<_> = summary.split_whitespace().collect();
    let mut counts = words.windows(2).filter(|pair| pair[1].starts_with("generated"));
    let generated: u64 = counts.find_map(|pair| pair[0].replace(',', "").parse().ok()).unwrap_or(0);
    if generated <= 1_000 {
        return Err(Failed::from(format!("only {generated} requests were generated:\n{told}")));
    }
    Ok(())
}
