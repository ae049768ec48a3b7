//! Refusals of all that has ended, at once and by whatever name; and of requests that would issue something that cannot be
//! ended.

use base64ct::{Base64, Encoding as _};
use serde_json::{Value, json};

use crate::server::{Answer, Server};

const FORM: &str = "application/x-www-form-urlencoded";

async fn introspect_as(server: &Server, client_id: &str, secret: &Value) -> Answer {
    let credentials = format!("{client_id}:{}", secret.as_str().unwrap());
    let basic = format!("Basic {}", Base64::encode_string(credentials.as_bytes()));
    let headers = [("authorization", basic.as_str()), ("content-type", FORM)];
    server.send("POST", "/v1/introspect", &headers, "token=x").await
}

#[tokio::test]
async fn a_client_authenticates_itself_until_its_secret_and_its_owner_end() {
    let server = Server::start().await;
    let client = json!({"client_id": "app", "owner": "alice"});
    let first = server.post("/v1/clients", client).await.ok(201)["client_secret"].clone();
    let overlap = json!({"overlap_seconds": 60});
    let second = server.post("/v1/clients/app/rotate-secret", overlap).await.ok(200)["client_secret"].clone();
    server.pass(59);
    for secret in [&first, &second] {
        introspect_as(&server, "app", secret).await.ok(200);
    }
    server.pass(1);
    introspect_as(&server, "app", &first).await.refused(401, "unauthorized");
    introspect_as(&server, "app", &second).await.ok(200);
    server.call("DELETE", "/v1/owners/alice", &[], Value::Null).await.ok(200);
    introspect_as(&server, "app", &second).await.refused(401, "unauthorized");

    let short = json!({"client_id": "short", "ttl_seconds": 60});
    let secret = server.post("/v1/clients", short).await.ok(201)["client_secret"].clone();
    server.pass(59);
    introspect_as(&server, "short", &secret).await.ok(200);
    server.pass(1);
    introspect_as(&server, "short", &secret).await.refused(401, "unauthorized");
}

#[tokio::test]
async fn a_session_slides_with_its_reads_up_to_its_cap() {
    let server = Server::start().await;
    let request = json!({"sliding": true, "ttl_seconds": 100, "max_ttl_seconds": 150});
    let created = server.post("/v1/sessions", request).await.ok(201);
    let id = json!({"session_id": created["session_id"]});
    for (pass, ends) in [(9, 100), (21, 130), (60, 150), (59, 150)] {
        server.pass(pass);
        let read = server.post("/v1/sessions/get", id.clone()).await.ok(200);
        assert_eq!(read["expires_at"], 1_800_000_000_000_u64 + ends * 1_000, "after {pass} s");
    }
    server.pass(1);
    server.post("/v1/sessions/get", id).await.refused(410, "expired");
}

#[tokio::test]
async fn a_refused_delete_of_a_session_changes_nothing() {
    let server = Server::start().await;
    let request = json!({"subject": "alice", "ttl_seconds": 60, "sid": "one"});
    let session = server.post("/v1/sessions", request).await.ok(201);
    let grant = json!({"subject": "alice", "client_id": "app", "sid": "one"});
    let grant = server.post("/v1/grants", grant).await.ok(201);
    server.pass(60);
    let named = json!({"handle": session["handle"]});
    server.post("/v1/sessions/delete", named.clone()).await.refused(404, "unknown");
    let mut with_grants = named;
    with_grants["revoke_grants"] = true.into();
    server.post("/v1/sessions/delete", with_grants).await.ok(200);
    let rotate = json!({"refresh_token": grant["refresh_token"], "client_id": "app"});
    server.post("/v1/grants/rotate", rotate).await.refused(410, "revoked");
    // Nothing could be issued from another session of that name.
    server.post("/v1/sessions", json!({"subject": "alice", "sid": "one"})).await.refused(400, "invalid");
}

#[tokio::test]
async fn what_could_not_be_ended_or_reached_is_not_issued() {
    let server = Server::start().await;
    let grant = |cnf: Value| json!({"subject": "alice", "client_id": "app", "cnf": cnf});
    for empty in [json!({}), json!({"jkt": null})] {
        let refused = server.post("/v1/grants", grant(empty)).await.refused(400, "invalid");
        assert!(refused["detail"].as_str().unwrap().contains("cnf"), "{refused}");
    }
    let code = json!({"subject": "app", "client_id": "app", "redirect_uri": "https://app/cb"});
    assert_eq!(server.post("/v1/codes", code).await.refused(400, "invalid")["member"], "subject");
    let device = server.post("/v1/device-codes", json!({"client_id": "tv"})).await.ok(201);
    let approve = json!({"user_code": device["user_code"], "subject": "tv"});
    assert_eq!(
        server.post("/v1/device-codes/approve", approve).await.refused(400, "invalid")["member"],
        "subject"
    );
    let inspect = json!({"user_code": device["user_code"], "source": ""});
    server.post("/v1/device-codes/inspect", inspect).await.refused(400, "invalid");
    for client_id in [".", ".."] {
        server.post("/v1/clients", json!({"client_id": client_id})).await.refused(400, "invalid");
    }
}

#[tokio::test]
async fn a_profile_of_a_call_comes_before_the_default_of_a_policy_within_its_bounds() {
    let server = Server::start().await;
    for (max, lives) in [(100_000, 3_600), (1_800, 1_800)] {
        let policy = json!({"kind": "access_tokens", "scope": "global", "default_ttl_seconds": 100,
            "min_ttl_seconds": 1, "max_ttl_seconds": max});
        server.call("PUT", "/v1/policies", &[], policy).await.ok(200);
        let grant = json!({"subject": "alice", "client_id": "app"});
        let grant = server.post("/v1/grants", grant).await.ok(201);
        for (profile, lives) in [(Value::Null, 100), (json!("spa"), lives)] {
            let request = json!({"grant_id": grant["grant_id"], "profile": profile});
            let issued = server.post("/v1/access-tokens", request).await.ok(201);
            assert_eq!(issued["expires_at"], 1_800_000_000_000_u64 + lives * 1_000, "{profile}");
        }
    }
}

#[tokio::test]
async fn the_audit_log_of_a_subject_has_thefts_and_revocations_of_its_grants() {
    let server = Server::start().await;
    let grant = json!({"subject": "alice", "client_id": "app"});
    let grant = server.post("/v1/grants", grant).await.ok(201);
    let path = format!("/v1/grants/{}", grant["grant_id"].as_str().unwrap());
    assert!(server.call("DELETE", &path, &[], Value::Null).await.status < 300);
    let log = server.call("GET", "/v1/audit?subject=alice", &[], Value::Null).await.ok(200);
    let entries = log["items"].as_array().unwrap();
    assert!(entries.iter().any(|entry| entry["action"] == "revoke"), "{log}");
}
