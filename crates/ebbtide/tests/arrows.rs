//! Direction of the imports: `model ← backend ← engines`, `backend ← timekeeping ← stores ← ops ← db`, and nothing points back.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Modules of the library, each with the modules that it may import.
const ARROWS: [(&str, &[&str]); 10] = [
    ("model", &[]),
    ("keyring", &["model"]),
    ("backend", &["model"]),
    ("admin", &["backend", "model"]),
    ("engines", &["admin", "backend", "model"]),
    ("layers", &["admin", "backend", "keyring", "model"]),
    ("timekeeping", &["admin", "backend", "model"]),
    ("stores", &["admin", "backend", "keyring", "layers", "model", "timekeeping"]),
    ("ops", &["admin", "backend", "keyring", "layers", "model", "stores", "timekeeping"]),
    ("db", &["admin", "backend", "engines", "keyring", "layers", "model", "ops", "stores", "timekeeping"]),
];

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn read(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    // Unit tests may use anything, and comments may name anything.
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
    code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// First segments of the paths behind `root::`, and of the groups `root::{…}`.
fn imports(code: &str, root: &str) -> BTreeSet<String> {
    let start = format!("{root}::");
    let word = |text: &str| -> String {
        text.chars().take_while(|letter| letter.is_ascii_alphanumeric() || *letter == '_').collect()
    };
    let mut found = BTreeSet::new();
    for (at, _) in code.match_indices(&start) {
        let before = code[..at].chars().next_back();
        if before.is_some_and(|letter| letter.is_ascii_alphanumeric() || "_$:".contains(letter)) {
            continue;
        }
        let behind = &code[at + start.len()..];
        if let Some(group) = behind.strip_prefix('{') {
            let group = group.split('}').next().unwrap();
            found.extend(group.split(',').map(|item| word(item.trim())));
        } else {
            found.insert(word(behind));
        }
    }
    found
}

/// Names that the root of the library re-exports, each with the module that it is from.
fn re_exports(src: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for line in read(&src.join("lib.rs")).lines() {
        let Some(path) = line.strip_prefix("pub use ").and_then(|path| path.strip_suffix(';')) else {
            continue;
        };
        let Some((module, _)) = path.split_once("::") else { continue };
        let names = path.rsplit("::").next().unwrap().trim_matches(['{', '}']);
        found.extend(names.split(", ").map(|name| (name.to_owned(), module.to_owned())));
    }
    found
}

/// Modules in files of their own that only tests compile: they may use anything, as unit tests may.
fn test_modules(src: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in sources(src) {
        let text = fs::read_to_string(&path).unwrap();
        for behind in text.split("#[cfg(test)]\nmod ").skip(1) {
            let declaration = behind.lines().next().unwrap();
            found.extend(declaration.strip_suffix(';').map(|name| path.with_extension("").join(name)));
        }
    }
    found
}

#[test]
fn imports_point_one_way() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (from_root, tests) = (re_exports(&src), test_modules(&src));
    assert!(!tests.is_empty());
    assert_eq!(from_root["Stores"], "stores");
    assert_eq!(from_root["Ebbtide"], "db");
    let known: BTreeSet<&str> = ARROWS.iter().map(|(module, _)| *module).collect();
    let (mut wrong, mut checked) = (Vec::new(), 0);
    for path in sources(&src) {
        let inside = path.strip_prefix(&src).unwrap().to_owned();
        let module = inside.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs").to_owned();
        if module == "lib" || tests.iter().any(|test| path.with_extension("").starts_with(test)) {
            continue;
        }
        let (_, may) = ARROWS
            .iter()
            .find(|(name, _)| *name == module)
            .unwrap_or_else(|| panic!("the module {module} has no place in ARROWS"));
        for import in imports(&read(&path), "crate") {
            checked += 1;
            let import = from_root.get(&import).cloned().unwrap_or(import);
            if known.contains(import.as_str()) && import != module && !may.contains(&import.as_str()) {
                wrong.push(format!("{} imports {import}", inside.display()));
            }
        }
    }
    assert!(checked > 100, "only {checked} imports were found");
    assert!(wrong.is_empty(), "imports that point back:\n{}", wrong.join("\n"));
}

#[test]
fn the_command_line_takes_its_json_from_the_api_crate() {
    let cli = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ebbtide-cli/src");
    for path in sources(&cli) {
        for import in imports(&read(&path), "ebbtide_server") {
            let server_only = [
                "http",
                "local",
                "upkeep",
                "metrics",
                "resp",
                "App",
                "Cores",
                "Serving",
                "serve",
                "serve_tls",
            ];
            assert!(server_only.contains(&import.as_str()), "{} imports {import}", path.display());
        }
    }
}

/// Engines answer `info()`, and URLs are parsed into `StoreUrl`.
#[test]
fn nobody_compares_engines_by_name_or_urls_by_prefix() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for name in ["ebbtide", "ebbtide-api", "ebbtide-cli", "ebbtide-lambda", "ebbtide-server"] {
        for path in sources(&crates.join(name).join("src")) {
            if path.ends_with("engines/url.rs") || path.ends_with("dynamodb/location.rs") {
                continue;
            }
            let code = read(&path);
            for engine in ["memory", "fjall", "rocksdb", "postgres", "dynamodb"] {
                for test in [
                    format!("starts_with(\"{engine}:"),
                    format!("strip_prefix(\"{engine}:"),
                    format!("== \"{engine}:"),
                    format!("!= \"{engine}:"),
                    format!("engine == \"{engine}\""),
                    format!("engine != \"{engine}\""),
                ] {
                    assert!(!code.contains(&test), "{} tests {test}", path.display());
                }
            }
        }
    }
}
