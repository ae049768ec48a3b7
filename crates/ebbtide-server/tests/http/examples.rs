//! `api/examples`: each call, its success and its refusals, as every client must find them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde_json::Value;

use crate::api::Call;
use crate::server::{KEY, Server};

/// Values kept from earlier answers, by name.
pub(crate) type Kept = BTreeMap<String, String>;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../api/examples")
}

pub(crate) fn files() -> Vec<(String, Value)> {
    let mut files: Vec<_> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .map(|path| {
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            let text = std::fs::read_to_string(&path).unwrap();
            (name, serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
        })
        .collect();
    files.sort_by(|one, other| one.0.cmp(&other.0));
    files
}

/// Puts in what was kept, for each `${name}`.
fn fill(text: &str, kept: &Kept) -> String {
    kept.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("${{{name}}}"), value))
}

/// Compares an answer with what is expected: `$any` is anything, and `$keep:name` is text to be kept.
fn compare(expected: &Value, found: &Value, kept: &mut Kept, place: &str) {
    match (expected, found) {
        (Value::String(any), _) if any == "$any" => {
            assert!(!found.is_null(), "{place} is null");
        }
        (Value::String(keep), Value::String(text)) if keep.starts_with("$keep:") => {
            kept.insert(keep["$keep:".len()..].to_owned(), text.clone());
        }
        (Value::Object(expected), Value::Object(found)) => {
            let names =
                |object: &serde_json::Map<String, Value>| object.keys().cloned().collect::<BTreeSet<_>>();
            assert_eq!(names(expected), names(found), "{place}");
            for (name, value) in expected {
                compare(value, &found[name], kept, &format!("{place}.{name}"));
            }
        }
        (Value::Array(expected), Value::Array(found)) => {
            assert_eq!(expected.len(), found.len(), "{place}: {found:?}");
            for (index, (expected, found)) in expected.iter().zip(found).enumerate() {
                compare(expected, found, kept, &format!("{place}[{index}]"));
            }
        }
        (Value::String(text), _) => assert_eq!(&Value::String(fill(text, kept)), found, "{place}"),
        _ => assert_eq!(expected, found, "{place}"),
    }
}

/// Takes one step, and says which call was answered with which status.
pub(crate) async fn step(
    server: &Server,
    step: &Value,
    kept: &mut Kept,
    place: &str,
) -> Option<(String, String, u16)> {
    if let Some(seconds) = step["wait_seconds"].as_u64() {
        server.pass(seconds);
        return None;
    }
    let request = &step["request"];
    let (method, path) = (request["method"].as_str().unwrap(), fill(request["path"].as_str().unwrap(), kept));
    let key = request["key"].as_str().map_or_else(|| KEY.to_owned(), |key| fill(key, kept));
    let authorization = format!("Bearer {key}");
    let form = request["form"].as_str().map(|form| fill(form, kept));
    let content_type = if form.is_some() { "application/x-www-form-urlencoded" } else { "application/json" };
    let mut headers = vec![("authorization", authorization.as_str()), ("content-type", content_type)];
    let own: Vec<(String, String)> = request["headers"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| (name.clone(), fill(value.as_str().unwrap(), kept)))
        .collect();
    headers.extend(own.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    let body =
        form.or_else(|| request.get("body").map(|body| fill(&body.to_string(), kept))).unwrap_or_default();
    let answer = server.send(method, &path, &headers, &body).await;
    let expected = &step["answer"];
    assert_eq!(expected["status"], answer.status, "{place}: {}", answer.body);
    let problem = answer.head.contains("content-type: application/problem+json");
    assert_eq!(problem, answer.status >= 400, "{place}: what is not a success is a problem");
    if let Some(kind) = expected["problem"].as_str() {
        assert_eq!(answer.body["type"], format!("/problems/{kind}"), "{place}");
        for (name, value) in expected["with"].as_object().into_iter().flatten() {
            compare(value, &answer.body[name], kept, &format!("{place}.{name}"));
        }
    } else {
        compare(expected.get("body").unwrap_or(&Value::Null), &answer.body, kept, place);
    }
    Some((method.to_owned(), path, answer.status))
}

#[tokio::test]
async fn each_call_answers_as_its_examples_say_and_each_answer_has_one() {
    let calls = Call::all();
    let mut shown = BTreeSet::new();
    for (name, file) in files() {
        let (server, mut kept) = (Server::start().await, Kept::new());
        for (number, one) in file["steps"].as_array().unwrap().iter().enumerate() {
            let place = format!("{name}.json, step {number}: {}", one["about"].as_str().unwrap_or_default());
            let Some((method, path, status)) = step(&server, one, &mut kept, &place).await else { continue };
            let call =
                calls.iter().filter(|call| call.matches(&method, &path)).max_by_key(|call| call.names());
            let call = call.unwrap_or_else(|| panic!("{place}: there is no such call"));
            assert!(call.statuses().contains(&status), "{place}: {status} is not said of {call}");
            shown.insert((call.to_string(), status));
        }
    }
    // These are the same for all, and shown by the tests of all: by whom, how badly written, how large.
    let common = [400, 401, 403, 408, 413, 429, 500, 503];
    // The clock of these servers is never in doubt: `tests/clock.rs` shows those calls.
    let missing: Vec<_> = calls
        .iter()
        .filter(|call| !call.path.starts_with("/v1/clock"))
        .flat_map(|call| call.statuses().into_iter().map(move |status| (call.to_string(), status)))
        .filter(|one| !common.contains(&one.1) && !shown.contains(one))
        // It takes two at once: `a_sweep_gives_way_to_one_that_runs` shows it.
        .filter(|(call, status)| (call.as_str(), *status) != ("POST /v1/sweep", 409))
        // It takes a setting: `a_writer_lengthens_no_life_in_a_bucket_where_that_is_a_privilege` shows it.
        .filter(|(call, status)| {
            *status != 409
                || !["POST /v1/attributes/set", "PUT /v1/attributes/{owner}/{bucket}/{name}"]
                    .contains(&call.as_str())
        })
        .collect();
    assert!(missing.is_empty(), "without an example: {missing:#?}");
}
