//! The first minute of the README, run as a script.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/server.rs"]
mod server;

use std::process::Command;

use server::{Server, said};

const README: &str = include_str!("../../../README.md");

/// Shell blocks below a heading.
fn blocks(heading: &str) -> Vec<&'static str> {
    let section = README.split(heading).nth(1).unwrap().split("\n## ").next().unwrap();
    section.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

/// An interactive zsh takes a comment for a command.
#[test]
fn no_line_to_paste_has_a_comment() {
    for line in README.split("```sh\n").skip(1).flat_map(|rest| rest.split("```").next().unwrap().lines()) {
        assert!(!line.contains(" # ") && !line.starts_with('#'), "{line}");
    }
}

#[test]
fn the_first_minute_ends_with_a_replay_a_reused_code_and_a_revoked_family() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_in(folder.path(), &[]);
    let blocks = blocks("## The first minute\n");
    assert!(blocks.len() >= 4, "{blocks:?}");
    // Another port: that of `make run` may be in use.
    let script = blocks.concat().replace("127.0.0.1:7878", &server.address.to_string());
    assert!(script.contains(&server.address.to_string()));
    let output =
        Command::new("bash").arg("-eu").arg("-c").arg(script).current_dir(folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    let outcome = |line: &str| -> String {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        value["title"].as_str().or(value["outcome"].as_str()).unwrap_or("made").to_owned()
    };
    let outcomes: Vec<_> = text.lines().map(outcome).collect();
    assert_eq!(outcomes[..6], ["fresh", "replay", "reused", "revoked", "reused", "revoked"], "{text}");
    let section = README.split("## The first minute\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let mut rest = section;
    for refused in ["409 `replay`", "409 `reused`", "410 `revoked`", "409 `reused`", "410 `revoked`"] {
        let at = rest.find(refused).unwrap_or_else(|| panic!("the text does not promise {refused}"));
        rest = &rest[at + refused.len()..];
    }
}
