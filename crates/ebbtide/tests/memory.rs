//! The conformance kit on the memory engine.

mod support;

use std::process::ExitCode;

fn main() -> ExitCode {
    support::conformance(|| async { ebbtide::open_engine("memory:").await.expect("memory opens") })
}
