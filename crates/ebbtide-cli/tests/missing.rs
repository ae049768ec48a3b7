//! A missing store or keyring: commands that work on existing data report it and create nothing.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/server.rs"]
mod server;

use std::io::{Seek as _, Write as _};
use std::path::Path;
use std::process::Output;

use server::{ebbtide, said};
use tempfile::TempDir;

/// Commands that read or change an existing store, and create none.
const ON_EXISTING: [&str; 67] = [
    "stats",
    "stats --json",
    "verify --filter expiry::",
    "export --scope global",
    "audit list --scope global",
    "audit verify --scope global --below",
    "audit export --scope global",
    "scope list --scope global",
    "scope stats --scope global",
    "scope delete --scope global --yes",
    "scope migrate --from global --to tenant:acme --yes",
    "scope migrate --from global --to tenant:acme --dry-run",
    "explain --scope global client app",
    "client register --scope global --name app",
    "clock show",
    "clock accept",
    "key list --scope global",
    "key revoke --yes AAAAAAAAAAAAAAAAAAAAAGdsb2JhbA",
    "sweep",
    "sweep --dry-run",
    "usage --scope global",
    "policy set --scope global --kind approvals --preset temporary",
    "policy list --scope global",
    "policy show --scope global --kind approvals",
    "policy simulate --scope global --kind approvals --max 1d",
    "policy remove --scope global --kind approvals",
    "approval grant --scope global alice doc GET --ttl 1h",
    "approval check --scope global alice doc GET",
    "approval list --scope global --identity alice",
    "approval extend --scope global alice doc GET --ttl 2h",
    "approval revoke --scope global alice doc GET",
    "relationship add --scope global alice member staff --type membership",
    "relationship check --scope global alice member staff",
    "relationship path --scope global alice member company",
    "relationship list --scope global --subject alice",
    "relationship reachable --scope global alice member --type membership",
    "relationship extend --scope global alice member staff --type membership --ttl 2h",
    "relationship remove --scope global alice member staff --type membership",
    "attribute set --scope global alice settings theme 1",
    "attribute get --scope global alice settings theme",
    "attribute list --scope global alice",
    "attribute extend --scope global alice settings theme --ttl 90d",
    "attribute delete --scope global alice settings theme",
    "record put --scope global sessions one --ttl 10m",
    "record get --scope global sessions one",
    "record list --scope global sessions",
    "record delete --scope global sessions one",
    "owner delete --scope global alice --dry-run",
    "owner delete --scope global alice --yes",
    "client list --scope global alice",
    "client show --scope global app",
    "client revoke --scope global app",
    "client delete --scope global app --yes",
    "subject overview --scope global alice",
    "subject sign-out --scope global alice",
    "token grants --scope global --subject alice",
    "token revoke --scope global AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    "token revoke-grant --scope global 00000000000000000000000000000000",
    "belongings list --scope global --owner alice",
    "belongings reconcile --scope global",
    "keyring add --standby",
    "keyring add-naming-key",
    "keyring activate 00000000",
    "keyring list",
    "keyring show",
    "keyring reseal",
    "keyring retire 00000000",
];

/// Commands that create a store, or a part of one, on purpose.
const CREATING: [(&str, &str); 4] = [
    ("serve", "the first start of a server makes its store"),
    ("import", "records of another system are the first of a new store"),
    ("key create", "a key can be made before the first start"),
    ("keyring init", "a keyring can be made before the store; no store is opened"),
];

/// Commands that only name a store.
const UNOPENED: [(&str, &str); 1] = [("config check", "it reads the settings, and opens no store")];

/// Commands that refuse the store of an embedded engine, and create nothing.
const ELSEWHERE: [(&str, &str); 8] = [
    ("why 5f0c", "only a running server knows its refusals"),
    ("scope unscoped", "only a running server counts requests"),
    ("backup target", "its case is below"),
    ("doctor", "it examines the files of a store that does not open"),
    ("migrate-schema", "only PostgreSQL has a schema"),
    ("table create", "only DynamoDB has a table"),
    ("table describe", "only DynamoDB has a table"),
    ("table enable-ttl", "only DynamoDB has a table"),
];

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

fn help(path: &[String]) -> String {
    let output = ebbtide(&[]).args(path).arg("--help").output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Commands below `path` that take a store, each once: the innermost that say so in their help.
fn with_a_store(path: &[String]) -> Vec<Vec<String>> {
    let help = help(path);
    let list = help.split("\nCommands:\n").nth(1).map(|rest| rest.split("\n\n").next().unwrap());
    // A description goes on in lines that are indented further.
    let names = list.into_iter().flat_map(str::lines).filter_map(|line| line.strip_prefix("  "));
    let names = names.filter(|line| !line.starts_with(' ')).filter_map(|line| line.split(' ').next());
    let mut found = Vec::new();
    for name in names.filter(|name| *name != "help") {
        found.extend(with_a_store(&[path, &[name.to_owned()]].concat()));
    }
    if found.is_empty() && help.contains("--store <URL>") {
        found.push(path.to_owned());
    }
    found
}

#[test]
fn every_command_with_a_store_is_in_a_table() {
    let commands = with_a_store(&[]);
    assert!(commands.len() > 50, "{commands:?}");
    let creating = CREATING.iter().chain(&UNOPENED).chain(&ELSEWHERE).map(|(line, reason)| {
        assert!(!reason.is_empty());
        *line
    });
    let lines: Vec<_> = ON_EXISTING.into_iter().chain(creating).map(words).collect();
    for command in &commands {
        let listed = lines
            .iter()
            .any(|line| command.iter().zip(line).filter(|(a, b)| a == *b).count() == command.len());
        assert!(listed, "`ebbtide {}` is in none of the tables", command.join(" "));
    }
}

#[test]
fn a_command_for_another_engine_or_a_server_creates_nothing() {
    let folder = TempDir::new().unwrap();
    let store = format!("fjall:{}", folder.path().join("mistyped").display());
    for (line, _) in ELSEWHERE {
        let output =
            ebbtide(&words(line)).current_dir(&folder).env("EBBTIDE_STORE", &store).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{line}: {}", said(&output));
        assert!(output.stdout.is_empty(), "{line}: {}", said(&output));
    }
    assert_eq!(entries(folder.path()), 0);
}

fn entries(folder: &Path) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

/// Runs a command on a store, with JSON for those that read a value.
fn on(store: &str, line: &str) -> Output {
    let input = tempfile::tempfile().unwrap();
    (&input).write_all(b"{}").unwrap();
    (&input).rewind().unwrap();
    ebbtide(&words(line)).env("EBBTIDE_STORE", store).stdin(input).output().unwrap()
}

/// Runs every command of the table on `store`, and checks that each fails with status 2 and names `path`.
fn refused(store: &str, path: &Path) {
    for line in ON_EXISTING {
        let output = on(store, line);
        assert_eq!(output.status.code(), Some(2), "{line}: {}", said(&output));
        assert!(output.stdout.is_empty(), "{line}: {}", said(&output));
        assert!(said(&output).contains(path.to_str().unwrap()), "{line}: {}", said(&output));
        assert!(said(&output).contains("ebbtide serve"), "{line}: {}", said(&output));
    }
}

#[test]
fn a_mistyped_path_is_named_and_no_folder_appears() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("mistyped");
    refused(&format!("fjall:{}", path.display()), &path);
    refused(&format!("fjall:{}?cache_mib=64", path.display()), &path);
    assert_eq!(entries(folder.path()), 0);
}

#[test]
fn a_folder_without_a_store_stays_as_it_is() {
    let folder = TempDir::new().unwrap();
    refused(&format!("fjall:{}", folder.path().display()), folder.path());
    assert_eq!(entries(folder.path()), 0);
    std::fs::write(folder.path().join("thesis.txt"), "words").unwrap();
    refused(&format!("fjall:{}", folder.path().display()), folder.path());
    assert_eq!(entries(folder.path()), 1);
}

#[test]
fn a_copy_or_backup_of_a_missing_store_creates_neither_side() {
    let folder = TempDir::new().unwrap();
    let (from, to) = (folder.path().join("mistyped"), folder.path().join("target"));
    let (from_url, to_url) = (format!("fjall:{}", from.display()), format!("fjall:{}", to.display()));
    for arguments in [
        &["backup", "--store", &from_url, to.to_str().unwrap()][..],
        &["copy", "--from", &from_url, "--to", &to_url],
    ] {
        let output = ebbtide(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", said(&output));
        assert!(said(&output).contains(from.to_str().unwrap()), "{arguments:?}: {}", said(&output));
    }
    assert_eq!(entries(folder.path()), 0);
}

#[test]
fn an_import_of_a_missing_file_creates_no_store() {
    let folder = TempDir::new().unwrap();
    let store = format!("fjall:{}", folder.path().join("data").display());
    let file = folder.path().join("missing.jsonl");
    let arguments = ["import", "--store", &store, "--scope", "global", file.to_str().unwrap()];
    let output = ebbtide(&arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("missing.jsonl"), "{}", said(&output));
    assert_eq!(entries(folder.path()), 0);
}

#[test]
fn a_dry_import_reads_an_existing_store_only() {
    let folder = TempDir::new().unwrap();
    let store = format!("fjall:{}", folder.path().join("data").display());
    let arguments = ["import", "--store", &store, "--scope", "global", "--dry-run", "/dev/null"];
    let output = ebbtide(&arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert_eq!(entries(folder.path()), 0);
}

#[test]
fn a_store_is_created_by_a_command_that_writes_and_its_keyring_stays_after_reading() {
    let folder = TempDir::new().unwrap();
    let data = folder.path().join("data");
    let store = format!("fjall:{}", data.display());
    let create = ["key", "create", "--store", &store, "--scope", "global", "--role", "reader"];
    let created = ebbtide(&create).output().unwrap();
    assert!(created.status.success(), "{}", said(&created));
    let keyring = std::fs::read(data.join("keyring.json")).unwrap();
    for line in ON_EXISTING.iter().filter(|line| !line.starts_with("verify") && !line.starts_with("keyring"))
    {
        let output = on(&store, line);
        assert_ne!(output.status.code(), Some(2), "{line}: {}", said(&output));
    }
    assert_eq!(std::fs::read(data.join("keyring.json")).unwrap(), keyring);
    assert!(!data.join("root.key").exists());
}

#[test]
fn a_missing_keyring_is_named_and_not_created() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("keyring.json");
    for change in [&["list"][..], &["add"], &["activate", "00000000"], &["retire", "00000000"]] {
        let output = ebbtide(&["keyring"]).args(change).env("EBBTIDE_KEYRING", &file).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{change:?}: {}", said(&output));
        assert!(said(&output).contains(file.to_str().unwrap()), "{change:?}: {}", said(&output));
    }
    assert_eq!(entries(folder.path()), 0);
}
