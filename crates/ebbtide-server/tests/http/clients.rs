//! Clients over HTTP: changed, imported, unused, and as callers of introspection and revocation.

use crate::server::{Answer, KEY, Server};
use base64ct::{Base64, Encoding as _};
use serde_json::{Value, json};

const FORM: &str = "application/x-www-form-urlencoded";

fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", Base64::encode_string(format!("{user}:{password}").as_bytes()))
}

async fn form(server: &Server, path: &str, authorization: &str, scope: Option<&str>, body: &str) -> Answer {
    let mut headers = vec![("authorization", authorization), ("content-type", FORM)];
    headers.extend(scope.map(|scope| ("ebbtide-scope", scope)));
    server.send("POST", path, &headers, body).await
}

async fn token(server: &Server, client_id: &str) -> (Value, String) {
    let grant = json!({"subject": "alice", "client_id": client_id, "scope": "read"});
    let grant = server.post("/v1/grants", grant).await.ok(201);
    let access = server.post("/v1/access-tokens", json!({"grant_id": grant["grant_id"]})).await.ok(201);
    let token = access["access_token"].as_str().unwrap().to_owned();
    (grant, token)
}

async fn is_active(server: &Server, token: &str) -> bool {
    server.form("/v1/introspect", &format!("token={token}")).await.ok(200)["active"] == true
}

async fn client(server: &Server, client_id: &str) -> String {
    let client = server.post("/v1/clients", json!({"client_id": client_id})).await.ok(201);
    client["client_secret"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn introspection_and_revocation_accept_basic_authentication() {
    let server = Server::start().await;
    let (secret, other) = (client(&server, "app").await, client(&server, "other").await);
    let (_, access) = token(&server, "app").await;
    let body = format!("token={access}");
    let key = server.post("/v1/keys", json!({"scope": "global", "role": "reader"})).await.ok(201);
    let key = key["key"].as_str().unwrap();
    for good in [
        basic("app", &secret),
        basic("other", &other),
        basic("anybody", key),
        basic(key, ""),
        basic("root", KEY),
    ] {
        let answer = form(&server, "/v1/introspect", &good, None, &body).await.ok(200);
        assert_eq!((&answer["active"], &answer["sub"]), (&json!(true), &json!("alice")), "{good}");
    }
    for bad in [basic("app", &other), basic("app", ""), basic("nobody", &secret), "Basic x".to_owned()] {
        let answer = form(&server, "/v1/introspect", &bad, None, &body).await;
        assert_eq!(answer.status, 401, "{bad}");
        answer.refused(401, "unauthorized");
    }
    let answer = form(&server, "/v1/introspect", &basic("app", &other), None, &body).await;
    assert!(answer.head.contains("www-authenticate: Basic realm="), "{}", answer.head);
    // A client is one of its scope, and of no other.
    let elsewhere = form(&server, "/v1/introspect", &basic("app", &secret), Some("tenant:acme"), &body).await;
    elsewhere.refused(401, "unauthorized");
    // A reader's key revokes nothing, whatever the scheme.
    form(&server, "/v1/revoke", &basic("x", key), None, &body).await.refused(403, "forbidden");
    let headers = [("authorization", basic("app", &secret)), ("content-type", "application/json".to_owned())];
    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    server.send("POST", "/v1/grants", &headers, "{}").await.refused(401, "unauthorized");
}

#[tokio::test]
async fn a_client_that_authenticates_itself_revokes_its_own_tokens_alone() {
    let server = Server::start().await;
    let (secret, other) = (client(&server, "app").await, client(&server, "other").await);
    let (_, access) = token(&server, "app").await;
    let body = format!("token={access}");
    assert_eq!(form(&server, "/v1/revoke", &basic("other", &other), None, &body).await.status, 200);
    assert!(is_active(&server, &access).await, "another client's token is left as it is");
    let named = format!("{body}&client_id=app");
    form(&server, "/v1/revoke", &basic("other", &other), None, &named).await.refused(400, "invalid");
    assert_eq!(form(&server, "/v1/revoke", &basic("app", &secret), None, &named).await.status, 200);
    assert!(!is_active(&server, &access).await);
    let audit = server.call("GET", "/v1/audit", &[], Value::Null).await.ok(200);
    let by_client = |entry: &Value| entry["action"] == "revoke" && entry["key_id"] == "client:app";
    assert!(audit["items"].as_array().unwrap().iter().any(by_client), "{audit}");
    server.call("DELETE", "/v1/clients/app", &[], Value::Null).await.ok(200);
    form(&server, "/v1/introspect", &basic("app", &secret), None, &body).await.refused(401, "unauthorized");
}

#[tokio::test]
async fn revoking_an_access_token_can_revoke_its_grant() {
    let server = Server::start().await;
    let settings = json!({"client_id": "all", "revoke": "grant", "confidential": false});
    assert_eq!(server.post("/v1/clients", settings).await.ok(201)["revoke"], "grant");
    for (client_id, more, ends) in [
        ("app", "", false),
        ("app", "&revoke=grant", true),
        ("all", "", true),
        ("all", "&revoke=token", false),
    ] {
        let (grant, access) = token(&server, client_id).await;
        assert_eq!(server.form("/v1/revoke", &format!("token={access}{more}")).await.status, 200);
        assert!(!is_active(&server, &access).await);
        let rotate = json!({"refresh_token": grant["refresh_token"], "client_id": client_id});
        let rotated = server.post("/v1/grants/rotate", rotate).await;
        assert_eq!(rotated.status, if ends { 410 } else { 200 }, "{client_id} {more}: {}", rotated.body);
    }
    let (grant, access) = token(&server, "app").await;
    let revoke = json!({"token": access, "revoke": "grant"});
    assert_eq!(server.post("/v1/revoke", revoke).await.status, 200, "as JSON, too");
    let rotate = json!({"refresh_token": grant["refresh_token"], "client_id": "app"});
    server.post("/v1/grants/rotate", rotate).await.refused(410, "revoked");
    server.form("/v1/revoke", &format!("token={access}&revoke=everything")).await.refused(400, "invalid");
}

#[tokio::test]
async fn a_client_is_updated() {
    let server = Server::start().await;
    let client = json!({"client_id": "app", "name": "An App", "redirect_uris": ["https://a.example/cb"]});
    server.post("/v1/clients", client).await.ok(201);
    let change = json!({"redirect_uris": ["https://b.example/cb"], "require_pkce": true});
    let changed = server.call("PUT", "/v1/clients/app", &[], change).await.ok(200);
    assert_eq!((&changed["name"], &changed["require_pkce"]), (&json!("An App"), &json!(true)));
    assert_eq!(changed["redirect_uris"], json!(["https://b.example/cb"]));
    let changed = server.post("/v1/clients/app/update", json!({"name": null})).await.ok(200);
    assert_eq!((&changed["name"], &changed["require_pkce"]), (&Value::Null, &json!(true)));
    let changed = server.call("PUT", "/v1/clients/app", &[], json!({"revoke": "grant"})).await.ok(200);
    assert_eq!(changed, server.call("GET", "/v1/clients/app", &[], Value::Null).await.ok(200));
    assert_eq!(changed["revoke"], "grant");
    server.post("/v1/clients/app/update", json!({"owner": "eve"})).await.refused(400, "invalid");
    server.post("/v1/clients/nobody/update", json!({})).await.refused(404, "unknown");
}

#[tokio::test]
async fn a_client_that_is_never_used_ends() {
    let server = Server::start().await;
    let register = |id: &str| json!({"client_id": id, "confidential": false, "unused_ttl_seconds": 3600});
    for id in ["used", "unused"] {
        let client = server.post("/v1/clients", register(id)).await.ok(201);
        assert_eq!((&client["used"], &client["expires_at"]), (&json!(false), &json!(1_800_003_600_000_u64)));
    }
    let code = json!({"client_id": "used", "subject": "alice", "redirect_uri": "https://app.example/cb"});
    server.post("/v1/codes", code).await.ok(201);
    // It is noted beside the answer.
    let used =
        async || server.call("GET", "/v1/clients/used", &[], Value::Null).await.ok(200)["used"].clone();
    while used().await != true {
        tokio::task::yield_now().await;
    }
    server.pass(3_600);
    server.call("GET", "/v1/clients/unused", &[], Value::Null).await.refused(404, "unknown");
    let client = server.call("GET", "/v1/clients/used", &[], Value::Null).await.ok(200);
    assert_eq!(client["expires_at"], Value::Null);
}

#[tokio::test]
async fn a_hash_of_another_system_is_imported() {
    let server = Server::start().await;
    let client = json!({"client_id": "app", "client_secret_hash": PHC});
    let client = server.post("/v1/clients", client).await.ok(201);
    assert!(client["client_secret"].is_null() && client["confidential"] == true, "{client}");
    let verify = json!({"client_secret": "password"});
    assert_eq!(server.post("/v1/clients/app/verify", verify).await.ok(200)["verified"], true);
    let verify = json!({"client_secret": "wrong"});
    server.post("/v1/clients/app/verify", verify).await.refused(422, "mismatch");
    let answer = form(&server, "/v1/introspect", &basic("app", "password"), None, "token=x").await;
    assert_eq!(answer.ok(200), json!({"active": false}));
    let refused = server.post("/v1/clients", json!({"client_secret_hash": "$2b$12$hunter2"})).await;
    let refused = refused.refused(400, "invalid");
    assert!(!refused.to_string().contains("hunter2"), "{refused}");
}

/// Test vector of the reference implementation: `password`, with 256 KiB and two passes.
const PHC: &str = "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4";
