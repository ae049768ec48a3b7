//! Rows of the HTTP contract: names, conditions, and the forms of answers.

use serde_json::{Value, json};

use crate::server::Server;

#[tokio::test]
async fn dots_are_no_names_in_a_path_or_a_body() {
    let server = Server::start().await;
    let put = async |path: &str| server.call("PUT", path, &[], json!({"data": 1})).await;
    put("/v1/attributes/victim/settings/theme").await.ok(200);
    for name in [".", "..", "%2e", "%2E%2e", ".%2e"] {
        for path in [
            format!("/v1/attributes/victim/settings/{name}"),
            format!("/v1/attributes/victim/{name}/theme"),
            format!("/v1/attributes/{name}/settings/theme"),
        ] {
            put(&path).await.refused(400, "invalid");
            server.call("DELETE", &path, &[], Value::Null).await.refused(400, "invalid");
            server.call("GET", &path, &[], Value::Null).await.refused(400, "invalid");
        }
    }
    for names in [("..", "b", "n"), ("o", ".", "n"), ("o", "b", "..")] {
        let body = json!({"owner": names.0, "bucket": names.1, "name": names.2, "data": 1});
        server.post("/v1/attributes/set", body).await.refused(400, "invalid");
    }
    // As clients and proxies resolve `DELETE victim/settings/..`.
    server.call("DELETE", "/v1/attributes/victim/settings", &[], Value::Null).await.refused(405, "invalid");
    server.call("DELETE", "/v1/attributes/victim", &[], Value::Null).await.refused(405, "invalid");
    server.call("GET", "/v1/attributes/victim/settings/theme", &[], Value::Null).await.ok(200);
    for fine in ["...", ".a", "a..", "%2e%2e%2e"] {
        put(&format!("/v1/attributes/victim/settings/{fine}")).await.ok(200);
    }
}

#[tokio::test]
async fn a_name_may_be_that_of_a_call() {
    let server = Server::start().await;
    for word in ["get", "set", "list", "delete-all", "compare-and-swap"] {
        let path = format!("/v1/attributes/{word}/{word}/{word}");
        server.call("PUT", &path, &[], json!({"data": word})).await.ok(200);
        assert_eq!(server.call("GET", &path, &[], Value::Null).await.ok(200)["data"], word);
        let buckets =
            server.call("GET", &format!("/v1/attributes/{word}?limit=5"), &[], Value::Null).await.ok(200);
        assert_eq!(buckets["items"], json!([word]), "{word}");
        let listed =
            server.call("GET", &format!("/v1/attributes/{word}/{word}"), &[], Value::Null).await.ok(200);
        assert_eq!(listed["items"][0]["name"], word);
        assert_eq!(server.call("DELETE", &path, &[], Value::Null).await.status, 204, "{word}");
        server.call("GET", &path, &[], Value::Null).await.refused(404, "unknown");
    }
}

#[tokio::test]
async fn a_bucket_and_an_owner_are_deleted_by_name() {
    let server = Server::start().await;
    for (bucket, name) in [("a", "1"), ("a", "2"), ("b", "1")] {
        server
            .call("PUT", &format!("/v1/attributes/o/{bucket}/{name}"), &[], json!({"data": 1}))
            .await
            .ok(200);
    }
    let deleted = |count: u64| json!({"deleted": count});
    assert_eq!(server.post("/v1/attributes/o/a/delete-all", Value::Null).await.ok(200), deleted(2));
    assert_eq!(server.post("/v1/attributes/o/delete-all", Value::Null).await.ok(200), deleted(1));
    server.call("PUT", "/v1/attributes/o/a/1", &[], json!({"data": 1})).await.ok(200);
    let body = json!({"owner": "o", "bucket": "b"});
    assert_eq!(server.post("/v1/attributes/delete-all", body).await.ok(200), deleted(0));
    assert_eq!(server.post("/v1/attributes/delete-all", json!({"owner": "o"})).await.ok(200), deleted(1));
}

#[tokio::test]
async fn if_match_takes_a_star_and_lists() {
    let server = Server::start().await;
    let path = "/v1/attributes/o/b/n";
    let put = async |tags: &str, data: u64| {
        server.call("PUT", path, &[("if-match", tags)], json!({"data": data})).await
    };
    put("*", 1).await.refused(412, "conflict");
    server.call("DELETE", path, &[("if-match", "*")], Value::Null).await.refused(412, "conflict");
    let first = server.call("PUT", path, &[], json!({"data": 0})).await.ok(200);
    put("*", 1).await.ok(200);
    let tag = |answer: &Value| format!("\"{}\"", answer["version"].as_str().unwrap());
    let old = tag(&first);
    put(&old, 2).await.refused(412, "conflict");
    let now = server.call("GET", path, &[], Value::Null).await.ok(200);
    assert_eq!(now["data"], 1);
    let other = "\"00000000000000000000000000000000\"";
    put(&format!("{other}, {old}"), 2).await.refused(412, "conflict");
    put(&format!("W/{}", tag(&now)), 2).await.refused(412, "conflict");
    put(&format!("{old} ,{}, \"no version\"", tag(&now)), 2).await.ok(200);
    let many = vec![other; 17].join(",");
    put(&many, 3).await.refused(400, "invalid");
    let both = [("if-match", "*"), ("if-none-match", "*")];
    server.call("PUT", path, &both, json!({"data": 1})).await.refused(400, "invalid");
    assert_eq!(server.call("DELETE", path, &[("if-match", "*")], Value::Null).await.status, 204);
}

#[tokio::test]
async fn an_answer_of_no_is_200_only_if_it_is_asked_for() {
    let server = Server::start().await;
    let mut approval = json!({"identity": "alice", "resource": "doc", "action": "GET"});
    server.post("/v1/approvals/check", approval.clone()).await.refused(404, "unknown");
    approval["answer"] = "always".into();
    assert_eq!(
        server.post("/v1/approvals/check", approval.clone()).await.ok(200),
        json!({"approved": false})
    );
    approval["answer"] = "sometimes".into();
    server.post("/v1/approvals/check", approval).await.refused(400, "invalid");
    let mut edge = json!({"subject": "a", "relation": "r", "object": "b", "relation_type": "membership"});
    for transitive in [false, true] {
        edge["transitive"] = transitive.into();
        edge.as_object_mut().unwrap().remove("answer");
        server.post("/v1/relationships/check", edge.clone()).await.refused(404, "unknown");
        edge["answer"] = "always".into();
        let no = server.post("/v1/relationships/check", edge.clone()).await.ok(200);
        assert_eq!(no, json!({"related": false, "path": []}));
    }
}

#[tokio::test]
async fn milliseconds_are_taken_wherever_seconds_are() {
    let server = Server::start().await;
    let fresh = server.post("/v1/replays/check", json!({"namespace": "n", "jti": "j", "ttl_ms": 1500})).await;
    assert_eq!(fresh.ok(200)["expires_at"], 1_800_000_001_500_u64);
    let key = json!({"scope": "tenant:acme", "role": "reader", "ttl_ms": 1500});
    assert_eq!(server.post("/v1/keys", key).await.ok(201)["expires_at"], 1_800_000_001_500_u64);
    let grant = json!({"subject": "a", "client_id": "c", "idle_ttl_ms": 60_500, "max_ttl_ms": 61_500});
    server.post("/v1/grants", grant).await.ok(201);
    let put = json!({"data": 1, "ttl_ms": 1});
    let put = server.call("PUT", "/v1/attributes/o/b/n", &[], put).await.ok(200);
    assert_eq!(put["expires_at"], 1_800_000_000_001_u64);
}

#[tokio::test]
async fn no_answer_of_a_call_may_be_cached() {
    let server = Server::start().await;
    let issued = server
        .post("/v1/codes", json!({"client_id": "a", "subject": "s", "redirect_uri": "https://a"}))
        .await;
    assert!(issued.head.contains("cache-control: no-store"), "{}", issued.head);
    issued.ok(201);
    let refused = server.post("/v1/codes", json!({})).await;
    assert!(refused.head.contains("cache-control: no-store"), "{}", refused.head);
}

#[tokio::test]
async fn a_grant_is_asked_for_with_true_or_with_its_lifetimes() {
    let server = Server::start().await;
    let redeem = async |grant: Value| {
        let code = server.post("/v1/codes", json!({"client_id": "app", "subject": "alice"})).await.ok(201);
        let body = json!({"code": code["code"], "client_id": "app", "grant": grant, "access_token": true});
        server.post("/v1/codes/redeem", body).await
    };
    for grant in [json!(true), json!({}), json!({"profile": "spa", "idle_ttl_ms": 1_500})] {
        let redeemed = redeem(grant.clone()).await.ok(200);
        assert!(redeemed["grant"]["refresh_token"].is_string(), "{grant}: {redeemed}");
        assert!(redeemed["access_token"].is_string(), "{redeemed}");
    }
    for none in [json!(false), Value::Null] {
        assert_eq!(redeem(none).await.ok(200)["grant"], Value::Null);
    }
    assert_eq!(redeem(json!("yes")).await.refused(400, "invalid")["member"], "grant");
    let typo = redeem(json!({"idle_ttl": 5})).await.refused(400, "invalid");
    assert_eq!(
        (&typo["member"], &typo["did_you_mean"]),
        (&json!("grant.idle_ttl"), &json!("idle_ttl_seconds"))
    );
    let device = server.post("/v1/device-codes", json!({"client_id": "tv"})).await.ok(201);
    let approve = json!({"user_code": device["user_code"], "subject": "alice"});
    server.post("/v1/device-codes/approve", approve).await.ok(200);
    let body = json!({"device_code": device["device_code"], "client_id": "tv", "grant": true});
    assert!(server.post("/v1/device-codes/redeem", body).await.ok(200)["grant"]["grant_id"].is_string());
}

#[tokio::test]
async fn a_client_speaks_for_itself_without_a_subject() {
    let server = Server::start().await;
    let token = server.post("/v1/access-tokens", json!({"client_id": "svc"})).await.ok(201);
    let form = format!("token={}", token["access_token"].as_str().unwrap());
    let key = format!("Bearer {}", crate::server::KEY);
    let headers = [("authorization", &*key), ("content-type", "application/x-www-form-urlencoded")];
    let active = server.send("POST", "/v1/introspect", &headers, &form).await.ok(200);
    assert_eq!(
        (&active["active"], &active["sub"], &active["client_id"]),
        (&json!(true), &json!("svc"), &json!("svc"))
    );
    let nobody = server.post("/v1/access-tokens", json!({"subject": "alice"})).await.refused(400, "invalid");
    assert_eq!(nobody["member"], "client_id");
}

#[tokio::test]
async fn what_has_ended_is_told_from_what_never_was_for_ten_seconds() {
    let server = Server::start().await;
    let nonce = server.post("/v1/nonces", json!({"audience": "as", "ttl_ms": 200})).await.ok(201);
    let nonce = json!({"audience": "as", "nonce": nonce["nonce"]});
    let session = server.post("/v1/sessions", json!({"subject": "alice", "ttl_ms": 200})).await.ok(201);
    let session = json!({"session_id": session["session_id"]});
    server.clock.advance(std::time::Duration::from_secs(10));
    server.post("/v1/nonces/check", nonce.clone()).await.refused(410, "expired");
    server.post("/v1/nonces/accept", nonce).await.refused(410, "expired");
    server.post("/v1/sessions/get", session.clone()).await.refused(410, "expired");
    server.post("/v1/sessions/touch", session).await.refused(410, "expired");
}

#[tokio::test]
async fn bounds_of_a_policy_may_be_in_milliseconds() {
    let server = Server::start().await;
    let policy = json!({"kind": "records", "scope": "tenant:acme", "min_ttl_ms": 500, "max_ttl_ms": 1_500,
        "default_ttl_ms": 1_000});
    server.call("PUT", "/v1/policies", &[], policy.clone()).await.ok(200);
    server.post("/v1/policies/simulate", policy).await.ok(200);
    let put = async |ttl: u64| {
        let body = json!({"collection": "c", "id": "1", "value": 1, "ttl_ms": ttl});
        server.call("POST", "/v1/records/put", &[("ebbtide-scope", "tenant:acme")], body).await
    };
    put(500).await.ok(200);
    assert_eq!(put(499).await.refused(400, "invalid")["member"], "ttl_seconds");
    put(1_501).await.refused(400, "invalid");
    // The body of a grant can be sent to a check as it is.
    let approval = json!({"identity": "a", "resource": "r", "action": "GET", "granted_by": "bob",
        "ttl_ms": 60_000, "max_ttl_ms": 120_000});
    server.call("PUT", "/v1/approvals", &[], approval.clone()).await.ok(200);
    server.post("/v1/approvals/check", approval).await.ok(200);
    let related = json!({"subject": "a", "relation": "member", "object": "b", "relation_type": "membership",
        "created_by": "bob", "ttl_ms": 60_000, "max_ttl_ms": 120_000});
    server.call("PUT", "/v1/relationships", &[], related.clone()).await.ok(200);
    server.post("/v1/relationships/check", related).await.ok(200);
}

#[tokio::test]
async fn every_change_takes_the_name_that_it_is_made_for() {
    let server = Server::start().await;
    for (method, path, body) in [
        ("PUT", "/v1/policies", json!({"kind": "approvals", "preset": "temporary"})),
        ("POST", "/v1/records/groups/revoke", json!({"collection": "c", "group": "g"})),
        ("POST", "/v1/approvals/delete-all", json!({})),
        ("POST", "/v1/scopes/migrate", json!({"from": "global", "to": "tenant:acme"})),
    ] {
        for name in ["on_behalf_of", "actor"] {
            let mut body = body.clone();
            body[name] = json!("bob");
            server.call(method, path, &[], body).await.ok(200);
        }
    }
    let log = server.call("GET", "/v1/audit", &[], Value::Null).await.ok(200);
    let named =
        log["items"].as_array().unwrap().iter().filter(|entry| entry["on_behalf_of"] == "bob").count();
    assert!(named >= 4, "{log}");
}
