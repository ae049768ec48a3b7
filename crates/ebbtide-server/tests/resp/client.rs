//! A server of the Redis protocol on a free port, and a client that shows the raw replies.

use std::sync::Arc;
use std::time::Duration;

use ebbtide::stores::api_keys::{KeyRequest, Role};
use ebbtide::stores::audit::AuditContext;
use ebbtide::{Ebbtide, ManualClock, Memory, Scope, Secret, Timestamp};
use ebbtide_server::App;
use ebbtide_server::http::limits::Limits;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

pub(crate) const KEY: &str = "ebk_the-root-key-of-these-tests";

pub(crate) struct Server {
    port: u16,
    app: App,
    pub(crate) clock: ManualClock,
    pub(crate) db: Ebbtide,
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::within(Limits::default()).await
    }

    pub(crate) async fn within(limits: Limits) -> Self {
        Self::of(|app| app.within(limits)).await
    }

    /// A server with other settings.
    pub(crate) async fn of(set: impl FnOnce(App) -> App) -> Self {
        let clock = ManualClock::at(Timestamp::from_millis(1_800_000_000_000).unwrap());
        let db = Ebbtide::over(Arc::new(Memory::default())).clock(clock.clone()).open().await.unwrap();
        let app = set(App::new(&db, &Secret::new(KEY)));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(ebbtide_server::resp::serve(listener, app.clone(), None, std::future::pending()));
        Self { port, app, clock, db }
    }

    /// Status and body of a request to the same node over HTTP, in `tenant:acme`.
    pub(crate) async fn http(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        self.http_in("tenant:acme", method, path, body).await
    }

    pub(crate) async fn http_in(&self, scope: &str, method: &str, path: &str, body: &str) -> (u16, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(ebbtide_server::http::serve(listener, self.app.clone(), std::future::pending()));
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\nebbtide-scope: {scope}\r\n\
             content-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    /// A connection that has presented nothing.
    pub(crate) async fn connect(&self) -> Client {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        Client { stream, read: Vec::new() }
    }

    /// A connection with the root key.
    pub(crate) async fn client(&self) -> Client {
        let mut client = self.connect().await;
        assert_eq!(client.send(&["AUTH", KEY]).await, "+OK\r\n");
        client
    }

    pub(crate) async fn key(&self, scope: &str, role: Role) -> (String, ebbtide::stores::api_keys::KeyId) {
        self.issue(KeyRequest::new(scope.parse::<Scope>().unwrap(), role)).await
    }

    pub(crate) async fn issue(&self, request: KeyRequest) -> (String, ebbtide::stores::api_keys::KeyId) {
        let context = AuditContext::new("root", "a test").unwrap();
        let made = self.db.stores().api_keys(&Scope::Global).create(&request, &context).await.unwrap();
        (made.key.expose().to_owned(), made.about.id)
    }
}

pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    read: Vec<u8>,
}

pub(crate) fn encoded(args: &[&str]) -> String {
    let strings = args.iter().map(|arg| format!("${}\r\n{arg}\r\n", arg.len())).collect::<Vec<_>>().concat();
    format!("*{}\r\n{strings}", args.len())
}

impl Client {
    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// Sends a command and returns its reply as it is.
    pub(crate) async fn send(&mut self, args: &[&str]) -> String {
        self.write(encoded(args).as_bytes()).await;
        self.reply().await
    }

    /// Sends the words of a line as a command.
    pub(crate) async fn line(&mut self, line: &str) -> String {
        self.send(&line.split(' ').collect::<Vec<_>>()).await
    }

    /// Next reply.
    pub(crate) async fn reply(&mut self) -> String {
        loop {
            if let Some(end) = end(&self.read, 0) {
                let reply: Vec<u8> = self.read.drain(..end).collect();
                return String::from_utf8(reply).unwrap();
            }
            let mut bytes = [0; 4_096];
            let read = tokio::time::timeout(Duration::from_secs(30), self.stream.read(&mut bytes)).await;
            let read = read.expect("a reply").unwrap();
            assert_ne!(read, 0, "closed behind {:?}", String::from_utf8_lossy(&self.read));
            self.read.extend(&bytes[..read]);
        }
    }

    /// All that comes until the server closes.
    pub(crate) async fn rest(mut self) -> String {
        let read = tokio::time::timeout(Duration::from_secs(30), self.stream.read_to_end(&mut self.read));
        let _ = read.await.expect("the server closes");
        String::from_utf8(self.read).unwrap()
    }
}

/// End of the reply that begins at `at`.
fn end(bytes: &[u8], at: usize) -> Option<usize> {
    let line = bytes[at..].windows(2).position(|two| two == b"\r\n")? + at;
    let number = || std::str::from_utf8(&bytes[at + 1..line]).unwrap().parse::<i64>().unwrap();
    let items = match bytes[at] {
        b'$' => {
            let length = number();
            let end = if length < 0 { line + 2 } else { line + 4 + usize::try_from(length).unwrap() };
            return (bytes.len() >= end).then_some(end);
        }
        b'*' => number().max(0),
        b'%' => 2 * number(),
        _ => 0,
    };
    (0..items).try_fold(line + 2, |at, _| if at < bytes.len() { end(bytes, at) } else { None })
}
