//! A rolling upgrade over a change of the schema, under load: no request fails.
//!
//! `make test` takes this build for the older one, and changes the schema as the next release may. With
//! `EBBTIDE_TEST_OLD_BINARY` (`make proof`) the older nodes are of that build, and this one migrates.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/proxy.rs"]
mod proxy;
#[path = "support/server.rs"]
mod server;

use std::net::SocketAddr;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::SystemTime;

use libtest_mimic::{Arguments, Failed, Trial};
use proxy::Proxy;
use serde_json::{Value, json};
use server::{Answer, Client, Server, ebbtide, proof, said, until};
use tempfile::TempDir;

const KEY: &str = "ebk_the-root-key-of-all-nodes";
const VARIABLE: &str = "EBBTIDE_TEST_POSTGRES";
const OLD: &str = "EBBTIDE_TEST_OLD_BINARY";
const CALLERS: usize = 8;
const URI: &str = "https://app.example/cb";

fn main() -> ExitCode {
    let server = std::env::var(VARIABLE).ok().filter(|server| !server.is_empty());
    let missing = server.is_none() && std::env::var_os("CI").is_none();
    let run = move || {
        upgrade(&server.ok_or_else(|| Failed::from(format!("{VARIABLE} is not set")))?);
        Ok(())
    };
    let trial = Trial::test("old_and_new_nodes_over_a_change_of_the_schema_fail_no_request", run);
    libtest_mimic::run(&Arguments::from_args(), vec![trial.with_ignored_flag(missing)]).exit_code()
}

#[expect(clippy::disallowed_methods, reason = "names a store that no other run has")]
fn unique() -> u128 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos()
}

/// The older build; this one, if there is none.
fn old() -> Command {
    let this = ebbtide(&[]);
    let Some(program) = std::env::var_os(OLD) else { return this };
    let mut other = Command::new(program);
    for (name, _) in this.get_envs() {
        other.env_remove(name);
    }
    other
}

fn done(mut command: Command, arguments: &[&str]) -> String {
    let output = command.args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", said(&output));
    said(&output)
}

struct Site {
    server: String,
    schema: String,
    folder: TempDir,
    keyring: String,
}

impl Site {
    fn url(&self) -> String {
        format!("{}?schema={}&pool=8", self.server, self.schema)
    }

    fn node(&self, program: Command) -> Server {
        let url = self.url();
        let arguments = ["--drain-delay", "1s", "--store", &url, "--keyring", &self.keyring];
        Server::start_program(program, self.folder.path(), &arguments, &[("EBBTIDE_ROOT_KEY", KEY)])
    }

    /// Changes the schema: by this build, or as the next release may, if this build is the older one.
    fn migrate(&self) {
        let Self { server, schema, .. } = self;
        if std::env::var_os(OLD).is_some() {
            println!("{}", done(ebbtide(&[]), &["migrate-schema", "--store", &self.url()]).trim());
            return;
        }
        let each = format!(
            "SELECT format('ALTER TABLE {schema}.%I ADD COLUMN of_tomorrow bigint NOT NULL DEFAULT 0', tablename) \
             FROM pg_tables WHERE schemaname = '{schema}' AND tablename <> 'meta' \\gexec"
        );
        let note = format!("UPDATE {schema}.meta SET value = value + 1 WHERE name = 'schema_version'");
        let mut psql = Command::new("sh");
        psql.args([
            "-c",
            "printf '%s\n' \"$2\" \"$3\" | psql --no-psqlrc --quiet -v ON_ERROR_STOP=1 \"$1\"",
            "sh",
        ]);
        done(psql, &[server, &each, &format!("{note};")]);
    }
}

/// A caller, and the connection that it keeps until the server says that it closes it.
struct Caller<'a> {
    proxy: SocketAddr,
    client: Client,
    answered: &'a AtomicUsize,
}

impl Caller<'_> {
    fn call(&mut self, path: &str, body: &Value) -> Value {
        let answer = self.client.try_post(path, &body.to_string());
        let Answer { status, text, body, head } = answer.unwrap_or_else(|| panic!("{path} was not answered"));
        assert!(status == 200 || status == 201, "{path}: {status} {text}");
        if head.lines().any(|line| line.eq_ignore_ascii_case("connection: close")) {
            self.client = Client::new(self.proxy, KEY);
        }
        self.answered.fetch_add(1, Ordering::Relaxed);
        body
    }

    /// A login: on nodes of both builds, as the proxy chooses.
    fn log_in(&mut self, name: &str) {
        self.call("/v1/replays/check", &serde_json::from_str(&proof(name)).unwrap());
        let issue = json!({"client_id": "app", "subject": name, "redirect_uri": URI});
        let code = self.call("/v1/codes", &issue)["code"].clone();
        let redeem = json!({
            "code": code, "client_id": "app", "redirect_uri": URI, "grant": {}, "access_token": {},
        });
        let redeemed = self.call("/v1/codes/redeem", &redeem);
        let refresh = json!({"refresh_token": redeemed["grant"]["refresh_token"], "client_id": "app"});
        self.client = Client::new(self.proxy, KEY);
        let rotated = self.call("/v1/grants/rotate", &refresh);
        assert!(rotated["refresh_token"].is_string(), "{rotated}");
        let session = self.call("/v1/sessions", &json!({"subject": name, "data": {}}));
        self.call("/v1/sessions/touch", &json!({"session_id": session["session_id"]}));
    }
}

fn upgrade(server: &str) {
    let folder = tempfile::tempdir().unwrap();
    let keyring = folder.path().join("keyring.json").to_str().unwrap().to_owned();
    done(old(), &["keyring", "--keyring", &keyring, "init"]);
    let site = Site { server: server.to_owned(), schema: format!("upgrade_{}", unique()), folder, keyring };
    done(old(), &["migrate-schema", "--store", &site.url()]);
    let mut running = vec![site.node(old()), site.node(old())];
    let nodes = Arc::new(Mutex::new(running.iter().map(|node| node.address).collect::<Vec<_>>()));
    let stop = Arc::new(AtomicBool::new(false));
    let proxy = Proxy::start(&stop, &nodes);
    let (address, answered) = (proxy.address, Arc::new(AtomicUsize::new(0)));
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let (stop, answered) = (Arc::clone(&stop), Arc::clone(&answered));
            thread::spawn(move || {
                let client = Client::new(address, KEY);
                let mut of = Caller { proxy: address, client, answered: &answered };
                let mut number = 0;
                while !stop.load(Ordering::Relaxed) {
                    of.log_in(&format!("{caller}-{number}"));
                    number += 1;
                }
            })
        })
        .collect();
    let more = |count: usize| {
        let target = answered.load(Ordering::Relaxed) + count;
        let failed = || callers.iter().any(thread::JoinHandle::is_finished);
        assert!(until(|| failed() || answered.load(Ordering::Relaxed) >= target), "the callers stand still");
    };
    more(200);
    site.migrate();
    // The older build restarts on the newer schema, and serves beside the newer one.
    for (place, restarted) in [(0, old()), (1, ebbtide(&[])), (0, ebbtide(&[]))] {
        more(200);
        let mut leaving = running.remove(0);
        leaving.signal("-TERM");
        assert_eq!(leaving.wait().code(), Some(0));
        let new = site.node(restarted);
        nodes.lock().unwrap()[place] = new.address;
        assert!(until(|| proxy.sees(new.address)), "the new node takes part");
        running.push(new);
    }
    more(200);
    stop.store(true, Ordering::Relaxed);
    for caller in callers {
        caller.join().expect("no request fails");
    }
    println!("{} requests, none failed", answered.load(Ordering::Relaxed));
}
