//! Calls of the API within one process, for tools that open a store themselves: they get the same answers as callers of
//! a server.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, header};
use base64ct::{Base64UrlUnpadded, Encoding as _};
use ebbtide::stores::Stores;
use ebbtide::{Ebbtide, Error, Result, Rng as _, Secret, SystemRng};
use serde_json::Value;
use tower::ServiceExt as _;

use crate::app::App;
use crate::router;

/// Maximum size of an answer.
const MOST_BYTES: usize = 256 << 20;

/// API of a store that this process has open, with every right.
#[derive(Debug)]
pub struct Local {
    router: Router,
    key: Secret,
    stores: Stores,
}

/// Answer of a call: its status, and its body if that is JSON.
#[derive(Debug)]
pub struct LocalAnswer {
    /// HTTP status.
    pub status: u16,
    /// Body; null if there is none.
    pub body: Value,
}

impl Local {
    /// Serves `db` to this process alone.
    #[must_use]
    pub fn new(db: &Ebbtide) -> Self {
        let mut bytes = [0; 32];
        SystemRng.fill(&mut bytes);
        let key = Secret::new(Base64UrlUnpadded::encode_string(&bytes));
        Self { router: router(App::new(db, &key).local(&key)), key, stores: db.stores().clone() }
    }

    /// Makes a call. Its entries in the audit log are checkpointed before it returns: nothing else does it in a process
    /// without a server.
    pub async fn call(
        &self,
        method: &str,
        path: &str,
        scope: Option<&str>,
        body: Option<&Value>,
    ) -> Result<LocalAnswer> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::AUTHORIZATION, format!("Bearer {}", self.key.expose()));
        if let Some(scope) = scope {
            request = request.header("ebbtide-scope", scope);
        }
        let request = match body {
            Some(body) => {
                request.header(header::CONTENT_TYPE, "application/json").body(Body::from(body.to_string()))
            }
            None => request.body(Body::empty()),
        };
        let request = request.map_err(|error| Error::invalid("invalid request").caused_by(error))?;
        let response = self.router.clone().oneshot(request).await.unwrap_or_else(|never| match never {});
        let status = response.status().as_u16();
        let bytes = to_bytes(response.into_body(), MOST_BYTES).await;
        let bytes = bytes.map_err(|error| Error::unavailable("the answer broke off").caused_by(error))?;
        if let Err(error) = self.stores.checkpoint_audit().await {
            tracing::warn!(%error, "cannot write the checkpoint of the audit log");
        }
        Ok(LocalAnswer { status, body: serde_json::from_slice(&bytes).unwrap_or_default() })
    }
}
