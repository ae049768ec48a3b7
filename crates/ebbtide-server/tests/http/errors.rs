//! Refusals that say what is wrong, and why.

use serde_json::{Value, json};

use crate::server::{KEY, Server};

#[tokio::test]
async fn a_query_parameter_that_a_call_does_not_take_is_refused() {
    let server = Server::start().await;
    let put = "/v1/attributes/alice/settings/theme?ttl_seconds=60";
    let problem = server.call("PUT", put, &[], json!({"data": 1})).await.refused(400, "invalid");
    assert!(problem["detail"].as_str().unwrap().contains("`ttl_seconds`"), "{problem}");
    let gone = server.call("GET", "/v1/attributes/alice/settings/theme", &[], Value::Null).await;
    gone.refused(404, "unknown");
    for path in ["/v1/stats?x=1", "/v1/sweep?x", "/v1/grants/0123456789abcdef0123456789abcdef?x=hunter2"] {
        let method = if path.contains("sweep") { "POST" } else { "GET" };
        let problem = server.call(method, path, &[], Value::Null).await.refused(400, "invalid");
        assert!(!problem.to_string().contains("hunter2"), "{problem}");
    }
    let near = server.call("GET", "/v1/keys?limits=5", &[], Value::Null).await.refused(400, "invalid");
    assert_eq!(near["did_you_mean"], "limit");
}

#[tokio::test]
async fn a_wrong_content_type_names_the_wanted_one() {
    let server = Server::start().await;
    let authorization = format!("Bearer {KEY}");
    let key = ("authorization", authorization.as_str());
    let body = r#"{"namespace": "n", "jti": "j"}"#;
    for headers in [vec![key], vec![key, ("content-type", "text/plain")]] {
        let problem = server.send("POST", "/v1/replays/check", &headers, body).await.refused(400, "invalid");
        assert!(
            problem["detail"].as_str().unwrap().contains("`Content-Type: application/json`"),
            "{problem}"
        );
    }
    let good = [key, ("content-type", "Application/JSON; charset=utf-8")];
    server.send("POST", "/v1/replays/check", &good, body).await.ok(200);
    let form = server.post("/v1/introspect", json!({"token": "hunter2"})).await.refused(400, "invalid");
    assert!(form["detail"].as_str().unwrap().contains("application/x-www-form-urlencoded"), "{form}");
}

#[tokio::test]
async fn a_tagged_body_is_an_object_too() {
    let server = Server::start().await;
    let array = server.post("/v1/explain", json!(["clients", "app"])).await.refused(400, "invalid");
    assert_eq!(array["expected"], "an object");
    let unknown = server.post("/v1/explain", json!({"kind": "clients", "client": "app"})).await;
    let unknown = unknown.refused(400, "invalid");
    assert_eq!(unknown["did_you_mean"], "client_id", "{unknown}");
}

#[tokio::test]
async fn every_problem_has_a_page_behind_its_type() {
    let server = Server::start().await;
    for (name, page) in ebbtide_server::http::catalogue::files() {
        let Some(name) = name.strip_suffix(".md").filter(|name| *name != "README") else { continue };
        let answer = server.send("GET", &format!("/problems/{name}"), &[], "").await;
        assert_eq!(answer.status, 200, "{name}");
        assert!(page.contains("## Cause\n\n") && page.contains("## Remedy\n\n"), "{page}");
    }
    server.send("GET", "/problems/hunter2", &[], "").await.refused(404, "not-found");
}

#[tokio::test]
async fn an_operator_asks_for_the_cause_of_a_refusal_and_no_other_tenant_does() {
    let server = Server::start().await;
    let key = async |scope: &str, role: &str| {
        let made = json!({"scope": scope, "role": role, "ttl_seconds": 3600});
        let made = server.post("/v1/keys", made).await.ok(201);
        (made["id"].as_str().unwrap().to_owned(), made["key"].as_str().unwrap().to_owned())
    };
    let (id, writer) = key("tenant:acme", "writer").await;
    let (_, admin) = key("tenant:acme", "admin").await;
    let (_, other) = key("tenant:other", "admin").await;
    let proof = json!({"namespace": "n", "jti": "j"});
    let check = |request: &'static str| {
        let (server, writer, proof) = (&server, &writer, proof.clone());
        async move {
            server.call_as(writer, "POST", "/v1/replays/check", &[("x-request-id", request)], proof).await
        }
    };
    check("first/1").await.ok(200);
    check("second/2").await.refused(409, "replay");
    let why = async |key: &str, id: &str| {
        server.call_as(key, "GET", &format!("/v1/why/{}", id.replace('/', "%2F")), &[], Value::Null).await
    };
    let told = why(&admin, "second/2").await.ok(200);
    assert_eq!(
        (&told["title"], &told["cause"], &told["status"]),
        (&json!("replay"), &json!("used"), &json!(409))
    );
    assert_eq!((&told["key_id"], &told["scope"]), (&json!(id), &json!("tenant:acme")));
    assert_eq!((&told["route"], &told["method"]), (&json!("/v1/replays/check"), &json!("POST")));
    why(KEY, "second/2").await.ok(200);
    why(&other, "second/2").await.refused(404, "unknown");
    why(&writer, "second/2").await.refused(403, "forbidden");
    why(&admin, "first/1").await.refused(404, "unknown");
    // Without a valid key, it belongs to nobody's scope.
    server
        .call_as("wrong", "GET", "/v1/stats", &[("x-request-id", "third")], Value::Null)
        .await
        .refused(401, "unauthorized");
    why(&admin, "third").await.refused(404, "unknown");
    assert_eq!(why(KEY, "third").await.ok(200)["cause"], "key");
}

#[tokio::test]
async fn an_operator_tells_an_idle_grant_from_one_that_was_signed_out_stolen_or_revoked() {
    let server = Server::start().await;
    let issue = async || {
        let grant = json!({"subject": "alice", "client_id": "app", "grace_seconds": 0});
        server.post("/v1/grants", grant).await.ok(201)
    };
    let rotate = async |grant: &Value, id: &str| {
        let body = json!({"refresh_token": grant["refresh_token"], "client_id": "app"});
        server.call_as(KEY, "POST", "/v1/grants/rotate", &[("x-request-id", id)], body).await
    };
    let cause = async |id: &str| {
        server.call_as(KEY, "GET", &format!("/v1/why/{id}"), &[], Value::Null).await.ok(200)["cause"].clone()
    };
    let stolen = issue().await;
    rotate(&stolen, "rotated").await.ok(200);
    rotate(&stolen, "stolen").await.refused(409, "reused");
    rotate(&stolen, "after").await.refused(410, "revoked");
    assert_eq!((cause("stolen").await, cause("after").await), (json!("reused"), json!("reused")));
    let revoked = issue().await;
    server.post("/v1/grants/revoke", json!({"grant_id": revoked["grant_id"]})).await.ok(200);
    rotate(&revoked, "revoked").await.refused(410, "revoked");
    assert_eq!(cause("revoked").await, "revoked");
    let signed_out = issue().await;
    server.post("/v1/subjects/sign-out", json!({"subject": "alice"})).await.ok(200);
    rotate(&signed_out, "signed-out").await.refused(410, "revoked");
    assert_eq!(cause("signed-out").await, "sign-out");
    let idle = issue().await;
    // Within the day for which an idle family is kept.
    server.pass((14 * 24 + 1) * 3_600);
    rotate(&idle, "idle").await.refused(410, "expired");
    assert_eq!(cause("idle").await, "idle");
}

#[tokio::test]
async fn an_operator_learns_who_revoked_a_grant() {
    let server = Server::start().await;
    let made =
        server.post("/v1/keys", json!({"scope": "global", "role": "writer", "ttl_seconds": 3600})).await;
    let made = made.ok(201);
    let (key, key_id) = (made["key"].as_str().unwrap(), &made["id"]);
    let issue = async || {
        server.pass(1);
        let grant = json!({"subject": "alice", "client_id": "app", "grace_seconds": 0});
        server.post("/v1/grants", grant).await.ok(201)
    };
    let revoke = async |path: &str, mut body: Value| {
        (body["on_behalf_of"], body["reason"]) = ("carol".into(), "a lost laptop".into());
        server.call_as(key, "POST", path, &[], body).await.ok(200)
    };
    // Another one, before the grant was issued, is not told.
    server.post("/v1/subjects/sign-out", json!({"subject": "alice", "on_behalf_of": "dave"})).await.ok(200);
    for (path, body) in [
        ("/v1/grants/revoke", json!({"grant_id": "of the grant"})),
        ("/v1/grants/revoke", json!({"client_id": "app"})),
        ("/v1/subjects/sign-out", json!({"subject": "alice"})),
    ] {
        let (grant, mut body) = (issue().await, body);
        if body.get("grant_id").is_some() {
            body["grant_id"] = grant["grant_id"].clone();
        }
        revoke(path, body.clone()).await;
        let rotate = json!({"refresh_token": grant["refresh_token"], "client_id": "app"});
        let token = json!({"grant_id": grant["grant_id"], "subject": "alice", "client_id": "app"});
        for (call, body) in [("/v1/grants/rotate", rotate), ("/v1/access-tokens", token)] {
            let refused = server.post(call, body).await.refused(410, "revoked");
            assert!(refused.get("revoked_by").is_none(), "for operators: {refused}");
            let id = refused["request_id"].as_str().unwrap();
            let told = server.call("GET", &format!("/v1/why/{id}"), &[], Value::Null).await.ok(200);
            let by = &told["revoked_by"];
            assert_eq!((&by["key_id"], &by["action"]), (key_id, &json!("revoke")), "{path} {told}");
            assert_eq!((&by["on_behalf_of"], &by["reason"]), (&json!("carol"), &json!("a lost laptop")));
        }
    }
    // A theft names the key that presented the token.
    let stolen = issue().await;
    let rotate = json!({"refresh_token": stolen["refresh_token"], "client_id": "app"});
    server.post("/v1/grants/rotate", rotate.clone()).await.ok(200);
    server.call_as(key, "POST", "/v1/grants/rotate", &[], rotate.clone()).await.refused(409, "reused");
    let refused = server.post("/v1/grants/rotate", rotate).await.refused(410, "revoked");
    let path = format!("/v1/why/{}", refused["request_id"].as_str().unwrap());
    let by = server.call("GET", &path, &[], Value::Null).await.ok(200)["revoked_by"].clone();
    assert_eq!((&by["key_id"], &by["action"]), (key_id, &json!("theft")), "{by}");
}

#[tokio::test]
async fn a_bound_that_is_broken_names_its_member() {
    let server = Server::start().await;
    let long = "x".repeat(5_000);
    for (path, body, member) in [
        ("/v1/replays/check", json!({"namespace": "n", "jti": ""}), "jti"),
        ("/v1/replays/check", json!({"namespace": long, "jti": "j"}), "namespace"),
        ("/v1/replays/check-batch", json!({"items": []}), "items"),
        ("/v1/nonces", json!({"audience": ""}), "audience"),
        ("/v1/nonces", json!({"audience": "as", "profile": "hunter2"}), "profile"),
        ("/v1/grants", json!({"client_id": "app", "subject": "alice", "grace_seconds": 61}), "grace_seconds"),
        ("/v1/grants", json!({"client_id": "", "subject": "alice"}), "client_id"),
        ("/v1/records/put", json!({"collection": "", "id": "1", "value": 1}), "collection"),
        ("/v1/records/put", json!({"collection": "c", "id": "", "value": 1}), "id"),
        ("/v1/records/put", json!({"collection": "c", "id": "1", "value": 1, "group": ""}), "group"),
        (
            "/v1/records/put",
            json!({"collection": "c", "id": "1", "value_base64": "hunter2!"}),
            "value_base64",
        ),
        ("/v1/records/batch", json!({"writes": []}), "writes"),
        ("/v1/attributes/set", json!({"owner": "", "bucket": "b", "name": "n", "data": 1}), "owner"),
        ("/v1/attributes/set", json!({"owner": "a", "bucket": "", "name": "n", "data": 1}), "bucket"),
        ("/v1/attributes/set", json!({"owner": "a", "bucket": "b", "name": "", "data": 1}), "name"),
    ] {
        let problem = server.post(path, body).await.refused(400, "invalid");
        assert_eq!(problem["member"], member, "{problem}");
        assert!(!problem.to_string().contains("hunter2"), "{problem}");
    }
    for (query, member) in [("limit=0", "limit"), ("after=!", "after")] {
        let path = format!("/v1/grants?subject=alice&{query}");
        let problem = server.call("GET", &path, &[], Value::Null).await.refused(400, "invalid");
        assert_eq!(problem["member"], member, "{problem}");
    }
    let scope = [("ebbtide-scope", "tenant:a:b")];
    let problem = server.call("GET", "/v1/approvals", &scope, Value::Null).await.refused(400, "invalid");
    assert_eq!(problem["member"], "Ebbtide-Scope");
    let short = json!({"identity": "a", "resource": "r", "action": "x", "granted_by": "b", "ttl_seconds": 5});
    let problem = server.call("PUT", "/v1/approvals", &[], short).await.refused(400, "invalid");
    assert_eq!(problem["member"], "ttl_seconds");
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "a table of requests")]
async fn a_request_that_a_call_does_not_take_names_its_member_and_never_its_value() {
    let server = Server::start().await;
    let long = format!("hunter2{}", "x".repeat(5_000));
    let edge = |name: &str, value: &str| {
        let mut edge =
            json!({"subject": "a", "relation": "member", "object": "b", "relation_type": "membership"});
        edge[name] = value.into();
        edge
    };
    let approval = |name: &str, value: Value| {
        let mut approval = json!({"identity": "a", "resource": "r", "action": "x", "granted_by": "b"});
        approval[name] = value;
        approval
    };
    for (method, path, body, member) in [
        ("POST", "/v1/sessions/get", json!({}), "session_id"),
        ("POST", "/v1/sessions/get", json!({"session_id": "hunter2", "handle": "hunter2"}), "session_id"),
        ("POST", "/v1/approvals/check-batch", json!({"items": []}), "items"),
        ("POST", "/v1/relationships/check-batch", json!({"items": []}), "items"),
        ("POST", "/v1/import", json!({"items": []}), "items"),
        (
            "POST",
            "/v1/codes",
            json!({"client_id": "a", "subject": "s", "redirect_uri": "https://a/cb", "code_challenge": "hunter2"}),
            "code_challenge",
        ),
        (
            "POST",
            "/v1/codes",
            json!({"client_id": "a", "subject": "s", "redirect_uri": "https://a/cb", "ttl_seconds": 100_000}),
            "ttl_seconds",
        ),
        (
            "POST",
            "/v1/codes",
            json!({"client_id": "a", "subject": "s", "redirect_uri": "https://a/cb", "resource": ["hunter2"]}),
            "resource",
        ),
        ("POST", "/v1/clients", json!({"client_secret_hash": "hunter2"}), "client_secret_hash"),
        (
            "POST",
            "/v1/challenges",
            json!({"purpose": "p", "subject": "s", "form": "token", "attempts": 0}),
            "attempts",
        ),
        (
            "POST",
            "/v1/challenges",
            json!({"purpose": "p", "subject": "s", "form": "token", "ttl_seconds": 99_999_999}),
            "ttl_seconds",
        ),
        ("POST", "/v1/device-codes", json!({"client_id": "a", "interval_seconds": 0}), "interval_seconds"),
        ("POST", "/v1/grants/revoke", json!({}), "grant_id"),
        ("POST", "/v1/grants/revoke", json!({"grant_id": "hunter2"}), "grant_id"),
        ("GET", "/v1/grants/hunter2", Value::Null, "grant_id"),
        ("DELETE", "/v1/grants/hunter2", Value::Null, "grant_id"),
        ("GET", "/v1/grants", Value::Null, "subject"),
        ("POST", "/v1/sweep", json!({"kinds": []}), "kinds"),
        ("GET", "/v1/audit?action=hunter2", Value::Null, "action"),
        ("GET", "/v1/audit?scope=hunter2", Value::Null, "scope"),
        ("POST", "/v1/relationships/check", edge("relation_type", "hunter2"), "relation_type"),
        ("POST", "/v1/relationships/check", edge("subject", ""), "subject"),
        ("POST", "/v1/relationships/check", edge("relation", &long), "relation"),
        (
            "POST",
            "/v1/relationships/reachable",
            json!({"name": "a", "relation": "r", "relation_type": "trust", "max_depth": 0}),
            "max_depth",
        ),
        (
            "POST",
            "/v1/relationships/reachable",
            json!({"name": "a", "relation": "r", "relation_type": "role"}),
            "relation_type",
        ),
        ("GET", "/v1/relationships?relation_type=hunter2", Value::Null, "relation_type"),
        ("PUT", "/v1/approvals", approval("identity", "".into()), "identity"),
        ("PUT", "/v1/approvals", approval("action", long.clone().into()), "action"),
        ("PUT", "/v1/approvals", approval("granted_by", "hunter2\n".into()), "granted_by"),
        ("PUT", "/v1/approvals", approval("ttl_seconds", 0.into()), "ttl_seconds"),
        ("POST", "/v1/attributes/get", json!({"owner": "..", "bucket": "b", "name": "n"}), "owner"),
        ("POST", "/v1/attributes/get", json!({"owner": "o", "bucket": "", "name": "n"}), "bucket"),
        ("POST", "/v1/attributes/get", json!({"owner": "o", "bucket": "b", "name": &long}), "name"),
        ("POST", "/v1/keys", json!({"scope": "hunter2", "role": "reader"}), "scope"),
        ("POST", "/v1/keys", json!({"scope": "global", "role": "hunter2"}), "role"),
        ("POST", "/v1/keys", json!({"scope": "global", "role": "reader", "rate_limit": 0}), "rate_limit"),
        ("POST", "/v1/keys", json!({"scope": "global", "role": "reader", "allow": []}), "allow"),
        ("POST", "/v1/subjects/sign-out", json!({"subject": ""}), "subject"),
        ("POST", "/v1/subjects/sign-out", json!({"subject": "s", "reason": "hunter2\n"}), "reason"),
        ("POST", "/v1/sessions", json!({"ttl_seconds": 60, "max_ttl_seconds": 10}), "ttl_seconds"),
        ("POST", "/v1/records/get-many", json!({"items": "hunter2"}), "items"),
        ("PUT", "/v1/policies", json!({"kind": "hunter2"}), "kind"),
        ("PUT", "/v1/policies", json!({"kind": "grants", "preset": "hunter2"}), "preset"),
    ] {
        let what = format!("{method} {path} {body}");
        let answer = server.call(method, path, &[], body).await;
        assert_eq!(answer.status, 400, "{what}: {}", answer.body);
        assert_eq!(answer.body["member"], member, "{what}: {}", answer.body);
        assert!(!answer.body.to_string().contains("hunter2"), "{what}: {}", answer.body);
    }
    let authorization = format!("Bearer {KEY}");
    let headers = [("authorization", authorization.as_str()), ("content-type", "text/plain")];
    let wrong = server.send("POST", "/v1/sweep", &headers, r#"{"kinds":["replays"]}"#).await;
    assert_eq!(
        wrong.refused(400, "invalid")["expected"],
        "application/json",
        "an optional body has a type too"
    );
}

/// `clock` and `engine` take a clock in doubt and a broken engine: `tests/clock.rs` has those.
#[tokio::test]
async fn every_cause_is_told() {
    let server = Server::start().await;
    let told = async |server: &Server, refused: Value| {
        let path = format!("/v1/why/{}", refused["request_id"].as_str().unwrap());
        server.call("GET", &path, &[], Value::Null).await.ok(200)["cause"].clone()
    };
    let proof = json!({"namespace": "n", "jti": "j"});
    server.post("/v1/replays/check", proof.clone()).await.ok(200);
    let used = server.post("/v1/replays/check", proof.clone()).await.refused(409, "replay");
    assert_eq!(told(&server, used).await, "used");
    let malformed = server.post("/v1/replays/check", json!({})).await.refused(400, "invalid");
    assert_eq!(told(&server, malformed).await, "request");
    let stranger = server.call_as("ebk_x", "POST", "/v1/replays/check", &[], proof.clone()).await;
    assert_eq!(told(&server, stranger.refused(401, "unauthorized")).await, "key");
    let absent = server.call("GET", "/v1/attributes/o/b/n", &[], Value::Null).await.refused(404, "unknown");
    assert_eq!(told(&server, absent).await, "never-here");
    let key = json!({"scope": "global", "role": "writer", "ttl_seconds": 60, "rate_limit": 1});
    let key = server.post("/v1/keys", key).await.ok(201)["key"].as_str().unwrap().to_owned();
    let mut last = Value::Null;
    for _ in 0..3 {
        last = server.call_as(&key, "GET", "/v1/attributes/o/b/n", &[], Value::Null).await.body;
    }
    assert_eq!((&last["title"], told(&server, last.clone()).await), (&json!("limited"), json!("quota")));

    let code = json!({"client_id": "app", "subject": "alice", "redirect_uri": "https://app/cb"});
    let redeem = |code: &Value, uri: &str| json!({"code": code, "client_id": "app", "redirect_uri": uri});
    let issued = server.post("/v1/codes", code.clone()).await.ok(201)["code"].clone();
    let other = server.post("/v1/codes/redeem", redeem(&issued, "https://evil/cb")).await;
    assert_eq!(told(&server, other.refused(422, "mismatch")).await, "condition");
    let again = server.post("/v1/codes/redeem", redeem(&issued, "https://app/cb")).await;
    assert_eq!(told(&server, again.refused(409, "reused")).await, "reused");
    let rotate = |token: &Value| json!({"refresh_token": token, "client_id": "app"});
    let grant = server.post("/v1/grants", json!({"subject": "alice", "client_id": "app"})).await.ok(201);
    let first = server.post("/v1/grants/rotate", rotate(&grant["refresh_token"])).await.ok(200);
    server.post("/v1/grants/rotate", rotate(&first["refresh_token"])).await.ok(200);
    let raced = server.post("/v1/grants/rotate", rotate(&grant["refresh_token"])).await;
    assert_eq!(told(&server, raced.refused(409, "raced")).await, "raced");
    let late = server.post("/v1/codes", code.clone()).await.ok(201)["code"].clone();
    server.pass(61);
    let late = server.post("/v1/codes/redeem", redeem(&late, "https://app/cb")).await;
    assert_eq!(told(&server, late.refused(410, "expired")).await, "cap");

    // After a restore, the same refusals are of the fence.
    let grant = server.post("/v1/grants", json!({"subject": "alice", "client_id": "app"})).await.ok(201);
    let code = server.post("/v1/codes", code).await.ok(201)["code"].clone();
    let mut nonces = Vec::new();
    for mode in ["stateful", "stateless"] {
        let asked = if mode == "stateless" {
            json!({"audience": "as", "mode": mode})
        } else {
            json!({"audience": "as"})
        };
        nonces.push(server.post("/v1/nonces", asked).await.ok(201)["nonce"].clone());
    }
    ebbtide::restore::restore(&server.opened().await, &[]).await.unwrap();
    let restored = server.another().await;
    let family = restored.post("/v1/grants/rotate", rotate(&grant["refresh_token"])).await;
    assert_eq!(told(&restored, family.refused(410, "expired")).await, "fence");
    let code = restored.post("/v1/codes/redeem", redeem(&code, "https://app/cb")).await;
    assert_eq!(told(&restored, code.refused(409, "reused")).await, "fence");
    for nonce in nonces {
        let nonce = restored.post("/v1/nonces/accept", json!({"audience": "as", "nonce": nonce})).await;
        assert_eq!(told(&restored, nonce.refused(409, "used")).await, "fence");
    }
    let proof = restored.post("/v1/replays/check", json!({"namespace": "n", "jti": "new"})).await;
    assert_eq!(told(&restored, proof.refused(503, "unavailable")).await, "fence");
    // A nonce that is used after it is not.
    let nonce = restored.post("/v1/nonces", json!({"audience": "as"})).await.ok(201)["nonce"].clone();
    restored.pass(1);
    let later = restored.post("/v1/nonces", json!({"audience": "as"})).await.ok(201)["nonce"].clone();
    let accept = |nonce: &Value| json!({"audience": "as", "nonce": nonce});
    restored.post("/v1/nonces/accept", accept(&later)).await.ok(200);
    let again = restored.post("/v1/nonces/accept", accept(&later)).await.refused(409, "used");
    assert_eq!(told(&restored, again).await, "used");
    restored.post("/v1/nonces/accept", accept(&nonce)).await.ok(200);
}
