//! Sessions, pushed requests, device codes, clients and owners through a real socket.

use crate::server::{self, KEY, Server};
use serde_json::{Value, json};

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

async fn get(server: &Server, path: &str) -> server::Answer {
    server.call("GET", path, &[], Value::Null).await
}

async fn delete(server: &Server, path: &str) -> server::Answer {
    server.call("DELETE", path, &[], Value::Null).await
}

#[tokio::test]
async fn a_session_is_kept_touched_and_claimed_once() {
    let server = Server::start().await;
    let fields = json!({"subject": "alice", "data": null, "state": "xyz", "provider": "google",
        "code_verifier": "v", "verified_emails": ["a@example.com"], "token_data": {"access_token": "t"},
        "user_info": {"sub": "1"}});
    let mut request = fields.clone();
    request["ttl_seconds"] = 100.into();
    request["max_ttl_seconds"] = 150.into();
    let created = server.post("/v1/sessions", request).await.ok(201);
    assert_eq!(created["expires_at"], 1_800_000_100_000_u64);
    let id = json!({"session_id": created["session_id"]});
    let handle = json!({"handle": created["handle"]});
    for named in [&id, &handle] {
        let read = server.post("/v1/sessions/get", named.clone()).await.ok(200);
        for (name, value) in fields.as_object().unwrap() {
            assert_eq!(&read[name], value, "{name}");
        }
        assert_eq!((&read["expires_at"], &read["handle"]), (&created["expires_at"], &created["handle"]));
    }
    server.pass(60);
    let touched = server.post("/v1/sessions/touch", handle.clone()).await.ok(200);
    assert_eq!(touched, json!({"expires_at": 1_800_000_150_000_u64}), "the cap");
    let mut touch = id.clone();
    touch["ttl_seconds"] = 0.into();
    server.post("/v1/sessions/touch", touch).await.refused(400, "invalid");
    let listed = get(&server, "/v1/sessions?subject=alice").await.ok(200);
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
    assert!(listed["items"][0].get("session_id").is_none() && listed["next"].is_null());
    assert_eq!(listed["items"][0]["handle"], created["handle"]);
    let claimed = server.post("/v1/sessions/claim", id.clone()).await.ok(200);
    assert_eq!(claimed["code_verifier"], "v");
    server.post("/v1/sessions/claim", handle.clone()).await.refused(409, "used");
    server.post("/v1/sessions/get", id.clone()).await.refused(409, "used");
    server.post("/v1/sessions/touch", handle).await.refused(409, "used");
    for unknown in [json!({"session_id": "garbage"}), json!({"handle": "garbage"})] {
        server.post("/v1/sessions/get", unknown).await.refused(404, "unknown");
    }
    let both = json!({"session_id": created["session_id"], "handle": created["handle"]});
    for wrong in [both, json!({})] {
        server.post("/v1/sessions/get", wrong).await.refused(400, "invalid");
    }
    let path = format!("/v1/sessions/{}", text(&created["session_id"]));
    assert_eq!(get(&server, &path).await.status, 404, "no secret stands in a path");
    get(&server, "/v1/sessions").await.refused(400, "invalid");
}

#[tokio::test]
async fn sessions_end_and_are_revoked_with_their_subject() {
    let server = Server::start().await;
    let create = |subject: &str| server.post("/v1/sessions", json!({"subject": subject}));
    let (first, second) = (create("alice").await.ok(201), create("alice").await.ok(201));
    let bobs = create("bob").await.ok(201);
    let named = |session: &Value| json!({"session_id": session["session_id"]});
    let by_handle = json!({"handle": first["handle"]});
    assert_eq!(server.post("/v1/sessions/delete", by_handle).await.ok(200)["deleted"], true);
    server.post("/v1/sessions/delete", named(&first)).await.refused(404, "unknown");
    let revoked = server.post("/v1/sessions/revoke", json!({"subject": "alice"})).await.ok(200);
    assert_eq!(revoked, json!({"revoked": 1}));
    server.post("/v1/sessions/get", named(&second)).await.refused(404, "unknown");
    server.post("/v1/sessions/get", named(&bobs)).await.ok(200);
    server.pass(600);
    server.post("/v1/sessions/get", named(&bobs)).await.refused(410, "expired");
    server.post("/v1/sessions/claim", named(&bobs)).await.refused(410, "expired");
    server
        .post("/v1/sessions", json!({"ttl_seconds": 2, "max_ttl_seconds": 1}))
        .await
        .refused(400, "invalid");
}

#[tokio::test]
async fn a_pushed_request_is_taken_once_by_its_client() {
    let server = Server::start().await;
    let push = json!({"client_id": "app", "params": {"scope": "read"}});
    let pushed = server.post("/v1/pushed-requests", push.clone()).await.ok(201);
    assert!(text(&pushed["request_uri"]).starts_with("urn:ietf:params:oauth:request_uri:"));
    assert_eq!(pushed["expires_at"], 1_800_000_090_000_u64);
    let take = |uri: &Value, client: &str| {
        server.post("/v1/pushed-requests/take", json!({"request_uri": uri, "client_id": client}))
    };
    take(&pushed["request_uri"], "evil").await.refused(422, "mismatch");
    assert_eq!(take(&pushed["request_uri"], "app").await.ok(200), push);
    take(&pushed["request_uri"], "app").await.refused(409, "used");
    take(&json!("urn:x"), "app").await.refused(404, "unknown");
    let late = server.post("/v1/pushed-requests", push.clone()).await.ok(201);
    server.pass(90);
    take(&late["request_uri"], "app").await.refused(410, "expired");
    let mut own = push;
    own["request_uri"] = "https://app/r/1".into();
    server.post("/v1/pushed-requests", own.clone()).await.ok(201);
    server.post("/v1/pushed-requests", own).await.refused(409, "conflict");
}

#[tokio::test]
async fn a_device_polls_with_patience_and_redeems_once() {
    let server = Server::start().await;
    let start = json!({"client_id": "tv", "scope": "watch", "data": {"n": 1}});
    let device = server.post("/v1/device-codes", start.clone()).await.ok(201);
    assert_eq!((&device["interval"], &device["expires_at"]), (&json!(5), &json!(1_800_000_600_000_u64)));
    let presented = json!({"device_code": device["device_code"], "client_id": "tv"});
    let poll = |body: &Value| server.post("/v1/device-codes/poll", body.clone());
    assert_eq!(poll(&presented).await.refused(409, "pending")["interval"], 5);
    let early = poll(&presented).await;
    assert!(early.head.contains("retry-after: 10"), "{}", early.head);
    assert_eq!(early.refused(429, "slow_down")["interval"], 10);
    let redeem = |grant: Value| {
        let mut body = presented.clone();
        body["grant"] = grant;
        server.post("/v1/device-codes/redeem", body)
    };
    server.pass(10);
    redeem(json!({})).await.refused(409, "pending");
    let mut evil = presented.clone();
    evil["client_id"] = "evil".into();
    poll(&evil).await.refused(422, "mismatch");
    let typed = text(&device["user_code"]).to_lowercase().replace('-', " ");
    let approve = json!({"user_code": typed, "subject": "alice"});
    let approved = server.post("/v1/device-codes/approve", approve.clone()).await.ok(200);
    assert_eq!(approved, json!({"outcome": "approved", "client_id": "tv", "scope": "watch"}));
    server.post("/v1/device-codes/approve", approve).await.refused(409, "used");
    let answer = poll(&presented).await.ok(200);
    assert_eq!((&answer["outcome"], &answer["subject"]), (&json!("approved"), &json!("alice")));
    let redeemed = redeem(json!({"profile": "spa"})).await.ok(200);
    assert_eq!((&redeemed["subject"], &redeemed["data"]), (&json!("alice"), &json!({"n": 1})));
    let token = json!({"refresh_token": redeemed["grant"]["refresh_token"], "client_id": "tv"});
    server.post("/v1/grants/rotate", token.clone()).await.ok(200);
    poll(&presented).await.refused(409, "used");
    redeem(json!({})).await.refused(409, "reused");
    server.post("/v1/grants/rotate", token).await.refused(410, "revoked");

    let device = server.post("/v1/device-codes", start.clone()).await.ok(201);
    server
        .post("/v1/device-codes/deny", json!({"user_code": device["user_code"], "source": "192.0.2.1"}))
        .await
        .ok(200);
    poll(&json!({"device_code": device["device_code"], "client_id": "tv"})).await.refused(403, "denied");
    let device = server.post("/v1/device-codes", start).await.ok(201);
    server.pass(600);
    poll(&json!({"device_code": device["device_code"], "client_id": "tv"})).await.refused(410, "expired");
    let late = json!({"user_code": device["user_code"], "subject": "alice"});
    server.post("/v1/device-codes/approve", late).await.refused(410, "expired");
    poll(&json!({"device_code": "ebd_x", "client_id": "tv"})).await.refused(404, "unknown");
}

#[tokio::test]
async fn guesses_at_user_codes_are_limited() {
    let server = Server::start().await;
    let guess = |source: &str| {
        let body = json!({"user_code": "BBBB-BBBB", "subject": "eve", "source": source});
        server.post("/v1/device-codes/approve", body)
    };
    for _ in 0..10 {
        guess("203.0.113.1").await.refused(404, "unknown");
    }
    let limited = guess("203.0.113.1").await;
    assert!(limited.head.contains("retry-after: 600"), "{}", limited.head);
    limited.refused(429, "too_many_guesses");
    guess("203.0.113.2").await.refused(404, "unknown");
    let log = get(&server, "/v1/audit?action=lockout").await.ok(200);
    let [lockout] = log["items"].as_array().unwrap().as_slice() else { panic!("one lockout: {log}") };
    assert_eq!(lockout["target"], json!(["203.0.113.1"]));
    // The id of a session is a secret; the log has the handle.
    let session = server.post("/v1/sessions", json!({})).await.ok(201);
    for source in [text(&session["session_id"]), "cookie=s3cret"] {
        for _ in 0..10 {
            guess(source).await.refused(404, "unknown");
        }
        guess(source).await.refused(429, "too_many_guesses");
    }
    let log = get(&server, "/v1/audit?action=lockout").await.ok(200);
    let [_, lockout, other] = log["items"].as_array().unwrap().as_slice() else { panic!("three: {log}") };
    assert_eq!(lockout["target"], json!([session["handle"]]));
    assert_eq!(text(&other["target"][0]).len(), 43, "a digest: {other}");
}

#[tokio::test]
async fn a_client_is_registered_verified_rotated_and_deleted() {
    let server = Server::start().await;
    let register = json!({"owner": "alice", "name": "An App", "redirect_uris": ["https://app/cb"],
        "metadata": {"logo": "l"}});
    let client = server.post("/v1/clients", register).await.ok(201);
    let path = format!("/v1/clients/{}", text(&client["client_id"]));
    let read = get(&server, &path).await.ok(200);
    assert!(read.get("client_secret").is_none(), "{read}");
    assert_eq!((&read["name"], &read["metadata"]), (&json!("An App"), &json!({"logo": "l"})));
    assert_eq!(read["confidential"], true);
    let verify =
        async |secret: Value| server.post(&format!("{path}/verify"), json!({"client_secret": secret})).await;
    assert_eq!(verify(client["client_secret"].clone()).await.ok(200)["verified"], true);
    let wrong = verify(json!("hunter2")).await.refused(422, "mismatch");
    assert!(!wrong.to_string().contains("hunter2"));
    let rotate = async |body: Value| server.post(&format!("{path}/rotate-secret"), body).await;
    let second = rotate(json!({"overlap_seconds": 60})).await.ok(200);
    verify(client["client_secret"].clone()).await.ok(200);
    verify(second["client_secret"].clone()).await.ok(200);
    server.pass(60);
    verify(client["client_secret"].clone()).await.refused(422, "mismatch");
    let third = rotate(Value::Null).await.ok(200);
    verify(second["client_secret"].clone()).await.refused(422, "mismatch");
    verify(third["client_secret"].clone()).await.ok(200);
    let listed = get(&server, "/v1/clients?owner=alice").await.ok(200);
    assert_eq!(listed["items"][0]["client_id"], client["client_id"]);
    let grant = json!({"subject": "bob", "client_id": client["client_id"]});
    let grant = server.post("/v1/grants", grant).await.ok(201);
    let deleted = delete(&server, &path).await.ok(200);
    assert_eq!((&deleted["revoked"], &deleted["deleted"]), (&json!(1), &json!(2)));
    verify(third["client_secret"].clone()).await.refused(404, "unknown");
    get(&server, &path).await.refused(404, "unknown");
    delete(&server, &path).await.refused(404, "unknown");
    let token = json!({"refresh_token": grant["refresh_token"], "client_id": client["client_id"]});
    server.post("/v1/grants/rotate", token).await.refused(410, "expired");

    let public = json!({"client_id": "page", "confidential": false});
    let page = server.post("/v1/clients", public.clone()).await.ok(201);
    assert!(page.get("client_secret").is_none());
    server.post("/v1/clients", public).await.refused(409, "conflict");
    server.post("/v1/clients/page/rotate-secret", json!({})).await.refused(409, "conflict");
    server.post("/v1/clients/none/rotate-secret", json!({})).await.refused(404, "unknown");
}

#[tokio::test]
async fn an_owner_is_deleted_with_everything() {
    let server = Server::start().await;
    let set = json!({"data": 1});
    server.call("PUT", "/v1/attributes/al%2Fice/b/x", &[], set.clone()).await.ok(200);
    let grant = json!({"subject": "al/ice", "client_id": "app"});
    let grant = server.post("/v1/grants", grant).await.ok(201);
    let session = server.post("/v1/sessions", json!({"subject": "al/ice"})).await.ok(201);
    let approval = json!({"identity": "al/ice", "resource": "r", "action": "GET", "granted_by": "root"});
    server.call("PUT", "/v1/approvals", &[], approval.clone()).await.ok(200);
    let counts = delete(&server, "/v1/owners/al%2Fice").await.ok(200);
    assert_eq!(counts, json!({"attributes": 1, "grants": 1, "sessions": 1, "approvals": 1}));
    get(&server, "/v1/attributes/al%2Fice/b/x").await.refused(404, "unknown");
    let named = json!({"session_id": session["session_id"]});
    server.post("/v1/sessions/get", named).await.refused(404, "unknown");
    let token = json!({"refresh_token": grant["refresh_token"], "client_id": "app"});
    server.post("/v1/grants/rotate", token.clone()).await.refused(410, "expired");
    assert_eq!(delete(&server, "/v1/owners/al%2Fice").await.ok(200), json!({}), "there is no more");
    // The name is free again.
    server.call("PUT", "/v1/attributes/al%2Fice/b/x", &[], set).await.ok(200);
    server.call("PUT", "/v1/approvals", &[], approval).await.ok(200);
    server.post("/v1/grants/rotate", token).await.refused(410, "expired");
}

#[tokio::test]
async fn without_a_key_none_of_it_is_answered() {
    let server = Server::start().await;
    for (method, path) in [
        ("POST", "/v1/sessions"),
        ("POST", "/v1/sessions/get"),
        ("POST", "/v1/sessions/claim"),
        ("POST", "/v1/pushed-requests/take"),
        ("POST", "/v1/device-codes/poll"),
        ("POST", "/v1/clients"),
        ("POST", "/v1/clients/x/verify"),
        ("DELETE", "/v1/clients/x"),
        ("DELETE", "/v1/owners/x"),
    ] {
        let wrong = format!("Bearer {KEY}x");
        let headers = [("authorization", wrong.as_str()), ("content-type", "application/json")];
        server.send(method, path, &headers, "{}").await.refused(401, "unauthorized");
    }
}
