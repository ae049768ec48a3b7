//! The README, the pages, the table and the charts show the figures of the last run.

use std::path::Path;

use ebbtide_bench::render::{LATEST, differences};
use ebbtide_bench::results::Results;

#[test]
fn what_is_shown_is_what_was_measured() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let results = Results::read(&root.join(LATEST))
        .unwrap_or_else(|error| panic!("{LATEST}: {error}\nrun `make bench`, which measures and writes it"));
    let found = differences(&results, &root).unwrap_or_else(|error| panic!("{error}"));
    assert!(
        found.is_empty(),
        "not what {LATEST} gives:\n{}\nrun `cargo run --package ebbtide-bench --bin ebbtide-bench-render`",
        found.join("\n")
    );
}
