//! What is checked in is what the code says.

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
