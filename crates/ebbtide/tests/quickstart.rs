//! The README's program, run in two processes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// The example, which cargo builds beside the tests.
fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().unwrap().parent().unwrap().join("examples/quickstart");
    assert!(program.exists(), "cargo builds the examples with the tests: {}", program.display());
    program
}

fn run(folder: &Path, token: Option<&str>) -> Vec<String> {
    let output = Command::new(program()).args(token).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn a_token_of_one_process_is_rotated_by_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let first = run(folder.path(), None);
    let token = first[1].strip_prefix("next token: ").unwrap_or_else(|| panic!("{first:?}"));
    let second = run(folder.path(), Some(token));
    assert!(second[0].contains("Replay"), "the proof of the first process was seen: {second:?}");
    assert!(second[1].starts_with("next token: "), "{second:?}");
    let stale = run(folder.path(), Some("ebr_stranger"));
    assert!(stale[1].starts_with("refused: Unknown"), "{stale:?}");
}

#[test]
fn the_readme_shows_this_program() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = std::fs::read_to_string(root.join("../../README.md")).unwrap();
    let example = std::fs::read_to_string(root.join("examples/quickstart.rs")).unwrap();
    let shown = readme.split("```rust\n").nth(1).unwrap().split("```").next().unwrap();
    assert!(example.ends_with(shown), "README.md and examples/quickstart.rs differ");
}
