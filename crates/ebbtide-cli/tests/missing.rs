//! A missing store or keyring: commands that work on existing data report it and create nothing.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/server.rs"]
mod server;

use std::path::Path;

use server::{ebbtide, said};
use tempfile::TempDir;

/// Commands that read or change an existing store.
const ON_EXISTING: [&[&str]; 16] = [
    &["stats"],
    &["stats", "--json"],
    &["verify", "--filter", "expiry::"],
    &["export", "--scope", "global"],
    &["audit", "list", "--scope", "global"],
    &["audit", "verify", "--scope", "global", "--below"],
    &["scope", "list", "--scope", "global"],
    &["scope", "stats", "--scope", "global"],
    &["scope", "delete", "--scope", "global", "--yes"],
    &["explain", "--scope", "global", "client", "app"],
    &["clock", "show"],
    &["clock", "accept"],
    &["key", "list", "--scope", "global"],
    &["key", "revoke", "--yes", "AAAAAAAAAAAAAAAAAAAAAGdsb2JhbA"],
    &["sweep"],
    &["sweep", "--dry-run"],
];

fn entries(folder: &Path) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

/// Runs every command of the table on `store`, and checks that each fails with status 2 and names `path`.
fn refused(store: &str, path: &Path) {
    for arguments in ON_EXISTING {
        let output = ebbtide(arguments).env("EBBTIDE_STORE", store).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", said(&output));
        assert!(output.stdout.is_empty(), "{arguments:?}: {}", said(&output));
        assert!(said(&output).contains(path.to_str().unwrap()), "{arguments:?}: {}", said(&output));
        assert!(said(&output).contains("ebbtide serve"), "{arguments:?}: {}", said(&output));
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
    for arguments in ON_EXISTING.iter().filter(|arguments| arguments[0] != "verify") {
        let output = ebbtide(arguments).env("EBBTIDE_STORE", &store).output().unwrap();
        assert_ne!(output.status.code(), Some(2), "{arguments:?}: {}", said(&output));
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
