//! Keys that end with their scope, and keys that may not extend.

use std::sync::Arc;

use ebbtide::admin::Cleared;
use ebbtide::backend::Cursor;
use ebbtide::{Admin, Backend, Memory, Prefix, Result, Timestamp, async_trait, delegate};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::keys::proof;
use crate::server::Server;

#[tokio::test]
async fn a_writer_lengthens_no_relationship_by_adding_it_again() {
    let server = Server::start().await;
    let (id, writer) = server.key("global", "writer").await;
    let edge = |ttl: Value| {
        json!({"subject": "a", "relation": "owner", "object": "doc", "relation_type": "ownership",
            "created_by": "the root key", "ttl_seconds": ttl})
    };
    let put = async |ttl: Value| server.call_as(&writer, "PUT", "/v1/relationships", &[], edge(ttl)).await;
    put(json!(600)).await.ok(200);
    for longer in [json!(30_000_000), Value::Null] {
        let refused = put(longer).await.refused(409, "conflict");
        assert!(refused["detail"].as_str().unwrap().contains("/v1/relationships/extend"), "{refused}");
    }
    put(json!(300)).await.ok(200);
    let log = server.call("GET", "/v1/audit?action=grant", &[], Value::Null).await.ok(200);
    let entries = log["items"].as_array().unwrap();
    assert!(entries.len() == 2 && entries.iter().all(|entry| entry["key_id"] == json!(id)), "{log}");
    server.call("PUT", "/v1/relationships", &[], edge(Value::Null)).await.ok(200);
}

/// An engine that removes the records of a scope only once the test lets it.
struct Slow {
    engine: Arc<Memory>,
    gate: Arc<Semaphore>,
}

#[async_trait]
impl Backend for Slow {
    delegate!(self => self.engine; get get_many take commit commit_each alter scan sweep info);
}

#[async_trait]
impl Admin for Slow {
    delegate!(self => self.engine; stats stats_at_hand list count erase clock_mark set_clock_mark engine_clock warnings backup);

    async fn clear(&self, prefixes: &[Prefix], after: Option<&Cursor>, now: Timestamp) -> Result<Cleared> {
        self.gate.acquire().await.unwrap().forget();
        self.engine.clear(prefixes, after, now).await
    }
}

#[tokio::test]
async fn the_keys_of_a_scope_end_before_its_records_here_and_soon_elsewhere() {
    let other = Server::start().await;
    let gate = Arc::new(Semaphore::new(0));
    let slow = Arc::clone(&gate);
    let server = Arc::new(other.behind(|engine| Arc::new(Slow { engine, gate: slow })).await);
    let (_, key) = server.key("tenant:acme", "admin").await;
    let child = json!({"scope": "tenant:acme/env:prod", "role": "writer"});
    let child = server.post_as(&key, "/v1/keys", child).await.ok(201)["key"].as_str().unwrap().to_owned();
    let write = async |node: &Server, key: &str, jti: &str| {
        node.post_as(key, "/v1/replays/check", proof(jti)).await.status
    };
    for (node, name) in [(server.as_ref(), "a"), (&other, "b")] {
        for (key, of) in [(&key, "parent"), (&child, "child")] {
            assert_eq!(write(node, key, &format!("{name}-{of}")).await, 200);
        }
    }
    let deleting = Arc::clone(&server);
    let deletion = tokio::spawn(async move { deleting.delete("/v1/scopes/tenant:acme").await });
    // A writer that never pauses is refused while every record is still there.
    let mut written = 4;
    for node in [server.as_ref(), &other] {
        for key in [&key, &child] {
            while write(node, key, &format!("{written}")).await == 200 {
                written += 1;
                tokio::task::yield_now().await;
            }
            assert_eq!(write(node, key, "after").await, 401);
        }
    }
    assert!(!deletion.is_finished());
    gate.add_permits(1_000);
    let deleted = deletion.await.unwrap().ok(200);
    assert_eq!(deleted["deleted"]["api_keys"], 1, "{deleted}");
    let left = server.call("GET", "/v1/scopes/tenant:acme", &[], Value::Null).await.ok(200);
    assert!(left["counts"].get("replays").is_none(), "nothing was written behind the deletion: {left}");
}
