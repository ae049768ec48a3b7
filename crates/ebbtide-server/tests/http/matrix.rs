//! Authorization of every call, for every sort of caller.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::api::Call;
use crate::server::Server;

/// A caller: the key, the scope that is asked for, and what is answered instead of the call: 401, 403, or nothing.
struct Asker {
    name: &'static str,
    key: Option<String>,
    scope: Option<&'static str>,
    refused: fn(&Call) -> Option<u16>,
}

/// These concern the whole store.
fn is_global(call: &Call) -> bool {
    ["/v1/sweep", "/v1/stats", "/v1/unscoped-requests", "/v1/clock"].contains(&call.path.as_str())
}

fn unless(role: &str, call: &Call) -> Option<u16> {
    let rank = |role: &str| ["reader", "writer", "admin"].iter().position(|other| *other == role).unwrap();
    (rank(role) < rank(&call.role) || is_global(call)).then_some(403)
}

async fn make(server: &Server, scope: &str, role: &str) -> Value {
    server.post("/v1/keys", json!({"scope": scope, "role": role, "ttl_seconds": 3600})).await.ok(201)
}

async fn askers(server: &Server) -> Vec<Asker> {
    let text = |value: &Value| Some(value.as_str().unwrap().to_owned());
    let mut made = BTreeMap::new();
    for (name, scope, role) in [
        ("revoked", "global", "admin"),
        ("reader", "tenant:acme", "reader"),
        ("writer", "tenant:acme", "writer"),
        ("admin", "tenant:acme", "admin"),
        ("other tenant", "tenant:other", "admin"),
        ("below", "tenant:acme/env:prod", "admin"),
        ("above", "global", "admin"),
    ] {
        made.insert(name, make(server, scope, role).await);
    }
    let expired = json!({"scope": "global", "role": "admin", "ttl_seconds": 1});
    made.insert("expired", server.post("/v1/keys", expired).await.ok(201));
    server.pass(1);
    let revoked = format!("/v1/keys/{}", made["revoked"]["id"].as_str().unwrap());
    assert_eq!(server.call("DELETE", &revoked, &[], Value::Null).await.status, 204);
    let asker =
        |name: &'static str, scope, refused| Asker { name, key: text(&made[name]["key"]), scope, refused };
    vec![
        Asker { name: "no key", key: None, scope: None, refused: |_| Some(401) },
        asker("expired", None, |_| Some(401)),
        asker("revoked", None, |_| Some(401)),
        asker("reader", None, |call| unless("reader", call)),
        asker("writer", None, |call| unless("writer", call)),
        asker("admin", None, |call| unless("admin", call)),
        asker("other tenant", Some("tenant:acme"), |_| Some(403)),
        asker("below", Some("tenant:acme"), |_| Some(403)),
        asker("above", Some("tenant:acme"), |call| is_global(call).then_some(403)),
        // Within what it covers, an admin of all may do all.
        asker("above", None, |_| None),
    ]
}

#[tokio::test]
async fn every_call_is_refused_to_whom_it_should_be_and_to_no_one_else() {
    let server = Server::start().await;
    let askers = askers(&server).await;
    let (mut wrong, mut asked) = (Vec::new(), 0);
    for call in Call::all() {
        for asker in &askers {
            let authorization = asker.key.as_ref().map(|key| format!("Bearer {key}"));
            let mut headers = vec![("content-type", "application/json")];
            headers.extend(authorization.as_deref().map(|value| ("authorization", value)));
            headers.extend(asker.scope.map(|scope| ("ebbtide-scope", scope)));
            // Nothing is written by a body like this: whoever is let in is told that it cannot be read.
            let answer = server.send(&call.method, &call.some_path(), &headers, "[]").await;
            let (expected, status) = ((asker.refused)(&call), answer.status);
            let refused = [401, 403].contains(&status).then_some(status);
            if refused != expected {
                wrong.push(format!("{call} by {} is {status}, not {expected:?}", asker.name));
            }
            if let Some(status) = expected {
                let word = if status == 401 { "unauthorized" } else { "forbidden" };
                if answer.body["title"] != word {
                    wrong.push(format!("{call} by {} says {}", asker.name, answer.body));
                }
            }
            asked += 1;
        }
    }
    assert!(wrong.is_empty(), "{} of {asked}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn the_page_says_who_may() {
    let page = include_str!("../../../../docs/http.md");
    let section = page.split("\n## Roles\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let mut told = BTreeSet::new();
    for line in section.lines() {
        let mut cells = line.split('|').map(str::trim).skip(1);
        let (Some(role), Some(calls)) = (cells.next(), cells.next()) else { continue };
        for call in calls.split('`').skip(1).step_by(2) {
            told.insert(format!("{role}: {call}"));
        }
    }
    let known = Call::all().iter().map(|call| format!("{}: {call}", call.role)).collect::<BTreeSet<_>>();
    let differ: Vec<_> = known.symmetric_difference(&told).collect();
    assert!(differ.is_empty(), "docs/http.md and the routes differ in {differ:#?}");
}
