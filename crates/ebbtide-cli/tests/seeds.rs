//! The page on the requirements of the source documents names tests that exist.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::path::Path;

fn functions(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            functions(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            for part in text.split("fn ").skip(1) {
                let name = part.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap();
                found.insert(name.to_owned());
            }
        }
    }
}

#[test]
fn every_requirement_names_tests_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/seeds.md")).unwrap();
    let mut known = BTreeSet::new();
    functions(&root.join("crates"), &mut known);
    let (mut rows, mut missing) = (0, Vec::new());
    for line in page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| requirement")) {
        let line = line.replace("\\|", "/");
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        assert_eq!(cells.len(), 4, "{line}");
        let tests: Vec<&str> = cells[3].split('`').skip(1).step_by(2).collect();
        assert!(!tests.is_empty(), "without a test: {line}");
        missing.extend(tests.into_iter().filter(|test| !known.contains(*test)).map(str::to_owned));
        rows += 1;
    }
    assert!(rows > 70, "{rows} rows");
    assert!(missing.is_empty(), "the page names tests that do not exist: {missing:#?}");
}
