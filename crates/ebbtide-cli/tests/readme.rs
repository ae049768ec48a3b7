//! The first minute of the README, and the pages of the flows, run as scripts.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/server.rs"]
mod server;

use std::path::Path;
use std::process::Command;

use server::{Server, ebbtide, said};

const README: &str = include_str!("../../../README.md");

/// Pages of the flows, each with the outcomes that its blocks print.
const FLOWS: [(&str, &str, &[&str]); 9] = [
    (
        "authorization-code",
        include_str!("../../../docs/flows/authorization-code.md"),
        &["made", "made", "active", "reused", "inactive"],
    ),
    (
        "pushed-requests",
        include_str!("../../../docs/flows/pushed-requests.md"),
        &["made", "mismatch", "made", "used"],
    ),
    (
        "refresh",
        include_str!("../../../docs/flows/refresh.md"),
        &["made", "made", "made", "raced", "reused", "revoked"],
    ),
    (
        "device",
        include_str!("../../../docs/flows/device.md"),
        &["made", "made", "pending", "approved", "made"],
    ),
    (
        "clients",
        include_str!("../../../docs/flows/clients.md"),
        &["made", "made", "mismatch", "active", "made", "made", "made", "inactive"],
    ),
    (
        "sessions",
        include_str!("../../../docs/flows/sessions.md"),
        &["made", "made", "made", "made", "used", "made", "made"],
    ),
    (
        "sign-out",
        include_str!("../../../docs/flows/sign-out.md"),
        &["made", "made", "made", "revoked", "made", "made", "made"],
    ),
    (
        "introspection",
        include_str!("../../../docs/flows/introspection.md"),
        &["active", "active", "inactive", "inactive", "active", "inactive", "revoked"],
    ),
    ("dpop", include_str!("../../../docs/flows/dpop.md"), &["valid", "fresh", "replay", "expired"]),
];

/// Shell blocks of a text.
fn shell(text: &'static str) -> Vec<&'static str> {
    text.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

/// Shell blocks below a heading.
fn blocks(heading: &str) -> Vec<&'static str> {
    shell(README.split(heading).nth(1).unwrap().split("\n## ").next().unwrap())
}

/// Shells that a user may paste into; both are there where `scripts/test` runs.
fn shells() -> Vec<&'static str> {
    let is_there = |shell: &&str| Command::new(shell).args(["-c", ":"]).output().is_ok();
    let shells: Vec<_> = ["bash", "zsh"].into_iter().filter(is_there).collect();
    assert!(shells.len() == 2 || std::env::var_os("CI").is_none(), "only {shells:?} are installed");
    shells
}

/// Runs blocks in one shell, beside a server on another port than that of `make run`, which may be in use.
fn paste(shell: &str, server: &Server, folder: &Path, blocks: &[&str]) -> String {
    let script = blocks.concat().replace("127.0.0.1:7878", &server.address.to_string());
    assert!(script.contains(&server.address.to_string()));
    let binary = Path::new(env!("CARGO_BIN_EXE_ebbtide")).parent().unwrap();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new(shell);
    shell.args(["-eu", "-c", &script]).env("PATH", path).current_dir(folder);
    let output = shell.output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn outcome(line: &str) -> String {
    let value: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
    if let Some(active) = value["active"].as_bool() {
        return if active { "active" } else { "inactive" }.to_owned();
    }
    value["title"].as_str().or(value["outcome"].as_str()).unwrap_or("made").to_owned()
}

#[test]
fn the_calls_of_every_flow_answer_as_its_page_says() {
    let runs = shells().into_iter().flat_map(|shell| FLOWS.map(|flow| (shell, flow)));
    for (name, (page, text, expected)) in runs {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::start_in(folder.path(), &[]);
        let printed = paste(name, &server, folder.path(), &shell(text));
        let outcomes: Vec<_> = printed.lines().filter(|line| line.starts_with('{')).map(outcome).collect();
        assert_eq!(outcomes, *expected, "{name}, {page}: {printed}");
        assert!(text.contains("```mermaid"), "{page} has no picture");
        assert!(text.contains("| refusal |"), "{page} does not explain its refusals");
    }
}

/// Source of every crate.
fn sources(folder: &Path, all: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, all);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            all.push_str(&std::fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn every_point_of_the_standards_names_tests_that_exist_or_whose_it_is() {
    const STANDARDS: &str = include_str!("../../../docs/flows/standards.md");
    let mut source = String::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."), &mut source);
    let is_test = |name: &str| {
        ["fn NAME(", "(\"NAME\","].iter().any(|form| source.contains(&form.replace("NAME", name)))
    };
    let rows = STANDARDS.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| point"));
    let (mut points, mut named) = (0, 0);
    for row in rows {
        let shown = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        let tests: Vec<_> =
            shown.split('`').skip(1).step_by(2).filter_map(|name| name.rsplit_once("::")).collect();
        for (_, test) in &tests {
            assert!(is_test(test), "no test has the name {test}: {row}");
        }
        assert!(!tests.is_empty() || shown.contains("'s, because "), "neither a test nor a reason: {row}");
        (points, named) = (points + 1, named + tests.len());
    }
    assert!(points > 50 && named > 60, "{points} points name {named} tests");
    assert!(!is_test("a_test_that_nobody_has_written"));
}

/// An interactive zsh takes a comment for a command.
#[test]
fn no_line_to_paste_has_a_comment() {
    let pages = FLOWS.iter().map(|(_, text, _)| *text).chain([README]);
    for line in pages.flat_map(shell).flat_map(str::lines) {
        assert!(!line.contains(" # ") && !line.starts_with('#'), "{line}");
    }
}

#[test]
fn the_first_minute_ends_with_a_replay_a_reused_code_and_a_revoked_family() {
    let blocks = blocks("## The first minute\n");
    assert!(blocks.len() >= 4, "{blocks:?}");
    for shell in shells() {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::start_in(folder.path(), &[]);
        let text = paste(shell, &server, folder.path(), &blocks);
        let outcomes: Vec<_> = text.lines().map(outcome).collect();
        let expected = ["fresh", "replay", "reused", "revoked", "reused", "revoked"];
        assert_eq!(outcomes[..6], expected, "{shell}: {text}");
    }
    let section = README.split("## The first minute\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let mut rest = section;
    for refused in ["409 `replay`", "409 `reused`", "410 `revoked`", "409 `reused`", "410 `revoked`"] {
        let at = rest.find(refused).unwrap_or_else(|| panic!("the text does not promise {refused}"));
        rest = &rest[at + refused.len()..];
    }
}

/// Names in the list of commands of a help text.
fn commands(help: &str) -> Vec<&str> {
    let list = help.split("\nCommands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    list.lines().filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").collect()
}

#[test]
fn the_command_line_is_listed_whole() {
    let output = ebbtide(&["--help"]).output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let section = README.split("## The command line\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let all = commands(&help);
    assert!(all.len() > 30, "{help}");
    for command in &all {
        assert!(section.contains(&format!("`{command}`")), "README.md does not list `{command}`");
    }
    let rows = section.lines().filter(|line| line.starts_with("| ")).skip(1).collect::<String>();
    let listed = rows.split('`').skip(1).step_by(2);
    for command in listed {
        assert!(all.contains(&command), "there is no command `{command}`, which README.md lists");
    }
}

#[cfg(feature = "verify")]
#[test]
fn the_output_of_verify_is_that_of_the_suite() {
    let cases = ebbtide_conformance::CASES;
    assert!(README.contains(&format!("kept on fjall: {} passed, 0 failed", cases.len())), "{}", cases.len());
    for case in &cases[..2] {
        assert!(README.contains(&format!("\nok      {}::{}\n", case.group, case.name)), "{case:?}");
    }
}
