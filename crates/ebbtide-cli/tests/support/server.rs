//! A server process for a test, and a client that exposes the raw answers.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(dead_code, reason = "each suite uses some of it")]

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

/// The command, without the `EBBTIDE_*` variables of the environment.
pub(crate) fn ebbtide(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ebbtide"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("EBBTIDE_")) {
        command.env_remove(name);
    }
    command.args(arguments);
    command
}

pub(crate) fn said(output: &Output) -> String {
    String::from_utf8([output.stdout.as_slice(), output.stderr.as_slice()].concat()).unwrap()
}

/// Polls for an event in another process. Only a failure takes a minute.
pub(crate) fn until(mut happened: impl FnMut() -> bool) -> bool {
    (0..6_000).any(|_| {
        let happened = happened();
        if !happened {
            std::thread::sleep(Duration::from_millis(10));
        }
        happened
    })
}

/// A server that is killed with the test.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    /// First line of its output.
    pub(crate) listening: String,
    pub(crate) log: PathBuf,
    pub(crate) key: String,
    process: Child,
    output: BufReader<ChildStdout>,
    folder: Option<TempDir>,
}

impl Server {
    /// Starts a server on an embedded store in a temporary folder.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut server = Self::start_in(folder.path(), arguments);
        server.folder = Some(folder);
        server
    }

    /// Starts a server on the embedded store in `folder/data`.
    pub(crate) fn start_in(folder: &Path, arguments: &[&str]) -> Self {
        let store = format!("fjall:{}", folder.join("data").display());
        let all = [&["--store", store.as_str()], arguments].concat();
        let mut server = Self::start_with(folder, &all, &[]);
        let key = std::fs::read_to_string(folder.join("data/root.key")).unwrap();
        key.trim().clone_into(&mut server.key);
        server
    }

    /// Starts a server with these flags and variables; its log is in `folder`.
    pub(crate) fn start_with(folder: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        Self::start_program(ebbtide(&[]), folder, arguments, variables)
    }

    /// The same with another build.
    pub(crate) fn start_program(
        mut program: Command,
        folder: &Path,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> Self {
        let log = folder.join(format!("{}.log", std::fs::read_dir(folder).unwrap().count()));
        let mut process = program
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(arguments)
            .envs(variables.iter().copied())
            .current_dir(folder)
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut listening = String::new();
        output.read_line(&mut listening).unwrap();
        let address = listening.trim().rsplit('/').next().and_then(|address| address.parse().ok());
        let address = address.unwrap_or_else(|| {
            let _ = process.wait();
            panic!("the server does not listen: {}", std::fs::read_to_string(&log).unwrap())
        });
        let key = variables.iter().find(|(name, _)| *name == "EBBTIDE_ROOT_KEY").map(|(_, key)| *key);
        let key = key.unwrap_or_default().to_owned();
        Self { address, listening: listening.trim().to_owned(), log, key, process, output, folder: None }
    }

    /// Address of the operators' listener, from the next line of the output.
    pub(crate) fn operator(&mut self) -> Option<SocketAddr> {
        let line = self.next_line();
        line.trim().rsplit('/').next().and_then(|address| address.parse().ok())
    }

    /// Next line of its output.
    pub(crate) fn next_line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line
    }

    /// URL of the embedded store in the temporary folder.
    pub(crate) fn store(&self) -> String {
        format!("fjall:{}", self.folder.as_ref().unwrap().path().join("data").display())
    }

    pub(crate) fn url(&self) -> String {
        self.listening.strip_prefix("listening on ").unwrap().to_owned()
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.address, &self.key)
    }

    pub(crate) fn post(&self, path: &str, body: &str) -> Answer {
        self.client().call("POST", path, &[], body)
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.client().call("GET", path, &[], "")
    }

    pub(crate) fn signal(&self, name: &str) {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    }

    /// Kills the process with SIGKILL.
    pub(crate) fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.process.wait().unwrap()
    }

    /// Resident memory of the process, in bytes.
    #[cfg(target_os = "linux")]
    pub(crate) fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }

    /// Processor time that the process has used.
    #[cfg(target_os = "linux")]
    pub(crate) fn processor_time(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.id())).unwrap();
        let fields = stat.rsplit(')').next().unwrap().split_whitespace();
        // User and system time, in hundredths of a second.
        fields.skip(11).take(2).map(|ticks| Duration::from_millis(10 * ticks.parse::<u64>().unwrap())).sum()
    }

    /// Log so far. Lines of requests that were just answered may be missing.
    pub(crate) fn logged(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Log, once it holds all of these texts.
    pub(crate) fn logged_with(&self, texts: &[&str]) -> String {
        let there = || texts.iter().all(|text| self.logged().contains(text));
        assert!(until(there), "{texts:?} are not in the log: {}", self.logged());
        self.logged()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) text: String,
    pub(crate) body: Value,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let of = |line: &'_ str| {
            line.split_once(": ").filter(|(found, _)| *found == name).map(|(_, value)| value.to_owned())
        };
        let line = self.head.lines().find(|line| of(line).is_some())?;
        line.split_once(": ").map(|(_, value)| value)
    }

    /// Checks the status and the problem type of a refusal.
    pub(crate) fn refused(self, status: u16, kind: &str) -> Self {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        assert_eq!(self.body["type"], format!("/problems/{kind}"), "{self:?}");
        self
    }

    pub(crate) fn ok(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        self.body
    }
}

/// A connection that is kept open.
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
    key: String,
}

impl Client {
    pub(crate) fn new(address: SocketAddr, key: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Self { stream: BufReader::new(stream), key: key.to_owned() }
    }

    pub(crate) fn call(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        self.send(&request(method, path, &self.key, headers, body));
        self.answer().expect("there is an answer")
    }

    pub(crate) fn post(&mut self, path: &str, body: &str) -> Answer {
        self.call("POST", path, &[], body)
    }

    /// Sends a form, as RFC 7662 and RFC 7009 have it.
    pub(crate) fn form(&mut self, path: &str, form: &str) -> Answer {
        let json = "content-type: application/json";
        let request = request("POST", path, &self.key, &[], form);
        self.send(&request.replacen(json, "content-type: application/x-www-form-urlencoded", 1));
        self.answer().expect("there is an answer")
    }

    /// Sends a request without a body; returns none if the connection ends.
    pub(crate) fn try_get(&mut self, path: &str) -> Option<Answer> {
        let request = request("GET", path, &self.key, &[], "");
        self.stream.get_mut().write_all(request.as_bytes()).ok()?;
        self.answer()
    }

    /// Sends a request; returns none if the connection ends.
    pub(crate) fn try_post(&mut self, path: &str, body: &str) -> Option<Answer> {
        let request = request("POST", path, &self.key, &[], body);
        self.stream.get_mut().write_all(request.as_bytes()).ok()?;
        self.answer()
    }

    pub(crate) fn send(&mut self, text: &str) {
        self.stream.get_mut().write_all(text.as_bytes()).unwrap();
    }

    /// The next answer; none if the connection ends before it is complete.
    pub(crate) fn answer(&mut self) -> Option<Answer> {
        let mut head = String::new();
        loop {
            let before = head.len();
            if self.stream.read_line(&mut head).ok()? == 0 {
                return None;
            }
            if &head[before..] == "\r\n" {
                break;
            }
        }
        let status = head.split(' ').nth(1)?.parse().ok()?;
        let mut answer = Answer { status, head, text: String::new(), body: Value::Null };
        let length = answer.header("content-length").map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).ok()?;
        answer.text = String::from_utf8(body).unwrap();
        answer.body = serde_json::from_str(&answer.text).unwrap_or_default();
        Some(answer)
    }
}

/// Text of a request.
pub(crate) fn request(method: &str, path: &str, key: &str, headers: &[(&str, &str)], body: &str) -> String {
    let mut text = format!("{method} {path} HTTP/1.1\r\nhost: ebbtide\r\nauthorization: Bearer {key}\r\n");
    for (name, value) in headers {
        write!(text, "{name}: {value}\r\n").unwrap();
    }
    write!(text, "content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
    text
}

/// Body of a replay check for the proof `jti`, kept for an hour.
pub(crate) fn proof(jti: &str) -> String {
    format!(r#"{{"namespace":"test","jti":"{jti}","ttl_seconds":3600}}"#)
}
