//! Examples of calls in the description, taken from `api/examples`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::Value;
use utoipa::openapi::path::{Operation, ParameterBuilder, ParameterIn};
use utoipa::openapi::{OpenApi, RefOr};

/// Example of a call.
#[derive(Debug, Deserialize)]
struct Example {
    /// Body, or the members of a form.
    request: Option<Value>,
    /// Names in the path.
    #[serde(default)]
    path: BTreeMap<String, String>,
    status: String,
    answer: Option<Value>,
}

/// Examples by method and path; a test makes the file from `api/examples`.
static EXAMPLES: LazyLock<BTreeMap<String, Example>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("examples.json")).expect("a test has written the examples")
});

/// Adds an example to each call that has one.
pub(super) fn add(api: &mut OpenApi) {
    for (path, item) in &mut api.paths.paths {
        let methods = [
            ("GET", &mut item.get),
            ("PUT", &mut item.put),
            ("POST", &mut item.post),
            ("DELETE", &mut item.delete),
        ];
        for (method, operation) in methods {
            let example = EXAMPLES.get(&format!("{method} {path}"));
            if let (Some(operation), Some(example)) = (operation, example) {
                show(operation, example);
            }
        }
    }
}

fn show(operation: &mut Operation, example: &Example) {
    if let (Some(RefOr::T(body)), Some(request)) = (&mut operation.request_body, &example.request) {
        for content in body.content.values_mut() {
            if let RefOr::T(content) = content {
                content.example = Some(request.clone());
            }
        }
    }
    for parameter in operation.parameters.iter_mut().flatten() {
        let RefOr::T(described) = parameter else { continue };
        let is_shown = serde_json::to_value(&*described).is_ok_and(|text| !text["example"].is_null());
        if let Some(name) = example.path.get(&described.name)
            && described.parameter_in == ParameterIn::Path
            && !is_shown
        {
            let shown = ParameterBuilder::from(described.clone()).example(Some(name.as_str().into()));
            *parameter = RefOr::T(shown.build());
        }
    }
    if let Some(RefOr::T(response)) = operation.responses.responses.get_mut(&example.status)
        && let Some(RefOr::T(content)) = response.content.get_mut("application/json")
    {
        content.example.clone_from(&example.answer);
    }
}
