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
