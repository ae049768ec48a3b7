//! What belongs to what: it goes with it.

use serde_json::{Value, json};

use crate::server::Server;

fn trust() -> Value {
    json!({"subject": "alice", "relation": "peer", "object": "bob", "relation_type": "trust"})
}

impl Server {
    async fn add_trust(&self, belongs_to: Value) {
        let mut body = trust();
        (body["created_by"], body["belongs_to"]) = (json!("admin"), belongs_to);
        self.call("PUT", "/v1/relationships", &[], body).await.ok(200);
    }

    async fn add_permission(&self, name: &str, belongs_to: Value) {
        let path = format!("/v1/attributes/alice/trust_permissions/{name}");
        self.call("PUT", &path, &[], json!({"data": {"config/*": "r"}, "belongs_to": belongs_to}))
            .await
            .ok(200);
    }

    async fn permission(&self, name: &str) -> u16 {
        let path = format!("/v1/attributes/alice/trust_permissions/{name}");
        self.call("GET", &path, &[], Value::Null).await.status
    }

    async fn trusts(&self) -> bool {
        self.post("/v1/relationships/check", trust()).await.status == 200
    }
}

const TRUST: &str = "/v1/relationships?subject=alice&relation=peer&object=bob&relation_type=trust";

#[tokio::test]
async fn removing_a_trust_leaves_no_permission() {
    let server = Server::start().await;
    server.add_trust(Value::Null).await;
    server.add_permission("bob", json!({"relationship": trust()})).await;
    server.add_permission("carol", Value::Null).await;
    let listed = server.post("/v1/belongings", json!({"relationship": trust()})).await.ok(200);
    assert_eq!(listed["items"][0]["names"], json!(["alice", "trust_permissions", "bob"]));
    assert_eq!(server.permission("bob").await, 200, "a list removes nothing");
    assert_eq!(server.call("DELETE", TRUST, &[], Value::Null).await.status, 204);
    assert_eq!((server.permission("bob").await, server.permission("carol").await), (404, 200));
}

#[tokio::test]
async fn deleting_a_client_leaves_no_trust_and_no_permission() {
    let server = Server::start().await;
    let client = server.post("/v1/clients", json!({"owner": "alice", "name": "app"})).await.ok(201);
    let id = client["client_id"].as_str().unwrap();
    server.add_trust(json!({"client": id})).await;
    server.add_permission("bob", json!({"relationship": trust()})).await;
    let listed = server.post("/v1/belongings", json!({"client": id})).await.ok(200);
    assert_eq!(listed["items"].as_array().unwrap().len(), 2, "{listed}");
    let answer = server.call("DELETE", &format!("/v1/clients/{id}"), &[], Value::Null).await;
    assert!(answer.status < 300, "{}", answer.body);
    assert_eq!((server.trusts().await, server.permission("bob").await), (false, 404));
}

#[tokio::test]
async fn deleting_an_owner_removes_the_permissions_of_peers_about_it() {
    let server = Server::start().await;
    server.add_trust(Value::Null).await;
    server.add_permission("bob", json!({"owner": "bob"})).await;
    server.call("DELETE", "/v1/owners/bob", &[], Value::Null).await.ok(200);
    assert_eq!((server.trusts().await, server.permission("bob").await), (false, 404));
}

#[tokio::test]
async fn a_link_is_changed_and_reconciled() {
    let server = Server::start().await;
    server.add_trust(Value::Null).await;
    server.add_permission("bob", json!({"relationship": trust()})).await;
    // It belongs to another now.
    server.add_permission("bob", json!({"owner": "zoe"})).await;
    assert_eq!(server.call("DELETE", TRUST, &[], Value::Null).await.status, 204);
    assert_eq!(server.permission("bob").await, 200);
    // A trust that expires takes its permissions along with the next reconciliation.
    let mut brief = trust();
    (brief["created_by"], brief["ttl_seconds"]) = (json!("admin"), json!(60));
    server.call("PUT", "/v1/relationships", &[], brief).await.ok(200);
    server.add_permission("bob", json!({"relationship": trust()})).await;
    server.add_permission("gone", json!({"relationship": trust()})).await;
    let path = "/v1/attributes/alice/trust_permissions/gone";
    server.call("DELETE", path, &[], Value::Null).await;
    server.pass(61);
    let done = server.post("/v1/belongings/reconcile", Value::Null).await.ok(200);
    assert_eq!(done, json!({"links": 1, "records": 1}));
    assert_eq!(server.permission("bob").await, 404);
}
