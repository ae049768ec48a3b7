//! Shared engines for a test, each with a store of its own.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(dead_code, reason = "each suite uses some of it")]

use std::time::SystemTime;

use libtest_mimic::Failed;

use crate::server::{ebbtide, said};

/// A shared engine, and the variable with its address.
pub(crate) struct Engine {
    pub(crate) name: &'static str,
    variable: &'static str,
    pub(crate) built: bool,
    /// Creates an empty store at that address.
    pub(crate) fresh: fn(&str) -> String,
}

pub(crate) const ENGINES: [Engine; 2] = [
    Engine {
        name: "postgres",
        variable: "EBBTIDE_TEST_POSTGRES",
        built: cfg!(feature = "postgres"),
        fresh: fresh_schema,
    },
    Engine {
        name: "dynamodb",
        variable: "EBBTIDE_TEST_DYNAMODB",
        built: cfg!(feature = "dynamodb"),
        fresh: fresh_table,
    },
];

impl Engine {
    /// Address of the engine.
    pub(crate) fn place(&self) -> Result<String, Failed> {
        let place = std::env::var(self.variable).ok().filter(|place| !place.is_empty());
        place.ok_or_else(|| Failed::from(format!("{} is not set", self.variable)))
    }

    /// True if tests on the engine are left out: nobody has started it, and this is no run that must have it.
    pub(crate) fn is_missing(&self) -> bool {
        self.place().is_err() && std::env::var_os("CI").is_none()
    }
}

#[expect(clippy::disallowed_methods, reason = "names a store that no other run has")]
fn unique() -> u128 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos()
}

pub(crate) fn schema_url(server: &str) -> String {
    format!("{server}?schema=nodes_{}&pool=8", unique())
}

pub(crate) fn done(arguments: &[&str]) -> String {
    let output = ebbtide(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", said(&output));
    said(&output)
}

fn fresh_schema(server: &str) -> String {
    let url = schema_url(server);
    done(&["migrate-schema", "--store", &url]);
    url
}

fn fresh_table(endpoint: &str) -> String {
    let url = format!("dynamodb:ebbtide-nodes-{}?endpoint={endpoint}", unique());
    done(&["table", "create", "--store", &url]);
    url
}
