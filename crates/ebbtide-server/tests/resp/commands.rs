//! Replies of the commands on keys, as Redis gives them.

use std::time::Duration;

use ebbtide::stores::audit::AuditContext;
use ebbtide::stores::records::{PutOutcome, PutRecord, RecordAddress, RecordValue, Records};
use ebbtide::{Kind, PolicyTarget, Scope, Ttl, TtlPolicy};

use crate::client::{Server, encoded};

async fn conversation(lines: &[(&str, &str)]) {
    let server = Server::start().await;
    let mut client = server.client().await;
    for (line, reply) in lines {
        if let Some(millis) = line.strip_prefix("pass ") {
            server.clock.advance(Duration::from_millis(millis.parse().unwrap()));
            continue;
        }
        assert_eq!(client.line(line).await, *reply, "{line}");
    }
}

#[tokio::test]
async fn set_and_its_options() {
    conversation(&[
        ("SET k v", "+OK\r\n"),
        ("GET k", "$1\r\nv\r\n"),
        ("GET none", "$-1\r\n"),
        ("SET k w NX", "$-1\r\n"),
        ("SET n w XX", "$-1\r\n"),
        ("SET n 1 NX EX 10", "+OK\r\n"),
        ("SET n 2 XX GET", "$1\r\n1\r\n"),
        ("TTL n", ":-1\r\n"),
        ("SET n 3 EX 10", "+OK\r\n"),
        ("SET n 4 KEEPTTL", "+OK\r\n"),
        ("TTL n", ":10\r\n"),
        ("SET n 5 NX GET", "$1\r\n4\r\n"),
        ("SET new 5 NX GET", "$-1\r\n"),
        ("GET new", "$1\r\n5\r\n"),
        ("SET gone 1 XX GET", "$-1\r\n"),
        ("SETNX k x", ":0\r\n"),
        ("SETNX m x", ":1\r\n"),
        ("SETEX e 5 v", "+OK\r\n"),
        ("PSETEX p 1500 v", "+OK\r\n"),
        ("PTTL p", ":1500\r\n"),
        ("GETSET k y", "$1\r\nv\r\n"),
        ("SET past v EXAT 1", "+OK\r\n"),
        ("EXISTS past", ":0\r\n"),
        ("SET k v PXAT 1", "+OK\r\n"),
        ("GET k", "$-1\r\n"),
        ("SET k v PXAT 1 XX", "$-1\r\n"),
        ("SET k v EXAT 1800000100", "+OK\r\n"),
        ("EXPIRETIME k", ":1800000100\r\n"),
        ("MSET a 1 b 2", "+OK\r\n"),
        ("MSETNX a 9 c 9", ":0\r\n"),
        ("MGET a none b a", "*4\r\n$1\r\n1\r\n$-1\r\n$1\r\n2\r\n$1\r\n1\r\n"),
        ("SET k v EX 0", "-ERR invalid expire time in 'set' command\r\n"),
        ("SET k v EX x", "-ERR value is not an integer or out of range\r\n"),
        ("SET k v NX XX", "-ERR syntax error\r\n"),
        ("SET k", "-ERR wrong number of arguments for 'set' command\r\n"),
    ])
    .await;
}

#[tokio::test]
async fn keys_end_at_the_instant() {
    conversation(&[
        ("SET k v PX 1000", "+OK\r\n"),
        ("pass 999", ""),
        ("GET k", "$1\r\nv\r\n"),
        ("pass 1", ""),
        ("GET k", "$-1\r\n"),
        ("SET k w NX", "+OK\r\n"),
        ("EXPIRE k 10", ":1\r\n"),
        ("EXPIRE none 10", ":0\r\n"),
        ("EXPIRE k 5 GT", ":0\r\n"),
        ("EXPIRE k 20 GT", ":1\r\n"),
        ("EXPIRE k 30 LT", ":0\r\n"),
        ("EXPIRE k 30 NX", ":0\r\n"),
        ("EXPIRE k 30 XX", ":1\r\n"),
        ("TTL k", ":30\r\n"),
        ("PERSIST k", ":1\r\n"),
        ("PERSIST k", ":0\r\n"),
        ("TTL k", ":-1\r\n"),
        ("TTL none", ":-2\r\n"),
        ("PEXPIRE k 1500", ":1\r\n"),
        ("TTL k", ":2\r\n"),
        ("PEXPIREAT k 1800000005000", ":1\r\n"),
        ("PEXPIRETIME k", ":1800000005000\r\n"),
        ("EXPIREAT k 1", ":1\r\n"),
        ("EXISTS k", ":0\r\n"),
        ("SET k v", "+OK\r\n"),
        ("EXPIRE k -1 GT", ":0\r\n"),
        ("EXPIRE k -1", ":1\r\n"),
        ("TYPE k", "+none\r\n"),
        ("EXPIRE k 1 NX XX", "-ERR NX and XX, GT or LT options at the same time are not compatible\r\n"),
    ])
    .await;
}

#[tokio::test]
async fn taking_deleting_and_counting() {
    conversation(&[
        ("SET k v", "+OK\r\n"),
        ("TYPE k", "+string\r\n"),
        ("GETEX k EX 10", "$1\r\nv\r\n"),
        ("TTL k", ":10\r\n"),
        ("GETEX k PERSIST", "$1\r\nv\r\n"),
        ("TTL k", ":-1\r\n"),
        ("GETEX k", "$1\r\nv\r\n"),
        ("GETEX none EX 10", "$-1\r\n"),
        ("DELEX k IFEQ w", ":0\r\n"),
        ("DELEX k IFNE v", ":0\r\n"),
        ("DELEX k IFEQ v", ":1\r\n"),
        ("DELEX k IFEQ v", ":0\r\n"),
        ("SET k v", "+OK\r\n"),
        ("GETDEL k", "$1\r\nv\r\n"),
        ("GETDEL k", "$-1\r\n"),
        ("MSET a 1 b 2 c 3", "+OK\r\n"),
        ("EXISTS a b none a", ":3\r\n"),
        ("DEL a b b none", ":2\r\n"),
        ("UNLINK c", ":1\r\n"),
        ("INCR n", ":1\r\n"),
        ("INCRBY n 10", ":11\r\n"),
        ("DECR n", ":10\r\n"),
        ("DECRBY n 3", ":7\r\n"),
        ("GET n", "$1\r\n7\r\n"),
        ("EXPIRE n 10", ":1\r\n"),
        ("INCR n", ":8\r\n"),
        ("TTL n", ":10\r\n"),
        ("SET n 9223372036854775807", "+OK\r\n"),
        ("INCR n", "-ERR increment or decrement would overflow\r\n"),
        ("SET n x", "+OK\r\n"),
        ("INCR n", "-ERR value is not an integer or out of range\r\n"),
        ("SET f 10.5", "+OK\r\n"),
        ("INCRBYFLOAT f 0.25", "$5\r\n10.75\r\n"),
        ("APPEND s ab", ":2\r\n"),
        ("APPEND s cd", ":4\r\n"),
        ("STRLEN s", ":4\r\n"),
        ("GET s", "$4\r\nabcd\r\n"),
    ])
    .await;
}

#[tokio::test]
async fn options_of_expire_go_together_as_in_redis() {
    conversation(&[
        ("SET k v", "+OK\r\n"),
        ("EXPIRE k 100 XX LT", ":0\r\n"),
        ("EXPIRE k 100 XX GT", ":0\r\n"),
        ("EXPIRE k 100 LT", ":1\r\n"),
        ("EXPIRE k 200 XX GT", ":1\r\n"),
        ("EXPIRE k 150 XX GT", ":0\r\n"),
        ("EXPIRE k 50 XX LT", ":1\r\n"),
        ("TTL k", ":50\r\n"),
        ("EXPIRE k 1 GT LT", "-ERR GT and LT options at the same time are not compatible\r\n"),
        ("EXPIRE k 1 NX GT", "-ERR NX and XX, GT or LT options at the same time are not compatible\r\n"),
        ("EXPIRE k x NO", "-ERR Unsupported option NO\r\n"),
        ("MULTI", "+OK\r\n"),
        ("PERSIST k", "+QUEUED\r\n"),
        ("EXPIRE k 100 XX LT", "+QUEUED\r\n"),
        ("EXEC", "*2\r\n:1\r\n:0\r\n"),
        ("SET k v PXAT 1800000100499", "+OK\r\n"),
        ("EXPIRETIME k", ":1800000100\r\n"),
        ("SET k v PXAT 1800000100500", "+OK\r\n"),
        ("EXPIRETIME k", ":1800000101\r\n"),
        ("SET f 0.1", "+OK\r\n"),
        ("INCRBYFLOAT f 0.2", "$3\r\n0.3\r\n"),
        ("INCRBYFLOAT f 5.0e3", "$6\r\n5000.3\r\n"),
    ])
    .await;
}

#[tokio::test]
async fn a_line_may_have_quotes() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.write(b"SET k \"two words\\x21\"\r\nGET 'k'\r\n").await;
    assert_eq!([client.reply().await, client.reply().await], ["+OK\r\n", "$10\r\ntwo words!\r\n"]);
    client.write(b"SET k \"open\r\n").await;
    assert_eq!(client.rest().await, "-ERR Protocol error: unbalanced quotes in request\r\n");
}

#[tokio::test]
async fn a_value_that_is_refused_is_not_hidden_by_the_next_one() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let long = "x".repeat(262_145);
    let all = encoded(&["SET", "k", &long]) + &encoded(&["SET", "k", "v"]) + &encoded(&["GET", "k"]);
    client.write(all.as_bytes()).await;
    assert!(client.reply().await.starts_with("-ERR the value of a record"));
    assert_eq!([client.reply().await, client.reply().await], ["+OK\r\n", "$1\r\nv\r\n"]);
}

#[tokio::test]
async fn a_change_by_a_command_keeps_the_group_and_keys_of_a_record() {
    let server = Server::start().await;
    let records = server.db.scope("global").unwrap().records();
    let put = PutRecord::new(Records::REDIS, "n", RecordValue::from_bytes("1")).group("g").keys(["k"]);
    let PutOutcome::Stored { .. } = records.put(&put).await.unwrap() else { panic!() };
    let mut client = server.client().await;
    assert_eq!(client.line("INCR n").await, ":2\r\n");
    assert_eq!(client.line("APPEND n 0").await, ":2\r\n");
    let by_key = records.get(&RecordAddress::key(Records::REDIS, "k")).await.unwrap().found().unwrap();
    assert_eq!((by_key.value.as_bytes().as_ref(), by_key.group.as_deref()), (&b"20"[..], Some("g")));
    for (line, value) in [
        ("SET n 5 KEEPTTL", "5"),
        ("SET n 6 XX KEEPTTL GET", "6"),
        ("EXPIRE n 100", "6"),
        ("GETEX n EX 200", "6"),
        ("PERSIST n", "6"),
        ("MULTI", "6"),
        ("INCR n", "6"),
        ("EXEC", "7"),
        ("MULTI", "7"),
        ("SET n 8 KEEPTTL", "7"),
        ("APPEND n 0", "7"),
        ("EXPIRE n 50", "7"),
        ("GETEX n PERSIST", "7"),
        ("EXEC", "80"),
    ] {
        let reply = client.line(line).await;
        assert!(!reply.starts_with('-'), "{line}: {reply}");
        let found = records.get(&RecordAddress::key(Records::REDIS, "k")).await.unwrap().found();
        let found = found.unwrap_or_else(|| panic!("{line} dropped the key"));
        assert_eq!(found.value.as_bytes().as_ref(), value.as_bytes(), "{line}");
        assert_eq!(found.group.as_deref(), Some("g"), "{line}");
    }
    records.revoke_group(Records::REDIS, "g", None).await.unwrap();
    assert_eq!(client.line("GET n").await, "$-1\r\n");
    // A key that is written anew has nothing of the one before.
    let PutOutcome::Stored { .. } = records.put(&put.clone().group("h")).await.unwrap() else { panic!() };
    for line in ["MULTI", "SET n 9", "EXEC"] {
        client.line(line).await;
    }
    let found = records.get(&RecordAddress::id(Records::REDIS, "n")).await.unwrap().found().unwrap();
    assert_eq!(found.group, None);
    assert_eq!(records.get(&RecordAddress::key(Records::REDIS, "k")).await.unwrap().found(), None);
}

#[tokio::test]
async fn a_policy_of_the_collection_bounds_the_lives_of_keys() {
    let server = Server::start().await;
    let policy = TtlPolicy {
        default: Some(Ttl::from_secs(3_600).unwrap()),
        min: Ttl::from_secs(60).unwrap(),
        max: Ttl::from_secs(86_400).unwrap(),
        enforce: true,
    };
    let context = AuditContext::new("admin", "a test").unwrap();
    let target = PolicyTarget::new(Kind::Record, Some(Records::REDIS));
    let policies = server.db.stores().policies(&Scope::Global);
    policies.set(target, &Scope::Global, policy, &context).await.unwrap();
    let mut client = server.client().await;
    for (line, reply) in [
        ("SET k v", "+OK\r\n"),
        ("TTL k", ":3600\r\n"),
        ("SET k v KEEPTTL", "+OK\r\n"),
        ("SET k2 v NX", "+OK\r\n"),
        ("TTL k2", ":3600\r\n"),
        ("SETNX k3 v", ":1\r\n"),
        ("TTL k3", ":3600\r\n"),
        ("GETSET k v", "$1\r\nv\r\n"),
        ("TTL k", ":3600\r\n"),
        ("INCR n", ":1\r\n"),
        ("TTL n", ":3600\r\n"),
        ("APPEND a x", ":1\r\n"),
        ("TTL a", ":3600\r\n"),
        ("MSET a 1 b 2", "+OK\r\n"),
        ("TTL b", ":3600\r\n"),
        ("EXPIRE k 60", ":1\r\n"),
        ("PERSIST k", ":1\r\n"),
        ("TTL k", ":86400\r\n"),
        ("GETEX k EX 100", "$1\r\nv\r\n"),
        ("GETEX k PERSIST", "$1\r\nv\r\n"),
        ("TTL k", ":86400\r\n"),
        ("EXPIRE k -1", ":1\r\n"),
        ("SET k v EX 100", "+OK\r\n"),
        ("MULTI", "+OK\r\n"),
        ("SET k w", "+QUEUED\r\n"),
        ("TTL k", "+QUEUED\r\n"),
        ("SET k x EX 1", "+QUEUED\r\n"),
        ("INCR fresh", "+QUEUED\r\n"),
        ("TTL fresh", "+QUEUED\r\n"),
        (
            "EXEC",
            "*5\r\n+OK\r\n:3600\r\n-ERR TTL out of bounds: a TTL is 60 s to 86400 s here\r\n:1\r\n:3600\r\n",
        ),
        ("GET k", "$1\r\nw\r\n"),
        ("TTL k", ":3600\r\n"),
        ("TTL fresh", ":3600\r\n"),
    ] {
        assert_eq!(client.line(line).await, reply, "{line}");
    }
    for line in [
        "SET k v EX 59",
        "SET k v PX 1000",
        "SET k v EX 86401",
        "SET k v EXAT 1800000010",
        "SETEX k 10 v",
        "PSETEX k 10 v",
        "EXPIRE k 59",
        "EXPIRE k 86401 XX",
        "PEXPIRE k 1",
        "EXPIREAT k 1800000010",
        "GETEX k EX 10",
        "GETEX k PX 10",
    ] {
        assert_eq!(
            client.line(line).await,
            "-ERR TTL out of bounds: a TTL is 60 s to 86400 s here\r\n",
            "{line}"
        );
        assert_eq!(client.line("TTL k").await, ":3600\r\n", "{line}");
    }
}

#[tokio::test]
async fn scan_finds_each_key_once() {
    let server = Server::start().await;
    let mut client = server.client().await;
    for number in 0..250 {
        client.line(&format!("SET sess:{number} v")).await;
        client.line(&format!("SET other:{number} v")).await;
    }
    let (mut cursor, mut found, mut rounds) = ("0".to_owned(), Vec::new(), 0);
    loop {
        let reply = client.send(&["SCAN", &cursor, "MATCH", "sess:*", "COUNT", "20"]).await;
        let strings: Vec<&str> = reply.split("\r\n").filter(|line| !line.starts_with(['*', '$'])).collect();
        cursor = strings[0].to_owned();
        assert!(cursor.parse::<u64>().unwrap() < 1 << 52, "a number that JavaScript has");
        found.extend(strings[1..].iter().filter(|key| !key.is_empty()).map(|key| (*key).to_owned()));
        rounds += 1;
        if cursor == "0" {
            break;
        }
    }
    found.sort();
    let mut expected: Vec<_> = (0..250).map(|number| format!("sess:{number}")).collect();
    expected.sort();
    assert_eq!(found, expected);
    assert!(rounds > 10, "{rounds} pages");
    assert_eq!(client.line("SCAN 0 TYPE hash COUNT 1000").await.split("\r\n").nth(3), Some("*0"));
    for (line, refused) in [
        ("SCAN x", "-ERR invalid cursor\r\n"),
        ("SCAN 0 COUNT 0", "-ERR syntax error\r\n"),
        ("SCAN 0 MATCH", "-ERR syntax error\r\n"),
    ] {
        assert_eq!(client.line(line).await, refused);
    }
}

#[tokio::test]
async fn a_pipeline_takes_effect_in_order_and_is_answered_in_order() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let mut lines = Vec::new();
    for round in 0..40 {
        lines.push((format!("SET k {round}"), "+OK\r\n".to_owned()));
        lines.push((format!("SET k {round}{round}"), "+OK\r\n".to_owned()));
        lines.push(("GET k".to_owned(), format!("${}\r\n{round}{round}\r\n", 2 * round.to_string().len())));
        lines.push(("INCR n".to_owned(), format!(":{}\r\n", 2 * round + 1)));
        lines.push(("INCR n".to_owned(), format!(":{}\r\n", 2 * round + 2)));
        lines.push(("PING".to_owned(), "+PONG\r\n".to_owned()));
        lines.push((
            format!("SET only {round} NX"),
            if round == 0 { "+OK\r\n" } else { "$-1\r\n" }.to_owned(),
        ));
        lines.push(("NOPE".to_owned(), "-ERR unknown command 'NOPE': ".to_owned()));
        lines.push(("DEL k".to_owned(), ":1\r\n".to_owned()));
        lines.push(("GET k".to_owned(), "$-1\r\n".to_owned()));
    }
    let all: String = lines.iter().map(|(line, _)| encoded(&line.split(' ').collect::<Vec<_>>())).collect();
    client.write(all.as_bytes()).await;
    for (line, reply) in &lines {
        assert!(client.reply().await.starts_with(reply), "{line}");
    }
}

#[tokio::test]
async fn one_of_many_connections_gets_a_key() {
    let server = Server::start().await;
    let mut tasks = Vec::new();
    for index in 0..64 {
        let mut client = server.client().await;
        tasks.push(tokio::spawn(async move {
            let won = client.line(&format!("SET lock {index} NX EX 30")).await == "+OK\r\n";
            let counted = client.line("INCR hits").await;
            (won, counted)
        }));
    }
    let (mut winners, mut counts) = (0, Vec::new());
    for task in tasks {
        let (won, counted) = task.await.unwrap();
        winners += usize::from(won);
        counts.push(counted.trim_matches([':', '\r', '\n']).parse::<i64>().unwrap());
    }
    counts.sort_unstable();
    assert_eq!((winners, counts), (1, (1..=64).collect()));
    let mut takers = Vec::new();
    for _ in 0..32 {
        let mut client = server.client().await;
        takers.push(tokio::spawn(async move { client.line("GETDEL lock").await != "$-1\r\n" }));
    }
    let mut took = 0;
    for taker in takers {
        took += usize::from(taker.await.unwrap());
    }
    assert_eq!(took, 1);
}

#[tokio::test]
async fn what_is_written_here_is_a_record_over_http_and_the_other_way_round() {
    use ebbtide::stores::records::{PutRecord, RecordAddress, RecordValue, Records};
    let server = Server::start().await;
    let records = server.db.stores().records(&"tenant:acme".parse().unwrap());
    let mut client = server.connect().await;
    assert_eq!(client.send(&["AUTH", "tenant:acme", crate::client::KEY]).await, "+OK\r\n");
    client.line("SET k v EX 10").await;
    let found = records.get(&RecordAddress::id(Records::REDIS, "k")).await.unwrap().found().unwrap();
    assert_eq!(found.value.as_bytes().as_ref(), b"v");
    let put = PutRecord::new(Records::REDIS, "other", RecordValue::from_bytes(&b"\x00\xff"[..]));
    let _ = records.put(&put).await.unwrap();
    client.write(encoded(&["GET", "other"]).as_bytes()).await;
    let mut raw = [0; 8];
    tokio::io::AsyncReadExt::read_exact(&mut client.stream, &mut raw).await.unwrap();
    assert_eq!(&raw, b"$2\r\n\x00\xff\r\n");
}
