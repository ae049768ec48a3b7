//! Records and challenges over HTTP: each call, each status, each member.

use std::time::Duration;

use serde_json::{Value, json};

use crate::server::{Answer, KEY, Server};

async fn records(server: &Server, call: &str, body: Value) -> Answer {
    server.call("POST", &format!("/v1/records/{call}"), &[], body).await
}

fn sid(more: &Value) -> Value {
    let mut body = json!({"collection": "sessions", "id": "sid-1"});
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

fn passes(server: &Server, millis: u64) {
    server.clock.advance(Duration::from_millis(millis));
}

#[tokio::test]
async fn a_record_is_put_on_its_condition_and_read_with_its_members() {
    let server = Server::start().await;
    let put = |more: Value| records(&server, "put", sid(&more));
    let stored = put(json!({"value": {"user": "alice"}, "ttl_seconds": 600})).await.ok(200);
    assert_eq!(stored["created"], true);
    let read = records(&server, "get", sid(&json!({}))).await.ok(200);
    assert_eq!(read["value"], json!({"user": "alice"}));
    assert_eq!((&read["version"], &read["expires_at"]), (&stored["version"], &stored["expires_at"]));
    assert_eq!(read["consumed_at"], Value::Null);
    put(json!({"value": 1, "if": "absent"})).await.refused(409, "conflict");
    let version = json!({"version": stored["version"]});
    let next = put(json!({"value": 2, "if": version, "keep_ttl": true})).await.ok(200);
    assert_eq!((&next["created"], &next["expires_at"]), (&json!(false), &stored["expires_at"]));
    put(json!({"value": 3, "if": version})).await.refused(409, "conflict");
    let next = put(json!({"value": null, "if": "present", "ttl_ms": 1_500})).await.ok(200);
    passes(&server, 1_499);
    assert_eq!(records(&server, "get", sid(&json!({}))).await.ok(200)["value"], Value::Null);
    passes(&server, 1);
    records(&server, "get", sid(&json!({}))).await.refused(404, "unknown");
    let late = json!({"value": 4, "if": {"version": next["version"]}});
    put(late).await.refused(409, "conflict");
    put(json!({"value": 4, "if": "present"})).await.refused(409, "conflict");
    assert_eq!(put(json!({"value": 4, "if": "absent"})).await.ok(200)["created"], true);
    let bytes = put(json!({"value_base64": "AP8="})).await.ok(200);
    assert_eq!(bytes["expires_at"], Value::Null, "without a lifetime and a policy there is no end");
    let read = records(&server, "get", sid(&json!({}))).await.ok(200);
    assert_eq!((&read["value_base64"], read.get("value")), (&json!("AP8="), None));
}

#[tokio::test]
async fn what_a_record_may_not_have_is_named() {
    let server = Server::start().await;
    let put = |more: Value| records(&server, "put", sid(&more));
    for (body, named) in [
        (json!({}), "value_base64"),
        (json!({"value": 1, "value_base64": ""}), "value_base64"),
        (json!({"value": 1, "ttl_ms": 1, "ttl_seconds": 1}), "ttl_ms"),
        (json!({"value": 1, "ttl_seconds": 0}), "TTL"),
        (json!({"value": 1, "if": "maybe"}), "if"),
        (json!({"value": 1, "keys": ["a", "a"]}), "second key"),
        (json!({"value": 1, "extra": 1}), "extra"),
        (json!({"value": 1, "sliding": true, "ttl_seconds": 1}), "longest"),
        (json!({"value": 1, "max_ttl_seconds": 1, "ttl_seconds": 2}), "cap"),
    ] {
        let problem = put(body).await.refused(400, "invalid");
        assert!(problem["detail"].as_str().unwrap().contains(named), "{problem}");
    }
    put(json!({"value": 1, "expires_at": 1_000})).await.refused(410, "expired");
    let both = sid(&json!({"key": "k"}));
    records(&server, "get", both).await.refused(400, "invalid");
    records(&server, "get", json!({"collection": "sessions"})).await.refused(400, "invalid");
}

#[tokio::test]
async fn a_record_is_taken_consumed_touched_and_deleted() {
    let server = Server::start().await;
    let keyed = json!({"value": 1, "ttl_seconds": 10, "keys": ["uid:7"], "group": "g"});
    let by_key = json!({"collection": "sessions", "key": "uid:7"});
    records(&server, "put", sid(&keyed)).await.ok(200);
    let other = json!({"collection": "sessions", "id": "sid-2", "value": 1, "keys": ["uid:7"]});
    records(&server, "put", other).await.refused(409, "conflict");
    let many = json!({"items": [by_key, {"collection": "sessions", "id": "none"}, sid(&json!({})), by_key]});
    let many = records(&server, "get-many", many).await.ok(200);
    assert_eq!(many["items"].as_array().unwrap().len(), 4);
    assert_eq!((&many["items"][0]["id"], &many["items"][1]), (&json!("sid-1"), &Value::Null));
    assert_eq!(many["items"][2], many["items"][3]);
    let touched = records(&server, "touch", sid(&json!({"ttl_seconds": 20}))).await.ok(200);
    passes(&server, 15_000);
    assert_eq!(records(&server, "get", by_key.clone()).await.ok(200)["expires_at"], touched["expires_at"]);
    let consumed = records(&server, "consume", by_key.clone()).await.ok(200);
    assert!(consumed["consumed_at"].is_u64() && consumed["value"] == 1, "{consumed}");
    let used = records(&server, "consume", sid(&json!({}))).await.refused(409, "used");
    for member in ["consumed_at", "version", "group"] {
        assert_eq!(used[member], consumed[member], "{member}");
    }
    assert_eq!(records(&server, "take", by_key.clone()).await.ok(200)["value"], 1);
    for call in ["take", "consume", "get"] {
        records(&server, call, by_key.clone()).await.refused(404, "unknown");
    }
    records(&server, "touch", sid(&json!({"ttl_seconds": 20}))).await.refused(404, "unknown");
    assert_eq!(records(&server, "delete", sid(&json!({}))).await.ok(200), json!({"deleted": false}));
    records(&server, "put", sid(&keyed)).await.ok(200);
    assert_eq!(records(&server, "delete", by_key).await.ok(200), json!({"deleted": true}));
}

#[tokio::test]
async fn a_retained_record_is_read_and_absent_to_every_other_call() {
    let server = Server::start().await;
    let put = json!({"value": "v", "ttl_seconds": 10, "retain_seconds": 10});
    records(&server, "put", sid(&put)).await.ok(200);
    passes(&server, 10_000);
    let expired = records(&server, "get", sid(&json!({}))).await.refused(410, "expired");
    assert_eq!(expired["value"], "v");
    for call in ["take", "consume"] {
        records(&server, call, sid(&json!({}))).await.refused(404, "unknown");
    }
    records(&server, "touch", sid(&json!({"ttl_seconds": 5}))).await.refused(404, "unknown");
    assert_eq!(records(&server, "delete", sid(&json!({}))).await.ok(200)["deleted"], false);
    let named = [("x-request-id", "retained")];
    let again = server.call_as(KEY, "POST", "/v1/records/get", &named, sid(&json!({}))).await;
    assert_eq!(again.refused(410, "expired")["value"], "v");
    let why = server.call_as(KEY, "GET", "/v1/why/retained", &[], Value::Null).await.ok(200);
    assert_eq!(why["cause"], "cap");
    assert!(!why.to_string().contains("\"v\""), "the value is not kept for operators: {why}");
    let many = json!({"items": [sid(&json!({}))]});
    assert_eq!(records(&server, "get-many", many).await.ok(200)["items"], json!([null]));
    passes(&server, 10_000);
    records(&server, "get", sid(&json!({}))).await.refused(404, "unknown");
}

#[tokio::test]
async fn a_record_slides_up_to_its_cap() {
    let server = Server::start().await;
    let put = json!({"value": "v", "ttl_seconds": 10, "max_ttl_seconds": 25, "sliding": true, "keys": ["k"]});
    records(&server, "put", sid(&put)).await.ok(200);
    for _ in 0..3 {
        passes(&server, 8_000);
        let read = records(&server, "get", json!({"collection": "sessions", "key": "k"})).await.ok(200);
        assert_eq!((&read["sliding"], read["cap_at"].is_u64()), (&json!(true), true));
    }
    let read = records(&server, "get", sid(&json!({}))).await.ok(200);
    assert_eq!(read["expires_at"], read["cap_at"]);
    let touched = records(&server, "touch", sid(&json!({"ttl_seconds": 60}))).await.ok(200);
    assert_eq!(touched["expires_at"], read["cap_at"]);
    passes(&server, 1_000);
    records(&server, "get", sid(&json!({}))).await.refused(404, "unknown");
    let capped = json!({"value": "v", "ttl_seconds": 10, "max_ttl_ms": 12_000});
    records(&server, "put", sid(&capped)).await.ok(200);
    passes(&server, 5_000);
    let read = records(&server, "get", sid(&json!({}))).await.ok(200);
    assert!(read.get("sliding").is_none() && read["cap_at"].as_u64() > read["expires_at"].as_u64());
    let touched = records(&server, "touch", sid(&json!({"ttl_seconds": 10}))).await.ok(200);
    assert_eq!(touched["expires_at"], read["cap_at"]);
}

#[tokio::test]
async fn a_counter_counts_from_its_creation_within_its_limit() {
    let server = Server::start().await;
    let add = |more: Value| records(&server, "increment", sid(&more));
    let first = add(json!({"ttl_seconds": 10, "limit": 3})).await.ok(200);
    assert_eq!(first["count"], 1);
    passes(&server, 5_000);
    let second = add(json!({"by": 2, "ttl_seconds": 10, "limit": 3})).await.ok(200);
    assert_eq!((&second["count"], &second["expires_at"]), (&json!(3), &first["expires_at"]));
    let exceeded = add(json!({"limit": 3})).await.refused(429, "exceeded");
    assert_eq!(exceeded["count"], 3);
    assert_eq!(add(json!({"by": 0})).await.ok(200)["count"], 3);
    assert_eq!(add(json!({"by": -1})).await.ok(200)["count"], 2);
    records(&server, "get", sid(&json!({}))).await.refused(404, "unknown");
    passes(&server, 5_000);
    assert_eq!(add(json!({"ttl_ms": 1_000})).await.ok(200)["count"], 1);
}

#[tokio::test]
async fn a_lease_has_one_holder() {
    let server = Server::start().await;
    let lease = records(&server, "acquire", sid(&json!({"ttl_seconds": 10}))).await.ok(200);
    assert!(lease["expires_at"].is_u64());
    records(&server, "acquire", sid(&json!({"ttl_seconds": 10}))).await.refused(409, "conflict");
    records(&server, "release", sid(&json!({"lease": "ebl_other"}))).await.refused(409, "conflict");
    let release = sid(&json!({"lease": lease["lease"]}));
    records(&server, "release", release.clone()).await.ok(200);
    records(&server, "release", release.clone()).await.refused(409, "conflict");
    let lease = records(&server, "acquire", sid(&json!({"ttl_ms": 500}))).await.ok(200);
    passes(&server, 500);
    records(&server, "release", sid(&json!({"lease": lease["lease"]}))).await.refused(409, "conflict");
    records(&server, "acquire", sid(&json!({}))).await.ok(200);
}

#[tokio::test]
async fn a_batch_is_all_or_nothing_and_a_group_is_revoked_at_once() {
    let server = Server::start().await;
    let id = |id: &str| json!({"collection": "c", "id": id});
    let put = |name: &str, more: &Value| {
        let mut body = id(name);
        body["value"] = json!(name);
        for (name, value) in more.as_object().unwrap() {
            body[name] = value.clone();
        }
        json!({"put": body})
    };
    let writes = json!({"writes": [put("a", &json!({"if": "absent"})), put("b", &json!({"group": "g"}))]});
    let written = records(&server, "batch", writes.clone()).await.ok(200);
    assert_eq!(written["items"].as_array().unwrap().len(), 2);
    let refused =
        records(&server, "batch", json!({"writes": [put("z", &json!({})), writes["writes"][0]]})).await;
    assert_eq!(refused.refused(409, "conflict")["index"], 1);
    records(&server, "get", id("z")).await.refused(404, "unknown");
    let mut check = id("a");
    check["if"] = json!({"version": written["items"][0]["version"]});
    let moved = json!({"writes": [{"check": check}, {"delete": id("b")}, put("d", &json!({"group": "g"}))]});
    let done = records(&server, "batch", moved).await.ok(200);
    assert_eq!(done["items"][1]["deleted"], true);
    let group = json!({"collection": "c", "group": "g"});
    records(&server, "groups/revoke", group).await.ok(200);
    records(&server, "get", id("d")).await.refused(404, "unknown");
    let again = json!({"collection": "c", "id": "e", "value": 1, "group": "g"});
    records(&server, "put", again.clone()).await.refused(410, "revoked");
    let batch = json!({"writes": [put("f", &json!({})), {"put": again}]});
    assert_eq!(records(&server, "batch", batch).await.refused(410, "revoked")["index"], 1);
    let listed = records(&server, "list", json!({"collection": "c", "limit": 10})).await.ok(200);
    assert_eq!((&listed["items"][0]["id"], &listed["next"]), (&json!("a"), &Value::Null));
    assert!(listed["items"][0].get("value").is_none() && listed["items"][0]["version"].is_string());
}

#[tokio::test]
async fn a_challenge_is_answered_once_within_its_attempts_and_time() {
    let server = Server::start().await;
    let issue = |form: &str, more: Value| {
        let mut body = json!({"purpose": "login", "subject": "alice", "form": form, "data": {"n": 1}});
        for (name, value) in more.as_object().unwrap() {
            body[name] = value.clone();
        }
        let server = &server;
        async move { server.call("POST", "/v1/challenges", &[], body).await.ok(201) }
    };
    let call = |call: &'static str, body: Value| {
        let server = &server;
        async move { server.call("POST", &format!("/v1/challenges/{call}"), &[], body).await }
    };
    for form in ["digits6", "token", "bytes32"] {
        let issued = issue(form, json!({"ttl_seconds": 60, "attempts": 3, "siblings": "invalidate"})).await;
        let right =
            json!({"id": issued["id"], "purpose": "login", "subject": "alice", "secret": issued["secret"]});
        assert_eq!(call("peek", right.clone()).await.ok(200)["data"], json!({"n": 1}));
        assert_eq!(call("verify", right.clone()).await.ok(200)["data"], json!({"n": 1}));
        call("verify", right.clone()).await.refused(409, "used");
        call("peek", right).await.refused(409, "used");
    }
    let issued = issue("digits6", json!({"attempts": 2, "siblings": "invalidate"})).await;
    let with = |secret: &Value| json!({"purpose": "login", "subject": "alice", "secret": secret});
    let wrong = if issued["secret"] == "000000" { json!("000001") } else { json!("000000") };
    for left in [1, 0] {
        let mismatch = call("verify", with(&wrong)).await.refused(422, "mismatch");
        assert_eq!(mismatch["attempts_left"], left);
    }
    call("verify", with(&issued["secret"])).await.refused(429, "exceeded");
    let first = issue("token", json!({"ttl_ms": 1_000})).await;
    let second = issue("token", json!({"siblings": "invalidate"})).await;
    let of = |issued: &Value| json!({"purpose": "login", "secret": issued["secret"]});
    call("verify", of(&first)).await.refused(410, "revoked");
    passes(&server, 600_000);
    call("verify", of(&second)).await.refused(410, "expired");
    passes(&server, 100_000_000);
    call("verify", of(&second)).await.refused(404, "unknown");
    let other = json!({"purpose": "reset", "id": second["id"], "secret": second["secret"]});
    call("verify", other).await.refused(404, "unknown");
    call("verify", json!({"purpose": "login", "secret": "123456"})).await.refused(400, "invalid");
}

#[tokio::test]
async fn an_id_that_is_not_text_names_a_record_in_every_call() {
    let server = Server::start().await;
    let name = |more: Value| {
        let mut body = json!({"collection": "c", "id_base64": "AP8="});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let call = |call: &str, more: Value| {
        let (server, path, body) = (&server, format!("/v1/records/{call}"), name(more));
        async move { server.post(&path, body).await }
    };
    call("put", json!({"value": 1, "ttl_seconds": 60})).await.ok(200);
    let read = call("get", json!({})).await.ok(200);
    assert_eq!((&read["id_base64"], read.get("id"), &read["value"]), (&json!("AP8="), None, &json!(1)));
    call("touch", json!({"ttl_seconds": 90})).await.ok(200);
    assert_eq!(call("consume", json!({})).await.ok(200)["id_base64"], "AP8=");
    let many =
        json!({"items": [{"collection": "c", "id_base64": "AP8="}, {"collection": "c", "id": "AP8="}]});
    let many = server.post("/v1/records/get-many", many).await.ok(200);
    assert_eq!((&many["items"][0]["id_base64"], &many["items"][1]), (&json!("AP8="), &Value::Null));
    let listed = server.post("/v1/records/list", json!({"collection": "c"})).await.ok(200);
    assert_eq!(listed["items"][0]["id_base64"], "AP8=");
    assert_eq!(call("delete", json!({})).await.ok(200)["deleted"], true);
    call("take", json!({})).await.refused(404, "unknown");
    assert_eq!(call("increment", json!({"by": 2, "ttl_seconds": 60})).await.ok(200)["count"], 2);
    let lease = call("acquire", json!({"ttl_seconds": 60})).await.ok(200)["lease"].clone();
    call("acquire", json!({"ttl_seconds": 60})).await.refused(409, "conflict");
    call("release", json!({"lease": lease})).await.ok(200);
    let writes = json!({"writes": [{"put": name(json!({"value": 1}))}]});
    server.post("/v1/records/batch", writes).await.ok(200);
    let check = json!({"check": name(json!({"if": "absent"}))});
    server.post("/v1/records/batch", json!({"writes": [check]})).await.refused(409, "conflict");
    let writes = json!({"writes": [{"delete": name(json!({}))}]});
    assert_eq!(server.post("/v1/records/batch", writes).await.ok(200)["items"][0]["deleted"], true);

    // Text in base64 is the id of that text.
    server.post("/v1/records/put", json!({"collection": "c", "id": "a", "value": 1})).await.ok(200);
    let read = server.post("/v1/records/get", json!({"collection": "c", "id_base64": "YQ=="})).await.ok(200);
    assert_eq!((&read["id"], read.get("id_base64")), (&json!("a"), None));
    for (path, body, member) in [
        ("put", json!({"collection": "c", "value": 1}), "id"),
        ("put", json!({"collection": "c", "id": "a", "id_base64": "YQ==", "value": 1}), "id"),
        ("put", json!({"collection": "c", "id_base64": "?", "value": 1}), "id_base64"),
        ("get", json!({"collection": "c", "id_base64": "YQ==", "key": "k"}), "id"),
        ("increment", json!({"collection": "c"}), "id"),
        ("acquire", json!({"collection": "c", "id_base64": ""}), "id"),
        ("release", json!({"collection": "c", "lease": "x"}), "id"),
        ("batch", json!({"writes": [{"delete": {"collection": "c"}}]}), "id"),
        ("batch", json!({"writes": [5]}), "writes[0]"),
        ("put", json!({"collection": "c", "id": "a", "value": 1, "if": {}}), "if"),
        ("put", json!({"collection": "c", "id": "a", "value": 1, "ttl_ms": 0}), "ttl_ms"),
        ("put", json!({"collection": "c", "id": "a", "value": 1, "expires_at": i64::MAX}), "expires_at"),
        ("put", json!({"collection": "c", "id": "a", "value": 1, "retain_seconds": 0}), "retain_seconds"),
        ("increment", json!({"collection": "c", "id": "a", "ttl_ms": -1}), "ttl_ms"),
    ] {
        let refused = server.post(&format!("/v1/records/{path}"), body).await.refused(400, "invalid");
        assert_eq!(refused["member"], member, "{path}: {refused}");
    }
}
