//! Commands with `--server`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/server.rs"]
mod server;

use serde_json::Value;
use server::{Server, ebbtide, proof, said};

struct Remote {
    server: Server,
}

impl Remote {
    fn run(&self, arguments: &[&str]) -> (i32, String) {
        let mut command = ebbtide(arguments);
        command.env("EBBTIDE_SERVER", self.server.url()).env("EBBTIDE_API_KEY", &self.server.key);
        let output = command.output().unwrap();
        (output.status.code().unwrap(), said(&output))
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let (code, text) = self.run(arguments);
        assert_eq!(code, 0, "{text}");
        serde_json::from_str(&text).unwrap()
    }
}

#[test]
fn commands_on_a_store_work_on_its_server() {
    let remote = Remote { server: Server::start(&[]) };
    assert_eq!(remote.server.post("/v1/replays/check", &proof("a")).status, 200);
    assert_eq!(remote.json(&["stats", "--json"])["kinds"]["replays"]["live"], 1);
    assert!(remote.run(&["stats"]).1.contains("replays"));

    let made = remote.json(&["key", "create", "--scope", "tenant:acme", "--role", "reader", "--json"]);
    let id = made["id"].as_str().unwrap();
    assert!(made["key"].as_str().unwrap().starts_with("ebk_"));
    let (code, listed) = remote.run(&["key", "list", "--scope", "global", "--below", "--json"]);
    assert_eq!((code, listed.lines().count()), (0, 1), "{listed}");
    assert!(remote.run(&["key", "list", "--scope", "tenant:acme"]).1.contains(id));
    assert_eq!(remote.json(&["explain", "--scope", "tenant:acme", "--json", "key", id])["state"], "live");

    assert_eq!(remote.run(&["key", "revoke", id]).0, 2, "only with --yes");
    assert_eq!(remote.run(&["key", "revoke", "--yes", "--actor", "bob", "--reason", "it leaked", id]).0, 0);
    assert_eq!(remote.run(&["key", "revoke", "--yes", id]).0, 1, "it is gone");
    let (code, log) = remote.run(&["audit", "list", "--scope", "tenant:acme"]);
    assert_eq!((code, log.lines().count()), (0, 2), "{log}");
    assert!(log.contains("bob") && log.contains("it leaked"), "{log}");

    let (code, verified) = remote.run(&["audit", "verify", "--scope", "global", "--below"]);
    assert_eq!(code, 0, "{verified}");
    assert!(verified.contains("the log of tenant:acme is whole: 2 entries\nhead "), "{verified}");
    let head = verified.split("head ").nth(1).unwrap().trim().to_owned();
    assert_eq!(remote.run(&["audit", "verify", "--scope", "tenant:acme", "--mark", &head]).0, 0);
    let forged = head.replace("@1:", "@91:").replace("@2:", "@92:");
    let (code, told) = remote.run(&["audit", "verify", "--scope", "tenant:acme", "--mark", &forged]);
    assert!(code == 1 && told.contains("the log of tenant:acme is NOT whole: entry 9"), "{told}");

    let (code, listed) = remote.run(&["scope", "list", "--scope", "global"]);
    assert_eq!((code, listed.lines().count()), (0, 3), "{listed}");
    assert!(listed.contains("  global\n") && listed.contains("  tenant:acme\n"), "{listed}");
    let of_acme = remote.json(&["scope", "list", "--scope", "tenant:acme", "--json"]);
    // Two log entries, the head of the log, and its first checkpoint.
    assert_eq!((&of_acme["scope"], &of_acme["records"]), (&"tenant:acme".into(), &4.into()));

    let counted = remote.json(&["scope", "stats", "--scope", "global", "--json"]);
    assert_eq!(counted["global"]["replays"]["live"], 1, "{counted}");
    let (code, told) = remote.run(&["scope", "delete", "--scope", "global"]);
    assert_eq!(code, 2, "{told}");
    assert!(told.contains("--yes"), "{told}");
    let deleted = remote.json(&["scope", "delete", "--scope", "global", "--yes", "--json"]);
    assert_eq!(deleted["deleted"]["replays"], 1, "{deleted}");
    assert_eq!(remote.run(&["explain", "--scope", "global", "replay", "test", "a"]).0, 1);
    assert_eq!(remote.run(&["sweep"]).0, 0);
}

#[test]
fn a_refusal_of_the_server_is_reported_and_shows_no_key() {
    let remote = Remote { server: Server::start(&[]) };
    let wrong = ebbtide(&["stats", "--server", &remote.server.url()])
        .env("EBBTIDE_API_KEY", "ebk_not-a-key-of-this-server")
        .output()
        .unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    assert!(said(&wrong).contains("401 unauthorized"), "{}", said(&wrong));
    assert!(!said(&wrong).contains("not-a-key"));
    let without = ebbtide(&["stats", "--server", &remote.server.url()]).output().unwrap();
    assert!(said(&without).contains("EBBTIDE_API_KEY"), "{}", said(&without));
    let nobody =
        ebbtide(&["stats", "--server", "http://127.0.0.1:1"]).env("EBBTIDE_API_KEY", "k").output().unwrap();
    assert_eq!(nobody.status.code(), Some(2));
    assert_eq!(ebbtide(&["stats"]).output().unwrap().status.code(), Some(2));
}

#[test]
fn a_key_is_read_from_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_in(folder.path(), &[]);
    let file = folder.path().join("data/root.key");
    let arguments = ["stats", "--server", &server.url(), "--key-file", file.to_str().unwrap()];
    let output = ebbtide(&arguments).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn completions_and_manual_pages_are_printed() {
    for shell in ["bash", "zsh", "fish"] {
        let output = ebbtide(&["completions", shell]).output().unwrap();
        assert!(output.status.success() && said(&output).contains("sweep-interval"), "{shell}");
    }
    let page = said(&ebbtide(&["man"]).output().unwrap());
    assert!(page.contains(".TH ebbtide 1") && page.contains("serve"), "{page}");
    assert!(said(&ebbtide(&["man", "key", "create"]).output().unwrap()).contains("\\-\\-role"));
    assert_eq!(ebbtide(&["man", "nonsense"]).output().unwrap().status.code(), Some(2));
}
