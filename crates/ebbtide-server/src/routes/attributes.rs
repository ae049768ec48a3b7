//! `/v1/attributes`

use axum::Json as Answer;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post, put};
use ebbtide::stores::attributes::{Attribute, Change, Draft, Stamp, Swap};
use ebbtide::{Timestamp, Version};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::App;
use crate::auth::Caller;
use crate::body::{Asked, Json, Names, PageAsked, millis, next, ttl};
use crate::problem::Problem;
use crate::table::Table;

pub(super) fn routes() -> Table {
    Table::new()
        .reader("/attributes/{owner}", get(list_buckets))
        .writer("/attributes/{owner}", delete(delete_owner))
        .reader("/attributes/{owner}/{bucket}", get(list))
        .writer("/attributes/{owner}/{bucket}", delete(delete_bucket))
        .reader("/attributes/{owner}/{bucket}/{name}", get(read))
        .creator("/attributes/{owner}/{bucket}/{name}", put(set))
        .writer("/attributes/{owner}/{bucket}/{name}", delete(remove))
        .writer("/attributes/{owner}/{bucket}/{name}/compare-and-swap", post(compare_and_swap))
}

type Name = Names<(String, String, String)>;

fn attribute(attribute: &Attribute) -> Value {
    json!({
        "name": attribute.name,
        "data": attribute.data,
        "timestamp": attribute.timestamp.map(millis),
        "expires_at": millis(attribute.expires_at),
        "version": attribute.version.to_string(),
    })
}

fn stamp(stamp: Stamp) -> Value {
    json!({"version": stamp.version.to_string(), "expires_at": millis(stamp.expires_at)})
}

fn tagged(version: Version, answer: Value) -> Response {
    let mut response = Answer(answer).into_response();
    let tag = HeaderValue::from_str(&format!("\"{version}\"")).expect("hexadecimal digits are a good header");
    response.headers_mut().insert(header::ETAG, tag);
    response
}

fn unknown() -> Problem {
    Problem::not_found("no such attribute")
}

fn precondition_failed() -> Problem {
    Problem::new(StatusCode::PRECONDITION_FAILED, "conflict", "another version stands there, or none")
}

/// What the request asks of the version that stands there.
enum Condition {
    None,
    Absent,
    Version(Version),
}

fn condition(headers: &HeaderMap) -> Result<Condition, Problem> {
    let text = |name| headers.get(name).map(HeaderValue::to_str).transpose();
    let unreadable = |_| Problem::invalid("a condition in a header is ASCII");
    match (text(header::IF_MATCH).map_err(unreadable)?, text(header::IF_NONE_MATCH).map_err(unreadable)?) {
        (None, None) => Ok(Condition::None),
        (None, Some("*")) => Ok(Condition::Absent),
        (Some(tag), None) => {
            // A tag that is no version of ours matches nothing.
            let version = tag.trim().trim_matches('"').parse().map_err(|_| precondition_failed())?;
            Ok(Condition::Version(version))
        }
        _ => Err(Problem::invalid("If-Match takes one tag, and If-None-Match takes *; one of them is given")),
    }
}

async fn read(
    State(app): State<App>,
    caller: Caller,
    Names((owner, bucket, name)): Name,
) -> Result<Response, Problem> {
    let found = app.stores.attributes(&caller.scope).bucket(owner, bucket)?.get(&name).await?;
    found.map(|found| tagged(found.version, attribute(&found))).ok_or_else(unknown)
}

#[derive(Deserialize)]
struct Set {
    data: Value,
    timestamp: Option<u64>,
    ttl_seconds: Option<i64>,
}

async fn set(
    State(app): State<App>,
    caller: Caller,
    Names((owner, bucket, name)): Name,
    headers: HeaderMap,
    Json(body): Json<Set>,
) -> Result<Response, Problem> {
    let mut draft = Draft::new(body.data);
    if let Some(millis) = body.timestamp {
        draft = draft.with_timestamp(Timestamp::from_millis(millis)?);
    }
    if let Some(ttl) = ttl(body.ttl_seconds)? {
        draft = draft.with_ttl(ttl);
    }
    let bucket = app.stores.attributes(&caller.scope).bucket(owner, bucket)?;
    let change = match condition(&headers)? {
        Condition::None => Change::Applied(bucket.set(&name, draft).await?),
        Condition::Absent => bucket.insert(&name, draft).await?,
        Condition::Version(expected) => bucket.replace(&name, expected, draft).await?,
    };
    match change {
        Change::Applied(written) => Ok(tagged(written.version, stamp(written))),
        Change::Refused => Err(precondition_failed()),
    }
}

async fn remove(
    State(app): State<App>,
    caller: Caller,
    Names((owner, bucket, name)): Name,
    headers: HeaderMap,
) -> Result<StatusCode, Problem> {
    let bucket = app.stores.attributes(&caller.scope).bucket(owner, bucket)?;
    match condition(&headers)? {
        Condition::None => bucket.delete(&name).await?.then_some(StatusCode::NO_CONTENT).ok_or_else(unknown),
        Condition::Version(expected) => {
            let removed = bucket.remove_if(&name, expected).await?;
            removed.then_some(StatusCode::NO_CONTENT).ok_or_else(precondition_failed)
        }
        Condition::Absent => Err(Problem::invalid("what is absent cannot be deleted")),
    }
}

#[derive(Deserialize)]
struct CompareAndSwap {
    old: Value,
    new: Value,
    ttl_seconds: Option<i64>,
}

async fn compare_and_swap(
    State(app): State<App>,
    caller: Caller,
    Names((owner, bucket, name)): Name,
    Json(body): Json<CompareAndSwap>,
) -> Result<Response, Problem> {
    let mut draft = Draft::new(body.new);
    if let Some(ttl) = ttl(body.ttl_seconds)? {
        draft = draft.with_ttl(ttl);
    }
    let bucket = app.stores.attributes(&caller.scope).bucket(owner, bucket)?;
    match bucket.compare_and_swap(&name, &body.old, draft).await? {
        Swap::Swapped(written) => Ok(tagged(written.version, stamp(written))),
        Swap::Conflict { .. } => Err(Problem::conflict("conflict", "another value stands there, or none")),
    }
}

async fn list(
    State(app): State<App>,
    caller: Caller,
    Names((owner, bucket)): Names<(String, String)>,
    Asked(page): Asked<PageAsked>,
) -> Result<Answer<Value>, Problem> {
    let bucket = app.stores.attributes(&caller.scope).bucket(owner, bucket)?;
    let listing = bucket.list(page.after()?.as_ref(), page.limit()?).await?;
    let items: Vec<_> = listing.items.iter().map(attribute).collect();
    Ok(Answer(json!({"items": items, "next": next(listing.next.as_ref())})))
}

async fn list_buckets(
    State(app): State<App>,
    caller: Caller,
    Names(owner): Names<String>,
    Asked(page): Asked<PageAsked>,
) -> Result<Answer<Value>, Problem> {
    let attributes = app.stores.attributes(&caller.scope);
    let listing = attributes.list_buckets(&owner, page.after()?.as_ref(), page.limit()?).await?;
    Ok(Answer(json!({"items": listing.items, "next": next(listing.next.as_ref())})))
}

async fn delete_bucket(
    State(app): State<App>,
    caller: Caller,
    Names((owner, bucket)): Names<(String, String)>,
) -> Result<Answer<Value>, Problem> {
    let deleted = app.stores.attributes(&caller.scope).bucket(owner, bucket)?.delete_bucket().await?;
    Ok(Answer(json!({ "deleted": deleted })))
}

async fn delete_owner(
    State(app): State<App>,
    caller: Caller,
    Names(owner): Names<String>,
) -> Result<Answer<Value>, Problem> {
    let deleted = app.stores.attributes(&caller.scope).delete_owner(&owner).await?;
    Ok(Answer(json!({ "deleted": deleted })))
}
