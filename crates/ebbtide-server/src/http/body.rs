//! Extractors of requests, and JSON answers.

use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection};
use axum::extract::{self, FromRequest, FromRequestParts, OptionalFromRequest, RawPathParams, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64ct::{Base64UrlUnpadded, Encoding as _};
use ebbtide::Cursor;
use ebbtide::stores::shared::paging::Listing;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::http::fault;
use crate::http::patience::TooSlow;
use crate::http::problem::Problem;
use crate::http::strict::{self, Notes};
use ebbtide_api::answers::Listed;
pub(crate) use ebbtide_api::answers::millis;

/// JSON body of a request or an answer; a body that cannot be read is a [`Problem`].
pub(crate) struct Json<T>(pub(crate) T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        axum::Json(self.0).into_response()
    }
}

const JSON: &str = "application/json";
const FORM: &str = "application/x-www-form-urlencoded";

/// Body that is read from its bytes.
pub(crate) trait Content: Sized {
    /// Checks the content type.
    fn check(headers: &HeaderMap) -> Result<(), Problem>;

    fn read(bytes: &[u8]) -> Result<Self, Problem>;
}

impl<T: DeserializeOwned> Content for Json<T> {
    fn check(headers: &HeaderMap) -> Result<(), Problem> {
        let is_json = essence(headers).is_some_and(|essence| {
            let suffix = essence.len().checked_sub(5).and_then(|at| essence.get(at..));
            essence.eq_ignore_ascii_case(JSON) || suffix.is_some_and(|end| end.eq_ignore_ascii_case("+json"))
        });
        if is_json { Ok(()) } else { Err(fault::content_type(JSON)) }
    }

    fn read(bytes: &[u8]) -> Result<Self, Problem> {
        read_json(bytes).map(Self)
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        Self::check(request.headers())?;
        Self::read(&Bytes::from_request(request, state).await?)
    }
}

/// Optional JSON body: an empty one, and `null`, is `None`.
impl<T: DeserializeOwned, S: Send + Sync> OptionalFromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Option<Self>, Problem> {
        let headers = request.headers().clone();
        let bytes = Bytes::from_request(request, state).await?;
        if bytes.is_empty() {
            return Ok(None);
        }
        Self::check(&headers)?;
        // As the description has it.
        if bytes.trim_ascii() == b"null" {
            return Ok(None);
        }
        Self::read(&bytes).map(Some)
    }
}

fn read_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let notes = Notes::default();
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    // The body of every call is an object; serde would take an array for a tagged one.
    let first = bytes.iter().find(|byte| !b" \t\r\n".contains(byte));
    if first.is_some_and(|byte| b"[\"0123456789-tfn".contains(byte)) {
        let any: Result<serde_json::Value, _> = serde_json::from_slice(bytes);
        return Err(match any {
            Ok(_) => Problem::invalid("the body: expected an object").with("expected", "an object"),
            Err(error) => fault::of_json(&error, &notes.into_place(), bytes),
        });
    }
    let read = strict::deserialize(&mut deserializer, &notes);
    let read = read.and_then(|body| deserializer.end().map(|()| body));
    read.map_err(|error| fault::of_json(&error, &notes.into_place(), bytes))
}

/// Form-encoded body.
pub(crate) struct Form<T>(pub(crate) T);

impl<T: DeserializeOwned> Content for Form<T> {
    fn check(headers: &HeaderMap) -> Result<(), Problem> {
        let is_form = essence(headers).is_some_and(|essence| essence.eq_ignore_ascii_case(FORM));
        if is_form { Ok(()) } else { Err(fault::content_type(FORM)) }
    }

    fn read(bytes: &[u8]) -> Result<Self, Problem> {
        read_pairs("member", bytes).map(Self)
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Form<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        Self::check(request.headers())?;
        Self::read(&Bytes::from_request(request, state).await?)
    }
}

/// Body that is form-encoded or JSON.
pub(crate) struct FormOrJson<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for FormOrJson<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        if essence(request.headers()).is_some_and(|essence| essence.eq_ignore_ascii_case(FORM)) {
            return <Form<T> as FromRequest<S>>::from_request(request, state)
                .await
                .map(|Form(body)| Self(body));
        }
        <Json<T> as FromRequest<S>>::from_request(request, state).await.map(|Json(body)| Self(body))
    }
}

/// Query parameters.
pub(crate) struct Query<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        read_pairs("query parameter", parts.uri.query().unwrap_or_default().as_bytes()).map(Self)
    }
}

fn read_pairs<T: DeserializeOwned>(noun: &str, text: &[u8]) -> Result<T, Problem> {
    let notes = Notes::default();
    let pairs = serde_urlencoded::Deserializer::new(form_urlencoded::parse(text));
    strict::deserialize(pairs, &notes).map_err(|error| fault::of_pairs(noun, &error, &notes.into_place()))
}

/// Content type of the body, without parameters.
fn essence(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    value.split(';').next().map(str::trim)
}

/// Path parameters.
#[derive(FromRequestParts)]
#[from_request(via(extract::Path), rejection(Problem))]
pub(crate) struct Path<T>(pub(crate) T);

/// The last segments of a path, decoded. The last one may be the name of a route: a bucket may be called like a call.
pub(crate) struct Segments<const N: usize>(pub(crate) [String; N]);

impl<const N: usize, S: Send + Sync> FromRequestParts<S> for Segments<N> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let invalid = || Problem::invalid("invalid path parameter");
        let params = RawPathParams::from_request_parts(parts, state).await.map_err(|_| invalid())?;
        let mut values: Vec<String> = params.iter().map(|(_, value)| value.to_owned()).collect();
        if values.len() + 1 == N {
            let last = parts.uri.path().rsplit('/').next().unwrap_or_default();
            values.push(last.to_owned());
        }
        values.try_into().map(Self).map_err(|_| invalid())
    }
}

/// Refuses `.` and `..` as a name in a path, percent-encoded too: clients and proxies resolve them, and the request
/// would mean another path.
pub(crate) fn refuse_dots(path: &str) -> Result<(), Problem> {
    let is_dots = |segment: &str| {
        let dots = segment.replace("%2e", ".").replace("%2E", ".");
        dots == "." || dots == ".."
    };
    if (path.contains("/.") || path.contains("/%2")) && path.split('/').any(is_dots) {
        return Err(Problem::invalid("`.` and `..` are not allowed as a name in a path"));
    }
    Ok(())
}

impl From<BytesRejection> for Problem {
    fn from(rejection: BytesRejection) -> Self {
        if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
            Self::too_large()
        } else if TooSlow::caused(&rejection) {
            Self::new(StatusCode::REQUEST_TIMEOUT, "invalid", TooSlow.to_string())
        } else {
            Self::invalid("the body could not be read")
        }
    }
}

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
        return Err(Problem::invalid(format!("limit must be 1 to {MOST_ITEMS}")).with("member", "limit"));
    }
    let cursor = |text| {
        let bytes = Base64UrlUnpadded::decode_vec(text).ok().filter(|bytes| !bytes.is_empty());
        let invalid =
            || Problem::invalid("after must be the `next` of an earlier answer").with("member", "after");
        bytes.map(Cursor::from_bytes).ok_or_else(invalid)
    };
    Ok((after.map(cursor).transpose()?, limit))
}

/// Page of a listing, as JSON.
pub(crate) fn listed<T, A: for<'a> From<&'a T>>(listing: &Listing<T>) -> Listed<A> {
    let next = listing.next.as_ref().map(|cursor| Base64UrlUnpadded::encode_string(cursor.as_bytes()));
    Listed { items: listing.items.iter().map(A::from).collect(), next }
}

#[cfg(test)]
mod tests;
