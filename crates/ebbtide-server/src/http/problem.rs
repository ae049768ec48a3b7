//! Problems: `application/problem+json` (RFC 9457) with a stable type.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use ebbtide::stores::grants::GrantId;
use ebbtide::stores::shared::refusal::RefusalCause;
use ebbtide::{Error, ErrorKind};
use serde_json::{Map, Value};

use crate::http::catalogue;
use crate::http::why::Cause;

/// Refusal or fault.
#[derive(Debug, Clone)]
pub(crate) struct Problem {
    status: StatusCode,
    kind: &'static str,
    detail: String,
    more: Map<String, Value>,
    retry_after: Option<Box<HeaderValue>>,
    /// Authentication schemes that a 401 names.
    challenge: &'static str,
    cause: Cause,
    /// Revoked grant that the request was refused for.
    grant: Option<GrantId>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, kind: &'static str, detail: impl Into<String>) -> Self {
        Self {
            status,
            kind,
            detail: detail.into(),
            more: Map::new(),
            retry_after: None,
            challenge: "Bearer",
            cause: Cause::of(kind),
            grant: None,
        }
    }

    pub(crate) fn conflict(kind: &'static str, detail: &str) -> Self {
        Self::new(StatusCode::CONFLICT, kind, detail)
    }

    pub(crate) fn expired(detail: &str) -> Self {
        Self::new(StatusCode::GONE, "expired", detail)
    }

    /// Nothing of that name is in the scope.
    pub(crate) fn not_found(detail: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "unknown", detail)
    }

    /// No call has the path.
    pub(crate) fn no_such_path() -> Self {
        let detail = "no call has this path; /docs lists the calls";
        Self::new(StatusCode::NOT_FOUND, "not-found", detail)
    }

    /// Revoked before its end.
    pub(crate) fn revoked(detail: &str) -> Self {
        Self::new(StatusCode::GONE, "revoked", detail)
    }

    /// Replaces the cause that the type implies, for the operator.
    pub(crate) fn because(mut self, cause: Cause) -> Self {
        self.cause = cause;
        self
    }

    /// Takes over the cause that a store noted, for the operator.
    pub(crate) fn note(&mut self, noted: RefusalCause) {
        self.cause = Cause::noted(self.kind, noted).unwrap_or(self.cause);
        if let (RefusalCause::Revoked(id), "revoked") = (noted, self.kind) {
            self.grant = Some(id);
        }
    }

    /// Revoked grant that the request was refused for.
    pub(crate) fn grant(&self) -> Option<GrantId> {
        self.grant
    }

    pub(crate) fn mismatch(field: impl std::fmt::Display) -> Self {
        let problem = Self::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "mismatch",
            format!("{field} does not match the bound value"),
        );
        problem.with("field", field.to_string())
    }

    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid", detail)
    }

    pub(crate) fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", "a valid API key is required as a bearer token")
    }

    pub(crate) fn forbidden(detail: &str) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", detail)
    }

    pub(crate) fn method_not_allowed() -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "invalid", "the method is not allowed for this path")
    }

    pub(crate) fn too_large() -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "invalid", "the body is too large")
    }

    pub(crate) fn overloaded() -> Self {
        let detail = "too many requests in flight; this one was not started";
        let problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", detail);
        problem.retry_after(1).because(Cause::Quota)
    }

    /// All connections are busy.
    pub(crate) fn too_many_connections() -> Self {
        let detail = "too many connections; retry later";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", detail).because(Cause::Quota)
    }

    pub(crate) fn too_many(kind: &'static str, detail: &str, seconds: u32) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, kind, detail).retry_after(seconds)
    }

    /// Adds a `Retry-After` in seconds.
    pub(crate) fn retry_after(mut self, seconds: impl Into<HeaderValue>) -> Self {
        self.retry_after = Some(Box::new(seconds.into()));
        self
    }

    /// Names other authentication schemes than a bearer token.
    pub(crate) fn challenge(mut self, challenge: &'static str) -> Self {
        self.challenge = challenge;
        self
    }

    /// Last part of the problem's type.
    pub(crate) fn kind(&self) -> &'static str {
        self.kind
    }

    pub(crate) fn cause(&self) -> Cause {
        self.cause
    }

    /// Explanation for the caller.
    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    /// Members beside those that every problem has.
    pub(crate) fn members(&self) -> &Map<String, Value> {
        &self.more
    }

    /// Body of the answer, with the id of the request.
    pub(crate) fn body(self, request_id: &str) -> Body {
        Body::from(self.text(request_id))
    }

    /// Text of the answer, with the id of the request.
    pub(crate) fn text(self, request_id: &str) -> String {
        let mut body = self.more;
        body.insert("type".to_owned(), format!("{}{}", catalogue::BASE, self.kind).into());
        body.insert("title".to_owned(), self.kind.into());
        body.insert("status".to_owned(), self.status.as_u16().into());
        body.insert("detail".to_owned(), self.detail.into());
        body.insert("request_id".to_owned(), request_id.into());
        Value::Object(body).to_string()
    }

    /// Adds a member to the body.
    pub(crate) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.more.insert(name.to_owned(), value.into());
        self
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        match error.kind() {
            ErrorKind::Invalid => match error.member() {
                Some(member) => Self::invalid(error.message()).with("member", member),
                None => Self::invalid(error.message()),
            },
            ErrorKind::Expired => Self::expired(error.message()),
            // Faults of the store are for its operator; the caller gets no details.
            kind => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                tracing::error!(%error, cause, %kind, "request failed");
                let status = match kind {
                    ErrorKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
                    _ => StatusCode::INTERNAL_SERVER_ERROR,
                };
                // These say what the caller can do, and that nothing was written.
                let told = [Error::ALMOST_FULL, Error::CONTENDED];
                let detail = told.into_iter().find(|told| *told == error.message());
                let detail = detail.unwrap_or("the store has no answer; a write may have happened");
                Self::new(status, "unavailable", detail)
            }
        }
    }
}

impl IntoResponse for Problem {
    /// Returns the head of the answer. The edge adds the body, with the request's id.
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(self.challenge));
        }
        if let Some(seconds) = &self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::clone(seconds));
        }
        response.extensions_mut().insert(self);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_told_without_its_details_unless_nothing_was_written() {
        let unknown = "the store has no answer; a write may have happened";
        for (message, detail) in [
            (Error::CONTENDED, Error::CONTENDED),
            (Error::ALMOST_FULL, Error::ALMOST_FULL),
            ("no connection to hunter2", unknown),
        ] {
            let problem = Problem::from(Error::unavailable(message));
            assert_eq!((problem.kind(), problem.detail()), ("unavailable", detail));
        }
    }
}
