//! Export and import over HTTP: pages, scopes, keys and quotas.

use ebbtide_server::http::quota::{Quota, Quotas};
use serde_json::{Value, json};

use crate::server::Server;

const ACME: (&str, &str) = ("ebbtide-scope", "tenant:acme");
const OTHER: (&str, &str) = ("ebbtide-scope", "tenant:other");

fn approval(identity: &str) -> Value {
    json!({"identity": identity, "resource": "doc", "action": "GET", "granted_by": "bob", "ttl_seconds": 600})
}

impl Server {
    async fn exported(&self, query: &str, headers: &[(&str, &str)]) -> Value {
        self.call("GET", &format!("/v1/export?{query}"), headers, Value::Null).await.ok(200)
    }

    async fn imported(&self, headers: &[(&str, &str)], body: Value) -> Value {
        self.call("POST", "/v1/import", headers, body).await.ok(200)["outcomes"].clone()
    }

    /// Header with a key of an administrator.
    async fn administrator(&self, scope: &str) -> String {
        let key = self.post("/v1/keys", json!({"scope": scope, "role": "admin", "ttl_seconds": 600})).await;
        format!("Bearer {}", key.ok(201)["key"].as_str().unwrap())
    }

    /// Sends a request with a key other than the root key.
    async fn ask(&self, key: &str, method: &str, path: &str, body: &Value) -> crate::server::Answer {
        let headers = [("authorization", key), ("content-type", "application/json")];
        self.send(method, path, &headers, &body.to_string()).await
    }
}

#[tokio::test]
async fn pages_of_an_export_have_every_record_once() {
    let server = Server::start().await;
    for number in 0..5 {
        let approval = approval(&format!("user{number}"));
        server.call("PUT", "/v1/approvals", &[ACME], approval).await.ok(200);
        let client = json!({"client_id": format!("app{number}"), "owner": "alice"});
        server.call("POST", "/v1/clients", &[ACME], client).await.ok(201);
    }
    server.call("PUT", "/v1/approvals", &[OTHER], approval("else")).await.ok(200);
    let all = server.exported("limit=1000", &[ACME]).await;
    let all = all["items"].as_array().unwrap();
    assert!(all.len() >= 10, "{all:?}");
    assert!(all.iter().all(|item| item["identity"] != "else" && item.get("scope").is_none()), "{all:?}");
    for limit in [1, 2, 7] {
        let (mut found, mut after) = (Vec::new(), String::new());
        loop {
            let page = server.exported(&format!("limit={limit}{after}"), &[ACME]).await;
            let items = page["items"].as_array().unwrap();
            assert!(items.len() <= limit, "{page}");
            found.extend(items.clone());
            let Some(next) = page["next"].as_str() else { break };
            after = format!("&after={next}");
        }
        assert_eq!(&found, all, "{limit}");
    }
    let below = server.exported("limit=1000&below=true&kinds=approvals", &[]).await;
    let scopes: Vec<_> = below["items"].as_array().unwrap().iter().map(|item| &item["scope"]).collect();
    assert_eq!(scopes.len(), 6, "{below}");
    assert!(scopes.contains(&&json!("tenant:other")), "{below}");
    for query in ["after=AAAA", "kinds=", "kinds=grants", "kinds=nonsense", "limit=0", "limit=1001"] {
        let answer = server.call("GET", &format!("/v1/export?{query}"), &[], Value::Null).await;
        answer.refused(400, "invalid");
    }
}

#[tokio::test]
async fn an_import_keeps_to_the_scope_of_its_key() {
    let server = Server::start().await;
    let acme = server.administrator("tenant:acme").await;
    let import = |body: Value| {
        let (server, acme) = (&server, &acme);
        async move { server.ask(acme, "POST", "/v1/import", &body).await }
    };
    for foreign in [
        json!({"items": [approval("a")], "scope": "tenant:other"}),
        json!({"items": [approval("a")], "scope_map": {"tenant:acme": "tenant:other"}}),
    ] {
        import(foreign).await.refused(403, "forbidden");
    }
    let mut named = approval("a");
    named["scope"] = "tenant:other".into();
    let told = import(json!({"items": [named], "own_scopes": true})).await.ok(200);
    assert!(told["outcomes"][0]["skipped"].as_str().unwrap().contains("not covered"), "{told}");
    // A sealed line of another tenant cannot be opened by taking it over.
    let client = json!({"client_id": "app", "owner": "alice"});
    server.call("POST", "/v1/clients", &[OTHER], client).await.ok(201);
    let line = server.exported("kinds=clients", &[OTHER]).await["items"][0].clone();
    let told = import(json!({"items": [line.clone()]})).await.ok(200);
    assert!(
        told["outcomes"][0]["skipped"].as_str().unwrap().contains("exported from tenant:other"),
        "{told}"
    );
    let mut named = line.clone();
    named["scope"] = "tenant:other".into();
    let mapped = json!({"items": [named], "scope_map": {"tenant:other": "tenant:acme"}});
    assert_eq!(import(mapped).await.ok(200)["written"], 0);
    // A key that covers both scopes may.
    let told = server.imported(&[], json!({"items": [line], "scope": "tenant:acme"})).await;
    assert_eq!(told, json!([{"written": "clients"}]));
    let found = server.exported("below=true&kinds=approvals", &[]).await;
    assert_eq!(found["items"], json!([]), "nothing was written elsewhere");
    server.ask(&acme, "POST", "/v1/import", &json!({"items": []})).await.refused(400, "invalid");
    let both = json!({"items": [approval("a")], "own_scopes": true, "scope": "tenant:acme"});
    import(both).await.refused(400, "invalid");
    let many = vec![json!({}); 501];
    import(json!({"items": many})).await.refused(400, "invalid");
}

#[tokio::test]
async fn a_revoked_key_comes_back_with_the_root_key_alone() {
    let server = Server::start().await;
    let (acme, gone) = (server.administrator("tenant:acme").await, server.administrator("tenant:acme").await);
    let keys = server.exported("kinds=api_keys", &[ACME]).await["items"].clone();
    let id = server.key_id(gone.trim_start_matches("Bearer ")).await;
    assert_eq!(server.call("DELETE", &format!("/v1/keys/{id}"), &[], Value::Null).await.status, 204);
    server.ask(&gone, "GET", "/v1/export", &Value::Null).await.refused(401, "unauthorized");
    let told = server.ask(&acme, "POST", "/v1/import", &json!({"items": keys})).await.ok(200);
    assert_eq!(told["written"], 0, "{told}");
    let told = server.imported(&[ACME], json!({"items": keys})).await;
    assert!(told.as_array().unwrap().contains(&json!({"written": "api_keys"})), "{told}");
}

#[tokio::test]
async fn an_import_stops_at_the_quota_of_each_scope() {
    let quota = Quota { scope: "tenant:acme/env:x".parse().unwrap(), most: 2 };
    let server = Server::start_with(Quotas::new([quota])).await;
    let items: Vec<Value> = ["a", "b", "c"].map(approval).to_vec();
    let body = json!({"items": items, "scope": "tenant:acme/env:x"});
    let told = server.imported(&[], body).await;
    // The entry that the import begins is a record too.
    let written = told.as_array().unwrap().iter().filter(|one| one.get("written").is_some()).count();
    assert!((1..=2).contains(&written), "{told}");
    assert_eq!(told[2]["skipped"], "the scope has reached its record quota", "{told}");
}

#[tokio::test]
async fn an_import_is_in_the_audit_log_under_its_key() {
    let server = Server::start().await;
    let acme = server.administrator("tenant:acme").await;
    let body = json!({"items": [approval("a")], "on_behalf_of": "carol", "reason": "moved"});
    let dry = json!({"items": [approval("b")], "dry_run": true});
    assert_eq!(server.ask(&acme, "POST", "/v1/import", &dry).await.ok(200)["written"], 1);
    assert_eq!(server.ask(&acme, "POST", "/v1/import", &body).await.ok(200)["written"], 1);
    let log = server.call("GET", "/v1/audit?action=import", &[ACME], Value::Null).await.ok(200);
    let entries = log["items"].as_array().unwrap();
    assert_eq!(entries.len(), 3, "its begin, the approval, its end: {log}");
    assert_eq!(entries[1]["target"], json!(["a", "doc", "GET"]), "{log}");
    let id = server.key_id(acme.trim_start_matches("Bearer ")).await;
    for entry in entries {
        assert_eq!((&entry["key_id"], &entry["reason"]), (&json!(id), &json!("moved")), "{entry}");
    }
    assert!(log.to_string().contains("ended, 1 records written"), "{log}");
}
