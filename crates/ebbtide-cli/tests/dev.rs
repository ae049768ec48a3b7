//! `ebbtide dev`: the command that it prints works, and its store goes with it.

#[path = "support/server.rs"]
mod server;

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use server::{ebbtide, said};

#[test]
fn the_command_that_it_prints_works_and_the_store_goes_with_it() {
    let temporary = tempfile::tempdir().unwrap();
    let mut dev = ebbtide(&["dev", "--listen", "127.0.0.1:0"])
        .env("TMPDIR", temporary.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(dev.stdout.take().unwrap()).lines().map(Result::unwrap);
    let listening = lines.next().unwrap();
    assert!(listening.starts_with("listening on http://127.0.0.1:"), "{listening}");
    let curl = lines.by_ref().find(|line| line.starts_with("curl ")).unwrap();
    let is_there = |shell: &&str| Command::new(shell).args(["-c", ":"]).output().is_ok();
    let shells: Vec<_> = ["bash", "zsh"].into_iter().filter(is_there).collect();
    assert!(shells.len() == 2 || std::env::var_os("CI").is_none(), "only {shells:?} are installed");
    let mut outcomes = Vec::new();
    for shell in shells {
        let output = Command::new(shell).args(["-c", &curl]).output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        outcomes.push(answer["outcome"].as_str().or(answer["title"].as_str()).unwrap().to_owned());
    }
    assert_eq!(outcomes[0], "fresh");
    assert!(outcomes[1..].iter().all(|outcome| outcome == "replay"), "{outcomes:?}");
    assert_eq!(std::fs::read_dir(temporary.path()).unwrap().count(), 1);
    assert!(Command::new("kill").args(["-INT", &dev.id().to_string()]).status().unwrap().success());
    assert_eq!(dev.wait().unwrap().code(), Some(0));
    assert_eq!(std::fs::read_dir(temporary.path()).unwrap().count(), 0, "the store is removed");
}
