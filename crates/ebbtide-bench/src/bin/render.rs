//! `ebbtide-bench-render [ROOT]`: renders `bench/results/latest.json` as the table, the charts and the figures in the
//! pages.

use std::path::PathBuf;
use std::process::ExitCode;

use ebbtide_bench::render::{LATEST, write_all};
use ebbtide_bench::results::Results;

fn main() -> ExitCode {
    let root = PathBuf::from(std::env::args_os().nth(1).unwrap_or_else(|| ".".into()));
    let outcome = Results::read(&root.join(LATEST))
        .map_err(|error| format!("{LATEST}: {error}; `make bench` measures and writes it"))
        .and_then(|results| write_all(&results, &root).map_err(|error| error.to_string()));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ebbtide-bench-render: {error}");
            ExitCode::FAILURE
        }
    }
}
