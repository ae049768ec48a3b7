//! The conformance kit on rocksdb.

mod support;

use std::process::ExitCode;

fn main() -> ExitCode {
    support::conformance_in_folders("rocksdb")
}
