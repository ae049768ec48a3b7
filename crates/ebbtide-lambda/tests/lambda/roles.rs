//! Roles of the functions in the template, beside what the functions send.

use std::collections::{BTreeMap, BTreeSet};

use ebbtide::SystemRng;
use ebbtide::engines::dynamodb::DynamoDb;
use serde_json::{Value, json};

use crate::counting::Counting;
use crate::{Function, answered, expired, on_a_runtime, request, scheduled, table};

/// Actions on the table that a role of the template has.
fn actions(sid: &str) -> BTreeSet<String> {
    let template = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/sam/template.yaml");
    let template = std::fs::read_to_string(template).unwrap();
    let (_, statement) = template.split_once(&format!("Sid: {sid}\n")).expect("the role");
    let (actions, _) = statement.split_once("Resource:").unwrap();
    actions.lines().filter_map(|line| line.trim().strip_prefix("- dynamodb:")).map(str::to_owned).collect()
}

/// Refuses an operation that the role may not do.
fn suffices(sid: &str, counts: &BTreeMap<String, usize>) {
    let actions = actions(sid);
    for operation in counts.keys() {
        // A transaction takes the actions of what is in it.
        let action = if operation == "TransactWriteItems" { "ConditionCheckItem" } else { operation };
        assert!(actions.contains(action), "{sid}: {operation} is not among {actions:?}");
    }
}

/// Operations that the functions send, beside those of their roles: the function that serves never scans.
pub(crate) fn the_roles_of_the_template_suffice(emulator: &str, endpoint: &str) {
    let proxy = Counting::start(endpoint);
    let (_, url) = on_a_runtime(table(&proxy.endpoint));
    proxy.take();
    let function = Function::serving(emulator, &url);
    let call = |path: &str, body: Value| {
        let (status, body) = function.call(path, &body);
        assert!((200..300).contains(&status), "{path}: {status} {body}");
        body
    };
    let uri = "https://app.example/cb";
    call("/v1/replays/check", json!({"namespace": "dpop", "jti": "a", "ttl_seconds": 60}));
    let code = call("/v1/codes", json!({"client_id": "app", "subject": "alice", "redirect_uri": uri}));
    let redeem = json!({
        "code": code["code"], "client_id": "app", "redirect_uri": uri, "grant": {}, "access_token": {},
    });
    let redeemed = call("/v1/codes/redeem", redeem);
    call(
        "/v1/grants/rotate",
        json!({"refresh_token": redeemed["grant"]["refresh_token"], "client_id": "app"}),
    );
    let token = redeemed["access_token"].as_str().unwrap_or_else(|| panic!("{redeemed}"));
    let mut introspect = request("/v1/introspect", &json!({}));
    introspect["headers"]["content-type"] = json!("application/x-www-form-urlencoded");
    introspect["body"] = json!(format!("token={token}"));
    let (status, active) = answered(&function.invoke(&introspect));
    assert_eq!((status, &active["active"]), (200, &json!(true)), "{active}");
    let session = call("/v1/sessions", json!({"subject": "alice", "data": {}}));
    call("/v1/sessions/touch", json!({"session_id": session["session_id"]}));
    let record = json!({"collection": "sessions", "id": "a", "value": 1, "ttl_seconds": 60});
    call("/v1/records/put", record);
    let ids = ["a", "b"].map(|id| json!({"collection": "sessions", "id": id}));
    call("/v1/records/get-many", json!({"items": ids}));
    call("/v1/records/increment", json!({"collection": "logins", "id": "a", "ttl_seconds": 60}));
    call("/v1/subjects/overview", json!({"subject": "alice"}));
    call("/v1/subjects/sign-out", json!({"subject": "alice"}));
    for operation in ["GetItem", "BatchGetItem", "PutItem", "UpdateItem", "Query", "TransactWriteItems"] {
        assert!(proxy.of(operation) > 0, "no {operation} was sent");
    }
    suffices("Serve", &proxy.take());
    drop(function);

    on_a_runtime(async {
        let store = DynamoDb::open(&url, SystemRng).await.unwrap();
        expired(&store, 5, "v").await;
    });
    proxy.take();
    let function = Function::start(emulator, &url, 60);
    let swept = function.invoke(&scheduled());
    assert!(swept.get("errorMessage").is_none(), "{swept}");
    assert!(proxy.of("Scan") > 0, "it walks through the table");
    suffices("Sweep", &proxy.take());
}
