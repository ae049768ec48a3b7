//! The conformance kit on fjall.

mod support;

use std::process::ExitCode;

fn main() -> ExitCode {
    support::conformance_in_folders("fjall")
}
