//! Operators: one interface to a store of this machine and to a server. A command is written once, over the calls of
//! the HTTP API, and answers the same for both.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, Result, anyhow};
use ebbtide::{Scope, async_trait};
use ebbtide_api::answers::Listed;
use ebbtide_api::scopes::ScopeAnswer;
use ebbtide_server::local::Local;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::client::encoded;
use crate::store::{self, Access};

/// Calls of the API.
#[async_trait]
pub(crate) trait Operator: Send + Sync {
    /// Makes a call in a scope: that of the key, or global, without one.
    async fn call(
        &self,
        method: &str,
        path: &str,
        scope: Option<&Scope>,
        body: Option<Value>,
    ) -> Result<OperatorAnswer>;
}

/// Answer to a call.
#[derive(Debug)]
pub(crate) struct OperatorAnswer {
    pub(crate) status: u16,
    pub(crate) body: Value,
    /// True if a server gave it.
    pub(crate) remote: bool,
}

impl OperatorAnswer {
    /// Body of a success. Any other status is an error with the message of the answer.
    pub(crate) fn success(self) -> Result<Value> {
        if (200..300).contains(&self.status) {
            return Ok(self.body);
        }
        let word = |name: &str| self.body[name].as_str().unwrap_or_default();
        let (title, detail) = (word("title"), word("detail"));
        if !self.remote {
            return Err(anyhow!("{detail} ({title})"));
        }
        Err(anyhow!("the server answers {} {title}: {detail} (request {})", self.status, word("request_id")))
    }

    /// Body of a success as a type of the API.
    pub(crate) fn read<T: DeserializeOwned>(self) -> Result<T> {
        serde_json::from_value(self.success()?).context("the answer is not what this version expects")
    }

    /// Body of a success, or the message about a conflict.
    pub(crate) fn or_conflict(self) -> Result<std::result::Result<Value, String>> {
        if self.status == 409 && self.body["title"] == "conflict" {
            return Ok(Err(self.body["detail"].as_str().unwrap_or_default().to_owned()));
        }
        self.success().map(Ok)
    }

    /// Body of a success; none if the answer is "unknown".
    pub(crate) fn found(self) -> Result<Option<Value>> {
        let unknown = self.status == 404 && self.body["title"] == "unknown";
        if unknown { Ok(None) } else { self.success().map(Some) }
    }
}

impl dyn Operator {
    /// The scope, and with `below` those that it covers and that have records.
    pub(crate) async fn scopes(&self, scope: &Scope, below: bool) -> Result<BTreeSet<Scope>> {
        let mut scopes = BTreeSet::from([scope.clone()]);
        if below {
            let path = format!("/v1/scopes?scope={}", encoded(&scope.to_string()));
            let found: Listed<ScopeAnswer> = self.call("GET", &path, None, None).await?.read()?;
            for item in found.items {
                scopes.insert(item.scope.parse()?);
            }
        }
        Ok(scopes)
    }

    /// Every item of a listing. `query` begins with `&` unless it is empty.
    pub(crate) async fn all(&self, path: &str, query: &str, scope: &Scope) -> Result<Vec<Value>> {
        let mut found = Vec::new();
        let keep = |item: &Value| {
            found.push(item.clone());
            Ok(())
        };
        self.each(path, query, Some(scope), keep).await?;
        Ok(found)
    }

    /// Calls `visit` with every item of a listing, page by page. `query` begins with `&` unless it is empty.
    pub(crate) async fn each(
        &self,
        path: &str,
        query: &str,
        scope: Option<&Scope>,
        mut visit: impl FnMut(&Value) -> Result<()>,
    ) -> Result<()> {
        let mut after = String::new();
        loop {
            let page =
                self.call("GET", &format!("{path}?limit=500{query}{after}"), scope, None).await?.success()?;
            page["items"].as_array().into_iter().flatten().try_for_each(&mut visit)?;
            match page["next"].as_str() {
                Some(next) => after = format!("&after={}", encoded(next)),
                None => return Ok(()),
            }
        }
    }
}

/// Store of this machine.
pub(crate) struct LocalOperator(Local);

impl LocalOperator {
    /// Opens the store at `url` with its policies, and with those of a configuration file.
    pub(crate) async fn open(url: &str, access: Access, config: Option<&Path>) -> Result<Self> {
        Ok(Self(Local::new(&store::open_with_policies(url, access, config).await?)))
    }

    /// Opens the store at `url` as its engine has it.
    pub(crate) async fn open_tool(url: &str, access: Access) -> Result<Self> {
        Ok(Self(Local::new(&store::open(url, access).await?)))
    }

    /// Opens the store at `url` with its keyring, without its stored policies: for entries of the audit log about the whole
    /// store.
    pub(crate) async fn open_signing(url: &str, access: Access) -> Result<Self> {
        Ok(Self(Local::new(&store::open_signing(url, access).await?)))
    }

    /// Opens the store at `url` to read it, with its keyring where one is known, otherwise without.
    pub(crate) async fn open_to_read(url: &str, config: Option<&Path>) -> Result<Self> {
        if store::has_keyring(url) {
            return Self::open(url, Access::Read, config).await;
        }
        Ok(Self(Local::new(&store::open(url, Access::Read).await?)))
    }
}

#[async_trait]
impl Operator for LocalOperator {
    async fn call(
        &self,
        method: &str,
        path: &str,
        scope: Option<&Scope>,
        body: Option<Value>,
    ) -> Result<OperatorAnswer> {
        let scope = scope.map(ToString::to_string);
        let answer = self.0.call(method, path, scope.as_deref(), body.as_ref()).await?;
        Ok(OperatorAnswer { status: answer.status, body: answer.body, remote: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_the_message_of_the_server_and_no_key() {
        let body = serde_json::json!({"title": "forbidden", "detail": "not yours", "request_id": "r1"});
        let error = OperatorAnswer { status: 403, body, remote: true }.success().unwrap_err();
        assert_eq!(error.to_string(), "the server answers 403 forbidden: not yours (request r1)");
    }
}
