//! API keys, what they may do, and the operator's calls.

use ebbtide_server::http::quota::Quotas;
use serde_json::{Value, json};

use crate::server::{KEY, Server};

impl Server {
    /// A new key.
    pub(crate) async fn key(&self, scope: &str, role: &str) -> (String, String) {
        let created = self.post("/v1/keys", json!({"scope": scope, "role": role})).await.ok(201);
        (created["id"].as_str().unwrap().to_owned(), created["key"].as_str().unwrap().to_owned())
    }

    pub(crate) async fn get_as(&self, key: &str, path: &str) -> crate::server::Answer {
        self.call_as(key, "GET", path, &[], Value::Null).await
    }

    pub(crate) async fn post_as(&self, key: &str, path: &str, body: Value) -> crate::server::Answer {
        self.call_as(key, "POST", path, &[], body).await
    }

    pub(crate) async fn delete(&self, path: &str) -> crate::server::Answer {
        self.call("DELETE", path, &[], Value::Null).await
    }
}

pub(crate) fn proof(jti: &str) -> Value {
    json!({"namespace": "n", "jti": jti})
}

const APPROVAL: &str = "/v1/approvals?identity=alice&resource=doc&action=GET";

#[tokio::test]
async fn a_key_is_shown_once_and_is_good_for_its_scope_and_role() {
    let server = Server::start().await;
    let wanted = json!({"scope": "tenant:acme", "role": "writer", "ttl_seconds": 60, "name": "app"});
    let created = server.post("/v1/keys", wanted).await.ok(201);
    let key = created["key"].as_str().unwrap();
    assert!(key.starts_with("ebk_"));
    assert_eq!(created["expires_at"], 1_800_000_060_000_u64);
    server.post_as(key, "/v1/replays/check", proof("a")).await.ok(200);
    server.post("/v1/replays/check", proof("a")).await.ok(200);
    let here = [("ebbtide-scope", "tenant:acme")];
    server.call("POST", "/v1/replays/check", &here, proof("a")).await.refused(409, "replay");
    let listed = server.call("GET", "/v1/keys", &[], Value::Null).await.ok(200);
    assert_eq!(listed["items"][0]["id"], created["id"]);
    assert_eq!(listed["items"][0]["name"], "app");
    assert!(!listed.to_string().contains(key), "{listed}");
    server.get_as(key, "/v1/keys").await.refused(403, "forbidden");
    server.get_as(key, "/v1/stats").await.refused(403, "forbidden");
}

#[tokio::test]
async fn a_key_that_is_not_good_is_refused() {
    let server = Server::start().await;
    let (_, key) = server.key("tenant:acme", "reader").await;
    for wrong in
        ["", "ebk_", "nonsense", &key[..key.len() - 1], &format!("{key}A"), &key.replace("ebk", "eba")]
    {
        server.get_as(wrong, APPROVAL).await.refused(401, "unauthorized");
    }
    server.get_as(&key, APPROVAL).await.refused(404, "unknown");
    for headers in [
        &[][..],
        &[("authorization", key.as_str())],
        &[("authorization", &format!("Basic {key}"))],
        &[("authorization", &format!("Bearer {key}")), ("authorization", &format!("Bearer {key}"))],
    ] {
        let answer = server.send("GET", APPROVAL, headers, "").await;
        assert!(answer.head.contains("www-authenticate: Bearer"), "{}", answer.head);
        answer.refused(401, "unauthorized");
    }
}

#[tokio::test]
async fn a_key_ends_at_the_instant_though_it_is_held() {
    let server = Server::start().await;
    let wanted = json!({"scope": "tenant:acme", "role": "reader", "ttl_seconds": 2});
    let created = server.post("/v1/keys", wanted).await.ok(201);
    let key = created["key"].as_str().unwrap();
    server.pass(1);
    server.get_as(key, APPROVAL).await.refused(404, "unknown");
    server.pass(1);
    server.get_as(key, APPROVAL).await.refused(401, "unauthorized");
}

#[tokio::test]
async fn a_revoked_key_is_refused_at_once_here_and_soon_elsewhere() {
    let server = Server::start().await;
    let other = server.another().await;
    let (id, key) = server.key("tenant:acme", "reader").await;
    for node in [&server, &other] {
        node.get_as(&key, APPROVAL).await.refused(404, "unknown");
    }
    let path = format!("/v1/keys/{id}");
    assert_eq!(server.delete(&path).await.status, 204);
    server.delete(&path).await.refused(404, "unknown");
    server.get_as(&key, APPROVAL).await.refused(401, "unauthorized");
    // The lease of a cached key runs on the monotonic clock, whatever the test's clock does.
    while other.get_as(&key, APPROVAL).await.status != 401 {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_role_may_what_it_may_and_no_more() {
    let server = Server::start().await;
    let mut keys = Vec::new();
    for role in ["reader", "writer", "admin"] {
        keys.push(server.key("tenant:acme", role).await.1);
    }
    let approval = json!({"identity": "alice", "resource": "doc", "action": "GET", "granted_by": "x"});
    let extend = json!({"identity": "alice", "resource": "doc", "action": "GET", "ttl_seconds": 9,
        "actor": "a", "reason": "r"});
    for (method, path, body, allowed) in [
        ("PUT", "/v1/approvals", approval.clone(), [false, true, true]),
        ("GET", APPROVAL, Value::Null, [true, true, true]),
        ("POST", "/v1/approvals/check", approval, [true, true, true]),
        ("POST", "/v1/approvals/extend", extend, [false, false, true]),
        ("GET", "/v1/audit", Value::Null, [false, false, true]),
        ("GET", "/v1/keys", Value::Null, [false, false, true]),
        ("GET", "/v1/scopes/tenant:acme", Value::Null, [false, false, true]),
        // These concern the whole store.
        ("GET", "/v1/stats", Value::Null, [false, false, false]),
        ("POST", "/v1/sweep", Value::Null, [false, false, false]),
    ] {
        for (key, allowed) in keys.iter().zip(allowed) {
            let answer = server.call_as(key, method, path, &[], body.clone()).await;
            if allowed {
                assert_ne!(answer.status, 403, "{method} {path}: {}", answer.body);
                assert_ne!(answer.status, 401, "{method} {path}: {}", answer.body);
            } else {
                answer.refused(403, "forbidden");
            }
        }
    }
}

#[tokio::test]
async fn a_scope_that_is_not_covered_is_refused() {
    let server = Server::start().await;
    let (_, key) = server.key("tenant:acme", "admin").await;
    for (scope, covered) in [
        ("tenant:acme", true),
        ("tenant:acme/env:prod", true),
        ("tenant:acme%2Fenv%3Aprod", false),
        ("tenant:other", false),
        ("env:prod", false),
        ("global", false),
    ] {
        let answer = server.call_as(&key, "GET", APPROVAL, &[("ebbtide-scope", scope)], Value::Null).await;
        if covered {
            answer.refused(404, "unknown")
        } else {
            answer.refused(403, "forbidden")
        };
        let wanted = json!({"scope": scope, "role": "admin"});
        let created = server.post_as(&key, "/v1/keys", wanted.clone()).await;
        if covered {
            created.ok(201)
        } else {
            created.refused(403, "forbidden")
        };
        let theirs = server.post("/v1/keys", wanted).await.ok(201);
        let path = format!("/v1/keys/{}", theirs["id"].as_str().unwrap());
        let revoked = server.call_as(&key, "DELETE", &path, &[], Value::Null).await;
        assert_eq!(revoked.status, if covered { 204 } else { 403 });
        let encoded = scope.replace('%', "%25").replace('/', "%2F");
        for path in [
            format!("/v1/scopes/{encoded}"),
            format!("/v1/scopes?scope={encoded}"),
            format!("/v1/audit?scope={encoded}"),
            format!("/v1/audit/verify?scope={encoded}"),
        ] {
            let read = server.get_as(&key, &path).await;
            if covered {
                read.ok(200)
            } else {
                read.refused(403, "forbidden")
            };
        }
    }
    let listed = server.get_as(&key, "/v1/keys").await.ok(200);
    let scopes: Vec<_> = listed["items"].as_array().unwrap().iter().map(|item| &item["scope"]).collect();
    assert_eq!(scopes, ["tenant:acme", "tenant:acme", "tenant:acme/env:prod"]);
    let exact = server.get_as(&key, "/v1/keys?scope=tenant:acme/env:prod").await.ok(200);
    assert_eq!(exact["items"].as_array().unwrap().len(), 1);
    server.get_as(&key, "/v1/keys?scope=global").await.refused(403, "forbidden");
}

#[tokio::test]
async fn a_rate_limit_is_kept_and_says_when_to_come_again() {
    let server = Server::start().await;
    let wanted = json!({"scope": "tenant:acme", "role": "reader", "rate_limit": 3});
    let created = server.post("/v1/keys", wanted).await.ok(201);
    let key = created["key"].as_str().unwrap();
    for _ in 0..3 {
        server.get_as(key, APPROVAL).await.refused(404, "unknown");
    }
    let limited = server.get_as(key, APPROVAL).await;
    assert!(limited.head.contains("retry-after: 1"), "{}", limited.head);
    limited.refused(429, "limited");
    server.pass(1);
    server.get_as(key, APPROVAL).await.refused(404, "unknown");
    for bad in [json!(0), json!(-1), json!("5")] {
        let wanted = json!({"scope": "tenant:acme", "role": "reader", "rate_limit": bad});
        server.post("/v1/keys", wanted).await.refused(400, "invalid");
    }
}

#[tokio::test]
async fn a_quota_bounds_a_scope_and_what_is_below_it() {
    let server = Server::start_with(Quotas::new(["tenant:acme=3".parse().unwrap()])).await;
    let check = |scope: &'static str, jti: &'static str| {
        let (server, headers) = (&server, [("ebbtide-scope", scope)]);
        async move { server.call("POST", "/v1/replays/check", &headers, proof(jti)).await }
    };
    check("tenant:acme", "a").await.ok(200);
    check("tenant:acme/env:prod", "b").await.ok(200);
    check("tenant:acme", "a").await.refused(409, "replay");
    check("tenant:acme", "c").await.ok(200);
    let full = check("tenant:acme", "d").await;
    assert!(full.head.contains("retry-after: "), "{}", full.head);
    full.refused(429, "quota");
    check("tenant:acme/env:prod", "d").await.refused(429, "quota");
    check("tenant:other", "d").await.ok(200);
    let acme = [("ebbtide-scope", "tenant:acme")];
    server.call("POST", "/v1/attributes/alice/delete-all", &acme, Value::Null).await.ok(200);
    // The next count notices the expiry; it runs beside the request that finds it due.
    server.pass(600);
    let mut answers = Vec::new();
    while answers.last() != Some(&200) {
        assert!(answers.len() < 1_000, "it is never counted again: {answers:?}");
        answers.push(check("tenant:acme", "e").await.status);
    }
}

#[tokio::test]
async fn a_scope_is_counted_and_deleted_exactly_unless_asked_otherwise() {
    let server = Server::start().await;
    for scope in ["tenant:acme", "tenant:acme/env:prod", "tenant:acme2"] {
        let headers = [("ebbtide-scope", scope)];
        server.call("POST", "/v1/replays/check", &headers, proof("a")).await.ok(200);
    }
    let get = |path: &'static str| server.call("GET", path, &[], Value::Null);
    let exact = get("/v1/scopes/tenant:acme").await.ok(200);
    assert_eq!(exact, json!({"scope": "tenant:acme", "below": false, "counts": {"replays": 1}, "total": 1}));
    assert_eq!(get("/v1/scopes/tenant:acme?below=true").await.ok(200)["total"], 2);
    let listed = get("/v1/scopes?scope=tenant:acme").await.ok(200);
    let expected = [("tenant:acme", 1), ("tenant:acme/env:prod", 1)];
    let expected = expected.map(|(scope, records)| json!({"scope": scope, "records": records}));
    assert_eq!(listed, json!({"items": expected, "next": null}));
    assert_eq!(
        get("/v1/scopes").await.ok(200)["items"].as_array().unwrap().len(),
        // The store keeps a note of its keyring in the global one.
        4,
        "of the request's scope"
    );
    get("/v1/scopes?scope=nonsense").await.refused(400, "invalid");
    get("/v1/scopes/nonsense").await.refused(400, "invalid");
    get("/v1/scopes/tenant:acme?below=perhaps").await.refused(400, "invalid");
    let deleted = server.delete("/v1/scopes/tenant:acme?reason=gone").await.ok(200);
    assert_eq!(deleted["deleted"], json!({"replays": 1}));
    let deleted = server.delete("/v1/scopes/tenant:acme?below=true&resume=true").await.ok(200);
    assert_eq!(deleted["total"], 1, "where none was stopped, one begins");
    assert_eq!(get("/v1/scopes/tenant:acme2").await.ok(200)["total"], 1);
    let log = get("/v1/audit?scope=tenant:acme&limit=2").await.ok(200);
    assert_eq!(log["items"][0]["action"], "delete_scope");
    assert_eq!((&log["items"][0]["key_id"], &log["items"][0]["reason"]), (&json!("root"), &json!("gone")));
    let after = log["next"].as_str().unwrap();
    let path = format!("/v1/audit?scope=tenant:acme&after={after}");
    let rest = server.call("GET", &path, &[], Value::Null).await.ok(200);
    assert_eq!((rest["items"].as_array().unwrap().len(), &rest["next"]), (2, &Value::Null));
}

#[tokio::test]
async fn what_became_of_a_record_is_explained() {
    let server = Server::start().await;
    let ask = |body: Value| server.post("/v1/explain", body);
    let approval = json!({"kind": "approvals", "identity": "alice", "resource": "doc", "action": "GET"});
    ask(approval.clone()).await.refused(404, "unknown");
    let granted = json!({"identity": "alice", "resource": "doc", "action": "GET", "granted_by": "x", "ttl_seconds": 60});
    server.call("PUT", "/v1/approvals", &[], granted).await.ok(200);
    let extend = json!({"identity": "alice", "resource": "doc", "action": "GET", "ttl_seconds": 90,
        "actor": "bob", "reason": "audit week"});
    server.post("/v1/approvals/extend", extend).await.ok(200);
    let live = ask(approval.clone()).await.ok(200);
    assert_eq!((&live["state"], &live["expires_at"]), (&json!("live"), &json!(1_800_000_090_000_u64)));
    assert_eq!(
        (&live["history"][1]["on_behalf_of"], &live["history"][1]["action"]),
        (&json!("bob"), &json!("extend"))
    );
    assert_eq!(server.delete(APPROVAL).await.status, 204);
    assert_eq!(ask(approval).await.ok(200)["state"], "revoked");
    let issued = server.post("/v1/nonces", json!({"audience": "as"})).await.ok(201);
    let nonce = json!({"audience": "as", "nonce": issued["nonce"]});
    server.post("/v1/nonces/accept", nonce.clone()).await.ok(200);
    let mut question = nonce;
    question["kind"] = "nonces".into();
    assert_eq!(ask(question).await.ok(200)["state"], "used");
    let (id, _) = server.key("tenant:acme", "reader").await;
    assert_eq!(ask(json!({"kind": "api_keys", "id": id})).await.ok(200)["state"], "live");
    server.delete(&format!("/v1/keys/{id}")).await;
    assert_eq!(ask(json!({"kind": "api_keys", "id": id})).await.ok(200)["state"], "revoked");
    for bad in [json!({"kind": "nonsense"}), json!({"kind": "grants"}), json!({})] {
        ask(bad).await.refused(400, "invalid");
    }
    let grant = server.post("/v1/grants", json!({"subject": "alice", "client_id": "app"})).await.ok(201);
    for question in [
        json!({"kind": "grants", "grant_id": grant["grant_id"]}),
        json!({"kind": "grants", "refresh_token": grant["refresh_token"]}),
    ] {
        assert_eq!(ask(question).await.ok(200)["grant_id"], grant["grant_id"]);
    }
    server.get_as(KEY, "/v1/explain").await.refused(405, "invalid");
}

#[tokio::test]
async fn an_approval_that_has_ended_tells_who_granted_it_and_when() {
    let server = Server::start().await;
    let question = json!({"kind": "approvals", "identity": "alice", "resource": "doc", "action": "GET"});
    let names = json!({"identity": "alice", "resource": "doc", "action": "GET", "granted_by": "bob",
        "ttl_seconds": 60});
    server.call("PUT", "/v1/approvals", &[], names).await.ok(200);
    server.pass(62);
    let over = server.post("/v1/explain", question.clone()).await.ok(200);
    assert_eq!((&over["state"], &over["expires_at"]), (&json!("expired"), &json!(1_800_000_060_000_u64)));
    assert_eq!(over["created_at"], 1_800_000_000_000_u64);
    let why = "it ended 2 s ago, at 2027-01-15T08:01:00Z; bob granted it at 2027-01-15T08:00:00Z";
    assert_eq!(over["why"], why);
    assert_eq!(over["history"][0]["action"], "grant");
    // Swept or not, the answer is the same.
    server.post("/v1/sweep", json!({})).await.ok(200);
    assert_eq!(server.post("/v1/explain", question).await.ok(200)["why"], why);
    let edge =
        json!({"subject": "alice", "relation": "member", "object": "team", "relation_type": "membership"});
    let mut added = edge.clone();
    (added["created_by"], added["ttl_seconds"]) = (json!("carol"), json!(60));
    server.call("PUT", "/v1/relationships", &[], added).await.ok(200);
    server.pass(3_660);
    let mut question = edge;
    question["kind"] = json!("relationships");
    let why = server.post("/v1/explain", question).await.ok(200)["why"].as_str().unwrap().to_owned();
    assert!(why.starts_with("it ended 1 h ago") && why.contains("carol granted it"), "{why}");
}

#[tokio::test]
async fn a_child_never_exceeds_its_parent_and_ends_with_it() {
    let server = Server::start().await;
    let wanted = json!({"scope": "tenant:acme", "role": "admin", "ttl_seconds": 30, "rate_limit": 50,
        "allow": ["keys", "replays", "approvals"]});
    let parent = server.post("/v1/keys", wanted).await.ok(201);
    let (parent_id, parent_key) = (parent["id"].as_str().unwrap(), parent["key"].as_str().unwrap());
    let ask = async |body: Value| server.post_as(parent_key, "/v1/keys", body).await;
    let child =
        ask(json!({"scope": "tenant:acme/env:prod", "role": "writer", "rate_limit": 1000})).await.ok(201);
    assert_eq!(child["parent"], parent["id"]);
    assert_eq!((&child["expires_at"], &child["rate_limit"]), (&parent["expires_at"], &json!(50)));
    assert_eq!(child["allow"], parent["allow"], "without a list it has its parent's");
    ask(json!({"scope": "tenant:acme", "role": "writer", "allow": ["introspect"]}))
        .await
        .refused(400, "invalid");
    ask(json!({"scope": "tenant:other", "role": "reader"})).await.refused(403, "forbidden");
    let grandchild = child["key"].as_str().unwrap();
    server.post_as(grandchild, "/v1/replays/check", proof("a")).await.ok(200);
    server.post_as(grandchild, "/v1/nonces", json!({})).await.refused(403, "forbidden");

    assert_eq!(server.delete(&format!("/v1/keys/{parent_id}")).await.status, 204);
    server.post_as(grandchild, "/v1/replays/check", proof("b")).await.refused(401, "unauthorized");
    let log = server.call("GET", "/v1/audit?scope=tenant:acme/env:prod", &[], Value::Null).await.ok(200);
    let told: Vec<_> = log["items"].as_array().unwrap().iter().map(|entry| &entry["action"]).collect();
    assert_eq!(told, [&json!("create"), &json!("revoke")]);
    assert_eq!(log["items"][0]["key_id"], parent["id"], "the child was made by its parent");
    assert_eq!(log["items"][1]["key_id"], "root", "and revoked by the root key");
}

#[tokio::test]
async fn a_writer_lengthens_no_life_by_granting_again() {
    let server = Server::start().await;
    let (id, writer) = server.key("global", "writer").await;
    let approval = |ttl: Value| json!({"identity": "a", "resource": "r", "action": "x", "granted_by": "the root key", "ttl_seconds": ttl});
    let put = async |ttl: Value| server.call_as(&writer, "PUT", "/v1/approvals", &[], approval(ttl)).await;
    put(json!(600)).await.ok(200);
    for longer in [json!(30_000_000), Value::Null] {
        let refused = put(longer).await.refused(409, "conflict");
        assert!(refused["detail"].as_str().unwrap().contains("/v1/approvals/extend"), "{refused}");
    }
    put(json!(300)).await.ok(200);
    let log = server.call("GET", "/v1/audit", &[], Value::Null).await.ok(200);
    let entries = log["items"].as_array().unwrap();
    let grants: Vec<_> = entries.iter().filter(|entry| entry["action"] == "grant").collect();
    assert_eq!(grants.len(), 2);
    for entry in grants {
        assert_eq!((&entry["key_id"], &entry["on_behalf_of"]), (&json!(id), &json!("the root key")));
    }
    server.call("PUT", "/v1/approvals", &[], approval(Value::Null)).await.ok(200);
}

#[tokio::test]
async fn the_keys_of_a_deleted_scope_end_at_once() {
    let server = Server::start().await;
    let (_, key) = server.key("tenant:acme", "writer").await;
    server.post_as(&key, "/v1/replays/check", proof("a")).await.ok(200);
    server.delete("/v1/scopes/tenant:acme").await.ok(200);
    server.post_as(&key, "/v1/replays/check", proof("b")).await.refused(401, "unauthorized");
}

#[tokio::test]
async fn a_sweep_of_some_kinds_counts_them_and_leaves_the_others() {
    let server = Server::start().await;
    let lives = json!({"namespace": "n", "jti": "a", "ttl_seconds": 5});
    server.post("/v1/replays/check", lives).await.ok(200);
    server.post("/v1/nonces", json!({"audience": "as", "ttl_seconds": 5})).await.ok(201);
    server.pass(6);
    let of = |kinds: Value| server.post("/v1/sweep", json!({"kinds": kinds}));
    assert_eq!(of(json!(["codes"])).await.ok(200), json!({"codes": 0}));
    assert_eq!(of(json!(["replays"])).await.ok(200), json!({"replays": 1}));
    assert_eq!(of(json!(["replays"])).await.ok(200), json!({"replays": 0}));
    let unknown = of(json!(["replay"])).await.refused(400, "invalid");
    assert!(unknown["detail"].as_str().unwrap().contains("replays"), "{unknown}");
    of(json!([])).await.refused(400, "invalid");
    server.post("/v1/sweep", json!({"kind": "replays"})).await.refused(400, "invalid");
    server.post("/v1/sweep", json!({"kinds": ["replays"], "force": true})).await.refused(400, "invalid");
    // A nonce is remembered for a while after its end.
    server.pass(600);
    assert_eq!(server.post("/v1/sweep", Value::Null).await.ok(200), json!({"nonces": 1}));
}

#[tokio::test]
async fn children_share_the_rate_of_their_parent() {
    let server = Server::start().await;
    let wanted = json!({"scope": "tenant:acme", "role": "admin", "rate_limit": 5});
    let parent = server.post("/v1/keys", wanted).await.ok(201);
    let parent = parent["key"].as_str().unwrap();
    let mut children = Vec::new();
    for _ in 0..3 {
        let body = json!({"scope": "tenant:acme", "role": "writer"});
        let child = server.post_as(parent, "/v1/keys", body).await.ok(201);
        assert_eq!(child["rate_limit"], 5);
        children.push(child["key"].as_str().unwrap().to_owned());
    }
    server.pass(2);
    let mut served = 0;
    for number in 0..30 {
        let key = &children[number % 3];
        let answer = server.post_as(key, "/v1/replays/check", proof(&format!("j{number}"))).await;
        served += usize::from(answer.status == 200);
    }
    assert_eq!(served, 5, "three children are as fast as their parent");
}
