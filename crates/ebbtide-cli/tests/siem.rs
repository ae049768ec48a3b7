//! `audit export` into a file that grows, as a collector of logs reads it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/server.rs"]
mod server;

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{Write as _, copy};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;
use server::{Server, ebbtide, said, until};

/// A fixed address in front of a server that is started again on another port.
fn relay(to: &Arc<Mutex<SocketAddr>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, to) = (listener.local_addr().unwrap(), Arc::clone(to));
    thread::spawn(move || {
        for client in listener.incoming() {
            // Without a server the connection is closed.
            let (client, Ok(node)) = (client.unwrap(), TcpStream::connect(*to.lock().unwrap())) else {
                continue;
            };
            for (mut from, mut to) in [
                (client.try_clone().unwrap(), node.try_clone().unwrap()),
                (node.try_clone().unwrap(), client.try_clone().unwrap()),
            ] {
                thread::spawn(move || {
                    let _ = copy(&mut from, &mut to);
                    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
                });
            }
        }
    });
    address
}

fn grant(server: &Server, scope: &str, resource: &str) {
    let body = format!(r#"{{"identity": "a", "resource": "{resource}", "action": "x", "granted_by": "b"}}"#);
    let headers = [("Ebbtide-Scope", scope), ("Content-Type", "application/json")];
    server.client().call("PUT", "/v1/approvals", &headers, &body).ok(200);
}

/// Resources that the entries of a file are about. Every line is an entry, and none is there twice.
fn exported(file: &Path) -> HashSet<String> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let (mut places, mut resources) = (HashSet::new(), HashSet::new());
    for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
        let entry: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(
            places.insert(format!("{} {} {}", entry["scope"], entry["chain"], entry["sequence"])),
            "{line}"
        );
        resources.extend(entry["target"][1].as_str().map(str::to_owned));
    }
    resources
}

struct Following(Child);

impl Following {
    fn start(arguments: &[&str], log: &Path) -> Self {
        Self(ebbtide(arguments).stderr(File::create(log).unwrap()).spawn().unwrap())
    }

    /// Ends it as an operator does.
    fn stop(mut self) {
        assert!(Command::new("kill").arg(self.0.id().to_string()).status().unwrap().success());
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_export_follows_a_log_over_restarts_and_goes_on_in_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_in(folder.path(), &[]);
    let address = Arc::new(Mutex::new(server.address));
    let url = format!("http://{}", relay(&address));
    let key = folder.path().join("data/root.key").display().to_string();
    let (file, log) = (folder.path().join("audit.jsonl"), folder.path().join("export.log"));
    let out = file.display().to_string();
    let arguments = [
        "audit",
        "export",
        "--server",
        &url,
        "--key-file",
        &key,
        "--scope",
        "global",
        "--below",
        "--out",
        &out,
    ];
    let follow = [&arguments[..], &["--follow"]].concat();
    grant(&server, "tenant:acme", "one");
    let following = Following::start(&follow, &log);
    let has = |resource: &str| until(|| exported(&file).contains(resource));
    assert!(has("one"));
    for number in 0..50 {
        grant(&server, "tenant:acme", &format!("grows-{number}"));
    }
    assert!(has("grows-49"));

    // A server that is away is asked again.
    server.kill();
    let told = || std::fs::read_to_string(&log).unwrap();
    assert!(until(|| told().contains("trying again in")), "{}", told());
    let server = Server::start_in(folder.path(), &[]);
    *address.lock().unwrap() = server.address;
    grant(&server, "tenant:acme", "two");
    assert!(has("two"), "{}", told());
    following.stop();

    // Another run goes on behind a line that was cut off, and writes nothing twice.
    grant(&server, "tenant:acme", "three");
    let whole = std::fs::metadata(&file).unwrap().len();
    OpenOptions::new().append(true).open(&file).unwrap().write_all(br#"{"action":"gr"#).unwrap();
    let output = ebbtide(&arguments).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(exported(&file).len(), 53, "one, two, three, and fifty");
    assert!(std::fs::read_to_string(&file).unwrap().ends_with('\n'));
    assert!(std::fs::metadata(&file).unwrap().len() > whole);
    let before = std::fs::read(&file).unwrap();
    assert!(ebbtide(&arguments).output().unwrap().status.success());
    assert_eq!(std::fs::read(&file).unwrap(), before, "there is nothing new");

    // From a time on.
    let late = ["--from", "2100-01-01T00:00:00Z"];
    let arguments = ["audit", "export", "--server", &url, "--key-file", &key, "--scope", "tenant:acme"];
    let output = ebbtide(&[&arguments[..], &late].concat()).output().unwrap();
    assert!(output.status.success() && output.stdout.is_empty(), "{}", said(&output));
    let output = ebbtide(&[&arguments[..], &["--from", "0"]].concat()).output().unwrap();
    assert_eq!(output.stdout.split(|byte| *byte == b'\n').count(), 54, "a line each, and the end");
}
