//! Moving of every kind of record to another scope, and sweeps as an operator asks for them.

use std::ops::ControlFlow;

use ebbtide::ops::sweeper::SweepOutcome;
use serde_json::{Value, json};

use crate::server::Server;

const ACME: &[(&str, &str)] = &[("ebbtide-scope", "tenant:acme")];

/// Moves everything from one scope to another, and returns the counts of moved and left records, and the conflicts.
async fn migrate(server: &Server, from: &str, to: &str) -> (Value, Value, u64) {
    let (mut moved, mut left) = (json!({}), json!({}));
    let (mut conflicts, mut after) = (0, Value::Null);
    loop {
        let body = json!({"from": from, "to": to, "after": after});
        let step = server.post("/v1/scopes/migrate", body).await.ok(200);
        for (all, part) in [(&mut moved, &step["moved"]), (&mut left, &step["left"])] {
            for (kind, count) in part.as_object().unwrap() {
                all[kind] = (all[kind].as_u64().unwrap_or(0) + count.as_u64().unwrap()).into();
            }
        }
        conflicts += step["conflicts"].as_u64().unwrap();
        after = step["next"].clone();
        if step["done"] == true {
            return (moved, left, conflicts);
        }
    }
}

async fn at_acme(server: &Server, path: &str, body: Value) -> crate::server::Answer {
    server.call("POST", path, ACME, body).await
}

#[tokio::test]
async fn tokens_codes_and_sessions_of_before_are_valid_in_the_other_scope() {
    let server = Server::start().await;
    let grant = server.post("/v1/grants", json!({"subject": "alice", "client_id": "app"})).await.ok(201);
    let of_grant = json!({"grant_id": grant["grant_id"], "provider": "google"});
    let mut put = of_grant.clone();
    put["data"] = json!({"access_token": "ya29"});
    server.post("/v1/provider-tokens/put", put).await.ok(200);
    let under = server.post("/v1/access-tokens", json!({"grant_id": grant["grant_id"]})).await.ok(201);
    let alone = json!({"subject": "alice", "client_id": "app", "data": {"x": 1}});
    let alone = server.post("/v1/access-tokens", alone).await.ok(201);
    let session = json!({"subject": "alice", "data": {"cart": [1]}});
    let session = server.post("/v1/sessions", session).await.ok(201)["session_id"].clone();
    let code =
        json!({"client_id": "app", "subject": "alice", "redirect_uri": "https://a/", "data": {"n": 2}});
    let code = server.post("/v1/codes", code).await.ok(201)["code"].clone();
    let pushed = json!({"client_id": "app", "params": {"scope": "read"}});
    let pushed = server.post("/v1/pushed-requests", pushed).await.ok(201)["request_uri"].clone();
    let nonce = server.post("/v1/nonces", json!({"audience": "api"})).await.ok(201)["nonce"].clone();
    let device = server.post("/v1/device-codes", json!({"client_id": "tv"})).await.ok(201);
    let challenge = json!({"purpose": "login", "subject": "alice", "form": "digits6", "data": {"next": "/"}});
    let challenge = server.post("/v1/challenges", challenge).await.ok(201);
    let proof = json!({"namespace": "dpop", "jti": "seen"});
    server.post("/v1/replays/check", proof.clone()).await.ok(200);

    let (moved, left, conflicts) = migrate(&server, "global", "tenant:acme").await;
    let expected = json!({"grants": 1, "provider_tokens": 1, "access_tokens": 2, "sessions": 1, "codes": 1,
        "pushed_requests": 1, "nonces": 1, "device_codes": 1, "challenges": 1, "replays": 1});
    assert_eq!((moved, left, conflicts), (expected, json!({}), 0));

    for token in [&under, &alone] {
        for (scope, active) in [("tenant:acme", true), ("global", false)] {
            let body = format!("token={}", token["access_token"].as_str().unwrap());
            let bearer = format!("Bearer {}", crate::server::KEY);
            let headers = [
                ("authorization", bearer.as_str()),
                ("ebbtide-scope", scope),
                ("content-type", "application/x-www-form-urlencoded"),
            ];
            assert_eq!(
                server.send("POST", "/v1/introspect", &headers, &body).await.ok(200)["active"],
                active
            );
        }
    }
    let tokens = at_acme(&server, "/v1/provider-tokens/get", of_grant).await.ok(200);
    assert_eq!(tokens["data"]["access_token"], "ya29");
    let rotate = json!({"refresh_token": grant["refresh_token"], "client_id": "app"});
    let next = at_acme(&server, "/v1/grants/rotate", rotate.clone()).await.ok(200);
    server.post("/v1/grants/rotate", rotate).await.refused(410, "expired");
    let rotate = json!({"refresh_token": next["refresh_token"], "client_id": "app"});
    at_acme(&server, "/v1/grants/rotate", rotate.clone()).await.ok(200);
    let got = at_acme(&server, "/v1/sessions/get", json!({"session_id": session})).await.ok(200);
    assert_eq!(got["data"], json!({"cart": [1]}));
    let redeem = json!({"code": code, "client_id": "app", "redirect_uri": "https://a/", "grant": {}});
    assert_eq!(at_acme(&server, "/v1/codes/redeem", redeem.clone()).await.ok(200)["data"], json!({"n": 2}));
    server.post("/v1/codes/redeem", redeem).await.refused(404, "unknown");
    let take = json!({"request_uri": pushed, "client_id": "app"});
    at_acme(&server, "/v1/pushed-requests/take", take).await.ok(200);
    at_acme(&server, "/v1/nonces/accept", json!({"audience": "api", "nonce": nonce})).await.ok(200);
    let approve = json!({"user_code": device["user_code"], "subject": "alice"});
    at_acme(&server, "/v1/device-codes/approve", approve).await.ok(200);
    let verify = json!({"id": challenge["id"], "purpose": "login", "secret": challenge["secret"]});
    assert_eq!(at_acme(&server, "/v1/challenges/verify", verify).await.ok(200)["data"]["next"], "/");
    // A proof that was seen is refused in both scopes.
    at_acme(&server, "/v1/replays/check", proof.clone()).await.refused(409, "replay");
    server.post("/v1/replays/check", proof).await.refused(409, "replay");

    // And back: the family knows where its tokens were made.
    let (_, _, conflicts) = migrate(&server, "tenant:acme", "global").await;
    assert_eq!(conflicts, 0);
    let next = server.post("/v1/grants/rotate", rotate).await.ok(200);
    let rotate = json!({"refresh_token": next["refresh_token"], "client_id": "app"});
    server.post("/v1/grants/rotate", rotate).await.ok(200);
    let listed = server.call("GET", "/v1/grants?subject=alice", &[], Value::Null).await.ok(200);
    assert_eq!(listed["items"].as_array().unwrap().len(), 2, "{listed}");
}

#[tokio::test]
async fn what_has_ended_does_not_come_back_in_the_other_scope() {
    let server = Server::start().await;
    let issue = async |subject: &str| {
        let body = json!({"subject": subject, "client_id": "app"});
        server.post("/v1/grants", body).await.ok(201)["refresh_token"].clone()
    };
    let rotate = async |token: &Value| {
        at_acme(&server, "/v1/grants/rotate", json!({"refresh_token": token, "client_id": "app"})).await
    };
    let (dead, other) = (issue("alice").await, issue("bob").await);
    server.pass(1);
    server.post("/v1/subjects/sign-out", json!({"subject": "alice"})).await.ok(200);
    let live = issue("alice").await;
    // In the other scope bob was signed out too, which ends nothing of this one.
    at_acme(&server, "/v1/subjects/sign-out", json!({"subject": "bob"})).await.ok(200);
    let session =
        server.post("/v1/sessions", json!({"subject": "carol"})).await.ok(201)["session_id"].clone();
    server.post("/v1/subjects/sign-out", json!({"subject": "carol"})).await.ok(200);
    let group = json!({"collection": "c", "id": "1", "value": 1, "group": "g", "ttl_seconds": 60});
    server.post("/v1/records/put", group.clone()).await.ok(200);
    server.post("/v1/records/groups/revoke", json!({"collection": "c", "group": "g"})).await.ok(200);
    server.post("/v1/keys", json!({"scope": "global", "role": "reader"})).await.ok(201);

    let (moved, left, conflicts) = migrate(&server, "global", "tenant:acme").await;
    assert_eq!((&moved["grants"], &left["grants"], conflicts), (&json!(2), &json!(1), 0), "{moved} {left}");
    assert_eq!((&left["records"], &left["api_keys"]), (&json!(1), &json!(1)), "{left}");
    rotate(&dead).await.refused(404, "unknown");
    rotate(&live).await.ok(200);
    rotate(&other).await.ok(200);
    at_acme(&server, "/v1/sessions/get", json!({"session_id": session})).await.refused(404, "unknown");
    // The revocation of a group holds in both.
    at_acme(&server, "/v1/records/put", group.clone()).await.refused(410, "revoked");
    server.post("/v1/records/put", group).await.refused(410, "revoked");
    // A sign-out there ends what has moved.
    let live = at_acme(&server, "/v1/grants", json!({"subject": "alice", "client_id": "app"})).await.ok(201);
    server.pass(1);
    at_acme(&server, "/v1/subjects/sign-out", json!({"subject": "alice"})).await.ok(200);
    rotate(&live["refresh_token"]).await.refused(410, "revoked");
}

#[tokio::test]
async fn records_move_with_their_second_keys_and_what_they_belong_to() {
    let server = Server::start().await;
    let trust = json!({"subject": "alice", "relation": "peer", "object": "bob", "relation_type": "trust"});
    let mut add = trust.clone();
    add["created_by"] = json!("admin");
    server.call("PUT", "/v1/relationships", &[], add).await.ok(200);
    let permission = "/v1/attributes/alice/trust_permissions/bob";
    let body = json!({"data": "rw", "belongs_to": {"relationship": trust}});
    server.call("PUT", permission, &[], body).await.ok(200);
    let record = json!({"collection": "c", "id": "1", "value": {"a": 1}, "ttl_seconds": 60, "keys": ["second"],
        "group": "g", "belongs_to": {"owner": "alice"}});
    let version = server.post("/v1/records/put", record.clone()).await.ok(200)["version"].clone();
    server.post("/v1/records/increment", json!({"collection": "c", "id": "n", "by": 5})).await.ok(200);
    let lease = json!({"collection": "c", "id": "l", "ttl_seconds": 60});
    let held = server.post("/v1/records/acquire", lease.clone()).await.ok(200)["lease"].clone();
    let client = server.post("/v1/clients", json!({"owner": "alice", "name": "app"})).await.ok(201);

    let (moved, left, conflicts) = migrate(&server, "global", "tenant:acme").await;
    let expected = json!({"relationships": 1, "attributes": 1, "records": 1, "counters": 1, "leases": 1,
        "clients": 1});
    assert_eq!((moved, left, conflicts), (expected, json!({}), 0));
    // Nothing is gone after a look at what belongs to what, in either scope.
    for scope in [&[][..], ACME] {
        let done = server.call("POST", "/v1/belongings/reconcile", scope, Value::Null).await.ok(200);
        assert_eq!((&done["links"], &done["records"]), (&json!(0), &json!(0)), "{done}");
    }
    let by_key = json!({"collection": "c", "key": "second"});
    let got = at_acme(&server, "/v1/records/get", by_key.clone()).await.ok(200);
    assert_eq!((&got["value"], &got["version"]), (&json!({"a": 1}), &version));
    server.post("/v1/records/get", by_key).await.refused(404, "unknown");
    let count = json!({"collection": "c", "id": "n", "by": 1});
    assert_eq!(at_acme(&server, "/v1/records/increment", count).await.ok(200)["count"], 6);
    at_acme(&server, "/v1/records/acquire", lease).await.refused(409, "conflict");
    at_acme(&server, "/v1/records/release", json!({"collection": "c", "id": "l", "lease": held}))
        .await
        .ok(200);
    let path = format!("/v1/clients/{}/verify", client["client_id"].as_str().unwrap());
    at_acme(&server, &path, json!({"client_secret": client["client_secret"]})).await.ok(200);
    let listed = server.call("GET", "/v1/clients?owner=alice", ACME, Value::Null).await.ok(200);
    assert_eq!(listed["items"].as_array().unwrap().len(), 1, "{listed}");
    // The trust takes its permission along, and the owner the record.
    let query = "/v1/relationships?subject=alice&relation=peer&object=bob&relation_type=trust";
    assert_eq!(server.call("DELETE", query, ACME, Value::Null).await.status, 204);
    server.call("GET", permission, ACME, Value::Null).await.refused(404, "unknown");
    server.call("DELETE", "/v1/owners/alice", ACME, Value::Null).await.ok(200);
    at_acme(&server, "/v1/records/get", json!({"collection": "c", "id": "1"})).await.refused(404, "unknown");
}

/// A dry run counts what the migration then moves.
#[tokio::test]
async fn a_dry_run_counts_what_would_move_and_moves_nothing() {
    let server = Server::start().await;
    let grant = server.post("/v1/grants", json!({"subject": "alice", "client_id": "app"})).await.ok(201);
    server.post("/v1/device-codes", json!({"client_id": "tv"})).await.ok(201);
    server
        .post("/v1/challenges", json!({"purpose": "login", "subject": "alice", "form": "token"}))
        .await
        .ok(201);
    server
        .post("/v1/records/put", json!({"collection": "c", "id": "1", "value": 1, "keys": ["k"]}))
        .await
        .ok(200);
    let (mut would, mut after) = (json!({}), Value::Null);
    loop {
        let body = json!({"from": "global", "to": "tenant:acme", "dry_run": true, "after": after});
        let step = server.post("/v1/scopes/migrate", body).await.ok(200);
        for (kind, count) in step["moved"].as_object().unwrap() {
            would[kind] = count.clone();
        }
        after = step["next"].clone();
        if step["done"] == true {
            break;
        }
    }
    assert_eq!(would, json!({"grants": 1, "device_codes": 1, "challenges": 1, "records": 1}));
    let rotate = json!({"refresh_token": grant["refresh_token"], "client_id": "app"});
    at_acme(&server, "/v1/grants/rotate", rotate.clone()).await.refused(404, "unknown");
    server.post("/v1/grants/rotate", rotate).await.ok(200);
    assert_eq!(migrate(&server, "global", "tenant:acme").await, (would, json!({}), 0));
}

/// The counts of a cleanup by the profile that a token was issued with, as a scheduled function reports them.
#[tokio::test]
async fn a_sweep_counts_what_it_removes_by_profile() {
    let server = Server::start().await;
    let token = |profile: Value| json!({"subject": "alice", "client_id": "app", "profile": profile});
    for profile in ["spa", "spa", "mcp"] {
        server.post("/v1/access-tokens", token(profile.into())).await.ok(201);
    }
    server.post("/v1/access-tokens", token(Value::Null)).await.ok(201);
    let session = json!({"subject": "alice", "profile": "spa", "ttl_seconds": 60, "max_ttl_seconds": 60});
    server.post("/v1/sessions", session).await.ok(201);
    let grant = json!({"subject": "alice", "client_id": "app", "profile": "mcp"});
    server.post("/v1/grants", grant).await.ok(201);
    let code =
        json!({"client_id": "app", "subject": "alice", "redirect_uri": "https://a/", "profile": "mcp"});
    let code = server.post("/v1/codes", code).await.ok(201)["code"].clone();
    let redeem =
        json!({"code": code, "client_id": "app", "redirect_uri": "https://a/", "access_token": true});
    server.post("/v1/codes/redeem", redeem).await.ok(200);

    let ask = json!({"by_profile": true, "exclusive": true});
    let swept = server.post("/v1/sweep", ask.clone()).await.ok(200);
    assert_eq!(swept, json!({"by_profile": {}}), "nothing has expired");
    server.pass(3_601);
    let swept = server.post("/v1/sweep", ask.clone()).await.ok(200);
    assert_eq!((&swept["access_tokens"], &swept["sessions"]), (&json!(5), &json!(1)), "{swept}");
    let expected = json!({"oauth": {"access_tokens": 1}, "spa": {"access_tokens": 2, "sessions": 1},
        "mcp": {"access_tokens": 2}});
    assert_eq!(swept["by_profile"], expected);
    // The marker of the code is kept for a day, and the grant for a month and a day.
    server.pass(40 * 86_400);
    let swept = server.post("/v1/sweep", ask).await.ok(200);
    assert_eq!(swept["by_profile"], json!({"mcp": {"codes": 1, "grants": 1}}), "{swept}");
    server.post("/v1/sweep", json!({"budget": 2})).await.refused(400, "invalid");
    let limited = json!({"budget": 0.5, "time_limit_ms": 60_000});
    assert_eq!(server.post("/v1/sweep", limited).await.ok(200), json!({}));
}

/// A sweep from a timer takes turns with others by a lease; one that an operator asks for does not.
#[tokio::test]
async fn a_sweep_gives_way_to_one_that_runs() {
    let server = Server::start().await;
    let other = server.opened().await;
    let rest = |_| async {
        let busy = server.post("/v1/sweep", json!({"exclusive": true})).await.refused(409, "conflict");
        assert!(busy["detail"].as_str().unwrap().starts_with("another sweep is running"), "{busy}");
        server.post("/v1/sweep", Value::Null).await.ok(200);
        ControlFlow::Break(())
    };
    assert!(matches!(other.sweeper().sweep(rest).await.unwrap(), SweepOutcome::Swept(_)));
    server.post("/v1/sweep", json!({"exclusive": true})).await.ok(200);
}
