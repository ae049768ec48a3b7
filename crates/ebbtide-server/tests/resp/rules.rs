//! Rules of the server that hold for every protocol: quotas, scopes, bounds, and metrics.

use std::time::Duration;

use ebbtide::stores::api_keys::{KeyRequest, Role};
use ebbtide::stores::records::{PutRecord, RecordValue, Records};
use ebbtide_server::http::quota::Quotas;
use ebbtide_server::http::scoping::ScopeRules;

use crate::client::{Client, KEY, Server, encoded};

const WRONGPASS: &str = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";

/// Connection of the root key to `tenant:acme`.
async fn acme(server: &Server) -> Client {
    let mut client = server.connect().await;
    assert_eq!(client.send(&["AUTH", "tenant:acme", KEY]).await, "+OK\r\n");
    client
}

/// Cursor and keys of a reply to `SCAN`.
fn page(reply: &str) -> (String, Vec<String>) {
    let lines = reply.split("\r\n").filter(|line| !line.is_empty() && !line.starts_with(['*', '$']));
    let mut strings = lines.map(str::to_owned);
    (strings.next().unwrap(), strings.collect())
}

#[tokio::test]
async fn a_scan_of_large_values_has_small_pages_and_finds_every_key() {
    const KEYS: usize = 200;
    let server = Server::start().await;
    let records = server.db.stores().records(&"tenant:acme".parse().unwrap());
    let large = RecordValue::from_bytes(vec![b'x'; RecordValue::MAX_BYTES]);
    for number in 0..KEYS {
        let put = PutRecord::new(Records::REDIS, format!("large:{number}"), large.clone());
        let _ = records.put(&put).await.unwrap();
    }
    let mut client = acme(&server).await;
    let (mut cursor, mut found, mut pages) = ("0".to_owned(), Vec::new(), 0);
    loop {
        let (next, keys) = page(&client.send(&["SCAN", &cursor, "COUNT", "1000"]).await);
        // Two MiB of values end a page; those of the first read come whole.
        assert!(keys.len() <= 16, "{} values of 256 KiB were read for one page", keys.len());
        found.extend(keys);
        (cursor, pages) = (next, pages + 1);
        if cursor == "0" {
            break;
        }
    }
    found.sort();
    let mut all: Vec<_> = (0..KEYS).map(|number| format!("large:{number}")).collect();
    all.sort();
    assert_eq!(found, all, "{pages} pages");
    let (mut after, mut listed) = (None, 0);
    loop {
        let page = records.list(Records::REDIS, after.as_ref(), 1_000).await.unwrap();
        assert!(page.items.len() <= 16, "{}", page.items.len());
        listed += page.items.len();
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(listed, KEYS);
}

#[tokio::test]
async fn values_that_are_large_together_are_not_read_at_once() {
    let server = Server::start().await;
    let records = server.db.stores().records(&"tenant:acme".parse().unwrap());
    let large = RecordValue::from_bytes(vec![b'x'; RecordValue::MAX_BYTES]);
    let _ = records.put(&PutRecord::new(Records::REDIS, "large", large)).await.unwrap();
    let names = |count: usize| {
        let name = serde_json::json!({"collection": Records::REDIS, "id": "large"});
        serde_json::json!({"items": vec![name; count]}).to_string()
    };
    // 128 of them are 32 MiB.
    let (status, body) = server.http("POST", "/v1/records/get-many", &names(129)).await;
    assert_eq!(status, 400, "{body}");
    assert!(body.contains("more than 33554432 bytes together"), "{body}");
    let (status, _) = server.http("POST", "/v1/records/get-many", &names(65)).await;
    assert_eq!(status, 200);
    let mut client = acme(&server).await;
    let refused = client.send(&[["MGET"].as_slice(), ["large"; 129].as_slice()].concat()).await;
    assert!(refused.starts_with("-ERR the values have more than 33554432 bytes together"), "{refused}");
}

#[tokio::test]
async fn what_is_written_here_is_read_over_http_in_base64() {
    let server = Server::start().await;
    let mut client = acme(&server).await;
    assert_eq!(client.line("SET session:1 alice EX 60").await, "+OK\r\n");
    let body = r#"{"collection": "redis", "id": "session:1"}"#;
    let (status, read) = server.http("POST", "/v1/records/get", body).await;
    let read: serde_json::Value = serde_json::from_str(&read).unwrap();
    assert_eq!((status, &read["value_base64"]), (200, &"YWxpY2U=".into()), "{read}");
    assert_eq!((&read["id"], read.get("value"), read.get("id_base64")), (&"session:1".into(), None, None));
    // A key that is not text has its id in base64, in both directions.
    client.write(b"*3\r\n$3\r\nSET\r\n$2\r\n\x00\xff\r\n$1\r\nv\r\n").await;
    assert_eq!(client.reply().await, "+OK\r\n");
    let (status, read) =
        server.http("POST", "/v1/records/take", r#"{"collection": "redis", "id_base64": "AP8="}"#).await;
    let read: serde_json::Value = serde_json::from_str(&read).unwrap();
    assert_eq!((status, &read["id_base64"], read.get("id")), (200, &"AP8=".into(), None), "{read}");
    client.write(b"*2\r\n$6\r\nEXISTS\r\n$2\r\n\x00\xff\r\n").await;
    assert_eq!(client.reply().await, ":0\r\n");
}

#[tokio::test]
async fn a_quota_is_kept_by_every_command_that_writes() {
    const OOM: &str = "-OOM the scope has reached its record quota\r\n";
    let server = Server::of(|app| app.with_quotas(Quotas::new(["tenant:acme=100".parse().unwrap()]))).await;
    let mut client = acme(&server).await;
    assert_eq!(client.line("SET lock 1 NX").await, "+OK\r\n");
    for _ in 0..200 {
        assert_eq!(client.line("SET lock 2 NX").await, "$-1\r\n", "what is refused is not counted");
    }
    assert_eq!(client.line("MSETNX lock 1 other 2").await, ":0\r\n");
    for _ in 0..200 {
        // Sessions and counters are written again and again.
        for (line, reply) in [("SET lock 3", "+OK"), ("SET lock 3 XX", "+OK"), ("GETSET lock 3", "$1")] {
            assert!(client.line(line).await.starts_with(reply), "{line}: what is replaced is not counted");
        }
        assert!(client.line("INCR lock").await.starts_with(':'), "nor is what is counted up");
    }
    // Its keys count, and not the command.
    let pairs: Vec<String> = (0..99).flat_map(|number| [format!("k{number}"), "v".to_owned()]).collect();
    let mset: Vec<&str> = ["MSET"].into_iter().chain(pairs.iter().map(String::as_str)).collect();
    assert_eq!(client.send(&mset).await, "+OK\r\n");
    for line in ["SET new v", "INCR new", "MSET a 1 b 2", "APPEND new v", "SETEX new 10 v", "GETSET new v"] {
        assert_eq!(client.line(line).await, OOM, "{line}");
    }
    assert_eq!(client.line("MULTI").await, "+OK\r\n");
    assert_eq!(client.line("SET new v").await, OOM);
    assert!(client.line("EXEC").await.starts_with("-EXECABORT "));
    assert_eq!(client.line("GET k0").await, "$1\r\nv\r\n", "reads go on");
    assert_eq!(client.line("DEL k0").await, ":1\r\n", "and so do deletions");
    let mut other = server.client().await;
    assert_eq!(other.line("SET new v").await, "+OK\r\n", "another scope has none");
}

#[tokio::test]
async fn a_batch_over_http_counts_its_records() {
    let server = Server::of(|app| app.with_quotas(Quotas::new(["tenant:acme=50".parse().unwrap()]))).await;
    let put = |number| serde_json::json!({"put": {"collection": "c", "id": format!("{number}"), "value": 1}});
    // The first request counts what is there.
    let first = serde_json::json!({"writes": [put(0)]}).to_string();
    assert_eq!(server.http("POST", "/v1/records/batch", &first).await.0, 200);
    let rest = serde_json::json!({"writes": (1..50).map(put).collect::<Vec<_>>()}).to_string();
    assert_eq!(server.http("POST", "/v1/records/batch", &rest).await.0, 200);
    let (status, body) = server.http("POST", "/v1/records/batch", &first).await;
    assert_eq!(status, 429, "{body}");
    assert_eq!(acme(&server).await.line("SET k v").await, "-OOM the scope has reached its record quota\r\n");
}

#[tokio::test]
async fn a_commit_of_attributes_counts_each_of_them() {
    let server = Server::of(|app| app.with_quotas(Quotas::new(["tenant:acme=50".parse().unwrap()]))).await;
    let set = |name| serde_json::json!({"set": {"owner": "o", "bucket": "b", "name": format!("n{name}"), "data": 1}});
    for (names, expected) in [(0..30, 200), (30..60, 200), (60..61, 429)] {
        let body = serde_json::json!({"writes": names.map(set).collect::<Vec<_>>()}).to_string();
        let (status, answer) = server.http("POST", "/v1/attributes/commit", &body).await;
        assert_eq!(status, expected, "{answer}");
    }
}

#[tokio::test]
async fn a_record_that_is_written_again_over_http_is_not_counted() {
    let server = Server::of(|app| app.with_quotas(Quotas::new(["tenant:acme=10".parse().unwrap()]))).await;
    let put = r#"{"collection":"c","id":"i","value":1}"#;
    let batch = format!(r#"{{"writes":[{{"put":{put}}}]}}"#);
    for (path, body) in [
        ("/v1/records/put", put),
        ("/v1/records/batch", batch.as_str()),
        ("/v1/records/increment", r#"{"collection":"c","id":"i"}"#),
    ] {
        for _ in 0..20 {
            let (status, answer) = server.http("POST", path, body).await;
            assert_eq!(status, 200, "{path}: {answer}");
        }
    }
}

#[tokio::test]
async fn whoever_asks_for_the_end_of_a_sliding_record_does_not_renew_it() {
    let server = Server::start().await;
    let put = r#"{"collection":"redis","id":"k","value_base64":"dg==","ttl_seconds":100,"max_ttl_seconds":1000,"sliding":true}"#;
    let (status, answer) = server.http_in("tenant:acme", "POST", "/v1/records/put", put).await;
    assert_eq!(status, 200, "{answer}");
    let mut client = acme(&server).await;
    server.clock.advance(Duration::from_secs(50));
    for (line, reply) in [
        ("STRLEN k", ":1\r\n"),
        ("TYPE k", "+string\r\n"),
        ("PTTL k", ":50000\r\n"),
        ("TTL k", ":50\r\n"),
        ("GET k", "$1\r\nv\r\n"),
        ("TTL k", ":100\r\n"),
    ] {
        assert_eq!(client.line(line).await, reply, "{line}");
    }
}

#[tokio::test]
async fn a_key_without_records_in_its_list_is_refused() {
    let server = Server::start().await;
    let scope = || "tenant:acme".parse().unwrap();
    let (other, _) = server.issue(KeyRequest::new(scope(), Role::Writer).allow(["replays"])).await;
    let (records, _) = server.issue(KeyRequest::new(scope(), Role::Writer).allow(["records"])).await;
    let mut client = server.connect().await;
    assert_eq!(client.send(&["AUTH", &other]).await, WRONGPASS);
    assert_eq!(client.send(&["AUTH", &records]).await, "+OK\r\n");
    assert_eq!(client.line("SET k v").await, "+OK\r\n");
}

#[tokio::test]
async fn the_global_scope_can_be_kept_for_admins() {
    let rules = ScopeRules { global_for_admins: true, ..ScopeRules::default() };
    let server = Server::of(|app| app.with_scope_rules(rules)).await;
    let (writer, _) = server.key("global", Role::Writer).await;
    let (admin, _) = server.key("global", Role::Admin).await;
    let mut client = server.connect().await;
    for user in ["default", "global"] {
        assert_eq!(client.send(&["AUTH", user, &writer]).await, WRONGPASS, "{user}");
        assert_eq!(client.send(&["AUTH", user, &admin]).await, "+OK\r\n", "{user}");
    }
    assert_eq!(client.send(&["AUTH", "tenant:acme", &writer]).await, "+OK\r\n");
}

#[tokio::test]
async fn a_scope_can_be_required_and_its_absence_is_counted() {
    for require in [false, true] {
        let rules = ScopeRules { require, ..ScopeRules::default() };
        let server = Server::of(|app| app.with_scope_rules(rules)).await;
        let (global, id) = server.key("global", Role::Writer).await;
        let (own, _) = server.key("tenant:acme", Role::Writer).await;
        let mut client = server.connect().await;
        for args in [["AUTH", "default", &global].as_slice(), &["AUTH", &global]] {
            let reply = client.send(args).await;
            if require {
                assert!(reply.starts_with("-NOPERM a scope is required; send AUTH SCOPE KEY"), "{reply}");
                assert_eq!(client.line("GET k").await, "-NOAUTH Authentication required.\r\n");
            } else {
                assert_eq!(reply, "+OK\r\n");
            }
        }
        // A scope that is named, and the own scope of a key, are scopes.
        assert_eq!(client.send(&["AUTH", "global", &global]).await, "+OK\r\n");
        assert_eq!(client.send(&["AUTH", "tenant:acme", &global]).await, "+OK\r\n");
        assert_eq!(client.send(&["AUTH", &own]).await, "+OK\r\n");
        assert_eq!(client.line("SET k v").await, "+OK\r\n");
        let (status, report) = server.http_in("global", "GET", "/v1/unscoped-requests", "").await;
        assert_eq!(status, 200, "{report}");
        let report: serde_json::Value = serde_json::from_str(&report).unwrap();
        let mut seen = report["items"].as_array().unwrap().iter();
        let seen = seen.find(|seen| seen["route"] == "redis").unwrap();
        assert_eq!((&seen["key"], &seen["count"]), (&id.to_string().into(), &2.into()), "{report}");
    }
}

#[tokio::test]
async fn commands_are_counted_and_timed() {
    let _ = ebbtide_server::metrics::recorder();
    let server = Server::start().await;
    let (reader, _) = server.key("tenant:acme", Role::Reader).await;
    let mut client = acme(&server).await;
    assert_eq!(client.line("SET k v").await, "+OK\r\n");
    assert!(client.line("SET k v EX 0").await.starts_with("-ERR "));
    assert_eq!(client.send(&["AUTH", &reader]).await, "+OK\r\n");
    assert!(client.line("SET k v").await.starts_with("-NOPERM "));
    let mut broken = server.connect().await;
    broken.write(b"*1\r\n:1\r\n").await;
    assert!(broken.rest().await.contains("Protocol error"));
    client.write(encoded(&["PING"]).as_bytes()).await;
    assert_eq!(client.reply().await, "+PONG\r\n");
    let (status, metrics) = server.http("GET", "/metrics", "").await;
    assert_eq!(status, 200);
    for line in [
        "ebbtide_resp_commands_total{command=\"set\",outcome=\"ok\"}",
        "ebbtide_resp_commands_total{command=\"set\",outcome=\"error\"}",
        "ebbtide_resp_commands_total{command=\"set\",outcome=\"forbidden\"}",
        "ebbtide_resp_commands_total{command=\"ping\",outcome=\"ok\"}",
        "ebbtide_resp_command_seconds_count",
        "ebbtide_resp_protocol_errors_total",
    ] {
        let counted =
            metrics.lines().find_map(|counted| counted.strip_prefix(line)?.trim().parse::<u64>().ok());
        assert!(counted.is_some_and(|counted| counted > 0), "{line}\n{metrics}");
    }
}
