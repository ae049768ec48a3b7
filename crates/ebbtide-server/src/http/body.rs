//! Extractors of requests, and builders of answers.

use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, FormRejection, JsonRejection, PathRejection, QueryRejection};
use axum::extract::{self, FromRequest, FromRequestParts, OptionalFromRequest, Request};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use base64ct::{Base64UrlUnpadded, Encoding as _};
use ebbtide::stores::shared::paging::Listing;
use ebbtide::{Cursor, Ttl};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

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

/// Problem of a request that cannot be parsed. The parser's message may quote a secret of the body, so it is not
/// repeated.
fn unreadable(status: StatusCode, error: &(dyn std::error::Error + 'static), detail: &str) -> Problem {
    if status == StatusCode::PAYLOAD_TOO_LARGE {
        Problem::too_large()
    } else if TooSlow::caused(error) {
        Problem::new(StatusCode::REQUEST_TIMEOUT, "invalid", TooSlow.to_string())
    } else {
        Problem::invalid(detail)
    }
}

macro_rules! rejected {
    ($($rejection:ty: $detail:literal,)+) => {
        $(impl From<$rejection> for Problem {
            fn from(rejection: $rejection) -> Self {
                unreadable(rejection.status(), &rejection, $detail)
            }
        })+
    };
}

rejected! {
    BytesRejection: "the request body cannot be read",
    FormRejection: "the form has missing, unknown or malformed fields",
    PathRejection: "the path has malformed parameters",
    QueryRejection: "the query has missing, unknown or malformed parameters",
    JsonRejection: "the body is not valid JSON for this call",
}

/// Maximum number of items in a page.
const MOST_ITEMS: usize = 1_000;

/// Parses the paging parameters: cursor and limit.
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

/// Converts a page for the answer.
pub(crate) fn listed<T, A: for<'a> From<&'a T>>(listing: &Listing<T>) -> Listed<A> {
    listed_as(listing, |item| A::from(item))
}

/// Converts a page for the answer with `describe`.
pub(crate) fn listed_as<T, A>(listing: &Listing<T>, describe: impl Fn(&T) -> A) -> Listed<A> {
    let next = listing.next.as_ref().map(|cursor| Base64UrlUnpadded::encode_string(cursor.as_bytes()));
    Listed { items: listing.items.iter().map(describe).collect(), next }
}

/// Optional value for which null is a value: only a missing member is `None`.
pub(crate) fn given<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(value).map(Some)
}

/// Parses a TTL in seconds.
pub(crate) fn ttl(seconds: Option<i64>) -> Result<Option<Ttl>, Problem> {
    Ok(seconds.map(Ttl::from_secs).transpose()?)
}
