//! TLS and HTTP/2, with curl and with the client of this command.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/server.rs"]
mod server;

use std::path::{Path, PathBuf};
use std::process::Command;

use server::{Server, ebbtide, proof, said};

/// Writes a self-signed certificate for loopback, and its key.
fn certificate(folder: &Path, name: &str) -> (PathBuf, PathBuf) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let (certificate, key) = (folder.join(format!("{name}.pem")), folder.join(format!("{name}.key")));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    (certificate, key)
}

/// HTTP version and status, as curl prints them.
fn curl(server: &Server, flags: &[&str], body: &str) -> String {
    let output = Command::new("curl")
        .args([
            "--silent",
            "--show-error",
            "--output",
            "/dev/null",
            "--write-out",
            "%{http_version} %{http_code}",
        ])
        .args(flags)
        .args(["--header", &format!("Authorization: Bearer {}", server.key)])
        .args(["--header", "Content-Type: application/json", "--data", body])
        .arg(format!("{}/v1/replays/check", server.url()))
        .output()
        .expect("curl is installed");
    assert!(output.status.success(), "{}", said(&output));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn http_2_and_http_1_1_are_served_over_tls() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = certificate(folder.path(), "own");
    let (certificate, key) = (certificate.to_str().unwrap(), key.to_str().unwrap());
    let server = Server::start(&["--tls-cert", certificate, "--tls-key", key]);
    assert!(server.url().starts_with("https://127.0.0.1:"), "{}", server.listening);
    assert_eq!(curl(&server, &["--cacert", certificate, "--http2"], &proof("a")), "2 200");
    assert_eq!(curl(&server, &["--cacert", certificate, "--http1.1"], &proof("a")), "1.1 409");
    assert_eq!(
        curl(&server, &["--cacert", certificate, "--tlsv1.2", "--tls-max", "1.2"], &proof("b")),
        "2 200"
    );

    let asked = |arguments: &[&str]| {
        let url = server.url();
        let all = [&["stats", "--json", "--server", url.as_str()], arguments].concat();
        ebbtide(&all).env("EBBTIDE_API_KEY", &server.key).output().unwrap()
    };
    let trusted = asked(&["--ca-file", certificate]);
    assert!(trusted.status.success(), "{}", said(&trusted));
    assert!(said(&trusted).contains("replays"), "{}", said(&trusted));
    let stranger = asked(&[]);
    assert_eq!(
        stranger.status.code(),
        Some(2),
        "an unknown certificate authority is not trusted: {}",
        said(&stranger)
    );
    assert!(!said(&stranger).contains(&server.key));
    // A plain HTTP request gets no answer.
    assert!(server.client().try_post("/v1/replays/check", &proof("c")).is_none());
}

#[test]
fn http_2_is_served_with_prior_knowledge() {
    let server = Server::start(&[]);
    assert_eq!(curl(&server, &["--http2-prior-knowledge"], &proof("a")), "2 200");
    assert_eq!(curl(&server, &["--http2-prior-knowledge"], &proof("a")), "2 409");
    assert_eq!(curl(&server, &[], &proof("a")), "1.1 409");
}

#[test]
fn a_key_of_another_certificate_is_reported_with_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let (own, _) = certificate(folder.path(), "own");
    let (_, other) = certificate(folder.path(), "other");
    let (own, other) = (own.to_str().unwrap(), other.to_str().unwrap());
    let output = ebbtide(&["config", "check", "--store", "memory:", "--tls-cert", own, "--tls-key", other])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("other.key is not the key of"), "{}", said(&output));
    let missing =
        ebbtide(&["config", "check", "--store", "memory:", "--tls-cert", own, "--tls-key", "nowhere.key"])
            .output()
            .unwrap();
    assert!(said(&missing).contains("nowhere.key"), "{}", said(&missing));
}

/// Serial number of the certificate that a server presents, as curl prints it.
fn presented(server: &Server) -> String {
    let output = Command::new("curl")
        .args(["--silent", "--insecure", "--output", "/dev/null", "--write-out", "%{certs}"])
        .arg(format!("{}/healthz", server.url()))
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_hangup_loads_a_new_certificate_and_keeps_the_old_one_if_it_is_bad() {
    let folder = tempfile::tempdir().unwrap();
    let (path, key_path) = certificate(folder.path(), "own");
    let server =
        Server::start(&["--tls-cert", path.to_str().unwrap(), "--tls-key", key_path.to_str().unwrap()]);
    let first = presented(&server);
    assert!(first.contains("BEGIN CERTIFICATE"), "{first}");
    std::fs::write(&path, "no certificate").unwrap();
    server.signal("-HUP");
    server.logged_with(&["cannot reload"]);
    assert_eq!(presented(&server), first);
    certificate(folder.path(), "own");
    server.signal("-HUP");
    server.logged_with(&["reloaded the files"]);
    assert_ne!(presented(&server), first);
}

#[test]
fn with_an_authority_for_clients_a_client_needs_a_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let (own, own_key) = certificate(folder.path(), "own");
    let (client, client_key) = certificate(folder.path(), "client");
    let (other, other_key) = certificate(folder.path(), "other");
    let text = |path: &PathBuf| path.to_str().unwrap().to_owned();
    let server = Server::start(&[
        "--tls-cert",
        &text(&own),
        "--tls-key",
        &text(&own_key),
        "--tls-client-ca",
        &text(&client),
    ]);
    let status = |flags: &[&str]| {
        let output = Command::new("curl")
            .args(["--silent", "--insecure", "--output", "/dev/null", "--write-out", "%{http_code}"])
            .args(flags)
            .arg(format!("{}/healthz", server.url()))
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(status(&["--cert", &text(&client), "--key", &text(&client_key)]), "200");
    assert_eq!(status(&[]), "000", "no certificate");
    assert_eq!(status(&["--cert", &text(&other), "--key", &text(&other_key)]), "000", "another authority");
}
