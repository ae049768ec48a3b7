//! Policies over HTTP, and the lives that they bound.

use serde_json::{Value, json};

use crate::server::Server;

fn approval(ttl: Option<i64>) -> Value {
    json!({"identity": "alice", "resource": "doc", "action": "GET", "granted_by": "x", "ttl_seconds": ttl})
}

const ACME: &[(&str, &str)] = &[("ebbtide-scope", "tenant:acme")];

#[tokio::test]
async fn approvals_and_relationships_live_for_a_minute_to_a_year_by_default() {
    let server = Server::start().await;
    let edge = |ttl: i64| {
        json!({"subject": "alice", "relation": "member", "object": "team", "relation_type": "membership",
            "created_by": "x", "ttl_seconds": ttl})
    };
    for (ttl, good) in [(59, false), (60, true), (31_536_000, true), (31_536_001, false)] {
        for answer in [
            server.call("PUT", "/v1/approvals", &[], approval(Some(ttl))).await,
            server.call("PUT", "/v1/relationships", &[], edge(ttl)).await,
        ] {
            if good {
                assert_eq!(answer.ok(200)["ttl_seconds"], ttl);
            } else {
                let detail = answer.refused(400, "invalid");
                assert!(detail["detail"].as_str().unwrap().contains("60 s to 31536000 s"), "{detail}");
            }
        }
    }
    let endless = server.call("PUT", "/v1/approvals", ACME, approval(None)).await.ok(200);
    assert_eq!((&endless["expires_at"], &endless["ttl_seconds"]), (&Value::Null, &Value::Null));
    let wider = json!({"kind": "approvals", "scope": "tenant:acme", "min_ttl_seconds": 1});
    server.call("PUT", "/v1/policies", &[], wider).await.ok(200);
    server.call("PUT", "/v1/approvals", ACME, approval(Some(1))).await.ok(200);
    server.call("PUT", "/v1/approvals", &[], approval(Some(1))).await.refused(400, "invalid");
}

#[tokio::test]
async fn a_policy_is_in_force_here_at_once_and_on_other_nodes_after_a_round() {
    let server = Server::start().await;
    let other = server.another().await;
    let policy = json!({"kind": "approvals", "scope": "tenant:acme", "preset": "temporary"});
    let set = server.call("PUT", "/v1/policies", &[], policy.clone()).await.ok(200);
    assert_eq!((&set["version"], &set["max_ttl_seconds"]), (&json!(1), &json!(86_400)));
    let week = approval(Some(604_800));
    server.call("PUT", "/v1/approvals", ACME, week.clone()).await.refused(400, "invalid");
    other.round().await;
    other.call("PUT", "/v1/approvals", ACME, week.clone()).await.refused(400, "invalid");
    assert_eq!(server.call("PUT", "/v1/policies", &[], policy).await.ok(200)["version"], 2);
    let log = server.call("GET", "/v1/audit?scope=tenant:acme", &[], Value::Null).await.ok(200);
    assert_eq!(log["items"][0]["action"], "policy", "{log}");
    let path = "/v1/policies?kind=approvals&scope=tenant:acme";
    assert_eq!(other.call("DELETE", path, &[], Value::Null).await.status, 204);
    server.round().await;
    server.call("PUT", "/v1/approvals", ACME, week).await.ok(200);
}

async fn put(server: &Server, collection: &str, id: &str, life: Value) -> crate::server::Answer {
    let mut body = json!({"collection": collection, "id": id, "value": 1});
    body.as_object_mut().unwrap().extend(life.as_object().unwrap().clone());
    server.call("POST", "/v1/records/put", ACME, body).await
}

#[tokio::test]
async fn a_policy_of_a_collection_is_set_read_simulated_and_removed() {
    let server = Server::start().await;
    let other = server.another().await;
    for (collection, id, ttl) in [("s", "a", 100), ("s", "b", 7_200), ("t", "a", 100)] {
        put(&server, collection, id, json!({"ttl_seconds": ttl})).await.ok(200);
    }
    let policy = json!({"kind": "records", "collection": "s", "scope": "tenant:acme", "min_ttl_seconds": 600,
        "max_ttl_seconds": 3_600, "default_ttl_seconds": 1_800});
    let simulated = server.post("/v1/policies/simulate", policy.clone()).await.ok(200);
    assert_eq!((&simulated["live"], &simulated["too_long"]), (&json!(2), &json!(1)));
    let set = server.call("PUT", "/v1/policies", &[], policy.clone()).await.ok(200);
    assert_eq!((&set["collection"], &set["version"]), (&json!("s"), &json!(1)));
    let end = |answer: &Value| answer["expires_at"].as_u64().map(|at| (at - 1_800_000_000_000) / 1_000);
    assert_eq!(end(&put(&server, "s", "a", json!({})).await.ok(200)), Some(1_800));
    assert_eq!(end(&put(&server, "t", "a", json!({})).await.ok(200)), None);
    let refused = put(&server, "s", "a", json!({"ttl_ms": 1_000})).await.refused(400, "invalid");
    assert!(refused["detail"].as_str().unwrap().contains("600 s to 3600 s"), "{refused}");
    let touch = json!({"collection": "s", "id": "a", "ttl_seconds": 10});
    server.call("POST", "/v1/records/touch", ACME, touch).await.refused(400, "invalid");
    let batch = json!({"writes": [{"put": {"collection": "s", "id": "c", "value": 1, "ttl_seconds": 10}}]});
    server.call("POST", "/v1/records/batch", ACME, batch).await.refused(400, "invalid");
    other.round().await;
    put(&other, "s", "a", json!({"ttl_seconds": 10})).await.refused(400, "invalid");
    let read =
        async |query: &str| server.call("GET", &format!("/v1/policies?{query}"), &[], Value::Null).await;
    let found = read("kind=records&collection=s&scope=tenant:acme/env:dev").await.ok(200);
    assert_eq!((&found["collection"], &found["scope"]), (&json!("s"), &json!("tenant:acme")));
    read("kind=records&collection=t&scope=tenant:acme").await.refused(404, "unknown");
    read("kind=records&scope=tenant:acme").await.refused(404, "unknown");
    let counters = json!({"kind": "counters", "collection": "hits", "scope": "tenant:acme",
        "default_ttl_seconds": 60});
    server.call("PUT", "/v1/policies", &[], counters).await.ok(200);
    let hit = json!({"collection": "hits", "id": "a"});
    let counted = server.call("POST", "/v1/records/increment", ACME, hit).await.ok(200);
    assert_eq!(end(&counted), Some(60));
    let leases = json!({"kind": "leases", "collection": "locks", "scope": "tenant:acme", "min_ttl_seconds": 1,
        "default_ttl_seconds": 5});
    server.call("PUT", "/v1/policies", &[], leases).await.ok(200);
    let lock = json!({"collection": "locks", "id": "a"});
    assert_eq!(end(&server.call("POST", "/v1/records/acquire", ACME, lock).await.ok(200)), Some(5));
    assert_eq!(read("").await.ok(200)["items"].as_array().unwrap().len(), 3);
    assert_eq!(read("collection=s").await.ok(200)["items"].as_array().unwrap().len(), 1);
    let stale = {
        let mut stale = policy.clone();
        stale["version"] = json!(7);
        stale
    };
    server.call("PUT", "/v1/policies", &[], stale).await.refused(409, "conflict");
    let remove = async |query: &str| {
        server
            .call("DELETE", &format!("/v1/policies?scope=tenant:acme&{query}"), &[], Value::Null)
            .await
            .status
    };
    assert_eq!(remove("kind=records").await, 404, "the policy of the kind is another");
    assert_eq!(remove("kind=records&collection=s").await, 204);
    assert_eq!(end(&put(&server, "s", "a", json!({})).await.ok(200)), None);
    let log = server.call("GET", "/v1/audit?scope=tenant:acme", &[], Value::Null).await.ok(200);
    let policies = log["items"].as_array().unwrap().iter().filter(|entry| entry["action"] == "policy");
    assert_eq!(policies.count(), 4, "{log}");
    for bad in [
        json!({"kind": "approvals", "collection": "s"}),
        json!({"kind": "records", "collection": ""}),
        json!({"kind": "records_groups", "collection": "s"}),
    ] {
        server.call("PUT", "/v1/policies", &[], bad.clone()).await.refused(400, "invalid");
        server.post("/v1/policies/simulate", bad).await.refused(400, "invalid");
    }
    read("kind=approvals&collection=s").await.refused(400, "invalid");
    assert_eq!(remove("kind=approvals&collection=s").await, 400);
}

#[tokio::test]
async fn a_policy_is_simulated_against_the_records_that_it_would_bound() {
    let server = Server::start().await;
    for (number, ttl) in [Some(60), Some(7_200), Some(1_000_000), None].into_iter().enumerate() {
        let mut approval = approval(ttl);
        approval["resource"] = json!(format!("doc-{number}"));
        server.call("PUT", "/v1/approvals", ACME, approval.clone()).await.ok(200);
        let below = [("ebbtide-scope", "tenant:acme/env:dev")];
        server.call("PUT", "/v1/approvals", &below, approval.clone()).await.ok(200);
        let elsewhere = [("ebbtide-scope", "tenant:acme2")];
        server.call("PUT", "/v1/approvals", &elsewhere, approval).await.ok(200);
    }
    let policy = json!({"kind": "approvals", "scope": "tenant:acme", "preset": "short_lived"});
    let simulate = || server.post("/v1/policies/simulate", policy.clone());
    let found =
        json!({"live": 8, "refused": 4, "too_short": 2, "too_long": 2, "without_end": 2, "exact": true});
    assert_eq!(simulate().await.ok(200), found);
    // Records of a scope with a policy of its own are not counted.
    let own = json!({"kind": "approvals", "scope": "tenant:acme/env:dev", "preset": "default"});
    server.call("PUT", "/v1/policies", &[], own).await.ok(200);
    assert_eq!(simulate().await.ok(200)["live"], 4);
    let listed = server.call("GET", "/v1/policies", &[], Value::Null).await.ok(200);
    assert_eq!(listed["items"].as_array().unwrap().len(), 1, "a simulation sets nothing");
    server.pass(70);
    assert_eq!(simulate().await.ok(200)["live"], 3, "expired records are not counted");
}

#[tokio::test]
async fn a_policy_that_contradicts_itself_or_bounds_no_lives_is_refused() {
    let server = Server::start().await;
    for bad in [
        json!({"kind": "approvals", "min_ttl_seconds": 100, "max_ttl_seconds": 10}),
        json!({"kind": "approvals", "preset": "endless"}),
        json!({"kind": "approvals", "default_ttl_seconds": 0}),
        json!({"kind": "approval"}),
        json!({"kind": "grant_index"}),
        json!({"kind": "relationships_reverse"}),
        json!({"kind": "policies"}),
        json!({"kind": "approvals", "scope": "acme"}),
    ] {
        server.call("PUT", "/v1/policies", &[], bad.clone()).await.refused(400, "invalid");
        server.post("/v1/policies/simulate", bad).await.refused(400, "invalid");
    }
    let foreign = json!({"kind": "approvals", "scope": "tenant:widgets"});
    server.call("PUT", "/v1/policies", ACME, foreign).await.refused(403, "forbidden");
}

#[tokio::test]
async fn a_policy_goes_with_its_scope_and_no_other() {
    let server = Server::start().await;
    for scope in ["tenant:acme", "tenant:acme/env:dev", "tenant:widgets", "global"] {
        let policy = json!({"kind": "nonces", "scope": scope, "preset": "default"});
        server.call("PUT", "/v1/policies", &[], policy).await.ok(200);
    }
    let deleted = server.call("DELETE", "/v1/scopes/tenant:acme?below=true", &[], Value::Null).await.ok(200);
    assert_eq!(deleted["deleted"]["policies"], 2);
    server.call("DELETE", "/v1/scopes/global", &[], Value::Null).await.ok(200);
    let left = server.call("GET", "/v1/policies", &[], Value::Null).await.ok(200);
    assert_eq!(left["items"].as_array().unwrap().len(), 1, "{left}");
    assert_eq!(left["items"][0]["scope"], "tenant:widgets");
}

#[tokio::test]
async fn a_life_slides_up_to_its_cap_and_is_answered() {
    let server = Server::start().await;
    let mut sliding = approval(Some(60));
    sliding["max_ttl_seconds"] = json!(150);
    sliding["sliding"] = json!(true);
    let granted = server.call("PUT", "/v1/approvals", &[], sliding.clone()).await.ok(200);
    assert_eq!(
        (&granted["ttl_seconds"], &granted["cap_at"], &granted["sliding"]),
        (&json!(60), &json!(1_800_000_150_000_u64), &json!(true))
    );
    let check = || server.post("/v1/approvals/check", sliding.clone());
    for _ in 0..3 {
        server.pass(45);
        check().await.ok(200);
    }
    assert_eq!(check().await.ok(200)["expires_at"], 1_800_000_150_000_u64);
    server.pass(15);
    check().await.refused(404, "unknown");
    sliding["max_ttl_seconds"] = Value::Null;
    server.call("PUT", "/v1/approvals", &[], sliding).await.refused(400, "invalid");
    let draft = json!({"data": 1, "ttl_seconds": 60, "max_ttl_seconds": 100, "sliding": true});
    server.call("PUT", "/v1/attributes/alice/b/n", &[], draft).await.ok(200);
    server.pass(50);
    server.call("GET", "/v1/attributes/alice/b/n", &[], Value::Null).await.ok(200);
    server.pass(30);
    let read = server.call("GET", "/v1/attributes/alice/b/n", &[], Value::Null).await.ok(200);
    assert_eq!((&read["sliding"], &read["ttl_seconds"]), (&json!(true), &json!(60)));
}
