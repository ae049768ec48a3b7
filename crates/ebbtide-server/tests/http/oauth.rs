//! Flows of OAuth as tabs, attackers and OAuth 2.1 clients use them, through a real socket.

use crate::server::{Answer, Server};
use futures_util::future::join_all;
use serde_json::{Value, json};

const URI: &str = "https://app.example/cb";
/// Example of RFC 7636, appendix B.
const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";
const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";

async fn grant(server: &Server, more: &Value) -> Value {
    let mut request = json!({"subject": "alice", "client_id": "app", "scope": "read"});
    request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    server.post("/v1/grants", request).await.ok(201)
}

async fn introspect(server: &Server, token: &Value) -> Value {
    server.form("/v1/introspect", &format!("token={}", token.as_str().unwrap())).await.ok(200)
}

async fn rotate(server: &Server, token: &Value) -> Answer {
    server.post("/v1/grants/rotate", json!({"refresh_token": token, "client_id": "app"})).await
}

async fn state(server: &Server, grant: &Value) -> Value {
    let path = format!("/v1/grants/{}", grant["grant_id"].as_str().unwrap());
    server.call("GET", &path, &[], Value::Null).await.ok(200)["state"].clone()
}

/// One tab: it rotates the stored token, gets an access token, and a resource server introspects it.
async fn tab(server: &Server, grant: &Value) {
    let answer = rotate(server, &grant["refresh_token"]).await;
    if answer.status != 200 {
        answer.refused(409, "raced");
        return;
    }
    let request = json!({"grant_id": grant["grant_id"]});
    let access = server.post("/v1/access-tokens", request).await.ok(201);
    assert_eq!(introspect(server, &access["access_token"]).await["active"], true);
}

#[tokio::test]
async fn twelve_tabs_revoke_no_family_and_a_thief_is_caught() {
    let server = Server::start().await;
    for _ in 0..5 {
        for within in [0, 20, 100, 1_000] {
            let grant = grant(&server, &json!({})).await;
            if within == 0 {
                join_all((0..12).map(|_| tab(&server, &grant))).await;
            } else {
                for _ in 0..12 {
                    tab(&server, &grant).await;
                    server.clock.advance(std::time::Duration::from_millis(within / 12));
                }
            }
            assert_eq!(state(&server, &grant).await, "active", "within {within} ms");
            server.pass(10);
            rotate(&server, &grant["refresh_token"]).await.refused(409, "reused");
            assert_eq!(state(&server, &grant).await["revoked"]["why"], "refresh_reused");
        }
    }
}

#[tokio::test]
async fn the_grace_is_set_for_each_grant() {
    let server = Server::start().await;
    let strict = grant(&server, &json!({"grace_seconds": 0})).await;
    rotate(&server, &strict["refresh_token"]).await.ok(200);
    rotate(&server, &strict["refresh_token"]).await.refused(409, "reused");
    let long = grant(&server, &json!({"grace_seconds": 60})).await;
    rotate(&server, &long["refresh_token"]).await.ok(200);
    server.pass(59);
    assert_eq!(rotate(&server, &long["refresh_token"]).await.ok(200)["retried"], true);
    for wrong in [json!(61), json!(-1), json!("1")] {
        let request = json!({"subject": "alice", "client_id": "app", "grace_seconds": wrong});
        server.post("/v1/grants", request).await.refused(400, "invalid");
    }
}

#[tokio::test]
async fn a_retried_rotation_has_an_access_token_of_its_own() {
    let server = Server::start().await;
    let grant = grant(&server, &json!({})).await;
    let request = json!({"refresh_token": grant["refresh_token"], "client_id": "app", "access_token": true});
    let first = server.post("/v1/grants/rotate", request.clone()).await.ok(200);
    let again = server.post("/v1/grants/rotate", request).await.ok(200);
    assert_eq!((&again["retried"], &again["refresh_token"]), (&json!(true), &first["refresh_token"]));
    assert_ne!(again["access_token"], first["access_token"]);
    for answer in [&first, &again] {
        let active = introspect(&server, &answer["access_token"]).await;
        assert_eq!((&active["active"], &active["scope"]), (&json!(true), &json!("read")));
    }
}

#[tokio::test]
async fn a_code_of_oauth_2_1_needs_no_redirect_uri_and_gives_tokens_in_one_call() {
    let server = Server::start().await;
    let request = json!({"client_id": "app", "subject": "alice", "redirect_uri": URI, "scope": "read",
        "code_challenge": CHALLENGE, "resource": "https://api.example", "profile": "mcp"});
    let issued = server.post("/v1/codes", request).await.ok(201);
    assert_eq!(issued["expires_at"], 1_800_000_600_000_u64, "the profile's");
    let redeem = json!({"code": issued["code"], "client_id": "app", "code_verifier": VERIFIER, "grant": {},
        "access_token": {}, "cnf": {"x5t#S256": "bwcK0esc3ACC3DB2Y5_lESsXE8o9ltc05O89jdN-dg2"}});
    let redeemed = server.post("/v1/codes/redeem", redeem.clone()).await.ok(200);
    assert_eq!(redeemed["access_token_expires_at"], 1_800_003_600_000_u64);
    assert_eq!(redeemed["grant"]["expires_at"], 1_802_592_000_000_u64, "thirty days");
    let active = introspect(&server, &redeemed["access_token"]).await;
    assert_eq!(active["aud"], "https://api.example");
    assert_eq!(active["cnf"], json!({"x5t#S256": "bwcK0esc3ACC3DB2Y5_lESsXE8o9ltc05O89jdN-dg2"}));
    let grant = &redeemed["grant"];
    assert_eq!(state(&server, grant).await, "active");

    let stolen = json!({"code": issued["code"], "client_id": "evil", "redirect_uri": "https://evil.example"});
    let refused = server.post("/v1/codes/redeem", stolen).await.refused(409, "reused");
    assert!(refused["grant_id"].is_null());
    assert_eq!(state(&server, grant).await, "active", "who has only the code revokes nothing");
    server.post("/v1/codes/redeem", redeem).await.refused(409, "reused");
    assert_eq!(state(&server, grant).await["revoked"]["why"], "code_reused");
    assert_eq!(introspect(&server, &redeemed["access_token"]).await, json!({"active": false}));
}

#[tokio::test]
async fn a_grant_without_a_scope_has_none_to_give() {
    let server = Server::start().await;
    let grant = server.post("/v1/grants", json!({"subject": "alice", "client_id": "app"})).await.ok(201);
    let request = json!({"grant_id": grant["grant_id"], "scope": "admin"});
    assert_eq!(server.post("/v1/access-tokens", request).await.refused(422, "mismatch")["field"], "scope");
}

#[tokio::test]
async fn a_client_can_be_held_to_pkce() {
    let server = Server::start().await;
    let client = json!({"client_id": "app", "confidential": false, "require_pkce": true});
    assert_eq!(server.post("/v1/clients", client).await.ok(201)["require_pkce"], true);
    let mut code = json!({"client_id": "app", "subject": "alice", "redirect_uri": URI});
    server.post("/v1/codes", code.clone()).await.refused(400, "invalid");
    code["code_challenge"] = CHALLENGE.into();
    server.post("/v1/codes", code).await.ok(201);
}

#[tokio::test]
async fn a_sign_out_ends_codes_device_codes_sessions_and_tokens() {
    let server = Server::start().await;
    let grant = grant(&server, &json!({})).await;
    let access = server.post("/v1/access-tokens", json!({"grant_id": grant["grant_id"]})).await.ok(201);
    let code = json!({"client_id": "app", "subject": "alice", "redirect_uri": URI});
    let code = server.post("/v1/codes", code).await.ok(201);
    let device = server.post("/v1/device-codes", json!({"client_id": "tv"})).await.ok(201);
    let approve = json!({"user_code": device["user_code"], "subject": "alice"});
    server.post("/v1/device-codes/approve", approve).await.ok(200);
    let session = server.post("/v1/sessions", json!({"subject": "alice"})).await.ok(201);
    let ended =
        server.post("/v1/subjects/sign-out", json!({"subject": "alice", "reason": "lost"})).await.ok(200);
    assert_eq!(ended, json!({"grants": 1, "access_tokens": 0, "sessions": 1, "revoked": 2, "more": false}));
    rotate(&server, &grant["refresh_token"]).await.refused(410, "revoked");
    assert_eq!(introspect(&server, &access["access_token"]).await, json!({"active": false}));
    let redeem = json!({"code": code["code"], "client_id": "app", "redirect_uri": URI, "grant": {}});
    server.post("/v1/codes/redeem", redeem).await.refused(404, "unknown");
    let redeem = json!({"device_code": device["device_code"], "client_id": "tv", "grant": {}});
    server.post("/v1/device-codes/redeem", redeem).await.refused(404, "unknown");
    server.post("/v1/sessions/get", json!({"handle": session["handle"]})).await.refused(404, "unknown");
    let audit = server.call("GET", "/v1/audit", &[], Value::Null).await.ok(200);
    assert!(audit["items"].as_array().unwrap().iter().any(|entry| entry["reason"] == "lost"), "{audit}");
    self::grant(&server, &json!({})).await;
}

#[tokio::test]
async fn a_client_is_revoked_with_everything_that_was_issued_to_it() {
    let server = Server::start().await;
    let grant = grant(&server, &json!({})).await;
    let code = json!({"client_id": "app", "subject": "bob", "redirect_uri": URI});
    let code = server.post("/v1/codes", code).await.ok(201);
    let revoked = server.post("/v1/grants/revoke", json!({"client_id": "app"})).await.ok(200);
    assert_eq!(revoked, json!({"revoked": 1}));
    rotate(&server, &grant["refresh_token"]).await.refused(410, "revoked");
    let redeem = json!({"code": code["code"], "client_id": "app", "redirect_uri": URI, "grant": {}});
    server.post("/v1/codes/redeem", redeem).await.refused(404, "unknown");
    assert_eq!(state(&server, &grant).await["revoked"]["why"], "client_revoked");
    let listed = server.call("GET", "/v1/grants?client_id=app", &[], Value::Null).await.ok(200);
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
    server.call("GET", "/v1/grants", &[], Value::Null).await.refused(400, "invalid");
}

#[tokio::test]
async fn a_denial_names_its_source_so_that_guesses_lock_nobody_else_out() {
    let server = Server::start().await;
    let device = server.post("/v1/device-codes", json!({"client_id": "tv", "scope": "watch"})).await.ok(201);
    server
        .post("/v1/device-codes/deny", json!({"user_code": device["user_code"]}))
        .await
        .refused(400, "invalid");
    let guess = |source: &str| json!({"user_code": "BBBB-BBBB", "source": source});
    let mut last = 404;
    for _ in 0..200 {
        last = server.post("/v1/device-codes/inspect", guess("192.0.2.66")).await.status;
        if last != 404 {
            break;
        }
    }
    assert_eq!(last, 429, "a look at a code is a guess");
    let inspect = json!({"user_code": device["user_code"], "source": "192.0.2.1"});
    let asked = server.post("/v1/device-codes/inspect", inspect.clone()).await.ok(200);
    assert_eq!((&asked["client_id"], &asked["scope"]), (&json!("tv"), &json!("watch")));
    server.post("/v1/device-codes/deny", inspect).await.ok(200);
}

#[tokio::test]
async fn the_session_of_a_code_is_told_with_its_tokens() {
    let server = Server::start().await;
    let session = server.post("/v1/sessions", json!({"subject": "alice"})).await.ok(201);
    let code = json!({"client_id": "app", "subject": "alice", "redirect_uri": URI, "sid": session["sid"]});
    let code = server.post("/v1/codes", code).await.ok(201)["code"].clone();
    let redeem = json!({
        "code": code, "client_id": "app", "redirect_uri": URI, "grant": {}, "access_token": {},
    });
    let redeemed = server.post("/v1/codes/redeem", redeem).await.ok(200);
    assert_eq!(redeemed["sid"], session["sid"]);
    for token in [&redeemed["access_token"], &redeemed["grant"]["refresh_token"]] {
        assert_eq!(introspect(&server, token).await["sid"], session["sid"]);
    }
    let other = grant(&server, &json!({})).await;
    assert!(introspect(&server, &other["refresh_token"]).await.get("sid").is_none());
}

#[tokio::test]
async fn a_proof_is_refused_until_its_hold_ends_and_never_fresh_after_its_own_end() {
    let server = Server::start().await;
    let check = async |more: &Value| {
        let mut proof = json!({"namespace": "dpop", "jti": "j"});
        proof.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        server.post("/v1/replays/check", proof).await
    };
    let held = json!({"ttl_seconds": 10, "hold_seconds": 20});
    check(&held).await.ok(200);
    for seconds in [10, 19] {
        server.pass(seconds);
        check(&held).await.refused(409, "replay");
    }
    server.pass(1);
    check(&held).await.ok(200);
    let ends = json!({"jti": "k", "expires_at": 1_800_000_035_000_u64});
    let fresh = check(&ends).await.ok(200);
    assert_eq!(fresh["expires_at"], 1_800_000_035_000_u64, "{fresh}");
    server.pass(4);
    check(&ends).await.refused(409, "replay");
    server.pass(1);
    check(&ends).await.refused(410, "expired");
}

#[tokio::test]
async fn an_operator_learns_that_a_code_was_ended_by_a_sign_out() {
    let server = Server::start().await;
    let code = json!({"client_id": "app", "subject": "alice", "redirect_uri": URI});
    let code = server.post("/v1/codes", code).await.ok(201)["code"].clone();
    let session = server.post("/v1/sessions", json!({"subject": "alice"})).await.ok(201);
    server.post("/v1/subjects/sign-out", json!({"subject": "alice"})).await.ok(200);
    let session = json!({"session_id": session["session_id"]});
    for (path, body) in [
        ("/v1/codes/redeem", json!({"code": code, "client_id": "app", "redirect_uri": URI})),
        ("/v1/sessions/get", session.clone()),
        ("/v1/sessions/touch", session),
    ] {
        let refused = server.post(path, body).await.refused(404, "unknown");
        let why = format!("/v1/why/{}", refused["request_id"].as_str().unwrap());
        let told = server.call("GET", &why, &[], Value::Null).await.ok(200);
        assert_eq!(told["cause"], "sign-out", "{path}: {told}");
    }
    let explained = server.post("/v1/explain", json!({"kind": "codes", "code": code})).await.ok(200);
    assert_eq!(explained["state"], "revoked", "{explained}");
}

#[tokio::test]
async fn a_token_without_a_grant_ends_with_its_session_and_with_a_second_use_of_its_code() {
    let server = Server::start().await;
    for is_session in [true, false] {
        let session = server.post("/v1/sessions", json!({"subject": "alice"})).await.ok(201);
        let code =
            json!({"client_id": "app", "subject": "alice", "redirect_uri": URI, "sid": session["sid"]});
        let code = server.post("/v1/codes", code).await.ok(201)["code"].clone();
        let redeem = json!({"code": code, "client_id": "app", "redirect_uri": URI, "access_token": true});
        let token = server.post("/v1/codes/redeem", redeem.clone()).await.ok(200)["access_token"].clone();
        let active = introspect(&server, &token).await;
        assert_eq!((&active["active"], &active["sid"]), (&json!(true), &session["sid"]));
        if is_session {
            let delete = json!({"handle": session["handle"], "revoke_grants": true});
            server.post("/v1/sessions/delete", delete).await.ok(200);
        } else {
            let refused = server.post("/v1/codes/redeem", redeem).await.refused(409, "reused");
            assert!(refused["grant_id"].is_null(), "there is none: {refused}");
        }
        assert_eq!(introspect(&server, &token).await, json!({"active": false}));
    }
}
