//! The command `keyring`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Command;

fn keyring(file: &Path, args: &[&str]) -> (i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_ebbtide"))
        .arg("keyring")
        .args(args)
        .env("EBBTIDE_KEYRING", file)
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8(text).unwrap())
}

/// The ids, oldest first, each with true if it is active.
fn list(file: &Path) -> Vec<(String, bool)> {
    let (code, text) = keyring(file, &["list"]);
    assert_eq!(code, 0, "{text}");
    let line = |line: &str| (line.split(' ').next().unwrap().to_owned(), line.ends_with(" active"));
    text.lines().skip(1).filter(|line| !line.ends_with(" naming")).map(line).collect()
}

#[test]
fn keys_are_created_added_activated_and_retired() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keyring.json");
    assert_eq!(keyring(&file, &["init"]).0, 0);
    let (code, text) = keyring(&file, &["init"]);
    assert_eq!(code, 2, "a keyring is never overwritten: {text}");
    assert_eq!(keyring(&file, &["add"]).0, 0);
    assert_eq!(keyring(&file, &["add", "--standby"]).0, 0);
    let keys = list(&file);
    assert_eq!(keys.iter().filter(|(_, active)| *active).count(), 1);
    let active = keys.iter().find(|(_, active)| *active).unwrap().0.clone();
    let other = keys.iter().find(|(_, active)| !active).unwrap().0.clone();
    let (code, text) = keyring(&file, &["retire", &active]);
    assert_eq!(code, 2, "the active key stays: {text}");
    assert_eq!(keyring(&file, &["activate", &other]).0, 0);
    assert_eq!(keyring(&file, &["retire", &active]).0, 0);
    let keys = list(&file);
    assert_eq!(keys.len(), 2, "beside the naming key");
    assert!(keys.contains(&(other, true)));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left behind");
}

#[test]
fn an_error_is_reported_and_shows_no_key() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keyring.json");
    let (code, text) = keyring(&file, &["list"]);
    assert_eq!(code, 2);
    assert!(text.contains("keyring init"), "{text}");
    assert_eq!(keyring(&file, &["init"]).0, 0);
    let stored = std::fs::read_to_string(&file).unwrap();
    let secret = stored.split('"').find(|text| text.len() == 43).unwrap();
    for args in [&["list"][..], &["add"], &["retire", "00000000"], &["retire", "nonsense"]] {
        assert!(!keyring(&file, args).1.contains(secret));
    }
}

#[test]
fn an_embedded_store_is_asked_with_its_own_keyring() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("fjall:{}", folder.path().join("data").display());
    let run = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_ebbtide"))
            .args(args)
            .current_dir(folder.path())
            .env_remove("EBBTIDE_KEYRING")
            .output()
            .unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
    };
    assert_eq!(run(&["keyring", "show", "--store", &store]), (2, String::new()), "there is no store yet");
    assert_eq!(run(&["key", "create", "--scope", "global", "--role", "admin", "--store", &store]).0, 0);
    let (code, text) = run(&["keyring", "show", "--store", &store]);
    assert!(code == 0 && text.contains(" active"), "{text}");
    let (code, text) = run(&["keyring", "add", "--standby", "--store", &store]);
    assert_eq!(code, 0, "{text}");
    let id = text.split_whitespace().nth(3).unwrap().trim_end_matches(',').to_owned();
    let (code, text) = run(&["keyring", "show", "--store", &store]);
    assert!(code == 0 && text.contains(&id), "{text}");
    assert!(!folder.path().join("keyring.json").exists(), "no other file is made");

    // A retirement that was interrupted has changed the file alone: the store learns of it in the next run.
    let (data, other) = (folder.path().join("data/keyring.json"), folder.path().join("other.json"));
    std::fs::copy(&data, &other).unwrap();
    assert_eq!(keyring(&other, &["retire", &id]).0, 0);
    std::fs::copy(&other, &data).unwrap();
    assert_eq!(run(&["keyring", "retire", &id, "--store", &store]).0, 0);
    assert_eq!(run(&["keyring", "retire", &id, "--store", &store]).0, 2, "there is no such key any more");
}

#[test]
fn a_lifetime_keeps_its_milliseconds() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("fjall:{}", folder.path().join("data").display());
    let run = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_ebbtide"))
            .args(args)
            .args(["--scope", "tenant:acme", "--store", &store, "--json"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    run(&["key", "create", "--role", "admin"]);
    let granted = run(&["approval", "grant", "alice", "doc", "GET", "--ttl", "90500ms"]);
    let life = granted["expires_at"].as_u64().unwrap() - granted["granted_at"].as_u64().unwrap();
    assert_eq!(life, 90_500);
    run(&["policy", "set", "--kind", "records", "--min", "500ms", "--max", "1500ms", "--default", "700ms"]);
}
