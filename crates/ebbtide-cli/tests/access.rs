//! The commands `key`, `scope` and `explain`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Command, Output};

use serde_json::Value;

/// Runs commands on a store in a temporary folder.
struct Cli {
    store: String,
    _folder: tempfile::TempDir,
}

impl Cli {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { store: format!("fjall:{}", folder.path().join("data").display()), _folder: folder }
    }

    fn run(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ebbtide"));
        command.args(args).env("EBBTIDE_STORE", &self.store).env("USER", "tester").output().unwrap()
    }

    /// Runs a command that succeeds, and returns its output.
    fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.ok(args)).unwrap()
    }

    /// Runs a command that fails with this status, and returns its output.
    fn fails(&self, status: i32, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(output.status.code(), Some(status), "{args:?}");
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    }
}

#[test]
fn a_key_is_created_listed_and_revoked() {
    let cli = Cli::new();
    let key = cli.ok(&["key", "create", "--scope", "tenant:acme", "--role", "writer", "--ttl", "90d"]);
    assert!(
        key.starts_with("ebk_") && key.ends_with('\n') && key.lines().count() == 1,
        "the output is the key alone"
    );
    let made = cli.json(&["key", "create", "--scope", "tenant:acme/env:prod", "--role", "reader", "--json"]);
    let list = cli.ok(&["key", "list", "--scope", "tenant:acme"]);
    assert!(list.contains("writer") && !list.contains("reader"), "{list}");
    let below = cli.ok(&["key", "list", "--scope", "global", "--below", "--json"]);
    assert_eq!(below.lines().count(), 2);
    assert!(!below.contains(key.trim()) && !below.contains(made["key"].as_str().unwrap()), "{below}");
    let id = made["id"].as_str().unwrap();
    let told = cli.fails(2, &["key", "revoke", id]);
    assert!(told.contains("the reader of tenant:acme/env:prod") && told.contains("--yes"), "{told}");
    assert_eq!(
        cli.json(&["explain", "--scope", "tenant:acme/env:prod", "--json", "key", id])["state"],
        "live"
    );
    cli.ok(&["key", "revoke", "--yes", "--reason", "a test", id]);
    cli.fails(1, &["key", "revoke", "--yes", id]);
    let finding = cli.json(&["explain", "--scope", "tenant:acme/env:prod", "--json", "key", id]);
    assert_eq!((&finding["state"], &finding["history"][1]["actor"]), (&"revoked".into(), &"tester".into()));
    let told = cli.ok(&["explain", "--scope", "tenant:acme/env:prod", "key", id]);
    assert!(told.contains("api_keys in tenant:acme/env:prod: revoked") && told.contains("a test"), "{told}");
    for bad in
        [&["key", "create", "--scope", "tenant:a", "--role", "root"][..], &["key", "revoke", "nonsense"]]
    {
        cli.fails(2, bad);
    }
}

#[test]
fn a_scope_is_listed_counted_and_deleted() {
    let cli = Cli::new();
    for scope in ["tenant:acme", "tenant:acme/env:prod", "tenant:other"] {
        cli.ok(&["key", "create", "--scope", scope, "--role", "reader"]);
    }
    let list = cli.ok(&["scope", "list", "--scope", "global"]);
    assert!(list.contains("tenant:acme/env:prod") && list.contains("tenant:other"), "{list}");
    let stats = cli.json(&["scope", "stats", "--scope", "tenant:acme", "--below", "--json"]);
    assert_eq!(stats["tenant:acme/env:prod"]["api_keys"]["without_end"], 1);
    assert_eq!(stats.as_object().unwrap().len(), 2);
    assert!(cli.ok(&["scope", "stats", "--scope", "tenant:acme"]).contains("api_keys"));
    let told = cli.fails(2, &["scope", "delete", "--scope", "tenant:acme", "--below"]);
    assert!(told.contains("2 records of tenant:acme and all below it"), "{told}");
    let deleted = cli.json(&["scope", "delete", "--scope", "tenant:acme", "--yes", "--json"]);
    assert_eq!((&deleted["deleted"]["api_keys"], &deleted["below"]), (&1.into(), &false.into()));
    assert!(
        cli.ok(&["scope", "delete", "--scope", "tenant:acme", "--below", "--yes"]).contains("1 api_keys")
    );
    assert_eq!(cli.ok(&["key", "list", "--scope", "global", "--below", "--json"]).lines().count(), 1);
}

#[test]
fn an_unknown_record_has_status_1_and_an_invalid_one_status_2() {
    let cli = Cli::new();
    cli.ok(&["key", "create", "--scope", "global", "--role", "reader"]);
    let told = cli.fails(1, &["explain", "--scope", "global", "approval", "alice", "doc", "GET"]);
    assert!(told.contains("approvals in global: unknown"), "{told}");
    cli.fails(1, &["explain", "--scope", "global", "relationship", "a", "r", "b", "--type", "role"]);
    cli.fails(1, &["explain", "--scope", "global", "code"]);
    cli.fails(2, &["explain", "--scope", "global", "grant", "nonsense"]);
    cli.fails(2, &["explain", "--scope", "nonsense", "code"]);
}
