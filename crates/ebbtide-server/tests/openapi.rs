//! The description that is checked in matches the code.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use serde_json::Value;

fn file() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../api/openapi.json")
}

/// `EBBTIDE_WRITE_API=1 cargo test -p ebbtide-server --test openapi` writes it anew.
#[test]
fn the_description_is_what_is_checked_in() {
    let made = ebbtide_server::openapi::text();
    if std::env::var_os("EBBTIDE_WRITE_API").is_some() {
        std::fs::write(file(), made).unwrap();
    }
    let kept = std::fs::read_to_string(file()).unwrap();
    assert!(
        made == kept,
        "api/openapi.json has drifted from the code; regenerate it with EBBTIDE_WRITE_API=1"
    );
}

/// Number of names in the template, if the path of a request matches it.
fn matches(template: &str, path: &str) -> Option<usize> {
    let path = path.split('?').next().unwrap();
    let (ours, theirs): (Vec<_>, Vec<_>) = (template.split('/').collect(), path.split('/').collect());
    let fits = |(ours, theirs): (&&str, &&str)| ours.starts_with('{') || ours == theirs;
    let all = ours.len() == theirs.len() && ours.iter().zip(&theirs).all(fits);
    all.then(|| ours.iter().filter(|part| !part.starts_with('{')).count())
}

/// Parts of a schema: itself, or what it refers to and is composed of.
fn parts<'a>(api: &'a Value, schema: &'a Value) -> Vec<&'a Value> {
    if let Some(name) = schema["$ref"].as_str() {
        return parts(api, api.pointer(name.trim_start_matches('#')).unwrap());
    }
    let composed = ["oneOf", "anyOf", "allOf"].iter().filter_map(|of| schema[of].as_array()).flatten();
    [schema].into_iter().chain(composed.flat_map(|part| parts(api, part))).collect()
}

/// Schema of a member, by the parts of an object's schema.
fn member<'a>(parts: &[&'a Value], name: &str) -> &'a Value {
    let named = parts.iter().map(|part| &part["properties"][name]).find(|schema| !schema.is_null());
    let other = || parts.iter().map(|part| &part["additionalProperties"]).find(|schema| schema.is_object());
    named.or_else(other).unwrap_or(&Value::Null)
}

/// Something to read in place of a value that differs from run to run, of the type that the schema has.
fn stand_in(name: &str, parts: &[&Value]) -> Value {
    let types = parts.iter().flat_map(|part| match &part["type"] {
        Value::Array(types) => types.iter().collect(),
        one => vec![one],
    });
    match types.filter_map(Value::as_str).find(|of| *of != "null").unwrap_or("string") {
        "integer" | "number" if name == "at" || name.ends_with("_at") || name == "timestamp" => {
            1_800_000_000_000_u64.into()
        }
        "integer" | "number" if name == "exp" || name == "iat" => 1_800_000_000_u64.into(),
        "integer" | "number" => 60.into(),
        "boolean" => true.into(),
        "array" => Value::Array(Vec::new()),
        "object" => Value::Object(serde_json::Map::new()),
        _ => "…".into(),
    }
}

/// A value of an example, with something to read in place of what differs from run to run.
fn readable(api: &Value, name: &str, value: &Value, schema: &Value) -> Value {
    let parts = parts(api, schema);
    match value {
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| (name.clone(), readable(api, name, value, member(&parts, name))))
            .collect(),
        Value::Array(items) => {
            let of = parts.iter().map(|part| &part["items"]).find(|schema| !schema.is_null());
            items.iter().map(|item| readable(api, name, item, of.unwrap_or(&Value::Null))).collect()
        }
        Value::String(text) if text == "$any" || text.starts_with("$keep:") || text.contains("${") => {
            stand_in(name, &parts)
        }
        other => other.clone(),
    }
}

/// Members of a form.
fn members(form: &str) -> Value {
    let pairs = form.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), Value::from(value))).collect()
}

/// Names in a path, by those of its template.
fn names(template: &str, path: &str) -> Value {
    let path = path.split('?').next().unwrap();
    let segments = template.split('/').zip(path.split('/')).filter(|(ours, _)| ours.starts_with('{'));
    let name = |(ours, theirs): (&str, &str)| {
        // A kept value is an id.
        let shown = if theirs.contains("${") { "0123456789abcdef0123456789abcdef" } else { theirs };
        (ours.trim_matches(['{', '}']).to_owned(), Value::from(shown))
    };
    segments.map(name).collect()
}

/// The first success of each call in `api/examples`, with a body if there is one.
fn examples() -> String {
    let api: Value = serde_json::from_str(ebbtide_server::openapi::text()).unwrap();
    let mut files: Vec<_> = std::fs::read_dir(file().with_file_name("examples"))
        .unwrap()
        .map(|one| one.unwrap().path())
        .collect();
    files.sort();
    let mut examples = std::collections::BTreeMap::<String, Value>::new();
    for path in files.iter().filter(|path| path.extension().is_some_and(|extension| extension == "json")) {
        let file: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        for step in file["steps"].as_array().unwrap() {
            let (request, answer) = (&step["request"], &step["answer"]);
            let (Some(method), Some(path)) = (request["method"].as_str(), request["path"].as_str()) else {
                continue;
            };
            let status = answer["status"].as_u64().unwrap();
            let templates = api["paths"].as_object().unwrap().keys();
            let best = templates.filter_map(|template| Some((matches(template, path)?, template))).max();
            let Some((_, template)) = best.filter(|_| status < 300) else { continue };
            let operation = &api["paths"][template][method.to_lowercase()];
            let content =
                |of: &'_ Value| of["content"].as_object().and_then(|all| all.values().next()).cloned();
            let schema = |of| content(of).map(|content| content["schema"].clone()).unwrap_or_default();
            let (asked, told) =
                (schema(&operation["requestBody"]), schema(&operation["responses"][status.to_string()]));
            let form = request["form"].as_str().map(members);
            let body = request.get("body").or(form.as_ref());
            let example = serde_json::json!({
                "request": body.map(|body| readable(&api, "", body, &asked)),
                "path": names(template, path),
                "status": status.to_string(),
                "answer": answer.get("body").map(|body| readable(&api, "", body, &told)),
            });
            let kept = examples.entry(format!("{method} {template}")).or_insert_with(|| example.clone());
            if kept["request"].is_null() && !example["request"].is_null() {
                *kept = example;
            }
        }
    }
    serde_json::to_string_pretty(&examples).unwrap() + "\n"
}

#[test]
fn the_examples_of_the_description_are_those_that_the_tests_run() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/openapi/examples.json");
    let made = examples();
    if std::env::var_os("EBBTIDE_WRITE_API").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap();
    assert!(
        made == kept,
        "src/openapi/examples.json differs from api/examples; regenerate it with EBBTIDE_WRITE_API=1, twice"
    );
}

#[test]
fn every_response_has_a_description_and_calls_have_examples() {
    let api: Value = serde_json::from_str(ebbtide_server::openapi::text()).unwrap();
    assert_eq!(api["servers"][0]["url"], "/");
    assert_eq!(api["components"]["securitySchemes"]["key"]["scheme"], "bearer");
    let mut shown = 0;
    for (path, item) in api["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            for (status, response) in operation["responses"].as_object().unwrap() {
                assert!(
                    !response["description"].as_str().unwrap_or_default().is_empty(),
                    "{method} {path} {status}"
                );
                shown += usize::from(!response["content"]["application/json"]["example"].is_null());
            }
        }
    }
    assert!(shown > 40, "{shown} examples");
    for path in ["/v1/introspect", "/v1/revoke"] {
        assert!(
            api["paths"][path]["post"]["security"][1]["client"].is_array(),
            "{path}: Basic authentication"
        );
    }
}

#[test]
fn the_pages_about_problems_are_what_is_checked_in() {
    let folder = file().with_file_name("../docs/problems");
    for (name, page) in ebbtide_server::http::catalogue::files() {
        let path = folder.join(name);
        if std::env::var_os("EBBTIDE_WRITE_API").is_some() {
            std::fs::write(&path, &page).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            kept == page,
            "{} differs from the catalogue; regenerate it with EBBTIDE_WRITE_API=1",
            path.display()
        );
    }
}

#[test]
fn every_call_says_who_may_and_what_it_refuses() {
    let api: Value = serde_json::from_str(ebbtide_server::openapi::text()).unwrap();
    assert!(api["openapi"].as_str().unwrap().starts_with("3.1."));
    let mut names = std::collections::BTreeSet::new();
    for (path, item) in api["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let id = operation["operationId"].as_str().unwrap();
            assert!(names.insert(id.to_owned()), "two calls are named {id}");
            assert!(
                !operation["summary"].as_str().unwrap_or_default().is_empty(),
                "{method} {path} says nothing"
            );
            if !path.starts_with("/v1/") {
                continue;
            }
            let role = operation["x-ebbtide-role"].as_str().unwrap();
            assert!(["reader", "writer", "admin"].contains(&role), "{method} {path}");
            assert!(operation["security"][0]["key"].is_array(), "{method} {path}");
            for status in ["400", "401", "403", "429", "503"] {
                let content = &operation["responses"][status]["content"];
                assert!(content["application/problem+json"].is_object(), "{method} {path} {status}");
            }
        }
    }
    // Schemas of one name that differ would have swallowed each other.
    let schemas = api["components"]["schemas"].as_object().unwrap();
    let text = api.to_string();
    for part in text.split("#/components/schemas/").skip(1) {
        let name = part.split('"').next().unwrap();
        assert!(schemas.contains_key(name), "{name} is referred to and not there");
    }
}
