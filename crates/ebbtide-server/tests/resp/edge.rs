//! Authentication, refusals, and the ends of connections.

use std::time::Duration;

use ebbtide::Scope;
use ebbtide::stores::api_keys::Role;
use ebbtide::stores::audit::AuditContext;
use ebbtide_server::http::limits::Limits;

use crate::client::{KEY, Server, encoded};

const NOAUTH: &str = "-NOAUTH Authentication required.\r\n";
const WRONGPASS: &str = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";

#[tokio::test]
async fn without_a_key_nothing_is_answered() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    for line in
        ["PING", "GET k", "SET k v", "INFO", "COMMAND", "MULTI", "EXEC", "SCAN 0", "NOPE", "CLIENT ID"]
    {
        assert_eq!(client.line(line).await, NOAUTH, "{line}");
    }
    for line in [
        "AUTH wrong",
        "AUTH default wrong",
        "AUTH tenant:acme wrong",
        "AUTH nobody wrong",
        "HELLO 3 AUTH default x",
    ] {
        assert_eq!(client.line(line).await, WRONGPASS, "{line}");
    }
    assert!(client.line("HELLO 3").await.starts_with("-NOAUTH HELLO must be called"));
    assert_eq!(client.send(&["AUTH", "nobody", KEY]).await, WRONGPASS, "a user that is no scope");
    assert_eq!(client.send(&["AUTH", KEY]).await, "+OK\r\n");
    assert_eq!(client.line("PING").await, "+PONG\r\n");
    assert_eq!(client.line("HELLO 4").await, "-NOPROTO unsupported protocol version\r\n");
    assert!(client.line("HELLO 3 SETNAME app").await.starts_with("%7\r\n$6\r\nserver\r\n"));
    assert_eq!(client.line("CLIENT GETNAME").await, "$3\r\napp\r\n");
    assert_eq!(client.line("GET none").await, "_\r\n");
    assert_eq!(client.line("RESET").await, "+RESET\r\n");
    assert_eq!(client.line("GET none").await, NOAUTH);
    assert_eq!(client.line("QUIT").await, "+OK\r\n");
    assert_eq!(client.rest().await, "");
}

#[tokio::test]
async fn a_key_is_good_for_its_scope_and_role() {
    let server = Server::start().await;
    let (writer, id) = server.key("tenant:acme", Role::Writer).await;
    let (reader, _) = server.key("tenant:acme", Role::Reader).await;
    let mut client = server.connect().await;
    assert_eq!(client.send(&["AUTH", "tenant:other", &writer]).await, WRONGPASS);
    assert_eq!(client.send(&["AUTH", "global", &writer]).await, WRONGPASS);
    assert_eq!(client.send(&["AUTH", "default", &writer]).await, "+OK\r\n");
    assert_eq!(client.line("SET k acme").await, "+OK\r\n");
    assert_eq!(client.send(&["AUTH", "tenant:acme/env:prod", &writer]).await, "+OK\r\n");
    assert_eq!(client.line("GET k").await, "$-1\r\n", "scopes are exact");
    let mut root = server.client().await;
    assert_eq!(root.line("GET k").await, "$-1\r\n");
    assert_eq!(root.send(&["AUTH", "tenant:acme", KEY]).await, "+OK\r\n");
    assert_eq!(root.line("GET k").await, "$4\r\nacme\r\n");
    let mut looks = server.connect().await;
    assert_eq!(
        looks.send(&["HELLO", "2", "AUTH", "tenant:acme", &reader]).await.split("\r\n").next(),
        Some("*14")
    );
    assert_eq!(looks.line("GET k").await, "$4\r\nacme\r\n");
    for line in [
        "SET k v",
        "DEL k",
        "INCR k",
        "GETDEL k",
        "GETEX k EX 1",
        "EXPIRE k 1",
        "DELEX k IFEQ v",
        "MSET a b",
        // It would tell a reader the ids of sessions.
        "SCAN 0",
    ] {
        let name = line.split(' ').next().unwrap().to_lowercase();
        let expected = format!("-NOPERM User tenant:acme has no permissions to run the '{name}' command\r\n");
        assert_eq!(looks.line(line).await, expected);
    }
    looks.line("MULTI").await;
    assert!(looks.line("SET k v").await.starts_with("-NOPERM "));
    assert!(looks.line("EXEC").await.starts_with("-EXECABORT "));
    assert_eq!(looks.line("GET k").await, "$4\r\nacme\r\n");

    // A revoked key ends on connections that are open.
    let context = AuditContext::new("root", "a test").unwrap();
    assert!(server.db.stores().api_keys(&Scope::Global).revoke(&id, &context).await.unwrap());
    // The lease under which it was looked up runs on the monotonic clock, whatever the test's clock does.
    while client.line("GET k").await != NOAUTH {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(client.line("SET k v").await, NOAUTH);
}

#[tokio::test]
async fn a_rate_limit_is_kept() {
    let server = Server::start().await;
    let context = AuditContext::new("root", "a test").unwrap();
    let request = ebbtide::stores::api_keys::KeyRequest::new("tenant:acme".parse().unwrap(), Role::Writer)
        .rate_limit(5_u32);
    let made = server.db.stores().api_keys(&Scope::Global).create(&request, &context).await.unwrap();
    let mut client = server.connect().await;
    client.send(&["AUTH", made.key.expose()]).await;
    let all = encoded(&["SET", "k", "v"]).repeat(8);
    client.write(all.as_bytes()).await;
    let mut replies = Vec::new();
    for _ in 0..8 {
        replies.push(client.reply().await);
    }
    assert_eq!(replies.iter().filter(|reply| *reply == "+OK\r\n").count(), 5, "{replies:?}");
    assert!(replies[7].starts_with("-ERR the key has reached its rate limit"), "{}", replies[7]);
}

#[tokio::test]
async fn malformed_requests_end_the_connection_with_an_error() {
    let server = Server::start().await;
    for (bytes, error) in [
        ("*1\r\n+OK\r\n", "expected '$', got '+'"),
        ("*99999999999\r\n", "invalid multibulk length"),
        ("*1\r\n$99999999999\r\n", "invalid bulk length"),
        ("*2\r\n$3\r\nGET\r\n*1\r\n", "expected '$', got '*'"),
        ("POST / HTTP/1.1\r\nHost: x\r\n\r\n", "not HTTP"),
    ] {
        for authenticated in [false, true] {
            let mut client = if authenticated { server.client().await } else { server.connect().await };
            client.write(bytes.as_bytes()).await;
            let rest = client.rest().await;
            assert!(rest.starts_with("-ERR Protocol error: ") && rest.contains(error), "{rest}");
        }
    }
    // Also if much of it was never read.
    let mut client = server.client().await;
    client.write(&vec![b'x'; 500_000]).await;
    assert_eq!(client.rest().await, "-ERR Protocol error: too big inline request\r\n");
    // Earlier commands are answered.
    let mut client = server.client().await;
    client.write(b"*1\r\n$4\r\nPING\r\n*1\r\n:1\r\n").await;
    assert!(client.rest().await.starts_with("+PONG\r\n-ERR Protocol error"));
}

#[tokio::test]
async fn a_pipeline_takes_one_place_of_the_server_and_of_its_key() {
    let server = Server::within(Limits { requests: 1, key_requests: 1, ..Limits::default() }).await;
    let mut client = server.client().await;
    let all = (0..64).map(|n| encoded(&["SET", &format!("k{n}"), "v"])).collect::<String>();
    client.write(all.as_bytes()).await;
    for _ in 0..64 {
        assert_eq!(client.reply().await, "+OK\r\n");
    }
    let closed = Server::within(Limits { key_requests: 0, ..Limits::default() }).await;
    let mut client = closed.client().await;
    for line in ["GET k", "SCAN 0", "WATCH k"] {
        let refused = client.line(line).await;
        assert!(refused.starts_with("-ERR too many requests in flight of this key"), "{refused}");
    }
}

#[tokio::test]
async fn an_unfinished_request_counts_against_the_memory_of_its_key() {
    let server = Server::within(Limits { key_bytes: 100_000, ..Limits::default() }).await;
    let mut client = server.client().await;
    client.write(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$200000\r\n").await;
    client.write(&vec![b'x'; 50_000]).await;
    let refused = client.rest().await;
    assert!(refused.starts_with("-ERR too many bytes in memory of this key"), "{refused}");
    let mut client = server.client().await;
    assert_eq!(client.line("PING").await, "+PONG\r\n");
    assert_eq!(client.line("SET k v").await, "+OK\r\n", "what is over is given back");
}

#[tokio::test]
async fn replies_that_nobody_reads_count_against_the_memory_of_their_key() {
    let server = Server::within(Limits { key_bytes: 1_000_000, ..Limits::default() }).await;
    let (mut idle, mut other) = (server.client().await, server.client().await);
    assert_eq!(other.send(&["SET", "k", &"x".repeat(250_000)]).await, "+OK\r\n");
    assert!(other.line("GET k").await.starts_with("$250000\r\n"));
    // More than the system keeps for a connection.
    idle.write(encoded(&["GET", "k"]).repeat(200).as_bytes()).await;
    let refused = loop {
        let reply = other.line("GET k").await;
        if !reply.starts_with('$') {
            break reply;
        }
    };
    assert!(refused.starts_with("-ERR too many bytes in memory of this key"), "{refused}");
    drop(idle);
    while !other.line("GET k").await.starts_with('$') {}
}

#[tokio::test]
async fn a_stranger_cannot_make_the_server_wait_for_much() {
    let server = Server::start().await;
    for bytes in ["*17\r\n", "*2\r\n$20000\r\n"] {
        let mut client = server.connect().await;
        client.write(bytes.as_bytes()).await;
        assert!(client.rest().await.contains("Protocol error"));
    }
    // A key is presented and used in one packet: the bounds are wider behind it.
    let mut client = server.connect().await;
    let value = "x".repeat(100_000);
    let all = encoded(&["AUTH", KEY]) + &encoded(&["SET", "k", &value]) + &encoded(&["STRLEN", "k"]);
    client.write(all.as_bytes()).await;
    assert_eq!(
        [client.reply().await, client.reply().await, client.reply().await],
        ["+OK\r\n", "+OK\r\n", ":100000\r\n"]
    );
    let huge = encoded(&["SET", "k", &"x".repeat(300_000)]);
    client.write(huge.as_bytes()).await;
    assert!(client.reply().await.starts_with("-ERR the value of a record has at most 262144 bytes"));
    assert!(client.send(&["GET", ""]).await.starts_with("-ERR an id has 1 to"));
    client.write(b"*2\r\n$3\r\nGET\r\n$2000000\r\n").await;
    assert!(client.rest().await.contains("invalid bulk length"));
}

#[tokio::test]
async fn slow_and_silent_connections_are_closed() {
    let second = Duration::from_secs(1);
    let limits = Limits {
        body_timeout: second,
        header_timeout: second,
        resp_idle_timeout: 2 * second,
        connections: 3,
        ..Limits::default()
    };
    let server = Server::within(limits).await;
    let silent = server.connect().await;
    let idle = server.client().await;
    let mut slow = server.client().await;
    // The one that has said nothing makes room for another.
    let newer = server.connect().await;
    assert_eq!(silent.rest().await, "");
    for byte in b"*2\r\n$3\r\nGET\r\n$1".chunks(1) {
        slow.write(byte).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for client in [newer, slow, idle] {
        assert_eq!(client.rest().await, "");
    }
    // Their places are free again.
    let mut client = server.client().await;
    assert_eq!(client.line("PING").await, "+PONG\r\n");
}

#[tokio::test]
async fn a_client_that_does_not_read_is_closed_and_takes_little_memory() {
    let limits = Limits { body_timeout: Duration::from_secs(1), ..Limits::default() };
    let server = Server::within(limits).await;
    let mut client = server.client().await;
    client.send(&["SET", "k", &"x".repeat(200_000)]).await;
    let asked = encoded(&["GET", "k"]).repeat(1_000_000);
    // It sends on until the server reads no more, and is then disconnected.
    let (mut reader, mut writer) = client.stream.into_split();
    let sent = tokio::time::timeout(
        Duration::from_secs(30),
        tokio::io::AsyncWriteExt::write_all(&mut writer, asked.as_bytes()),
    );
    assert!(sent.await.expect("the server closes").is_err());
    let mut rest = Vec::new();
    let _ = tokio::io::AsyncReadExt::read_to_end(&mut reader, &mut rest).await;
    assert!(rest.len() < 64 << 20, "{}", rest.len());
}

#[tokio::test]
async fn what_is_not_there_is_refused_by_name() {
    let server = Server::start().await;
    let mut client = server.client().await;
    for (line, why) in [
        ("EVAL return 0", "scripts do not run here"),
        ("EVALSHA abc 0", "scripts do not run here"),
        ("SUBSCRIBE c", "there are no channels"),
        ("HSET k f v", "strings and counters"),
        ("KEYS *", "SCAN"),
        ("FLUSHALL", "scope"),
    ] {
        let reply = client.line(line).await;
        let name = line.split(' ').next().unwrap();
        assert!(
            reply.starts_with(&format!("-ERR unknown command '{name}'")) && reply.contains(why),
            "{reply}"
        );
    }
    assert_eq!(client.line("SELECT 0").await, "+OK\r\n");
    assert_eq!(client.line("SELECT 1").await, "-ERR DB index is out of range\r\n");
    assert_eq!(client.line("CLIENT SETINFO LIB-NAME x").await, "+OK\r\n");
    assert_eq!(client.line("CLIENT SETNAME x").await, "+OK\r\n");
    assert!(client.line("CLIENT ID").await.starts_with(':'));
    assert!(client.line("INFO").await.contains("redis_version:"));
    assert!(client.line("COMMAND COUNT").await.starts_with(':'));
    assert_eq!(client.line("COMMAND DOCS").await, "*0\r\n");
    assert!(client.line("COMMAND INFO get nope").await.starts_with("*2\r\n*10\r\n$3\r\nget\r\n:2\r\n"));
    assert_eq!(client.line("COMMAND GETKEYS MSET a 1 b 2").await, "*2\r\n$1\r\na\r\n$1\r\nb\r\n");
    assert_eq!(client.line("CONFIG GET appendonly").await, "*2\r\n$10\r\nappendonly\r\n$3\r\nyes\r\n");
}
