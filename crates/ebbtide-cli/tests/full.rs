//! A disk that is full: adds are refused in words, deletes and revocations are not, and space that comes back is used
//! without a restart. The disk is a small file system in memory, in a mount namespace of the test's own.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/server.rs"]
mod server;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use server::{Server, proof, until};

const INSIDE: &str = "EBBTIDE_TEST_SMALL_DISK";

/// Runs a test again in a namespace in which `folder` is a file system of 96 MiB.
fn on_a_small_disk(folder: &Path, test: &str) -> bool {
    let script = "mount -t tmpfs -o size=96m tmpfs \"$0\" && exec \"$@\"";
    let program = std::env::current_exe().unwrap();
    let status = Command::new("unshare")
        .args(["--map-root-user", "--mount", "sh", "-c", script])
        .args([folder, program.as_path()])
        .args(["--exact", test, "--nocapture"])
        .env(INSIDE, folder)
        .status();
    status.is_ok_and(|status| status.success())
}

fn can_mount() -> bool {
    let probe = Command::new("unshare").args(["--map-root-user", "--mount", "true"]).status();
    probe.is_ok_and(|status| status.success())
}

/// Folder on a small disk, inside of its namespace; outside of it none, and `test` has run there.
fn small_disk(test: &str) -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os(INSIDE) {
        return Some(folder.into());
    }
    if !can_mount() {
        assert!(std::env::var_os("CI").is_none(), "a mount namespace is needed");
        eprintln!("skipped: a mount namespace is needed");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    assert!(on_a_small_disk(folder.path(), test), "the test in the namespace fails");
    None
}

fn attribute(name: &str) -> String {
    format!("/v1/attributes/alice/notes/{name}")
}

#[test]
fn a_full_disk_refuses_adds_and_lets_authority_end() {
    let Some(folder) = small_disk("a_full_disk_refuses_adds_and_lets_authority_end") else { return };
    let folder = folder.as_path();
    let server = Server::start_in(folder, &[]);
    let mut client = server.client();
    client.post("/v1/replays/check", &proof("before")).ok(200);
    let grant = client.post("/v1/grants", r#"{"client_id":"app","subject":"alice"}"#).ok(201);
    let grant = format!("/v1/grants/{}", grant["grant_id"].as_str().unwrap());
    let put = |client: &mut server::Client, name: &str| {
        client.call("PUT", &attribute(name), &[], r#"{"data":"x"}"#).status
    };
    assert!(put(&mut client, "kept") < 300 && put(&mut client, "gone") < 300);
    // Once the server has a segment to spare, something else fills the disk to its end.
    let segments = || std::fs::read_dir(folder.join("data/log")).unwrap().count();
    assert!(until(|| segments() > 2), "the manifest, a segment, and one to spare");
    let filler = folder.join("filler");
    let mut file = std::fs::File::create(&filler).unwrap();
    while file.write_all(&[1; 8_192]).is_ok() {}
    drop(file);
    let mut number = 0;
    let is_refused = || {
        number += 1;
        server.post("/v1/replays/check", &proof(&format!("full-{number}"))).status == 503
    };
    assert!(until(is_refused), "adds are refused");
    let refused = client.post("/v1/replays/check", &proof("words")).refused(503, "unavailable");
    assert!(refused.text.contains("almost full"), "{}", refused.text);
    client.post("/v1/replays/check", &proof("before")).refused(409, "replay");
    // Authority can end, many times over.
    assert_eq!(client.call("DELETE", &grant, &[], "").status / 100, 2, "a grant cannot be revoked");
    assert_eq!(client.call("DELETE", &attribute("gone"), &[], "").status / 100, 2);
    for _ in 0..300 {
        assert!(put(&mut client, "kept") < 300, "what is there cannot be replaced");
    }
    assert_eq!(client.call("GET", "/healthz", &[], "").status, 200);
    // Space comes back, and is used without a restart.
    std::fs::remove_file(&filler).unwrap();
    let is_accepted = || server.post("/v1/replays/check", &proof("after")).status == 200;
    assert!(until(is_accepted), "adds are accepted again");
}

#[test]
fn a_store_that_fills_its_own_disk_keeps_what_revocations_need() {
    let Some(folder) = small_disk("a_store_that_fills_its_own_disk_keeps_what_revocations_need") else {
        return;
    };
    let server = Server::start_in(&folder, &[]);
    let mut client = server.client();
    let grant = client.post("/v1/grants", r#"{"client_id":"app","subject":"alice"}"#).ok(201);
    let grant = format!("/v1/grants/{}", grant["grant_id"].as_str().unwrap());
    // Several segments a second, with nothing between that looks at the disk.
    let fill = |writer: usize| {
        let mut client = server.client();
        let value = "x".repeat(60_000);
        (0..2_000).find_map(|number| {
            let put = format!(r#"{{"collection":"c","id":"{writer}-{number}","value":"{value}"}}"#);
            let answer = client.post("/v1/records/put", &put);
            (answer.status != 200).then_some((answer.status, answer.text))
        })
    };
    let refused: Vec<_> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4).map(|writer| scope.spawn(move || fill(writer))).collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    for refused in refused {
        let (status, text) = refused.expect("the disk is full");
        assert!(status == 503 && text.contains("almost full"), "{status}: {text}");
    }
    let delete = r#"{"collection":"c","id":"0-0"}"#;
    assert_eq!(client.post("/v1/records/delete", delete).status / 100, 2);
    assert_eq!(client.call("DELETE", &grant, &[], "").status / 100, 2, "a grant cannot be revoked");
}
