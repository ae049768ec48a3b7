//! The pages on the requirements of the source documents and on security name calls, commands and tests that exist.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/server.rs"]
mod server;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;
use server::ebbtide;

/// Tests of a folder: functions with the attribute of a test, and names in the tables of cases that a runner has.
fn tests(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            tests(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let (mut is_test, mut in_table) = (false, false);
            for line in text.lines().map(str::trim) {
                if line.starts_with("#[test") || line.starts_with("#[tokio::test") {
                    is_test = true;
                } else if line.contains("! {") {
                    in_table = true;
                } else if line == "}" {
                    in_table = false;
                } else if let Some((_, rest)) = line.split_once("fn ")
                    && is_test
                {
                    found.insert(rest.split(|c| !is_of_name(c)).next().unwrap().to_owned());
                    is_test = false;
                }
                // A case of a table stands alone on its line, or is named in text.
                let case = line.trim_end_matches(';');
                if in_table && case.chars().all(is_of_name) {
                    found.insert(case.to_owned());
                }
                found.extend(
                    line.split('"')
                        .skip(1)
                        .step_by(2)
                        .filter(|t| t.chars().all(is_of_name))
                        .map(str::to_owned),
                );
            }
        }
    }
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Returns whether the description has a call such as `POST /v1/sweep {"kinds": …}`, or a path, which may end in `…`.
fn is_described(api: &Value, call: &str) -> bool {
    let (verb, path) = match call.split_once(' ') {
        Some((verb, path)) => (Some(verb.to_lowercase()), path),
        None => (None, call),
    };
    let path = path.split(['?', ' ', ',']).next().unwrap();
    let asked: Vec<&str> = path.split('/').collect();
    api["paths"].as_object().unwrap().iter().any(|(template, calls)| {
        let template: Vec<&str> = template.split('/').collect();
        let rest = asked.iter().position(|part| *part == "…");
        let fits = |(asked, there): (&&str, &&str)| asked == there || there.starts_with('{');
        let whole = rest.is_some() || template.len() == asked.len();
        let (head, tail) = asked.split_at(rest.unwrap_or(asked.len()));
        let tail = tail.get(1..).unwrap_or_default();
        whole
            && head.iter().zip(&template).all(fits)
            && template.len() >= head.len() + tail.len()
            && template.ends_with(tail)
            && verb.as_ref().is_none_or(|verbs| verbs.split('/').all(|verb| calls.get(verb).is_some()))
    })
}

/// Help texts of commands, by their words.
#[derive(Default)]
struct Helps(BTreeMap<String, Option<String>>);

impl Helps {
    /// Help of a command; none if there is no such command.
    fn of(&mut self, command: &str) -> Option<&str> {
        let help = || {
            let words: Vec<&str> = command.split(' ').chain(["--help"]).collect();
            let output = ebbtide(&words).output().unwrap();
            output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
        };
        self.0.entry(command.to_owned()).or_insert_with(help).as_deref()
    }

    /// Checks a command such as `audit list/verify` or `sweep --kind replays`, or flags alone, which a command that was
    /// checked before has.
    fn have(&mut self, command: &str) -> bool {
        let flags: Vec<&str> = command.split(' ').filter(|word| word.starts_with("--")).collect();
        let has = |help: &str, flag: &str| {
            let ends = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '-');
            help.match_indices(flag).any(|(at, _)| ends(&help[at + flag.len()..]))
        };
        let is_word = |word: &&str| word.chars().all(|c| c.is_ascii_lowercase() || "-/".contains(c));
        let words: Vec<&str> =
            command.split(' ').take_while(|word| is_word(word) && !word.starts_with('-')).collect();
        let Some((last, before)) = words.split_last() else {
            return flags.iter().all(|flag| self.0.values().flatten().any(|help| has(help, flag)));
        };
        // A word may be an argument, such as the kind of `explain code`: its command has a help of its own then.
        last.split('/').all(|last| {
            let whole = before.iter().copied().chain([last]).collect::<Vec<_>>().join(" ");
            self.of(&whole).is_some_and(|help| flags.iter().all(|flag| has(help, flag)))
        })
    }
}

#[test]
fn every_requirement_names_tests_and_calls_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/seeds.md")).unwrap();
    let mut known = BTreeSet::new();
    tests(&root.join("crates"), &mut known);
    let api = std::fs::read_to_string(root.join("api/openapi.json")).unwrap();
    let api: Value = serde_json::from_str(&api).unwrap();
    let (mut rows, mut missing, mut helps, mut alone) = (0, Vec::new(), Helps::default(), Vec::new());
    for line in page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| requirement")) {
        let line = line.replace("\\|", "/");
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        assert_eq!(cells.len(), 4, "{line}");
        let tests: Vec<&str> = cells[3].split('`').skip(1).step_by(2).collect();
        assert!(!tests.is_empty(), "without a test: {line}");
        missing.extend(tests.into_iter().filter(|test| !known.contains(*test)).map(str::to_owned));
        for call in cells[1].split('`').skip(1).step_by(2).filter(|call| call.contains("/v1/")) {
            assert!(is_described(&api, call), "no such call: {call}");
        }
        for command in cells[2].split('`').skip(1).step_by(2) {
            if command.starts_with("--") {
                alone.push(command.to_owned());
            } else if !["[[", "make ", "ebbtide-lambda"].iter().any(|other| command.starts_with(other)) {
                assert!(helps.have(command), "no such command or flag: {command}");
            }
        }
        rows += 1;
    }
    for flags in alone {
        assert!(helps.have(&flags), "no such flag: {flags}");
    }
    assert!(rows > 70, "{rows} rows");
    assert!(missing.is_empty(), "the page names tests that do not exist: {missing:#?}");
}

/// A test is named by its function, behind the file or the modules that it is in; a folder of tests by its path.
#[test]
fn every_protection_on_the_page_about_security_names_a_test_that_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/security.md")).unwrap();
    let mut known = BTreeSet::new();
    tests(&root.join("crates"), &mut known);
    let (mut rows, mut missing) = (0, Vec::new());
    for line in page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| kept from")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        assert_eq!(cells.len(), 3, "{line}");
        let named: Vec<&str> = cells[2].split('`').skip(1).step_by(2).collect();
        assert!(!named.is_empty(), "without a test: {line}");
        missing.extend(
            named
                .into_iter()
                .filter(|test| {
                    let function = test.rsplit([':', ' ']).next().unwrap();
                    let is_file = test.contains('/') && root.join("crates/ebbtide").join(test).exists();
                    !known.contains(function) && !is_file
                })
                .map(str::to_owned),
        );
        rows += 1;
    }
    assert!(rows > 15, "{rows} rows");
    assert!(missing.is_empty(), "the page names tests that do not exist: {missing:#?}");
}
