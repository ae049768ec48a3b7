//! Extractors of requests, and JSON answers.

use std::error::Error;

use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, FormRejection, JsonRejection, PathRejection, QueryRejection};
use axum::extract::{self, FromRequest, FromRequestParts, OptionalFromRequest, Request};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use base64ct::{Base64UrlUnpadded, Encoding as _};
use ebbtide::Cursor;
use ebbtide::stores::shared::paging::Listing;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::http::patience::TooSlow;
use crate::http::problem::Problem;
use ebbtide_api::answers::Listed;
pub(crate) use ebbtide_api::answers::millis;

/// JSON body of a request or an answer; a body that cannot be read is a [`Problem`].
#[derive(FromRequest)]
#[from_request(via(axum::Json), rejection(Problem))]
pub(crate) struct Json<T>(pub(crate) T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        axum::Json(self.0).into_response()
    }
}

/// Optional JSON body: an empty body is `None`.
impl<T, S> OptionalFromRequest<S> for Json<T>
where
    T: DeserializeOwned,
    S: Send + Sync,
{
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Option<Self>, Problem> {
        let bytes = Bytes::from_request(request, state).await?;
        if bytes.is_empty() {
            return Ok(None);
        }
        axum::Json::from_bytes(&bytes).map(|axum::Json(body)| Some(Self(body))).map_err(Problem::from)
    }
}

/// Form-encoded body.
#[derive(FromRequest)]
#[from_request(via(extract::Form), rejection(Problem))]
pub(crate) struct Form<T>(pub(crate) T);

/// Path parameters.
#[derive(FromRequestParts)]
#[from_request(via(extract::Path), rejection(Problem))]
pub(crate) struct Path<T>(pub(crate) T);

/// Query parameters.
#[derive(FromRequestParts)]
#[from_request(via(extract::Query), rejection(Problem))]
pub(crate) struct Query<T>(pub(crate) T);

/// Problem for a request that cannot be read.
fn unreadable(status: StatusCode, error: &(dyn Error + 'static), detail: &str) -> Problem {
    if status == StatusCode::PAYLOAD_TOO_LARGE {
        Problem::too_large()
    } else if TooSlow::caused(error) {
        Problem::new(StatusCode::REQUEST_TIMEOUT, "invalid", TooSlow.to_string())
    } else {
        Problem::invalid(without_values(detail))
    }
}

/// Message of a parser, without the value that it quotes: the value may be a secret. Parsers quote a value only
/// before `, expected `.
fn without_values(message: &str) -> String {
    match message.rsplit_once(", expected ") {
        Some((_, expected)) => format!("expected {expected}"),
        None if message.starts_with("Failed to ") => {
            message.split_once(": ").map_or(message, |(_, cause)| cause).to_owned()
        }
        None => message.to_owned(),
    }
}

macro_rules! rejected {
    ($($rejection:ty,)+) => {
        $(impl From<$rejection> for Problem {
            fn from(rejection: $rejection) -> Self {
                unreadable(rejection.status(), &rejection, &rejection.body_text())
            }
        })+
    };
}

rejected! { BytesRejection, FormRejection, QueryRejection, JsonRejection, }

impl From<PathRejection> for Problem {
    fn from(_: PathRejection) -> Self {
        Self::invalid("invalid path parameter")
    }
}

/// Maximum number of items of a page.
const MOST_ITEMS: usize = 1_000;

/// Start of a page, and its number of items.
pub(crate) fn page(limit: Option<usize>, after: Option<&str>) -> Result<(Option<Cursor>, usize), Problem> {
    let limit = limit.unwrap_or(100);
    if !(1..=MOST_ITEMS).contains(&limit) {
        return Err(Problem::invalid(format!("limit must be 1 to {MOST_ITEMS}")));
    }
    let cursor = |text| {
        let bytes = Base64UrlUnpadded::decode_vec(text);
        let bytes = bytes.map_err(|_| Problem::invalid("after must be the `next` of an earlier answer"))?;
        Ok::<_, Problem>(Cursor::from_bytes(bytes))
    };
    Ok((after.map(cursor).transpose()?, limit))
}

/// Page of a listing, as JSON.
pub(crate) fn listed<T, A: for<'a> From<&'a T>>(listing: &Listing<T>) -> Listed<A> {
    let next = listing.next.as_ref().map(|cursor| Base64UrlUnpadded::encode_string(cursor.as_bytes()));
    Listed { items: listing.items.iter().map(A::from).collect(), next }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebbtide::stores::replays::Proof;

    fn detail(body: &str) -> String {
        let rejection = axum::Json::<Proof>::from_bytes(body.as_bytes()).expect_err("a bad body");
        without_values(&rejection.body_text())
    }

    #[test]
    fn a_bad_body_is_described_without_its_values() {
        assert_eq!(detail("{\"jti\": \"a\"}"), "missing field `namespace` at line 1 column 12");
        let ttl = detail("{\"namespace\": \"n\", \"jti\": \"a\", \"ttl_seconds\": 0}");
        assert!(ttl.starts_with("ttl_seconds: a TTL is more than zero"), "{ttl}");
        for body in
            ["{\"hunter2\": 1}", "{\"namespace\": \"n\", \"jti\": \"a\", \"ttl_seconds\": \"hunter2\"}"]
        {
            let detail = detail(body);
            assert!(detail.starts_with("expected ") && !detail.contains("hunter2"), "{detail}");
        }
        let missing = "Expected request with `Content-Type: application/json`";
        assert_eq!(without_values(missing), missing);
    }
}
