//! The routes through a real socket: each success, each refusal, and every refusal other than 2xx.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "http/api.rs"]
mod api;
#[path = "http/audited.rs"]
mod audited;
#[path = "http/belongings.rs"]
mod belongings;
#[path = "http/clients.rs"]
mod clients;
#[path = "http/contract.rs"]
mod contract;
#[path = "http/ended.rs"]
mod ended;
#[path = "http/errors.rs"]
mod errors;
#[path = "http/examples.rs"]
mod examples;
#[path = "http/keys.rs"]
mod keys;
#[path = "http/limits_of_keys.rs"]
mod limits_of_keys;
#[path = "http/malformed.rs"]
mod malformed;
#[path = "http/matrix.rs"]
mod matrix;
#[path = "http/migration.rs"]
mod migration;
#[path = "http/oauth.rs"]
mod oauth;
#[path = "http/policies.rs"]
mod policies;
#[path = "http/reach.rs"]
mod reach;
#[path = "http/records.rs"]
mod records;
#[path = "http/server.rs"]
mod server;
#[path = "http/state.rs"]
mod state;
#[path = "http/transfer.rs"]
mod transfer;

use serde_json::{Value, json};

use server::{KEY, Server};

#[tokio::test]
async fn a_replay_is_refused_until_its_time_is_over() {
    let server = Server::start().await;
    let proof = json!({"namespace": "htu", "jti": "a", "jkt": "k", "ttl_seconds": 5});
    let fresh = server.post("/v1/replays/check", proof.clone()).await.ok(200);
    assert_eq!(fresh, json!({"outcome": "fresh", "expires_at": 1_800_000_005_000_u64}));
    server.post("/v1/replays/check", proof.clone()).await.refused(409, "replay");
    server.pass(5);
    server.post("/v1/replays/check", proof).await.ok(200);
    let item = |jti: &str| json!({"namespace": "htu", "jti": jti});
    let batch = server.post("/v1/replays/check-batch", json!({"items": [item("x"), item("y")]})).await;
    assert_eq!(batch.ok(200), json!({"outcomes": ["fresh", "fresh"]}));
    let batch = server.post("/v1/replays/check-batch", json!({"items": [item("x"), item("z")]})).await;
    assert_eq!(batch.refused(409, "replay")["outcomes"], json!(["replay", "fresh"]));
    server.post("/v1/replays/check", item("z")).await.refused(409, "replay");
}

#[tokio::test]
async fn a_nonce_is_accepted_once() {
    let server = Server::start().await;
    let issued = server.post("/v1/nonces", json!({"audience": "as", "ttl_seconds": 10})).await.ok(201);
    let nonce = json!({"audience": "as", "nonce": issued["nonce"]});
    server.post("/v1/nonces/check", nonce.clone()).await.ok(200);
    server.post("/v1/nonces/accept", nonce.clone()).await.ok(200);
    server.post("/v1/nonces/accept", nonce.clone()).await.refused(409, "used");
    let other = json!({"audience": "rs", "nonce": issued["nonce"]});
    server.post("/v1/nonces/accept", other).await.refused(404, "unknown");
    let issued = server.post("/v1/nonces", json!({"audience": "as", "ttl_seconds": 10})).await.ok(201);
    server.pass(10);
    let late = json!({"audience": "as", "nonce": issued["nonce"]});
    server.post("/v1/nonces/accept", late).await.refused(410, "expired");
}

#[tokio::test]
async fn a_code_gives_a_grant_once_and_a_second_redemption_revokes_it() {
    let server = Server::start().await;
    let request = json!({"client_id": "app", "subject": "alice", "redirect_uri": "https://app/cb",
        "scope": "read", "data": {"n": 1}});
    let issued = server.post("/v1/codes", request.clone()).await.ok(201);
    let redeem =
        json!({"code": issued["code"], "client_id": "app", "redirect_uri": "https://app/cb", "grant": {}});
    let redeemed = server.post("/v1/codes/redeem", redeem.clone()).await.ok(200);
    assert_eq!((&redeemed["subject"], &redeemed["data"]), (&json!("alice"), &json!({"n": 1})));
    let grant = &redeemed["grant"];
    let read = format!("/v1/grants/{}", grant["grant_id"].as_str().unwrap());
    assert_eq!(server.call("GET", &read, &[], Value::Null).await.ok(200)["state"], "active");
    server.post("/v1/codes/redeem", redeem).await.refused(409, "reused");
    let rotate = json!({"refresh_token": grant["refresh_token"], "client_id": "app"});
    let revoked = server.post("/v1/grants/rotate", rotate).await.refused(410, "revoked");
    assert_eq!(revoked["revoked"], "code_reused");
    let thefts = server.call("GET", "/v1/audit?action=theft", &[], Value::Null).await.ok(200);
    let [theft] = thefts["items"].as_array().unwrap().as_slice() else { panic!("one theft: {thefts}") };
    assert_eq!((&theft["target"][0], &theft["key_id"]), (&grant["grant_id"], &json!("root")), "{theft}");

    let issued = server.post("/v1/codes", request.clone()).await.ok(201);
    let wrong = json!({"code": issued["code"], "client_id": "other", "redirect_uri": "https://app/cb"});
    assert_eq!(server.post("/v1/codes/redeem", wrong).await.refused(422, "mismatch")["field"], "client_id");
    let issued = server.post("/v1/codes", request).await.ok(201);
    server.pass(60);
    let late = json!({"code": issued["code"], "client_id": "app", "redirect_uri": "https://app/cb"});
    server.post("/v1/codes/redeem", late).await.refused(410, "expired");
    let garbage = json!({"code": "ebc_no", "client_id": "app", "redirect_uri": "https://app/cb"});
    server.post("/v1/codes/redeem", garbage).await.refused(404, "unknown");
}

#[tokio::test]
async fn a_family_rotates_retries_and_dies_of_reuse() {
    let server = Server::start().await;
    let grant = server
        .post(
            "/v1/grants",
            json!({"subject": "alice", "client_id": "app", "scope": "read", "profile": "mcp"}),
        )
        .await;
    let grant = grant.ok(201);
    let rotate = |token: &Value| json!({"refresh_token": token, "client_id": "app"});
    let first = server.post("/v1/grants/rotate", rotate(&grant["refresh_token"])).await.ok(200);
    assert_eq!((&first["generation"], &first["retried"]), (&json!(1), &json!(false)));
    let again = server.post("/v1/grants/rotate", rotate(&grant["refresh_token"])).await.ok(200);
    assert_eq!((&again["retried"], &again["refresh_token"]), (&json!(true), &first["refresh_token"]));
    let token =
        json!({"grant_id": grant["grant_id"], "subject": "alice", "client_id": "app", "scope": "write"});
    let token = server.post("/v1/access-tokens", token).await;
    token.refused(422, "mismatch");
    let token = json!({"grant_id": grant["grant_id"], "subject": "alice", "client_id": "app"});
    let access = server.post("/v1/access-tokens", token.clone()).await.ok(201);
    let introspect = format!("token={}", access["access_token"].as_str().unwrap());
    let active = server.form("/v1/introspect", &introspect).await.ok(200);
    assert_eq!((&active["active"], &active["sub"]), (&json!(true), &json!("alice")));
    let wrong = json!({"refresh_token": first["refresh_token"], "client_id": "thief"});
    server.post("/v1/grants/rotate", wrong).await.refused(422, "mismatch");
    let mut with_access = rotate(&first["refresh_token"]);
    with_access["access_token"] = json!({"ttl_seconds": 60});
    let second = server.post("/v1/grants/rotate", with_access).await.ok(200);
    assert_eq!(second["access_token_expires_at"], 1_800_000_060_000_u64);
    let own = format!("token={}", second["access_token"].as_str().unwrap());
    assert_eq!(server.form("/v1/introspect", &own).await.ok(200)["active"], true);
    server.post("/v1/grants/rotate", rotate(&grant["refresh_token"])).await.refused(409, "raced");
    server.pass(10);
    server.post("/v1/grants/rotate", rotate(&grant["refresh_token"])).await.refused(409, "reused");
    assert_eq!(server.form("/v1/introspect", &introspect).await.ok(200), json!({"active": false}));
    server.post("/v1/access-tokens", token).await.refused(410, "revoked");
    server
        .post("/v1/grants/rotate", json!({"refresh_token": "ebr_x", "client_id": "app"}))
        .await
        .refused(404, "unknown");
}

#[tokio::test]
async fn revoking_reaches_a_subject_a_token_and_nothing_twice() {
    let server = Server::start().await;
    let issue = || server.post("/v1/grants", json!({"subject": "bob", "client_id": "app"}));
    let (first, second, third) = (issue().await.ok(201), issue().await.ok(201), issue().await.ok(201));
    let revoke = |body: Value| server.post("/v1/grants/revoke", body);
    assert_eq!(revoke(json!({"grant_id": first["grant_id"]})).await.ok(200), json!({"revoked": 1}));
    assert_eq!(revoke(json!({"grant_id": first["grant_id"]})).await.ok(200), json!({"revoked": 0}));
    let token = format!("token={}", second["refresh_token"].as_str().unwrap());
    assert_eq!(server.form("/v1/introspect", &token).await.ok(200)["active"], true);
    assert_eq!(server.form("/v1/revoke", &token).await.status, 200);
    assert_eq!(server.form("/v1/introspect", &token).await.ok(200)["active"], false);
    assert_eq!(revoke(json!({"subject": "bob"})).await.ok(200), json!({"revoked": 1}));
    let rotate = json!({"refresh_token": third["refresh_token"], "client_id": "app"});
    server.post("/v1/grants/rotate", rotate).await.refused(410, "revoked");
    revoke(json!({})).await.refused(400, "invalid");
    revoke(json!({"subject": "bob", "client_id": "app"})).await.refused(400, "invalid");
    assert_eq!(server.form("/v1/revoke", "token=garbage").await.status, 200, "as RFC 7009 wants it");
}

#[tokio::test]
async fn attributes_keep_any_json_and_conditions_hold() {
    let server = Server::start().await;
    let path = "/v1/attributes/al%2Fice/b%3A1/x";
    for data in [json!(null), json!(false), json!(""), json!([]), json!({"a": 1})] {
        server.call("PUT", path, &[], json!({"data": data})).await.ok(200);
        assert_eq!(server.call("GET", path, &[], Value::Null).await.ok(200)["data"], data);
    }
    let written = server.call("PUT", path, &[("if-none-match", "*")], json!({"data": 1})).await;
    written.refused(412, "conflict");
    let read = server.call("GET", path, &[], Value::Null).await;
    let tag = format!("\"{}\"", read.body["version"].as_str().unwrap());
    assert!(read.head.contains(&format!("etag: {tag}")), "{}", read.head);
    server.call("PUT", path, &[("if-match", &tag)], json!({"data": 2, "ttl_seconds": 10})).await.ok(200);
    server.call("PUT", path, &[("if-match", &tag)], json!({"data": 3})).await.refused(412, "conflict");
    let swap = format!("{path}/compare-and-swap");
    server.post(&swap, json!({"old": 2, "new": 3})).await.ok(200);
    server.post(&swap, json!({"old": 2, "new": 4})).await.refused(409, "conflict");
    let listed = server.call("GET", "/v1/attributes/al%2Fice/b%3A1?limit=1", &[], Value::Null).await.ok(200);
    assert_eq!(listed["items"][0]["name"], "x");
    let buckets = server.call("GET", "/v1/attributes/al%2Fice", &[], Value::Null).await.ok(200);
    assert_eq!(buckets["items"], json!(["b:1"]));
    server.pass(10);
    server.call("GET", path, &[], Value::Null).await.refused(404, "unknown");
    let swept = server.post("/v1/sweep", Value::Null).await.ok(200);
    assert_eq!(swept, json!({}), "what expires at the instant is not swept yet");
    server.pass(1);
    assert_eq!(server.post("/v1/sweep", Value::Null).await.ok(200), json!({"attributes": 1}));
    server.call("DELETE", path, &[], Value::Null).await.refused(404, "unknown");
}

#[tokio::test]
async fn an_approval_holds_until_it_is_taken_back() {
    let server = Server::start().await;
    let named = json!({"identity": "alice", "resource": "/data", "action": "GET"});
    let mut grant = named.clone();
    grant["granted_by"] = "root".into();
    grant["ttl_seconds"] = 100.into();
    server.post("/v1/approvals/check", named.clone()).await.refused(404, "unknown");
    server.call("PUT", "/v1/approvals", &[], grant).await.ok(200);
    assert_eq!(server.post("/v1/approvals/check", named.clone()).await.ok(200)["approved"], true);
    let other = json!({"identity": "alice", "resource": "/data-secret", "action": "GET"});
    server.post("/v1/approvals/check", other).await.refused(404, "unknown");
    let listed = server.call("GET", "/v1/approvals?identity=alice", &[], Value::Null).await.ok(200);
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
    let mut extend = named.clone();
    (extend["actor"], extend["reason"]) = ("root".into(), "more time".into());
    extend["ttl_seconds"] = 10.into();
    server.post("/v1/approvals/extend", extend.clone()).await.refused(409, "conflict");
    extend["ttl_seconds"] = 200.into();
    server.post("/v1/approvals/extend", extend).await.ok(200);
    let revoke = "/v1/approvals?identity=alice&resource=%2Fdata&action=GET";
    server.pass(150);
    assert_eq!(server.call("DELETE", revoke, &[], Value::Null).await.status, 204);
    server.call("DELETE", revoke, &[], Value::Null).await.refused(404, "unknown");
    server.post("/v1/approvals/check", named).await.refused(404, "unknown");
}

#[tokio::test]
async fn a_relationship_is_found_over_several_steps() {
    let server = Server::start().await;
    let edge = |subject: &str, object: &str| {
        json!({"subject": subject, "relation": "member", "object": object, "relation_type": "membership",
            "created_by": "root"})
    };
    for (subject, object) in [("alice", "team"), ("team", "company")] {
        server.call("PUT", "/v1/relationships", &[], edge(subject, object)).await.ok(200);
    }
    let mut check = edge("alice", "company");
    server.post("/v1/relationships/check", check.clone()).await.refused(404, "unknown");
    check["transitive"] = true.into();
    let found = server.post("/v1/relationships/check", check.clone()).await.ok(200);
    assert_eq!(found, json!({"related": true, "path": ["alice", "team", "company"]}));
    check["max_depth"] = 1.into();
    let refused = server.post("/v1/relationships/check", check).await.refused(404, "unknown");
    assert_eq!(refused["depth_reached"], true);
    let reverse = server.call("GET", "/v1/relationships?object=team", &[], Value::Null).await.ok(200);
    assert_eq!(reverse["items"][0]["subject"], "alice");
    let custom = json!({"subject": "a", "relation": "r", "object": "b", "relation_type": {"custom": "mine"},
        "created_by": "root"});
    let added = server.call("PUT", "/v1/relationships", &[], custom).await.ok(200);
    assert_eq!(added["relation_type"], json!({"custom": "mine"}));
    let remove = "/v1/relationships?subject=a&relation=r&object=b&relation_type=custom:mine";
    assert_eq!(server.call("DELETE", remove, &[], Value::Null).await.status, 204);
    server.call("DELETE", remove, &[], Value::Null).await.refused(404, "unknown");
}

#[tokio::test]
async fn without_a_good_key_nothing_is_answered() {
    let server = Server::start().await;
    let body = json!({"namespace": "n", "jti": "j"}).to_string();
    let json_type = ("content-type", "application/json");
    for key in ["", "Bearer ", "Bearer wrong", "Basic eA=="] {
        let headers = [("authorization", key), json_type];
        let answer = server.send("POST", "/v1/replays/check", &headers, &body).await;
        assert!(answer.head.contains("www-authenticate: Bearer"), "{}", answer.head);
        answer.refused(401, "unauthorized");
    }
    assert_eq!(server.send("GET", "/healthz", &[], "").await.status, 200);
    assert_eq!(server.send("GET", "/readyz", &[], "").await.status, 200);
}

#[tokio::test]
async fn scopes_are_named_by_a_header_and_kept_apart() {
    let server = Server::start().await;
    let proof = json!({"namespace": "n", "jti": "j"});
    for scope in ["tenant:acme", "tenant:acme/env:prod", "tenant:acme%3Aenv%3Aprod", "global"] {
        server.call("POST", "/v1/replays/check", &[("ebbtide-scope", scope)], proof.clone()).await.ok(200);
    }
    server.post("/v1/replays/check", proof.clone()).await.refused(409, "replay");
    for bad in ["acme", "tenant:", "tenant:a/b"] {
        let answer = server.call("POST", "/v1/replays/check", &[("ebbtide-scope", bad)], proof.clone()).await;
        answer.refused(400, "invalid");
    }
    server
        .call("GET", "/v1/stats", &[("ebbtide-scope", "tenant:acme")], Value::Null)
        .await
        .refused(403, "forbidden");
    let stats = server.call("GET", "/v1/stats", &[], Value::Null).await.ok(200);
    assert_eq!(stats["kinds"]["replays"], json!({"live": 4, "expired": 0, "oldest_overdue_seconds": null}));
}

#[tokio::test]
async fn what_cannot_be_read_is_a_problem_that_quotes_nothing() {
    let server = Server::start().await;
    for body in [json!({"namespace": "n"}), json!([]), json!({"namespace": 1, "jti": "hunter2"})] {
        let problem = server.post("/v1/replays/check", body).await.refused(400, "invalid");
        assert!(!problem.to_string().contains("hunter2"));
    }
    let authorization = format!("Bearer {KEY}");
    let headers = [("authorization", authorization.as_str()), ("content-type", "application/json")];
    server.send("POST", "/v1/replays/check", &headers, "{\"jti\": \"hunter2").await.refused(400, "invalid");
    for ttl in [json!(0), json!(-1), json!(1.5), json!(i64::MAX)] {
        let body = json!({"namespace": "n", "jti": "j", "ttl_seconds": ttl});
        server.post("/v1/replays/check", body).await.refused(400, "invalid");
    }
    let large = json!({"namespace": "n", "jti": "x".repeat(2 << 20)});
    server.post("/v1/replays/check", large).await.refused(413, "invalid");
    server.post("/v1/nothing", json!({})).await.refused(404, "not-found");
    server.call("GET", "/v1/replays/check", &[], Value::Null).await.refused(405, "invalid");
}

#[tokio::test]
async fn the_description_is_served_and_its_page_needs_nothing_from_elsewhere() {
    let server = Server::start().await;
    let description = server.send("GET", "/openapi.json", &[], "").await.ok(200);
    assert_eq!(description, serde_json::from_str::<Value>(ebbtide_server::openapi::text()).unwrap());
    let page = server.send("GET", "/docs", &[], "").await;
    assert_eq!(page.status, 200);
    assert!(
        page.head.contains("content-security-policy: default-src 'none'; connect-src 'self'"),
        "{}",
        page.head
    );
    let text = include_str!("../src/routes/docs.html").replace("curl(", "");
    for elsewhere in ["http://", "https://", "src=", "@import", "url("] {
        assert!(!text.contains(elsewhere), "{elsewhere}");
    }
}
