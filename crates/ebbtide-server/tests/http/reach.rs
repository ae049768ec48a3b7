//! Buckets, provider tokens, wildcards, and the way from requests without a scope to requests with one.

use ebbtide::stores::attributes::{BucketExtend, BucketTtls};
use ebbtide_server::http::scoping::ScopeRules;
use serde_json::{Value, json};

use crate::server::{KEY, Server};

const ACME: &[(&str, &str)] = &[("ebbtide-scope", "tenant:acme")];
const DEV: &[(&str, &str)] = &[("ebbtide-scope", "tenant:acme/env:dev")];

#[tokio::test]
async fn a_session_in_the_bucket_of_sessions_ends_after_ten_minutes() {
    let server = Server::start().await;
    let path = "/v1/attributes/_oauth/oauth_sessions/x";
    let set = server.call("PUT", path, &[], json!({"data": {"state": "s"}})).await.ok(200);
    assert_eq!(set["expires_at"], 1_800_000_600_000_u64);
    server.pass(599);
    server.call("GET", path, &[], Value::Null).await.ok(200);
    server.pass(1);
    server.call("GET", path, &[], Value::Null).await.refused(404, "unknown");
    // A TTL that is given comes first, and other buckets have no end.
    let hour = server.call("PUT", path, &[], json!({"data": 1, "ttl_seconds": 3600})).await.ok(200);
    assert_eq!(hour["expires_at"], 1_800_004_200_000_u64);
    let other = server.call("PUT", "/v1/attributes/alice/notes/x", &[], json!({"data": 1})).await.ok(200);
    assert_eq!(other["expires_at"], Value::Null);
}

#[tokio::test]
async fn the_usage_of_an_owner_and_of_a_scope_is_counted_by_bucket() {
    let server = Server::start().await;
    for (owner, bucket, name) in
        [("alice", "a", "1"), ("alice", "a", "2"), ("alice", "b", "1"), ("bob", "b", "1")]
    {
        let path = format!("/v1/attributes/{owner}/{bucket}/{name}");
        server.call("PUT", &path, ACME, json!({"data": "x", "ttl_seconds": 60})).await.ok(200);
    }
    let counts = |usage: &Value| -> Vec<(String, u64)> {
        let buckets = usage["buckets"].as_array().unwrap().iter();
        buckets.map(|of| (of["bucket"].as_str().unwrap().to_owned(), of["count"].as_u64().unwrap())).collect()
    };
    let alice = server.call("GET", "/v1/attributes/alice?usage=true", ACME, Value::Null).await.ok(200);
    assert_eq!(counts(&alice), [("a".to_owned(), 2), ("b".to_owned(), 1)]);
    assert!(alice["bytes"].as_u64().unwrap() > 30, "{alice}");
    let all = server.call("GET", "/v1/scopes/tenant:acme/usage", &[], Value::Null).await.ok(200);
    assert_eq!(counts(&all), [("a".to_owned(), 2), ("b".to_owned(), 2)]);
    server.pass(60);
    let none = server.call("GET", "/v1/scopes/global/usage?below=true", &[], Value::Null).await.ok(200);
    assert_eq!((&none["count"], &none["bytes"]), (&json!(0), &json!(0)));
}

#[tokio::test]
async fn the_buckets_of_system_owners_are_in_the_metrics() {
    let server = Server::start().await;
    let path = "/v1/attributes/_metrics_test/index/x";
    server.call("PUT", path, ACME, json!({"data": 1, "ttl_seconds": 60})).await.ok(200);
    server.call("PUT", "/v1/attributes/alice/metrics_test/x", ACME, json!({"data": 1})).await.ok(200);
    let mut upkeep = server.upkeep();
    let counted = || {
        let text = ebbtide_server::metrics::recorder().render();
        let named = text.lines().filter(|line| line.contains("metrics_test")).map(str::to_owned);
        named.collect::<Vec<_>>()
    };
    assert_eq!(counted(), [""; 0]);
    for _ in 0..21 {
        upkeep.round().await;
    }
    let labels = r#"ebbtide_bucket_records{scope="tenant:acme",owner="_metrics_test",bucket="index"}"#;
    assert_eq!(counted(), [format!("{labels} 1")]);
    server.pass(60);
    for _ in 0..1_200 {
        upkeep.round().await;
    }
    assert_eq!(counted(), [format!("{labels} 0")], "an empty bucket is shown as zero");
}

/// Names are a caller's choice: a tenant that makes many takes neither memory nor the places of others.
#[tokio::test]
async fn a_tenant_fills_no_metrics_with_its_names() {
    let server = Server::start().await;
    for number in 0..130 {
        let path = format!("/v1/attributes/_crowd{number}/index/x");
        server.call("PUT", &path, ACME, json!({"data": 1})).await.ok(200);
    }
    server.call("PUT", "/v1/attributes/_crowd/index/x", DEV, json!({"data": 1})).await.ok(200);
    let mut upkeep = server.upkeep();
    for _ in 0..21 {
        upkeep.round().await;
    }
    server.call("GET", "/v1/attributes/_crowd129?usage=true", ACME, Value::Null).await.ok(200);
    let text = ebbtide_server::metrics::recorder().render();
    let shown = |scope: &str| {
        let of = format!("ebbtide_bucket_records{{scope=\"{scope}\",owner=\"_crowd");
        text.lines().filter(|line| line.starts_with(&of)).count()
    };
    assert_eq!((shown("tenant:acme"), shown("tenant:acme/env:dev")), (100, 1));
}

#[tokio::test]
async fn a_writer_lengthens_no_life_in_a_bucket_where_that_is_a_privilege() {
    let mut lives = BucketTtls::default();
    lives.set_extend(None, "locked", BucketExtend::Privileged);
    let server = Server::with_bucket_lives(lives).await;
    let key = server.post("/v1/keys", json!({"scope": "tenant:acme", "role": "writer"})).await.ok(201);
    let writer = key["key"].as_str().unwrap();
    let put = async |key: &str, bucket: &str, seconds: u64| {
        let path = format!("/v1/attributes/alice/{bucket}/x");
        server.call_as(key, "PUT", &path, ACME, json!({"data": 1, "ttl_seconds": seconds})).await
    };
    for bucket in ["locked", "open"] {
        put(writer, bucket, 100).await.ok(200);
        put(writer, bucket, 50).await.ok(200);
    }
    put(writer, "open", 100).await.ok(200);
    let refused = put(writer, "locked", 100).await;
    assert!(refused.body["detail"].as_str().unwrap().contains("/v1/attributes/extend"), "{}", refused.body);
    refused.refused(409, "conflict");
    let swap = json!({"old": 1, "new": 2, "ttl_seconds": 100});
    let path = "/v1/attributes/alice/locked/x/compare-and-swap";
    server.call_as(writer, "POST", path, ACME, swap).await.refused(409, "conflict");
    put(KEY, "locked", 100).await.ok(200);
    server.pass(100);
    put(writer, "locked", 1_000).await.ok(200);
}

#[tokio::test]
async fn provider_tokens_are_gone_with_the_grant_or_the_access_token() {
    let server = Server::start().await;
    let grant = server.post("/v1/grants", json!({"subject": "alice", "client_id": "app"})).await.ok(201);
    let by_grant = json!({"grant_id": grant["grant_id"], "provider": "google"});
    let token = json!({"subject": "alice", "client_id": "app", "ttl_seconds": 100});
    let token = server.post("/v1/access-tokens", token).await.ok(201)["access_token"].clone();
    let by_token = json!({"access_token": token, "provider": "google"});
    for name in [&by_grant, &by_token] {
        let mut put = name.clone();
        put["data"] = json!({"access_token": "ya29"});
        server.post("/v1/provider-tokens/put", put).await.ok(200);
        let read = server.post("/v1/provider-tokens/get", name.clone()).await.ok(200);
        assert_eq!(read["data"], json!({"access_token": "ya29"}));
    }
    // Of many callers, one refreshes.
    let asked = (0..16).map(|_| server.post("/v1/provider-tokens/acquire", by_token.clone()));
    let mut won = 0;
    for answer in futures_util::future::join_all(asked).await {
        won += u32::from(answer.status == 200);
        assert!([200, 409].contains(&answer.status), "{}", answer.body);
    }
    assert_eq!(won, 1);
    server.pass(30);
    server.post("/v1/provider-tokens/acquire", by_token.clone()).await.ok(200);
    server.form("/v1/revoke", &format!("token={}", token.as_str().unwrap())).await.ok(200);
    server.post("/v1/provider-tokens/get", by_token).await.refused(404, "unknown");
    let id = grant["grant_id"].as_str().unwrap();
    server.call("DELETE", &format!("/v1/grants/{id}"), &[], Value::Null).await;
    server.post("/v1/provider-tokens/get", by_grant).await.refused(404, "unknown");
    server.post("/v1/provider-tokens/get", json!({"provider": "google"})).await.refused(400, "invalid");
}

#[tokio::test]
async fn approvals_and_relationships_are_found_by_resource_scope_and_below() {
    let server = Server::start().await;
    for (identity, resource, headers) in
        [("alice", "doc", ACME), ("bob", "doc", ACME), ("bob", "page", ACME), ("carol", "doc", DEV)]
    {
        let approval =
            json!({"identity": identity, "resource": resource, "action": "GET", "granted_by": "x"});
        server.call("PUT", "/v1/approvals", headers, approval).await.ok(200);
        let edge = json!({"subject": identity, "relation": "reads", "object": resource,
            "relation_type": {"custom": "access"}, "created_by": "x"});
        server.call("PUT", "/v1/relationships", headers, edge).await.ok(200);
    }
    for (path, found) in [
        ("/v1/approvals", 3),
        ("/v1/approvals?identity=bob", 2),
        ("/v1/approvals?resource=doc", 2),
        ("/v1/approvals?resource=doc&below=true", 3),
        ("/v1/approvals?action=PUT&below=true", 0),
        ("/v1/relationships", 3),
        ("/v1/relationships?object=doc", 2),
        ("/v1/relationships?object=doc&below=true", 3),
        ("/v1/relationships?subject=bob&object=page", 1),
        ("/v1/relationships?relation_type=custom:access&below=true", 4),
    ] {
        let list = server.call("GET", path, ACME, Value::Null).await.ok(200);
        assert_eq!(list["items"].as_array().unwrap().len(), found, "{path}: {list}");
        let and = if path.contains('?') { "&" } else { "?" };
        let count = server.call("GET", &format!("{path}{and}count=true"), ACME, Value::Null).await.ok(200);
        assert_eq!(count, json!({"count": found}), "{path}");
    }
    let edge = |object: &str| json!({"subject": "bob", "relation": "reads", "object": object});
    server.call("POST", "/v1/relationships/check", ACME, edge("page")).await.ok(200);
    server.call("POST", "/v1/relationships/check", ACME, edge("nothing")).await.refused(404, "unknown");
    let wild = json!({"identity": "carol", "resource": "doc", "action": "GET", "below": true});
    assert_eq!(
        server.call("POST", "/v1/approvals/check", ACME, wild.clone()).await.ok(200)["scope"],
        "tenant:acme/env:dev"
    );
    let other = [("ebbtide-scope", "tenant:widgets")];
    server.call("POST", "/v1/approvals/check", &other, wild).await.refused(404, "unknown");
    let deleted = server.call("POST", "/v1/approvals/delete-all", ACME, json!({})).await.ok(200);
    assert_eq!(deleted["deleted"], 3);
    let left = server.call("GET", "/v1/approvals?below=true&count=true", ACME, Value::Null).await.ok(200);
    assert_eq!(left["count"], 1, "those below are another scope's");
    let edges = server.call("GET", "/v1/relationships?count=true", ACME, Value::Null).await.ok(200);
    assert_eq!(edges["count"], 3, "approvals alone were deleted");
}

#[tokio::test]
async fn a_request_without_a_scope_is_warned_about_reported_and_can_be_refused() {
    let server = Server::start().await;
    let proof = |jti: &str| json!({"namespace": "n", "jti": jti});
    let answer = server.post("/v1/replays/check", proof("a")).await;
    assert!(answer.head.contains("ebbtide-warning: no scope"), "{}", answer.head);
    let scoped = server.call("POST", "/v1/replays/check", ACME, proof("a")).await;
    assert!(!scoped.head.contains("ebbtide-warning"), "{}", scoped.head);
    server.post("/v1/replays/check", proof("b")).await.ok(200);
    let report = server.call("GET", "/v1/unscoped-requests", &[], Value::Null).await.ok(200);
    assert_eq!(
        (&report["items"][0]["key"], &report["items"][0]["route"], &report["items"][0]["count"]),
        (&json!("root"), &json!("/v1/replays/check"), &json!(2))
    );
    assert_eq!(report["items"].as_array().unwrap().len(), 1, "operators' calls are none of them: {report}");

    let strict = server.ruled(ScopeRules { require: true, ..ScopeRules::default() }).await;
    strict.post("/v1/replays/check", proof("c")).await.refused(400, "invalid");
    strict.call("POST", "/v1/replays/check", ACME, proof("c")).await.ok(200);
    strict.call("GET", "/v1/stats", &[], Value::Null).await.ok(200);

    let kept = server.ruled(ScopeRules { global_for_admins: true, ..ScopeRules::default() }).await;
    let wanted = json!({"scope": "global", "role": "writer", "ttl_seconds": 60});
    let key = kept.post("/v1/keys", wanted).await.ok(201)["key"].as_str().unwrap().to_owned();
    kept.call_as(&key, "POST", "/v1/replays/check", &[], proof("d")).await.refused(403, "forbidden");
    kept.call_as(&key, "POST", "/v1/replays/check", ACME, proof("d")).await.ok(200);
    kept.call_as(KEY, "POST", "/v1/replays/check", &[], proof("d")).await.ok(200);
}

#[tokio::test]
async fn records_move_to_another_scope_with_their_lives() {
    let server = Server::start().await;
    for number in 0..450 {
        let approval = json!({"identity": format!("user-{number}"), "resource": "doc", "action": "GET",
            "granted_by": "x", "ttl_seconds": 3600});
        server.call("PUT", "/v1/approvals", &[], approval).await.ok(200);
    }
    let edge = json!({"subject": "alice", "relation": "member", "object": "team",
        "relation_type": "membership", "created_by": "x", "ttl_seconds": 60});
    server.call("PUT", "/v1/relationships", &[], edge.clone()).await.ok(200);
    server.call("PUT", "/v1/attributes/alice/b/n", &[], json!({"data": 1})).await.ok(200);
    // One exists there already, and stays.
    server.call("PUT", "/v1/attributes/alice/b/m", &[], json!({"data": "here"})).await.ok(200);
    server.call("PUT", "/v1/attributes/alice/b/m", ACME, json!({"data": "there"})).await.ok(200);
    let (mut moved, mut conflicts, mut after, mut calls) = (0, 0, Value::Null, 0);
    loop {
        let body = json!({"from": "global", "to": "tenant:acme", "after": after});
        let step = server.post("/v1/scopes/migrate", body).await.ok(200);
        moved += step["moved"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum::<u64>();
        conflicts += step["conflicts"].as_u64().unwrap();
        calls += 1;
        if step["done"] == true {
            break;
        }
        after = step["next"].clone();
    }
    assert_eq!((moved, conflicts), (452, 1));
    assert!(calls >= 5, "a call moves a bounded number");
    server.call("POST", "/v1/relationships/check", ACME, edge.clone()).await.ok(200);
    server.call("POST", "/v1/relationships/check", &[], edge.clone()).await.refused(404, "unknown");
    let reverse = server.call("GET", "/v1/relationships?object=team", ACME, Value::Null).await.ok(200);
    assert_eq!(reverse["items"][0]["expires_at"], 1_800_000_060_000_u64);
    let left = server.call("GET", "/v1/relationships?object=team", &[], Value::Null).await.ok(200);
    assert_eq!(left["items"], json!([]));
    let there = server.call("GET", "/v1/attributes/alice/b/m", ACME, Value::Null).await.ok(200);
    assert_eq!(there["data"], "there");
    let again = json!({"from": "global", "to": "tenant:acme"});
    assert_eq!(server.post("/v1/scopes/migrate", again).await.ok(200)["moved"], json!({}));
    let itself = json!({"from": "global", "to": "global"});
    server.post("/v1/scopes/migrate", itself).await.refused(400, "invalid");
}
