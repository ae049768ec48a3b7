//! The calls, as `openapi.json` describes them.

use serde_json::Value;

/// One call.
pub(crate) struct Call {
    pub(crate) method: String,
    /// The path with its parameters in braces.
    pub(crate) path: String,
    pub(crate) role: String,
    pub(crate) operation: Value,
}

impl Call {
    /// Every call that needs a key.
    pub(crate) fn all() -> Vec<Self> {
        let api: Value = serde_json::from_str(ebbtide_server::openapi::text()).unwrap();
        let mut calls = Vec::new();
        for (path, item) in api["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                let Some(role) = operation["x-ebbtide-role"].as_str() else { continue };
                let (method, path) = (method.to_uppercase(), path.clone());
                calls.push(Self { method, path, role: role.to_owned(), operation: operation.clone() });
            }
        }
        assert!(calls.len() > 30, "there are {} calls", calls.len());
        calls
    }

    /// A path that fits: nothing is there, and the scope is one that holds nothing.
    pub(crate) fn some_path(&self) -> String {
        let parts = self.path.split('/').map(|part| match part.strip_prefix('{') {
            Some("scope}") => "tenant:acme%2Fenv:none",
            Some(_) => "0123456789abcdef0123456789abcdef",
            None => part,
        });
        parts.collect::<Vec<_>>().join("/")
    }

    /// The statuses that it is said to answer with.
    pub(crate) fn statuses(&self) -> Vec<u16> {
        let responses = self.operation["responses"].as_object().unwrap();
        responses.keys().map(|status| status.parse().unwrap()).collect()
    }

    /// Tells if the path of a request belongs to this call.
    pub(crate) fn matches(&self, method: &str, path: &str) -> bool {
        let path = path.split('?').next().unwrap();
        let (ours, theirs): (Vec<_>, Vec<_>) = (self.path.split('/').collect(), path.split('/').collect());
        let fits = |(ours, theirs): (&&str, &&str)| ours.starts_with('{') || ours == theirs;
        method == self.method && ours.len() == theirs.len() && ours.iter().zip(&theirs).all(fits)
    }

    /// Number of fixed names in the path: a template with more of them is more specific.
    pub(crate) fn names(&self) -> usize {
        self.path.split('/').filter(|part| !part.starts_with('{')).count()
    }

    /// The type of the body that it takes, if it takes one.
    pub(crate) fn content_type(&self) -> Option<&str> {
        let content = self.operation["requestBody"]["content"].as_object()?;
        // The form where there is a choice.
        content.keys().next_back().map(String::as_str)
    }
}

impl std::fmt::Display for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.method, self.path)
    }
}
