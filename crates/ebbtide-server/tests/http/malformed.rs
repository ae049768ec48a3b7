//! Every call refuses malformed input with 400.

use serde_json::{Value, json};

use crate::api::Call;
use crate::server::{KEY, Server};

async fn refused(server: &Server, call: &Call, path: &str, body: &str) {
    let authorization = format!("Bearer {KEY}");
    let content_type = call.content_type().unwrap_or("application/json");
    let headers = [("authorization", authorization.as_str()), ("content-type", content_type)];
    let answer = server.send(&call.method, path, &headers, body).await;
    assert_eq!((answer.status, &answer.body["title"]), (400, &json!("invalid")), "{call} {path} {body}");
    assert!(!answer.body.to_string().contains("hunter2"), "{call} {}", answer.body);
}

#[tokio::test]
async fn a_body_that_is_not_what_the_call_takes_is_invalid() {
    let server = Server::start().await;
    let (mut json_calls, mut form_calls) = (0, 0);
    for call in Call::all() {
        let bodies: &[&str] = match call.content_type() {
            Some("application/json") => {
                json_calls += 1;
                &[
                    "",
                    "{",
                    "[]",
                    "null",
                    "1",
                    "\"hunter2\"",
                    "{\"other\": \"hunter2\"}",
                    "{\"a\": 1} hunter2",
                    "\u{0}",
                ]
            }
            Some(_) => {
                form_calls += 1;
                &["", "hunter2", "tok=hunter2", "token=a&token=b"]
            }
            None => continue,
        };
        // Some bodies may be left out, or be null.
        let optional = call.operation["requestBody"]["required"] != true;
        let is_none = |body: &str| optional && ["", "null"].contains(&body);
        for body in bodies.iter().filter(|body| !is_none(body)) {
            refused(&server, &call, &call.some_path(), body).await;
        }
    }
    assert!(json_calls > 15 && form_calls == 2, "{json_calls} {form_calls}");
}

/// A value that fits a schema, as far as the calls of this API go.
fn some(api: &Value, schema: &Value) -> Value {
    if let Some(name) = schema["$ref"].as_str() {
        return some(api, &api["components"]["schemas"][name.rsplit('/').next().unwrap()]);
    }
    if let Some(example) = schema.get("example") {
        return example.clone();
    }
    if let Some(one) = schema["oneOf"].as_array() {
        return some(api, one.iter().find(|one| one["type"] != "null").unwrap());
    }
    let kind = if schema["type"].is_array() { &schema["type"][0] } else { &schema["type"] };
    match kind.as_str() {
        Some("object") => {
            let mut object = serde_json::Map::new();
            let given = |name: &str| !name.ends_with("ttl_ms");
            for (name, of) in
                schema["properties"].as_object().into_iter().flatten().filter(|(name, _)| given(name))
            {
                object.insert(name.clone(), some(api, of));
            }
            Value::Object(object)
        }
        Some("array") => json!([some(api, &schema["items"])]),
        Some("integer") => json!(60),
        Some("boolean") => json!(true),
        Some("string") if schema["enum"].is_array() => schema["enum"][0].clone(),
        Some("string") => json!("x"),
        _ => json!({}),
    }
}

#[tokio::test]
async fn wrong_types_and_unknown_members_are_invalid() {
    let server = Server::start().await;
    let api: Value = serde_json::from_str(ebbtide_server::openapi::text()).unwrap();
    let mut members = 0;
    for call in Call::all().iter().filter(|call| call.content_type() == Some("application/json")) {
        let whole = some(&api, &call.operation["requestBody"]["content"]["application/json"]["schema"]);
        let mut more = whole.clone();
        more["other"] = json!("hunter2");
        refused(&server, call, &call.some_path(), &more.to_string()).await;
        for (name, value) in whole.as_object().unwrap() {
            // Any value is good for these.
            if ["data", "old", "new", "params", "metadata", "token_data", "user_info"]
                .contains(&name.as_str())
            {
                continue;
            }
            let mut wrong = whole.clone();
            wrong[name] = if value.is_string() { json!({"hunter2": 1}) } else { json!("hunter2") };
            refused(&server, call, &call.some_path(), &wrong.to_string()).await;
            members += 1;
        }
    }
    assert!(members > 50, "{members}");
}

#[tokio::test]
async fn a_query_that_is_not_what_the_call_takes_is_invalid() {
    let server = Server::start().await;
    let mut queries = 0;
    for call in Call::all() {
        let parameters = call.operation["parameters"].as_array().unwrap();
        let query: Vec<_> = parameters.iter().filter(|parameter| parameter["in"] == "query").collect();
        if query.is_empty() {
            continue;
        }
        let needed = query.iter().filter(|parameter| parameter["required"] == true).map(|parameter| {
            let example = parameter["example"].as_str().unwrap_or("x");
            format!("{}={example}&", parameter["name"].as_str().unwrap())
        });
        let needed: String = needed.collect();
        let path = call.some_path();
        refused(&server, &call, &format!("{path}?{needed}other=hunter2"), "").await;
        for parameter in query {
            let name = parameter["name"].as_str().unwrap();
            let bad: &[&str] = match name {
                "limit" => &["0", "1001", "-1", "many", ""],
                "after" => &["!", "hunter2!"],
                "below" => &["perhaps", "1"],
                "scope" => &["nonsense", "tenant:"],
                _ => continue,
            };
            for bad in bad {
                refused(&server, &call, &format!("{path}?{needed}{name}={bad}"), "").await;
                queries += 1;
            }
        }
    }
    assert!(queries > 20, "{queries}");
}

#[tokio::test]
async fn a_body_of_ten_megabytes_is_too_large_and_the_server_goes_on() {
    let server = Server::start().await;
    let body = json!({"namespace": "n", "jti": "x".repeat(10 << 20)}).to_string();
    let authorization = format!("Bearer {KEY}");
    let headers = [("authorization", authorization.as_str()), ("content-type", "application/json")];
    for _ in 0..3 {
        server.send("POST", "/v1/replays/check", &headers, &body).await.refused(413, "invalid");
    }
    server.post("/v1/replays/check", json!({"namespace": "n", "jti": "j"})).await.ok(200);
}
