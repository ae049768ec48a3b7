//! Records that belong to something are deleted with it.

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
    let log = server.call("GET", "/v1/audit?limit=100", &[], Value::Null).await.ok(200);
    let told = |entry: &Value| entry["action"] == "revoke" && entry["kind"] == "relationships";
    assert!(log["items"].as_array().unwrap().iter().any(told), "the trust ended with an entry: {log}");
}

#[tokio::test]
async fn deleting_an_owner_removes_the_permissions_of_peers_about_it() {
    let server = Server::start().await;
    server.add_trust(Value::Null).await;
    server.add_permission("bob", json!({"owner": "bob"})).await;
    server.call("DELETE", "/v1/owners/bob", &[], Value::Null).await.ok(200);
    assert_eq!((server.trusts().await, server.permission("bob").await), (false, 404));
}

impl Server {
    async fn add_record(&self, id: &str, more: Value) {
        let mut body = json!({"collection": "s", "id": id, "value": 1, "keys": [format!("key of {id}")]});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.post("/v1/records/put", body).await.ok(200);
    }

    /// Status of a read by id, and by second key.
    async fn record(&self, id: &str) -> (u16, u16) {
        let by = async |name: Value| self.post("/v1/records/get", name).await.status;
        let key = json!({"collection": "s", "key": format!("key of {id}")});
        (by(json!({"collection": "s", "id": id})).await, by(key).await)
    }

    async fn links(&self) -> usize {
        let listed = self.post("/v1/belongings/reconcile", Value::Null).await.ok(200);
        assert_eq!(listed["records"], 0);
        usize::try_from(listed["links"].as_u64().unwrap()).unwrap()
    }
}

#[tokio::test]
async fn a_record_goes_with_what_it_belongs_to() {
    let server = Server::start().await;
    server.add_trust(Value::Null).await;
    let client = server.post("/v1/clients", json!({"owner": "zoe", "name": "app"})).await.ok(201);
    let client = client["client_id"].as_str().unwrap();
    let grant = server.post("/v1/grants", json!({"subject": "zoe", "client_id": "other"})).await.ok(201);
    let grant = grant["grant_id"].as_str().unwrap();
    server.add_record("alone", json!({})).await;
    for (id, parent) in [
        ("of-trust", json!({"relationship": trust()})),
        ("of-client", json!({"client": client})),
        ("of-grant", json!({"grant": grant})),
        ("of-owner", json!({"owner": "carol"})),
        ("of-peer", json!({"peer": "carol"})),
    ] {
        server.add_record(id, json!({"belongs_to": parent, "group": "g"})).await;
        let listed = server.post("/v1/belongings", parent).await.ok(200);
        let named = |item: &Value| item["kind"] == "records" && item["names"] == json!(["s", id]);
        assert!(listed["items"].as_array().unwrap().iter().any(named), "{listed}");
        assert_eq!(server.record(id).await, (200, 200), "a list removes nothing");
    }
    assert_eq!(server.call("DELETE", TRUST, &[], Value::Null).await.status, 204);
    server.call("DELETE", &format!("/v1/clients/{client}"), &[], Value::Null).await.ok(200);
    server.call("DELETE", &format!("/v1/grants/{grant}"), &[], Value::Null).await.ok(200);
    let deleted = server.call("DELETE", "/v1/owners/carol", &[], Value::Null).await.ok(200);
    assert!(deleted.to_string().contains("\"records\":2"), "{deleted}");
    for id in ["of-trust", "of-client", "of-grant", "of-owner", "of-peer"] {
        assert_eq!(server.record(id).await, (404, 404), "{id}");
    }
    assert_eq!(server.record("alone").await, (200, 200));
    assert_eq!(server.links().await, 0, "the links are gone with the records");
    let bad = json!({"collection": "s", "id": "x", "value": 1, "belongs_to": {"grant": "nonsense"}});
    server.post("/v1/records/put", bad).await.refused(400, "invalid");
}

#[tokio::test]
async fn a_record_belongs_to_what_its_last_write_names() {
    let server = Server::start().await;
    let bob = || json!({"belongs_to": {"owner": "bob"}});
    let delete_bob = || server.call("DELETE", "/v1/owners/bob", &[], Value::Null);
    for id in ["plain", "moved", "refused", "taken", "touched", "in-batch"] {
        server.add_record(id, bob()).await;
    }
    // Without second keys, too: then the write does not read what is there.
    server.post("/v1/records/put", json!({"collection": "s", "id": "plain", "value": 2})).await.ok(200);
    server.add_record("moved", json!({"belongs_to": {"owner": "eve"}})).await;
    let refused = json!({"collection": "s", "id": "refused", "value": 2, "if": "absent",
        "belongs_to": {"owner": "eve"}});
    server.post("/v1/records/put", refused).await.refused(409, "conflict");
    server.post("/v1/records/take", json!({"collection": "s", "id": "taken"})).await.ok(200);
    server.add_record("taken", json!({})).await;
    server
        .post("/v1/records/touch", json!({"collection": "s", "id": "touched", "ttl_seconds": 9}))
        .await
        .ok(200);
    let batch = json!({"writes": [
        {"put": {"collection": "s", "id": "in-batch", "value": 3}},
        {"put": {"collection": "s", "id": "new", "value": 3, "belongs_to": {"owner": "bob"}}},
    ]});
    server.post("/v1/records/batch", batch).await.ok(200);
    assert_eq!(server.links().await, 0, "no link leads to nothing");
    let listed = server.post("/v1/belongings", json!({"owner": "bob"})).await.ok(200);
    assert_eq!(listed["items"].as_array().unwrap().len(), 3, "{listed}");
    delete_bob().await.ok(200);
    for (id, status) in [
        ("plain", 200),
        ("moved", 200),
        ("refused", 404),
        ("taken", 200),
        ("touched", 404),
        ("in-batch", 200),
        ("new", 404),
    ] {
        assert_eq!(server.record(id).await.0, status, "{id}");
    }
    // One that has ended leaves a link, which leads to nothing.
    server.add_record("brief", json!({"belongs_to": {"owner": "dan"}, "ttl_seconds": 60})).await;
    server.pass(60);
    assert_eq!((server.links().await, server.links().await), (1, 0));
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
    // A trust that expires takes its permissions along; a reconciliation removes them from the store.
    let mut brief = trust();
    (brief["created_by"], brief["ttl_seconds"]) = (json!("admin"), json!(60));
    server.call("PUT", "/v1/relationships", &[], brief).await.ok(200);
    server.add_permission("bob", json!({"relationship": trust()})).await;
    server.add_permission("gone", json!({"relationship": trust()})).await;
    let path = "/v1/attributes/alice/trust_permissions/gone";
    server.call("DELETE", path, &[], Value::Null).await;
    server.pass(61);
    assert_eq!(server.permission("bob").await, 404);
    let done = server.post("/v1/belongings/reconcile", json!({"below": true})).await.ok(200);
    assert_eq!(done, json!({"links": 0, "records": 1}));
    assert_eq!(server.permission("bob").await, 404);
    let late = json!({"data": 1, "belongs_to": {"relationship": trust()}});
    let path = "/v1/attributes/alice/trust_permissions/bob";
    let refused = server.call("PUT", path, &[], late).await;
    assert_eq!(refused.body["member"], "belongs_to", "{}", refused.body);
    refused.refused(400, "invalid");
}

#[tokio::test]
async fn removing_a_trust_or_all_of_them_leaves_no_provider_token() {
    let server = Server::start().await;
    let grant = server.post("/v1/grants", json!({"subject": "alice", "client_id": "app"})).await.ok(201);
    let name = json!({"grant_id": grant["grant_id"], "provider": "google"});
    let mut put = name.clone();
    (put["data"], put["belongs_to"]) = (json!({"access_token": "ya29"}), json!({"relationship": trust()}));
    for delete_all in [false, true] {
        server.add_trust(Value::Null).await;
        server.add_permission("bob", json!({"relationship": trust()})).await;
        server.post("/v1/provider-tokens/put", put.clone()).await.ok(200);
        let listed = server.post("/v1/belongings", json!({"relationship": trust()})).await.ok(200);
        assert_eq!(listed["items"].as_array().unwrap().len(), 2, "{listed}");
        if delete_all {
            server.post("/v1/relationships/delete-all", json!({})).await.ok(200);
        } else {
            assert_eq!(server.call("DELETE", TRUST, &[], Value::Null).await.status, 204);
        }
        server.post("/v1/provider-tokens/get", name.clone()).await.refused(404, "unknown");
        assert_eq!(server.permission("bob").await, 404);
    }
}

#[tokio::test]
async fn what_belongs_to_a_grant_goes_with_its_revocation_or_a_sign_out() {
    let server = Server::start().await;
    for revoked in [true, false] {
        let grant = server.post("/v1/grants", json!({"subject": "alice", "client_id": "app"})).await.ok(201);
        let id = grant["grant_id"].as_str().unwrap();
        server.add_permission("bob", json!({"grant": id})).await;
        let listed = server.post("/v1/belongings", json!({"grant": id})).await.ok(200);
        assert_eq!(listed["items"].as_array().unwrap().len(), 1, "{listed}");
        if revoked {
            server.post("/v1/grants/revoke", json!({"grant_id": id})).await.ok(200);
        } else {
            // One write ends every grant of the subject.
            server.post("/v1/subjects/sign-out", json!({"subject": "alice"})).await.ok(200);
        }
        assert_eq!(server.permission("bob").await, 404, "{revoked}");
    }
    let wrong = json!({"data": 1, "belongs_to": {"grant": "nonsense"}});
    server.call("PUT", "/v1/attributes/alice/b/n", &[], wrong).await.refused(400, "invalid");
}

#[tokio::test]
async fn the_dry_run_of_an_owner_lists_what_its_deletion_removes() {
    let server = Server::start().await;
    server.add_trust(Value::Null).await;
    // A permission of a peer about bob, and a subscription of carol to him.
    server.add_permission("bob", json!({"peer": "bob"})).await;
    let subscription = json!({"data": 1, "belongs_to": {"relationship": trust()}});
    server.call("PUT", "/v1/attributes/carol/subscriptions/bob", &[], subscription).await.ok(200);
    server.call("PUT", "/v1/attributes/bob/settings/theme", &[], json!({"data": 1})).await.ok(200);
    let approval = json!({"identity": "bob", "resource": "doc", "action": "GET", "granted_by": "x"});
    server.call("PUT", "/v1/approvals", &[], approval).await.ok(200);
    server.post("/v1/grants", json!({"subject": "bob", "client_id": "app"})).await.ok(201);
    server.post("/v1/sessions", json!({"subject": "bob", "data": {}})).await.ok(201);
    let client = server.post("/v1/clients", json!({"owner": "bob", "name": "app"})).await.ok(201);
    let of_client = json!({"data": 1, "belongs_to": {"client": client["client_id"]}});
    server.call("PUT", "/v1/attributes/_oauth/client_index/app", &[], of_client).await.ok(200);
    let listed = server.post("/v1/belongings", json!({"owner": "bob"})).await.ok(200);
    let kinds = listed["items"].as_array().unwrap().iter().map(|item| item["kind"].as_str().unwrap());
    let mut kinds: Vec<_> = kinds.collect();
    kinds.sort_unstable();
    let (four, rest) = kinds.split_at(5);
    assert_eq!(four, ["approvals", "attributes", "attributes", "attributes", "attributes"], "{listed}");
    assert_eq!(rest, ["clients", "grants", "relationships", "sessions"], "{listed}");
    server.call("DELETE", "/v1/owners/bob", &[], Value::Null).await.ok(200);
    let left = server.post("/v1/belongings", json!({"owner": "bob"})).await.ok(200);
    assert_eq!(left["items"], json!([]));
    for path in ["alice/trust_permissions/bob", "carol/subscriptions/bob", "_oauth/client_index/app"] {
        let path = format!("/v1/attributes/{path}");
        server.call("GET", &path, &[], Value::Null).await.refused(404, "unknown");
    }
}
