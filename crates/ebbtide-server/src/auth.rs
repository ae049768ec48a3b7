//! Who asks, and for which scope.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use ebbtide::Scope;

use crate::app::App;
use crate::problem::Problem;

/// A caller whose key is good, and the scope that the request is for: the header `Ebbtide-Scope`, else the key's own.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) scope: Scope,
}

impl FromRequestParts<App> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        if !bearer(&parts.headers).is_some_and(|key| app.is_root_key(key)) {
            return Err(Problem::unauthorized());
        }
        // The root key's scope is the whole store.
        let own = Scope::Global;
        let scope = requested(&parts.headers)?.unwrap_or_else(|| own.clone());
        if own.covers(&scope) {
            Ok(Self { scope })
        } else {
            Err(Problem::forbidden("the key's scope does not cover this one"))
        }
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, key) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let key = key.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !key.is_empty()).then_some(key)
}

fn requested(headers: &HeaderMap) -> Result<Option<Scope>, Problem> {
    let mut values = headers.get_all("ebbtide-scope").iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(_), Some(_)) => Err(Problem::invalid("a request names one scope")),
        (Some(value), None) => {
            let text =
                std::str::from_utf8(value.as_bytes()).map_err(|_| Problem::invalid("a scope is UTF-8"))?;
            Ok(Some(text.parse::<Scope>()?))
        }
    }
}
