//! Keyring, restore, import and export with the real binary on an embedded store.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/server.rs"]
mod server;

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use ebbtide::model::key::Prefix;
use ebbtide::{AdminExt as _, Clock as _, Kind, SystemClock};
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
    let entries = || server.get("/v1/audit?action=keyring").ok(200)["items"].as_array().unwrap().len();
    assert!(until(|| entries() == 1), "a change of keys is in the audit log");
    // Also without a signal.
    done(&strs(&keyring(folder.path(), &["add", "--standby"])));
    let keys = || server.get("/readyz").ok(200)["keyring"]["keys"].as_array().unwrap().len();
    assert!(until(|| keys() == 3), "a changed file is read again");
    assert!(until(|| entries() == 2), "and the change is in the audit log");
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

/// Removes what `prefix` has from a store that no process has open, as somebody with the files can.
fn erase(store: &str, prefix: &Prefix) -> u64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let engine = ebbtide::open_engine(store).await.unwrap();
        engine.erase_all(prefix, SystemClock.now()).await.unwrap()
    })
}

#[test]
fn entries_of_commands_are_not_removed_unnoticed() {
    let folder = tempfile::tempdir().unwrap();
    stop(Server::start_in(folder.path(), &[]));
    let store = format!("fjall:{}", folder.path().join("data").display());
    let at = ["--store", store.as_str(), "--scope", "tenant:acme"];
    let command = |first: &[&str], rest: &[&str]| done(&[first, &at, rest].concat());
    command(&["approval", "grant"], &["alice", "doc", "GET", "--ttl", "1h"]);
    command(&["approval", "revoke"], &["alice", "doc", "GET"]);
    command(&["scope", "delete"], &["--yes"]);
    let verify =
        |scope: &str| ebbtide(&["audit", "verify", "--store", &store, "--scope", scope]).output().unwrap();
    assert!(said(&verify("tenant:acme")).contains("is whole: 4 entries"), "{}", said(&verify("tenant:acme")));
    let id = done(&strs(&keyring(folder.path(), &["add", "--standby"])));
    let id = id.split_whitespace().nth(3).unwrap().trim_end_matches(',').to_owned();
    done(&strs(&keyring(folder.path(), &["activate", &id, "--store", &store])));
    assert!(verify("global").status.success(), "{}", said(&verify("global")));

    assert!(erase(&store, &Prefix::kind_wide(Kind::Audit)) > 0);
    for scope in ["tenant:acme", "global"] {
        let broken = verify(scope);
        assert_eq!(broken.status.code(), Some(1), "{scope}: {}", said(&broken));
        assert!(said(&broken).contains("is missing"), "{}", said(&broken));
    }
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
        r#"{"identity": "a", "resource": "r", "action": "x", "granted_by": "b", "ttl_seconds": 60, "expires_at": 4102444800000}"#,
    ];
    std::fs::write(&strict, bad.join("\n")).unwrap();
    let strict = ebbtide(&["import", "--store", &store, "--scope", "tenant:beta", strict.to_str().unwrap()]);
    let strict = { strict }.output().unwrap();
    assert_eq!(strict.status.code(), Some(1), "{}", said(&strict));
    assert!(said(&strict).contains("5 lines skipped"), "{}", said(&strict));
    let server = Server::start_in(folder.path(), &[]);
    let scope = [("Ebbtide-Scope", "tenant:beta")];
    let found = server.client().call("GET", "/v1/attributes/alice/profile/name", &scope, "").ok(200);
    assert_eq!(found["data"], json!({"given": "Alice"}), "{found}");
    let log = server.get("/v1/audit?scope=tenant:beta&action=import").ok(200);
    assert!(log["items"].as_array().unwrap().len() >= 2, "{log}");
    stop(server);
}

#[test]
fn a_copy_names_the_keyring_that_it_needs() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_in(folder.path(), &[]);
    server.post("/v1/grants", r#"{"client_id": "app", "subject": "alice"}"#).ok(201);
    let active = server.get("/readyz").ok(200)["keyring"]["active"].as_str().unwrap().to_owned();
    stop(server);
    let url = |name: &str| format!("fjall:{}", folder.path().join(name).display());
    let told = done(&["copy", "--from", &url("data"), "--to", &url("copy")]);
    let file = folder.path().join("data/keyring.json").display().to_string();
    assert!(told.contains(&file) && told.contains(&active), "{told}");
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
    // With the flag: a file each, or a file with a line each.
    let (first, second) = (folder.path().join("new.key"), folder.path().join("old.key"));
    for (path, key) in [(&first, new), (&second, old.as_str())] {
        std::fs::write(path, format!("{key}\n")).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    std::fs::write(&file, format!("{old}\n")).unwrap();
    let two = format!("{},{}", first.display(), second.display());
    let one = first.display().to_string();
    for (files, old_status) in [(two, 200), (one, 401)] {
        let server = Server::start_in(folder.path(), &["--root-key-file", &files]);
        let status =
            |key: &str| server::Client::new(server.address, key).call("GET", "/v1/stats", &[], "").status;
        assert_eq!((status(new), status(&old)), (200, old_status), "{files}");
        stop(server);
    }
    std::fs::set_permissions(&first, std::fs::Permissions::from_mode(0o644)).unwrap();
    let one = first.display().to_string();
    assert!(refused(&["serve", "--store", &store, "--root-key-file", &one]).contains("0600"));
    std::fs::write(&file, format!("{new}\n{old}\n")).unwrap();
    let server = Server::start_in(folder.path(), &[]);
    for key in [new, &old] {
        server::Client::new(server.address, key).call("GET", "/v1/stats", &[], "").ok(200);
    }
    stop(server);
}

/// `EBBTIDE_TEST_RESEAL=1000000` is for a long look.
#[test]
fn a_reseal_that_is_killed_is_resumed() {
    let long: Option<usize> = std::env::var("EBBTIDE_TEST_RESEAL").ok().map(|number| number.parse().unwrap());
    let records = long.unwrap_or(3_000);
    let folder = tempfile::tempdir().unwrap();
    stop(Server::start_in(folder.path(), &[]));
    let store = format!("fjall:{}", folder.path().join("data").display());
    let line = |number| json!({"owner": format!("o{number}"), "bucket": "b", "name": "n", "data": number});
    let lines: Vec<_> = (0..records).map(|number| line(number).to_string()).collect();
    let file = folder.path().join("lines.jsonl");
    std::fs::write(&file, lines.join("\n")).unwrap();
    done(&["import", "--store", &store, "--scope", "tenant:acme", file.to_str().unwrap()]);
    let shown = |of: &str| -> Value {
        let shown = done(&strs(&keyring(folder.path(), &["show", "--json"])));
        serde_json::from_str::<Value>(&shown).unwrap()[of].clone()
    };
    let old = shown("active");
    done(&strs(&keyring(folder.path(), &["add"])));
    assert_ne!(shown("active"), old);
    let reseal = keyring(folder.path(), &["reseal", "--store", &store]);
    // Killed wherever it has come to.
    let pause = std::time::Duration::from_millis(if long.is_some() { 4_000 } else { 150 });
    for kill in 1..=3 {
        let mut process = ebbtide(&strs(&reseal)).spawn().unwrap();
        std::thread::sleep(pause * kill);
        let _ = process.kill();
        process.wait().unwrap();
    }
    let output = ebbtide(&strs(&reseal)).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    println!("{}", said(&output).trim());
    assert!(long.is_none() || said(&output).contains("resuming after"), "{}", said(&output));
    let server = Server::start_in(folder.path(), &[]);
    let scope = [("Ebbtide-Scope", "tenant:acme")];
    let mut client = server.client();
    for number in (0..records).step_by((records / 100).max(1)) {
        let found = client.call("GET", &format!("/v1/attributes/o{number}/b/n"), &scope, "").ok(200);
        assert_eq!(found["data"], json!(number), "{found}");
    }
    stop(server);
}

/// Files of the store, of a backup and of an export, whatever the umask of the caller.
#[test]
fn every_file_is_for_its_owner_alone() {
    fn modes(path: &Path, wrong: &mut Vec<String>) {
        let mode = path.metadata().unwrap().permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            wrong.push(format!("{mode:o} {}", path.display()));
        }
        if path.is_dir() {
            for entry in std::fs::read_dir(path).unwrap() {
                modes(&entry.unwrap().path(), wrong);
            }
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_in(folder.path(), &[]);
    server.post("/v1/grants", r#"{"client_id": "app", "subject": "alice"}"#).ok(201);
    let mut wrong = Vec::new();
    modes(&folder.path().join("data"), &mut wrong);
    stop(server);
    let store = format!("fjall:{}", folder.path().join("data").display());
    let path = |name: &str| folder.path().join(name).display().to_string();
    done(&["backup", "--store", &store, &path("backup")]);
    done(&["audit", "export", "--store", &store, "--scope", "global", "--out", &path("audit.jsonl")]);
    for name in ["data", "backup", "audit.jsonl"] {
        modes(&folder.path().join(name), &mut wrong);
    }
    assert_eq!(wrong, [""; 0]);
}
