//! MULTI, EXEC, DISCARD and WATCH.

use crate::client::Server;

#[tokio::test]
async fn a_transaction_is_one_step_and_answers_each_command() {
    let server = Server::start().await;
    let mut client = server.client().await;
    for (line, reply) in [
        ("MULTI", "+OK\r\n"),
        ("SET a 1 EX 10", "+QUEUED\r\n"),
        ("INCR a", "+QUEUED\r\n"),
        ("PING", "+QUEUED\r\n"),
        ("TTL a", "+QUEUED\r\n"),
        ("SET b x", "+QUEUED\r\n"),
        ("INCR b", "+QUEUED\r\n"),
        ("DEL b", "+QUEUED\r\n"),
        ("MGET a b", "+QUEUED\r\n"),
        (
            "EXEC",
            "*8\r\n+OK\r\n:2\r\n+PONG\r\n:10\r\n+OK\r\n-ERR value is not an integer or out of range\r\n:1\r\n\
             *2\r\n$1\r\n2\r\n$-1\r\n",
        ),
        ("GET a", "$1\r\n2\r\n"),
        ("TTL a", ":10\r\n"),
        ("EXISTS b", ":0\r\n"),
        ("EXEC", "-ERR EXEC without MULTI\r\n"),
        ("DISCARD", "-ERR DISCARD without MULTI\r\n"),
        ("MULTI", "+OK\r\n"),
        ("MULTI", "-ERR MULTI calls can not be nested\r\n"),
        ("WATCH a", "-ERR WATCH inside MULTI is not allowed\r\n"),
        ("SET a 3", "+QUEUED\r\n"),
        ("DISCARD", "+OK\r\n"),
        ("GET a", "$1\r\n2\r\n"),
        ("MULTI", "+OK\r\n"),
        ("SET a", "-ERR wrong number of arguments for 'set' command\r\n"),
        ("SET a 4", "+QUEUED\r\n"),
        ("EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n"),
        ("GET a", "$1\r\n2\r\n"),
        // An argument that is wrong spoils its own command alone, as in Redis.
        ("MULTI", "+OK\r\n"),
        ("INCRBY a abc", "+QUEUED\r\n"),
        ("SET a 5 EX x", "+QUEUED\r\n"),
        ("SET b y", "+QUEUED\r\n"),
        (
            "EXEC",
            "*3\r\n-ERR value is not an integer or out of range\r\n-ERR value is not an integer or out of range\r\n\
             +OK\r\n",
        ),
        ("MGET a b", "*2\r\n$1\r\n2\r\n$1\r\ny\r\n"),
        ("MULTI", "+OK\r\n"),
        ("EXEC", "*0\r\n"),
    ] {
        assert_eq!(client.line(line).await, reply, "{line}");
    }
}

#[tokio::test]
async fn a_watched_key_that_changed_breaks_the_transaction() {
    let server = Server::start().await;
    let (mut client, mut other) = (server.client().await, server.client().await);
    for (setup, change, broken) in [
        ("SET k 1", "SET k 2", true),
        ("SET k 1", "DEL k", true),
        ("DEL k", "SET k 2", true),
        ("SET k 1", "EXPIRE k 10", true),
        ("SET k 1", "GET k", false),
        ("SET k 1", "SET unrelated 2", false),
    ] {
        client.line(setup).await;
        assert_eq!(client.line("WATCH k none").await, "+OK\r\n");
        other.line(change).await;
        client.line("MULTI").await;
        client.line("SET done 1").await;
        let expected = if broken { "*-1\r\n" } else { "*1\r\n+OK\r\n" };
        assert_eq!(client.line("EXEC").await, expected, "{setup}, {change}");
        assert_eq!(client.line("DEL done").await, if broken { ":0\r\n" } else { ":1\r\n" });
    }
    client.line("WATCH k").await;
    other.line("SET k 9").await;
    client.line("UNWATCH").await;
    client.line("MULTI").await;
    assert_eq!(client.line("EXEC").await, "*0\r\n");
    client.line("HELLO 3").await;
    client.line("WATCH k").await;
    other.line("SET k 8").await;
    client.line("MULTI").await;
    client.line("GET k").await;
    assert_eq!(client.line("EXEC").await, "_\r\n", "the nil of RESP3");
}

#[tokio::test]
async fn transactions_at_once_lose_nothing() {
    let server = Server::start().await;
    let mut tasks = Vec::new();
    for _ in 0..8 {
        let mut client = server.client().await;
        tasks.push(tokio::spawn(async move {
            for _ in 0..20 {
                // A transfer by optimistic locking, as clients write it.
                loop {
                    client.line("WATCH from to").await;
                    let from: i64 = client
                        .line("GET from")
                        .await
                        .split("\r\n")
                        .nth(1)
                        .unwrap_or("0")
                        .parse()
                        .unwrap_or(0);
                    client.line("MULTI").await;
                    client.line(&format!("SET from {}", from - 1)).await;
                    client.line("INCR to").await;
                    if client.line("EXEC").await != "*-1\r\n" {
                        break;
                    }
                }
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let mut client = server.client().await;
    assert_eq!(client.line("MGET from to").await, "*2\r\n$4\r\n-160\r\n$3\r\n160\r\n");
}
