//! Damage of an embedded store, as an operator meets it: the server does not start, and `ebbtide doctor` says why.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/server.rs"]
mod server;

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;
use server::{Server, ebbtide, proof, said};

/// A store in which proofs were used, before and after a restart.
fn used(folder: &Path) {
    for round in 0..2 {
        let mut server = Server::start_in(folder, &[]);
        for number in 0..40 {
            server.post("/v1/replays/check", &proof(&format!("{round}-{number}"))).ok(200);
        }
        server.signal("-TERM");
        assert!(server.wait().success());
    }
}

fn url(folder: &Path) -> String {
    format!("fjall:{}", folder.join("data").display())
}

fn doctor(folder: &Path, arguments: &[&str]) -> Output {
    ebbtide(&["doctor", "--store", &url(folder)]).args(arguments).output().unwrap()
}

fn segments(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder.join("data/log")).unwrap().map(|entry| entry.unwrap().path());
    let mut segments: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|ending| ending == "log")).collect();
    segments.sort_unstable();
    segments
}

fn serves(folder: &Path) -> Output {
    ebbtide(&["serve", "--listen", "127.0.0.1:0", "--store", &url(folder)]).output().unwrap()
}

#[test]
fn a_whole_store_is_said_to_be_whole_and_a_lost_group_is_found() {
    let folder = tempfile::tempdir().unwrap();
    used(folder.path());
    let output = doctor(folder.path(), &[]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(said(&output).contains("nothing is damaged"), "{}", said(&output));
    let output = doctor(folder.path(), &["--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let last = report["last_sequence"].as_u64().unwrap();
    assert!(last > 1 && report["groups"].as_u64().unwrap() > 1, "{report}");
    assert_eq!(report["damage"], serde_json::json!([]));
    let expected = doctor(folder.path(), &["--expect", &last.to_string()]);
    assert_eq!(expected.status.code(), Some(0), "{}", said(&expected));
    let lost = doctor(folder.path(), &["--expect", &(last + 1).to_string()]);
    assert_eq!(lost.status.code(), Some(1), "{}", said(&lost));
    assert!(said(&lost).contains("the disk lost"), "{}", said(&lost));
}

#[test]
fn a_flipped_bit_is_named_with_segment_and_group_and_nothing_serves() {
    let folder = tempfile::tempdir().unwrap();
    used(folder.path());
    let segment = segments(folder.path())[0].clone();
    let name = segment.file_name().unwrap().to_str().unwrap().to_owned();
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes[4_096 + 200] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
    for _ in 0..2 {
        let served = serves(folder.path());
        assert_eq!(served.status.code(), Some(2), "{}", said(&served));
        assert!(
            said(&served).contains(&name) && said(&served).contains("damaged at group "),
            "{}",
            said(&served)
        );
    }
    let output = doctor(folder.path(), &["--json"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let damage = report["damage"].as_array().unwrap();
    assert!(damage.iter().any(|damage| damage["place"] == name.as_str()), "{report}");
}

#[test]
fn a_store_with_a_missing_part_does_not_begin_anew() {
    for lost in ["log/manifest", "log", "cold", "FORMAT", "segment"] {
        let folder = tempfile::tempdir().unwrap();
        used(folder.path());
        let path = match lost {
            "segment" => segments(folder.path())[0].clone(),
            lost => folder.path().join("data").join(lost),
        };
        if path.is_dir() {
            std::fs::remove_dir_all(path).unwrap();
        } else {
            std::fs::remove_file(path).unwrap();
        }
        let served = serves(folder.path());
        assert_eq!(served.status.code(), Some(2), "{lost}: {}", said(&served));
        assert!(said(&served).contains("missing"), "{lost}: {}", said(&served));
        let output = doctor(folder.path(), &[]);
        assert_eq!(output.status.code(), Some(1), "{lost}: {}", said(&output));
        assert!(said(&output).contains("missing"), "{lost}: {}", said(&output));
    }
}

#[test]
fn a_keyring_that_cannot_be_read_is_damage_and_a_missing_one_is_said_to_be_missing() {
    let folder = tempfile::tempdir().unwrap();
    used(folder.path());
    let (keyring, elsewhere) = (folder.path().join("data/keyring.json"), folder.path().join("keys.json"));
    std::fs::copy(&keyring, &elsewhere).unwrap();
    let named = |arguments: &[&str], file: &Path| {
        let mut command = ebbtide(&["doctor", "--store", &url(folder.path())]);
        command.args(arguments).env("EBBTIDE_KEYRING", file).output().unwrap()
    };
    let text = std::fs::read_to_string(&keyring).unwrap();
    for broken in ["", &text[..text.len() / 2], text.replace("\"secret\"", "\"secrets\"").as_str()] {
        std::fs::write(&keyring, broken).unwrap();
        let served = serves(folder.path());
        assert_eq!(served.status.code(), Some(2), "{}", said(&served));
        let output = doctor(folder.path(), &[]);
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        let text = said(&output);
        assert!(text.contains("damaged: keyring.json: ") && text.contains("at line "), "{text}");
        assert!(!text.contains("nothing is damaged"), "{text}");
        let report: Value = serde_json::from_slice(&doctor(folder.path(), &["--json"]).stdout).unwrap();
        assert_eq!(report["damage"][0]["place"], "keyring.json", "{report}");
        let output = named(&[], &elsewhere);
        assert_eq!(output.status.code(), Some(0), "the keyring is elsewhere: {}", said(&output));
    }
    std::fs::remove_file(&keyring).unwrap();
    let output = doctor(folder.path(), &[]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(said(&output).contains("note: there is no keyring beside the data"), "{}", said(&output));
    let report: Value = serde_json::from_slice(&doctor(folder.path(), &["--json"]).stdout).unwrap();
    assert_eq!((&report["damage"], report["notes"].as_array().unwrap().len()), (&Value::Array(vec![]), 1));
    let output = named(&["--json"], &elsewhere);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["notes"], Value::Array(vec![]), "{report}");
    let output = named(&[], &folder.path().join("nowhere.json"));
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("there is no keyring at this path"), "{}", said(&output));
}

/// Damages one group in the middle of the second segment.
fn damage(folder: &Path) {
    let path = segments(folder)[1].clone();
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[20 * 4096 + 60] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn what_is_readable_of_a_damaged_store_is_salvaged_and_its_evidence_counts_as_used() {
    let folder = tempfile::tempdir().unwrap();
    let code = {
        let mut server = Server::start_in(folder.path(), &[]);
        let code = server.post("/v1/codes", r#"{"client_id":"app","subject":"alice"}"#).ok(201);
        let name = r#"{"data":"Alice"}"#;
        let put = server.client().call("PUT", "/v1/attributes/alice/profile/name", &[], name);
        assert!(put.status < 300, "{}", put.status);
        server.signal("-TERM");
        assert!(server.wait().success());
        code["code"].as_str().unwrap().to_owned()
    };
    used(folder.path());
    damage(folder.path());
    assert_eq!(serves(folder.path()).status.code(), Some(2), "a damaged store does not open");
    let target = folder.path().join("rescued/data");
    std::fs::create_dir(folder.path().join("rescued")).unwrap();
    let salvaged = doctor(folder.path(), &["--salvage", target.to_str().unwrap(), "--json"]);
    assert_eq!(salvaged.status.code(), Some(1), "a group is missing from the copy: {}", said(&salvaged));
    let report: Value = serde_json::from_slice(&salvaged.stdout).unwrap();
    assert!(!report["damage"].as_array().unwrap().is_empty(), "{report}");
    assert!(!report["salvage"]["lost"].as_array().unwrap().is_empty(), "{report}");
    assert!(report["salvage"]["records"]["replays"].as_u64().unwrap() > 70, "{report}");
    let again = doctor(folder.path(), &["--salvage", target.to_str().unwrap()]);
    assert_eq!(again.status.code(), Some(2), "nothing is written over: {}", said(&again));
    let rescued = folder.path().join("rescued");
    let whole = doctor(&rescued, &["--json"]);
    assert_eq!(whole.status.code(), Some(0), "{}", said(&whole));
    let report: Value = serde_json::from_slice(&whole.stdout).unwrap();
    assert_eq!(report["salvaged"], true, "{report}");
    assert_eq!(doctor(folder.path(), &[]).status.code(), Some(1), "the damaged store stays as it is");
    let server = Server::start_in(&rescued, &[]);
    for number in 0..40 {
        let answer = server.post("/v1/replays/check", &proof(&format!("0-{number}")));
        assert!([409, 503].contains(&answer.status), "{number} is fresh again");
    }
    server.post("/v1/replays/check", &proof("new")).refused(503, "unavailable");
    let redeemed = server.post("/v1/codes/redeem", &format!(r#"{{"code":"{code}","client_id":"app"}}"#));
    assert!(redeemed.status >= 400, "a code from before the fence works");
    let name = server.get("/v1/attributes/alice/profile/name").ok(200);
    assert_eq!(name["data"], "Alice", "{name}");
}

/// A backup is often looked at where nobody can write to it.
#[test]
fn a_store_on_a_read_only_file_system_is_examined_and_salvaged() {
    let isolated = |script: &str| {
        let mut command = std::process::Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c", script]);
        command
    };
    if !isolated("true").status().is_ok_and(|status| status.success()) {
        assert!(std::env::var_os("CI").is_none(), "a mount namespace is needed");
        eprintln!("skipped: a mount namespace is needed");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    used(folder.path());
    let (data, mounted) = (folder.path().join("data"), folder.path().join("mounted"));
    std::fs::create_dir(&mounted).unwrap();
    // A backup has no lock.
    std::fs::remove_file(data.join("LOCK")).unwrap();
    let target = folder.path().join("salvaged");
    let script = "mount -t tmpfs tmpfs \"$0\" && cp -a \"$1/.\" \"$0\" && mount -o remount,ro \"$0\" && shift && exec \"$@\"";
    let store = format!("fjall:{}", mounted.display());
    for arguments in [vec![], vec!["--salvage", target.to_str().unwrap()]] {
        let output = isolated(script)
            .args([&mounted, &data])
            .args([env!("CARGO_BIN_EXE_ebbtide"), "doctor", "--store", &store])
            .args(arguments)
            .env_remove("EBBTIDE_KEYRING")
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        assert!(said(&output).contains("nothing is damaged"), "{}", said(&output));
    }
    assert!(target.join("FORMAT").is_file());
}

/// The manifest can no longer be replaced, so that it is not known which one a crash would leave.
#[test]
fn a_store_that_has_failed_ends_the_server_with_a_status_and_a_last_line() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start_in(folder.path(), &[]);
    let manifest = folder.path().join("data/log/manifest");
    let kept = std::fs::read(&manifest).unwrap();
    std::fs::remove_file(&manifest).unwrap();
    std::fs::create_dir(&manifest).unwrap();
    let mut client = server.client();
    // The next segment is named in the manifest when half of this one is used.
    let mut acknowledged = 0;
    while let Some(answer) = client.try_post("/v1/replays/check", &proof(&acknowledged.to_string())) {
        if answer.status != 200 {
            break;
        }
        acknowledged += 1;
        assert!(acknowledged < 2_000, "the server goes on");
    }
    let status = server.wait();
    assert_eq!(status.code(), Some(2));
    let log = server.logged();
    assert!(log.trim_end().lines().last().unwrap().contains("a write to the store failed"), "{log}");
    // With the manifest back, what was acknowledged is there.
    std::fs::remove_dir(&manifest).unwrap();
    std::fs::write(&manifest, kept).unwrap();
    let server = Server::start_in(folder.path(), &[]);
    for number in 0..acknowledged {
        server.post("/v1/replays/check", &proof(&number.to_string())).refused(409, "replay");
    }
}
