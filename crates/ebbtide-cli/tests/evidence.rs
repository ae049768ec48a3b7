//! Keyring, restore, import and export with the real binary on an embedded store.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/server.rs"]
mod server;

use std::path::Path;

use serde_json::{Value, json};
use server::{Server, ebbtide, said, until};

fn done(arguments: &[&str]) -> String {
    let output = ebbtide(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", said(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn refused(arguments: &[&str]) -> String {
    let output = ebbtide(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", said(&output));
    said(&output)
}

fn keyring(folder: &Path, arguments: &[&str]) -> Vec<String> {
    let file = folder.join("data/keyring.json").display().to_string();
    let mut all = vec!["keyring".to_owned(), "--keyring".to_owned(), file];
    all.extend(arguments.iter().map(|&argument| argument.to_owned()));
    all
}

fn strs(all: &[String]) -> Vec<&str> {
    all.iter().map(String::as_str).collect()
}

fn stop(mut server: Server) {
    server.signal("-TERM");
    server.wait();
}

#[test]
fn a_running_server_follows_its_keyring() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_in(folder.path(), &[]);
    let grant = server.post("/v1/grants", r#"{"client_id": "app", "subject": "alice"}"#).ok(201);
    let client = r#"{"client_id": "app", "metadata": {"a": 1}}"#;
    let secret = server.post("/v1/clients", client).ok(201)["client_secret"].clone();
    let old = server.get("/readyz").ok(200)["keyring"]["active"].as_str().unwrap().to_owned();
    done(&strs(&keyring(folder.path(), &["add"])));
    server.signal("-HUP");
    let active = || server.get("/readyz").ok(200)["keyring"]["active"].as_str().unwrap().to_owned();
    assert!(until(|| active() != old), "the server reads the file again");
    let log = server.get("/v1/audit?action=keyring").ok(200);
    assert_eq!(log["items"].as_array().unwrap().len(), 1, "a change of keys is in the audit log: {log}");
    stop(server);

    // Nothing is retired that is in use. A reseal moves the client; the refresh token moves with its rotation.
    let store = format!("fjall:{}", folder.path().join("data").display());
    let retire = keyring(folder.path(), &["retire", &old, "--store", &store]);
    assert!(refused(&strs(&retire)).contains("in use"));
    done(&strs(&keyring(folder.path(), &["reseal", "--store", &store])));
    assert!(refused(&strs(&retire)).contains("grants"), "a refresh token is derived with it");
    let server = Server::start_in(folder.path(), &[]);
    let rotate = json!({"refresh_token": grant["refresh_token"], "client_id": "app"}).to_string();
    let rotated = server.post("/v1/grants/rotate", &rotate).ok(200);
    stop(server);
    done(&strs(&retire));
    let server = Server::start_in(folder.path(), &[]);
    let verify = json!({"client_secret": secret}).to_string();
    server.post("/v1/clients/app/verify", &verify).ok(200);
    let rotate = json!({"refresh_token": rotated["refresh_token"], "client_id": "app"}).to_string();
    server.post("/v1/grants/rotate", &rotate).ok(200);
    let shown: Value =
        serde_json::from_str(&done(&strs(&keyring(folder.path(), &["show", "--json"])))).unwrap();
    assert!(shown["keys"].as_array().unwrap().iter().all(|key| key["id"] != json!(old)), "{shown}");
    stop(server);

    // A store whose keyring is gone does not get another one.
    std::fs::remove_file(folder.path().join("data/keyring.json")).unwrap();
    assert!(refused(&["serve", "--store", &store]).contains("missing"));
    assert!(!folder.path().join("data/keyring.json").exists());
}

#[test]
fn a_restored_backup_is_fenced_by_one_command() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_in(folder.path(), &[]);
    let issue = r#"{"client_id": "app", "subject": "alice", "redirect_uri": "https://app/cb"}"#;
    let code = server.post("/v1/codes", issue).ok(201)["code"].clone();
    let grant = server.post("/v1/grants", r#"{"client_id": "app", "subject": "alice"}"#).ok(201);
    let admin = server.post("/v1/keys", r#"{"scope": "global", "role": "admin"}"#).ok(201);
    stop(server);
    let store = format!("fjall:{}", folder.path().join("data").display());
    let place = tempfile::tempdir().unwrap();
    let copy = place.path().join("data");
    done(&["backup", "--store", &store, copy.to_str().unwrap()]);

    let server = Server::start_in(folder.path(), &[]);
    let redeem = json!({"client_id": "app", "code": code, "redirect_uri": "https://app/cb"}).to_string();
    server.post("/v1/codes/redeem", &redeem).ok(200);
    server.client().call("DELETE", &format!("/v1/keys/{}", admin["id"].as_str().unwrap()), &[], "");
    stop(server);
    let log = folder.path().join("audit.jsonl").display().to_string();
    done(&["audit", "export", "--store", &store, "--scope", "global", "--out", &log]);
    let lines = std::fs::read_to_string(&log).unwrap();
    assert!(lines.lines().all(|line| line.contains(r#""scope":"global""#)), "{lines}");

    let told = done(&["restore", copy.to_str().unwrap(), "--audit", &log]);
    assert!(told.contains("1 revocations repeated"), "{told}");
    for file in ["root.key", "keyring.json"] {
        std::fs::copy(folder.path().join("data").join(file), copy.join(file)).unwrap();
    }
    let server = Server::start_in(place.path(), &[]);
    server.post("/v1/codes/redeem", &redeem).refused(409, "reused");
    let rotate = json!({"refresh_token": grant["refresh_token"], "client_id": "app"}).to_string();
    server.post("/v1/grants/rotate", &rotate).refused(410, "expired");
    server.post("/v1/replays/check", r#"{"namespace": "dpop", "jti": "j"}"#).refused(503, "unavailable");
    let key = admin["key"].as_str().unwrap();
    let mut revoked = server::Client::new(server.address, key);
    revoked.call("GET", "/v1/stats", &[], "").refused(401, "unauthorized");
    let log = server.get("/v1/audit").ok(200);
    assert!(log["items"].as_array().unwrap().iter().any(|entry| entry["action"] == "restore"), "{log}");
    stop(server);
}

#[test]
fn records_of_a_scope_are_exported_and_imported_into_another() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_in(folder.path(), &[]);
    let scope = [("Ebbtide-Scope", "tenant:acme"), ("Content-Type", "application/json")];
    let mut client = server.client();
    let put =
        client.call("PUT", "/v1/attributes/alice/profile/name", &scope, r#"{"data": {"given": "Alice"}}"#);
    assert!(put.status < 300, "{}", put.text);
    let approval = r#"{"identity": "alice", "resource": "doc", "action": "GET", "granted_by": "admin", "ttl_seconds": 600}"#;
    assert!(client.call("PUT", "/v1/approvals", &scope, approval).status < 300);
    stop(server);
    let store = format!("fjall:{}", folder.path().join("data").display());
    let lines = done(&["export", "--store", &store, "--scope", "tenant:acme", "--below"]);
    assert_eq!(lines.lines().count(), 2, "{lines}");
    let file = folder.path().join("acme.jsonl");
    std::fs::write(&file, &lines).unwrap();
    let file = file.to_str().unwrap();
    let foreign = ebbtide(&["import", "--store", &store, "--scope", "tenant:beta", file]).output().unwrap();
    assert_eq!(foreign.status.code(), Some(1), "{}", said(&foreign));
    let told = done(&["import", "--store", &store, "--scope-map", "tenant:acme=tenant:beta", file]);
    assert!(told.starts_with("wrote 1 approvals and 0 relationships and 1 other records"), "{told}");
    let strict = folder.path().join("strict.jsonl");
    let bad = [
        r#"{"identity": "a", "resource": "r", "action": "x", "granted_by": "b", "ttl_secnds": 60}"#,
        r#"{"identity": "a", "resource": "r", "action": "x", "granted_by": "b", "cap_at": 1700000000000}"#,
        r#"{"identity": "a", "resource": "r", "action": "x", "granted_by": "b", "sliding_ttl_ms": 60000}"#,
        r#"{"owner": "a", "bucket": "b", "name": "n"}"#,
    ];
    std::fs::write(&strict, bad.join("\n")).unwrap();
    let strict = ebbtide(&["import", "--store", &store, "--scope", "tenant:beta", strict.to_str().unwrap()]);
    let strict = { strict }.output().unwrap();
    assert_eq!(strict.status.code(), Some(1), "{}", said(&strict));
    assert!(said(&strict).contains("4 lines skipped"), "{}", said(&strict));
    let server = Server::start_in(folder.path(), &[]);
    let scope = [("Ebbtide-Scope", "tenant:beta")];
    let found = server.client().call("GET", "/v1/attributes/alice/profile/name", &scope, "").ok(200);
    assert_eq!(found["data"], json!({"given": "Alice"}), "{found}");
    let log = server.get("/v1/audit?scope=tenant:beta&action=import").ok(200);
    assert!(log["items"].as_array().unwrap().len() >= 2, "{log}");
    stop(server);
}

#[test]
fn a_root_key_with_white_space_is_an_error_and_two_overlap() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_in(folder.path(), &[]);
    let old = server.key.clone();
    stop(server);
    let file = folder.path().join("data/root.key");
    let store = format!("fjall:{}", folder.path().join("data").display());
    std::fs::write(&file, format!("{old} \n")).unwrap();
    assert!(refused(&["serve", "--store", &store]).contains("white space"));
    let new = "ebk_another-root-key-of-some-length";
    std::fs::write(&file, format!("{new}\n{old}\n")).unwrap();
    let server = Server::start_in(folder.path(), &[]);
    for key in [new, &old] {
        server::Client::new(server.address, key).call("GET", "/v1/stats", &[], "").ok(200);
    }
    stop(server);
}
