//! `/v1/attributes`

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use ebbtide::Version;
use ebbtide::stores::attributes::{ChangeOutcome, Draft, SwapOutcome};
use ebbtide_api::answers::{Deleted, Listed};
use ebbtide_api::attributes::{AttributeAnswer, AttributeStamp, AttributeSwap, BucketsAnswer};
use serde::{Deserialize, Serialize};
use utoipa_axum::routes;

use crate::app::App;
use crate::http::auth::Caller;
use crate::http::body::{Json, Path, Query, listed, page};
use crate::http::problem::Problem;
use crate::http::table::Table;

pub(super) fn routes() -> Table {
    Table::new()
        .reader(routes!(list_buckets))
        .writer(routes!(delete_owner))
        .reader(routes!(list))
        .writer(routes!(delete_bucket))
        .reader(routes!(read))
        .creator(routes!(set))
        .writer(routes!(remove))
        .writer(routes!(compare_and_swap))
}

type Name = Path<(String, String, String)>;

fn tagged(version: Version, answer: impl Serialize) -> Response {
    let mut response = Json(answer).into_response();
    let tag = HeaderValue::from_str(&format!("\"{version}\"")).expect("hexadecimal digits are a good header");
    response.headers_mut().insert(header::ETAG, tag);
    response
}

fn unknown() -> Problem {
    Problem::not_found("no such attribute")
}

fn precondition_failed() -> Problem {
    Problem::new(
        StatusCode::PRECONDITION_FAILED,
        "conflict",
        "the attribute has another version, or does not exist",
    )
}

/// Condition of the request on the present version.
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

/// Reads an attribute
#[utoipa::path(get, path = "/attributes/{owner}/{bucket}/{name}", operation_id = "read_attribute", tag = "attributes",
    params(("owner" = String, Path), ("bucket" = String, Path), ("name" = String, Path)),
    responses(
        (status = 200, body = AttributeAnswer, headers(("etag" = String, description = "its version"))),
        (status = 404, description = "unknown"),
    ))]
async fn read(
    State(app): State<App>,
    caller: Caller,
    Path((owner, bucket, name)): Name,
) -> Result<Response, Problem> {
    let found = app.stores.attributes(&caller.scope).bucket(owner, bucket)?.get(&name).await?;
    found.map(|found| tagged(found.version, AttributeAnswer::from(&found))).ok_or_else(unknown)
}

/// Sets an attribute; with a condition, only if it holds
#[utoipa::path(put, path = "/attributes/{owner}/{bucket}/{name}", operation_id = "set_attribute", tag = "attributes",
    params(
        ("owner" = String, Path), ("bucket" = String, Path), ("name" = String, Path),
        ("if-match" = Option<String>, Header, description = "present version that is required"),
        ("if-none-match" = Option<String>, Header, description = "`*`: the attribute must not exist"),
    ),
    request_body = Draft,
    responses(
        (status = 200, body = AttributeStamp, headers(("etag" = String, description = "its version"))),
        (status = 412, description = "conflict: the attribute has another version, or does not exist"),
    ))]
async fn set(
    State(app): State<App>,
    caller: Caller,
    Path((owner, bucket, name)): Name,
    headers: HeaderMap,
    Json(draft): Json<Draft>,
) -> Result<Response, Problem> {
    let bucket = app.stores.attributes(&caller.scope).bucket(owner, bucket)?;
    let change = match condition(&headers)? {
        Condition::None => ChangeOutcome::Applied(bucket.set(&name, draft).await?),
        Condition::Absent => bucket.insert(&name, draft).await?,
        Condition::Version(expected) => bucket.replace(&name, expected, draft).await?,
    };
    match change {
        ChangeOutcome::Applied(written) => Ok(tagged(written.version, AttributeStamp::from(written))),
        ChangeOutcome::Refused => Err(precondition_failed()),
    }
}

/// Deletes an attribute; with a condition, only if it holds
#[utoipa::path(delete, path = "/attributes/{owner}/{bucket}/{name}", operation_id = "delete_attribute",
    tag = "attributes",
    params(
        ("owner" = String, Path), ("bucket" = String, Path), ("name" = String, Path),
        ("if-match" = Option<String>, Header, description = "present version that is required"),
    ),
    responses(
        (status = 204, description = "it is gone"),
        (status = 404, description = "unknown"),
        (status = 412, description = "conflict: the attribute has another version, or does not exist"),
    ))]
async fn remove(
    State(app): State<App>,
    caller: Caller,
    Path((owner, bucket, name)): Name,
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

/// Changes an attribute if its value is the old one
#[utoipa::path(post, path = "/attributes/{owner}/{bucket}/{name}/compare-and-swap", operation_id = "swap_attribute",
    tag = "attributes",
    params(("owner" = String, Path), ("bucket" = String, Path), ("name" = String, Path)),
    request_body = AttributeSwap,
    responses(
        (status = 200, body = AttributeStamp, headers(("etag" = String, description = "its version"))),
        (status = 409, description = "conflict: the attribute has another value, or does not exist"),
    ))]
async fn compare_and_swap(
    State(app): State<App>,
    caller: Caller,
    Path((owner, bucket, name)): Name,
    Json(body): Json<AttributeSwap>,
) -> Result<Response, Problem> {
    let draft = Draft::new(body.new).ttl(body.ttl);
    let bucket = app.stores.attributes(&caller.scope).bucket(owner, bucket)?;
    match bucket.compare_and_swap(&name, &body.old, draft).await? {
        SwapOutcome::Swapped(written) => Ok(tagged(written.version, AttributeStamp::from(written))),
        SwapOutcome::Conflict { .. } => {
            Err(Problem::conflict("conflict", "the attribute has another value, or does not exist"))
        }
    }
}

/// Page of a listing.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct AttributePage {
    /// 1 to 1,000 items; 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// The `next` of the page before.
    after: Option<String>,
}

/// Lists a bucket
#[utoipa::path(get, path = "/attributes/{owner}/{bucket}", operation_id = "list_bucket", tag = "attributes",
    params(("owner" = String, Path), ("bucket" = String, Path), AttributePage),
    responses((status = 200, body = Listed<AttributeAnswer>)))]
async fn list(
    State(app): State<App>,
    caller: Caller,
    Path((owner, bucket)): Path<(String, String)>,
    Query(asked): Query<AttributePage>,
) -> Result<Json<Listed<AttributeAnswer>>, Problem> {
    let (after, limit) = page(asked.limit, asked.after.as_deref())?;
    let bucket = app.stores.attributes(&caller.scope).bucket(owner, bucket)?;
    Ok(Json(listed(&bucket.list(after.as_ref(), limit).await?)))
}

/// Buckets of an owner.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WhichBuckets {
    /// 1 to 1,000 items; 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// The `next` of the page before.
    after: Option<String>,
    /// Answers the counts and bytes of every bucket instead; reads all attributes of the owner.
    #[serde(default)]
    usage: bool,
}

/// Lists the names of an owner's buckets, or their counts and bytes
#[utoipa::path(get, path = "/attributes/{owner}", operation_id = "list_buckets", tag = "attributes",
    params(("owner" = String, Path), WhichBuckets),
    responses((status = 200, body = BucketsAnswer)))]
async fn list_buckets(
    State(app): State<App>,
    caller: Caller,
    Path(owner): Path<String>,
    Query(asked): Query<WhichBuckets>,
) -> Result<Json<BucketsAnswer>, Problem> {
    if asked.usage {
        let usage = app.stores.attributes(&caller.scope).usage(&owner).await?;
        crate::metrics::tell_usage(&caller.scope, &owner, &usage);
        return Ok(Json(BucketsAnswer::Usage(usage.into())));
    }
    let (after, limit) = page(asked.limit, asked.after.as_deref())?;
    let listing = app.stores.attributes(&caller.scope).list_buckets(&owner, after.as_ref(), limit).await?;
    Ok(Json(BucketsAnswer::Page(listed::<String, String>(&listing))))
}

/// Deletes a bucket
#[utoipa::path(delete, path = "/attributes/{owner}/{bucket}", operation_id = "delete_bucket", tag = "attributes",
    params(("owner" = String, Path), ("bucket" = String, Path)),
    responses((status = 200, body = Deleted)))]
async fn delete_bucket(
    State(app): State<App>,
    caller: Caller,
    Path((owner, bucket)): Path<(String, String)>,
) -> Result<Json<Deleted>, Problem> {
    let deleted = app.stores.attributes(&caller.scope).bucket(owner, bucket)?.delete_bucket().await?;
    Ok(Json(Deleted { deleted }))
}

/// Deletes every attribute of an owner
#[utoipa::path(delete, path = "/attributes/{owner}", operation_id = "delete_owner_attributes", tag = "attributes",
    params(("owner" = String, Path)),
    responses((status = 200, body = Deleted)))]
async fn delete_owner(
    State(app): State<App>,
    caller: Caller,
    Path(owner): Path<String>,
) -> Result<Json<Deleted>, Problem> {
    let deleted = app.stores.attributes(&caller.scope).delete_owner(&owner).await?;
    Ok(Json(Deleted { deleted }))
}
