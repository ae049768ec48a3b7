//! The command line on an embedded store.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use ebbtide::stores::approvals::Approval;
use ebbtide::stores::audit::AuditContext;
use ebbtide::{Reach, Scope, Stores};

fn ebbtide(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ebbtide")).args(arguments).env_remove("EBBTIDE_STORE").output().unwrap()
}

fn url(path: &Path) -> String {
    format!("fjall:{}", path.display())
}

/// Creates the store at `url`.
fn create(url: &str) {
    let created = ebbtide(&["key", "create", "--store", url, "--scope", "global", "--role", "reader"]);
    assert!(created.status.success(), "{}", said(&created));
}

fn said(output: &Output) -> String {
    let text = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    String::from_utf8(text).unwrap()
}

#[test]
fn verify_prints_a_line_per_case_and_a_summary() {
    let dir = tempfile::tempdir().unwrap();
    let url = url(dir.path());
    create(&url);
    let output = ebbtide(&["verify", "--store", &url, "--filter", "expiry::"]);
    assert!(output.status.success(), "{}", said(&output));
    let text = said(&output);
    assert!(text.contains("ok      expiry::get_ends_at_the_instant"), "{text}");
    assert!(text.contains("the contract is kept on fjall: 12 passed, 0 failed"), "{text}");
}

#[test]
fn verify_leaves_a_live_store_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let url = url(dir.path());
    create(&url);
    assert_eq!(ebbtide(&["clock", "accept", "--store", &url]).status.code(), Some(0));
    assert!(ebbtide(&["verify", "--store", &url, "--filter", "sweeps::"]).status.success());
    let clock = ebbtide(&["clock", "show", "--store", &url]);
    assert!(said(&clock).contains("agree"), "the clock of the suite is not the store's: {}", said(&clock));
}

#[test]
fn a_backup_can_be_verified() {
    let dir = tempfile::tempdir().unwrap();
    let (store, copy) = (dir.path().join("store"), dir.path().join("copy"));
    create(&url(&store));
    assert!(ebbtide(&["verify", "--store", &url(&store), "--filter", "conditions::put"]).status.success());
    let backup = ebbtide(&["backup", "--store", &url(&store), copy.to_str().unwrap()]);
    assert!(backup.status.success(), "{}", said(&backup));
    let verified = ebbtide(&["verify", "--store", &url(&copy), "--filter", "conditions::"]);
    assert!(verified.status.success(), "{}", said(&verified));
    let again = ebbtide(&["backup", "--store", &url(&store), copy.to_str().unwrap()]);
    assert_eq!(again.status.code(), Some(2));
    assert!(said(&again).contains("must be empty"), "{}", said(&again));
}

#[test]
fn a_backup_is_made_while_the_server_runs() {
    let dir = tempfile::tempdir().unwrap();
    let (store, copy) = (dir.path().join("store"), dir.path().join("copy"));
    let mut server = Command::new(env!("CARGO_BIN_EXE_ebbtide"))
        .args(["serve", "--listen", "127.0.0.1:0", "--store", &url(&store)])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("listening on http://127.0.0.1:"), "{line}");
    let backup = ebbtide(&["backup", "--store", &url(&store), copy.to_str().unwrap()]);
    let again = ebbtide(&["backup", "--store", &url(&store), copy.to_str().unwrap()]);
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(backup.status.success(), "{}", said(&backup));
    assert!(said(&again).contains("must be empty"), "{}", said(&again));
    let whole = ebbtide(&["doctor", "--store", &url(&copy)]);
    assert!(whole.status.success() && said(&whole).contains("nothing is damaged"), "{}", said(&whole));
    let verified = ebbtide(&["verify", "--store", &url(&copy), "--filter", "conditions::"]);
    assert!(verified.status.success(), "{}", said(&verified));
}

#[test]
fn a_store_that_cannot_be_opened_is_status_2_and_no_password_is_printed() {
    let output = ebbtide(&["verify", "--store", "mysql://root:hunter2@host"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("fjall:PATH") && !said(&output).contains("hunter2"), "{}", said(&output));
}

/// Writes attributes and approvals, and starts a deletion that ends after the attributes.
async fn half_deleted(url: &str, scope: &Scope) {
    let stores = Stores::for_tests(ebbtide::open_engine(url).await.unwrap());
    stores.attributes(scope).bucket("alice", "b").unwrap().set("a", serde_json::json!(1)).await.unwrap();
    for resource in ["one", "two"] {
        stores.approvals(scope).grant(&Approval::new("alice", resource, "GET", "admin")).await.unwrap();
    }
    let context = AuditContext::new("bob", "gone").unwrap();
    let reach = Reach::Exact(scope.clone());
    let mut deletion = stores.scopes(scope).delete(&reach, &context).await.unwrap();
    while deletion.removed().records.is_empty() {
        assert!(deletion.step().await.unwrap(), "there is more");
    }
    stores.approvals(scope).grant(&Approval::new("alice", "late", "GET", "admin")).await.unwrap();
}

#[test]
fn a_deletion_of_a_scope_is_resumed_or_started_again() {
    for (resume, told) in [(true, "resumed the deletion that began at"), (false, "3 records deleted")] {
        let dir = tempfile::tempdir().unwrap();
        let (url, scope) = (url(dir.path()), Scope::tenant("acme").unwrap());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(half_deleted(&url, &scope));
        let mut arguments = vec!["scope", "delete", "--store", &url, "--scope", "tenant:acme", "--yes"];
        arguments.extend(resume.then_some("--resume"));
        let deleted = ebbtide(&arguments);
        assert_eq!(deleted.status.code(), Some(0), "{}", said(&deleted));
        assert!(said(&deleted).contains(told), "{}", said(&deleted));
        // Includes the records that the first process deleted.
        assert_eq!(said(&deleted).contains("4 records deleted"), resume, "{}", said(&deleted));
        let log = said(&ebbtide(&["audit", "list", "--store", &url, "--scope", "tenant:acme"]));
        assert_eq!(log.contains("goes on, 1 records so far"), resume, "{log}");
        arguments.retain(|argument| *argument != "--resume");
        let again = said(&ebbtide(&arguments));
        assert!(again.contains("0 records deleted"), "{again}");
    }
}
