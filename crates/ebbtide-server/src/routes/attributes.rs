//! `/v1/attributes`

pub(super) mod by_body;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use ebbtide::stores::api_keys::Role;
use ebbtide::stores::attributes::{Bucket, ChangeOutcome, Draft};
use ebbtide::{Timestamp, Version};
use ebbtide_api::answers::{Deleted, Listed, millis};
use ebbtide_api::attributes::{
    AttributeAnswer, AttributeBuckets, AttributeDeleteAll, AttributeList, AttributeName, AttributeStamp,
    AttributeSwap, AttributeSwapNamed, BucketsAnswer,
};
use serde::{Deserialize, Serialize};
use utoipa_axum::routes;

use crate::app::App;
use crate::http::auth::Caller;
use crate::http::body::{Json, Query, Segments};
use crate::http::problem::Problem;
use crate::http::route::Verb;
use crate::http::table::Table;

pub(super) fn routes() -> Table {
    let read = (Verb::Get, Role::Reader, false);
    let buckets =
        |table: Table| table.alias(read, &["limit", "after", "usage"], |routes| routes.get(list_buckets));
    let table = Table::new()
        .reader(routes!(list_buckets))
        .reader(routes!(list))
        .reader(routes!(read_one))
        .creator(routes!(set))
        .writer(routes!(remove))
        .writer(routes!(compare_and_swap))
        .writer(routes!(delete_owner))
        .walks()
        .alias(read, &["limit", "after"], |routes| routes.get(list))
        .writer(routes!(delete_bucket))
        .walks()
        .alias(read, &[], |routes| routes.get(read_one))
        .alias((Verb::Put, Role::Writer, true), &[], |routes| routes.put(set))
        .alias((Verb::Delete, Role::Writer, false), &[], |routes| routes.delete(remove));
    // An owner may be called like one of these calls.
    by_body::tables().into_iter().fold(table, |table, call| table.merge(buckets(call)))
}

type Name = Segments<3>;

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

/// Refusal of a write that would lengthen a life which only the extend call lengthens.
fn longer(expires_at: Timestamp) -> Problem {
    let detail = "this would lengthen the life of an attribute; extend it with POST /v1/attributes/extend";
    Problem::conflict("conflict", detail).with("expires_at", millis(expires_at))
}

/// Bucket of a caller: its writes lengthen lives where the bucket leaves that free, or the caller may extend.
fn bucket_of(app: &App, caller: &Caller, owner: String, bucket: String) -> Result<Bucket, Problem> {
    let bucket = app.stores.attributes(&caller.scope).bucket(owner, bucket)?;
    Ok(if caller.may_extend("attributes/extend") { bucket } else { bucket.for_writer() })
}

/// Condition of a request on the present version.
enum Condition {
    None,
    Absent,
    Present,
    OneOf(Vec<Version>),
}

/// Most tags of an `If-Match`.
const MOST_TAGS: usize = 16;

/// Most attempts to replace an attribute in whichever version it has.
const MOST_ATTEMPTS: usize = 16;

fn condition(headers: &HeaderMap) -> Result<Condition, Problem> {
    let list = |name| {
        let values = headers.get_all(name).iter().map(HeaderValue::to_str);
        values.collect::<Result<Vec<_>, _>>().map(|values| values.join(","))
    };
    let unreadable = |_| Problem::invalid("a condition in a header is ASCII").with("member", "If-Match");
    let (if_match, if_none) = (list(header::IF_MATCH), list(header::IF_NONE_MATCH));
    let (if_match, if_none) = (if_match.map_err(unreadable)?, if_none.map_err(unreadable)?);
    match (if_match.trim(), if_none.trim()) {
        ("", "") => Ok(Condition::None),
        ("", "*") => Ok(Condition::Absent),
        ("*", "") => Ok(Condition::Present),
        (tags, "") => {
            let tags: Vec<_> = tags.split(',').map(str::trim).filter(|tag| !tag.is_empty()).collect();
            if tags.len() > MOST_TAGS {
                return Err(Problem::invalid(format!("If-Match takes at most {MOST_TAGS} tags"))
                    .with("member", "If-Match"));
            }
            // A weak tag, or one that is no version of ours, matches nothing.
            Ok(Condition::OneOf(
                tags.into_iter().filter_map(|tag| tag.trim_matches('"').parse().ok()).collect(),
            ))
        }
        _ => {
            Err(Problem::invalid("If-Match takes * or tags, and If-None-Match takes *; one of them is given")
                .with("member", "If-Match"))
        }
    }
}

/// Stores a value if the condition holds.
async fn write(bucket: &Bucket, name: &str, condition: Condition, draft: Draft) -> Result<Response, Problem> {
    let change = match condition {
        Condition::None => bucket.put(name, draft).await?,
        Condition::Absent => bucket.insert(name, draft).await?,
        Condition::Present => {
            let mut change = ChangeOutcome::Refused;
            for _ in 0..MOST_ATTEMPTS {
                let Some(found) = bucket.get(name).await? else { break };
                change = bucket.replace(name, found.version, draft.clone()).await?;
                if change != ChangeOutcome::Refused {
                    break;
                }
            }
            change
        }
        Condition::OneOf(versions) => {
            let mut change = ChangeOutcome::Refused;
            for version in versions {
                change = bucket.replace(name, version, draft.clone()).await?;
                if change != ChangeOutcome::Refused {
                    break;
                }
            }
            change
        }
    };
    match change {
        ChangeOutcome::Applied(written) => Ok(tagged(written.version, AttributeStamp::from(written))),
        ChangeOutcome::Longer { expires_at } => Err(longer(expires_at)),
        _ => Err(precondition_failed()),
    }
}

/// Deletes an attribute if the condition holds.
async fn erase(bucket: &Bucket, name: &str, condition: Condition) -> Result<StatusCode, Problem> {
    let (removed, refusal) = match condition {
        Condition::None => (bucket.delete(name).await?, unknown()),
        Condition::Present => (bucket.delete(name).await?, precondition_failed()),
        Condition::OneOf(versions) => {
            let mut removed = false;
            for version in versions {
                removed = removed || bucket.remove_if(name, version).await?;
            }
            (removed, precondition_failed())
        }
        Condition::Absent => {
            return Err(Problem::invalid("what is absent cannot be deleted").with("member", "If-None-Match"));
        }
    };
    if removed { Ok(StatusCode::NO_CONTENT) } else { Err(refusal) }
}

/// Reads an attribute
#[utoipa::path(get, path = "/attributes/{owner}/{bucket}/{name}", operation_id = "read_attribute", tag = "attributes",
    params(("owner" = String, Path), ("bucket" = String, Path), ("name" = String, Path)),
    responses(
        (status = 200, body = AttributeAnswer, headers(("etag" = String, description = "its version"))),
        (status = 404, description = "unknown"),
    ))]
async fn read_one(
    app: State<App>,
    caller: Caller,
    Segments([owner, bucket, name]): Name,
) -> Result<Response, Problem> {
    by_body::get(app, caller, Json(AttributeName { owner, bucket, name })).await
}

/// Sets an attribute; with a condition, only if it holds
#[utoipa::path(put, path = "/attributes/{owner}/{bucket}/{name}", operation_id = "set_attribute", tag = "attributes",
    params(
        ("owner" = String, Path), ("bucket" = String, Path), ("name" = String, Path),
        ("if-match" = Option<String>, Header, description = "one of these versions is required, or `*`: any"),
        ("if-none-match" = Option<String>, Header, description = "`*`: the attribute must not exist"),
    ),
    request_body = Draft,
    responses(
        (status = 200, body = AttributeStamp, headers(("etag" = String, description = "its version"))),
        (status = 409, description = "conflict: it would live longer than the one that exists; extend that"),
        (status = 412, description = "conflict: the attribute has another version, or does not exist"),
    ))]
async fn set(
    State(app): State<App>,
    caller: Caller,
    Segments([owner, bucket, name]): Name,
    headers: HeaderMap,
    Json(draft): Json<Draft>,
) -> Result<Response, Problem> {
    let bucket = bucket_of(&app, &caller, owner, bucket)?;
    write(&bucket, &name, condition(&headers)?, draft).await
}

/// Deletes an attribute; with a condition, only if it holds
#[utoipa::path(delete, path = "/attributes/{owner}/{bucket}/{name}", operation_id = "delete_attribute",
    tag = "attributes",
    params(
        ("owner" = String, Path), ("bucket" = String, Path), ("name" = String, Path),
        ("if-match" = Option<String>, Header, description = "one of these versions is required, or `*`: any"),
    ),
    responses(
        (status = 204, description = "it is gone"),
        (status = 404, description = "unknown"),
        (status = 412, description = "conflict: the attribute has another version, or does not exist"),
    ))]
async fn remove(
    State(app): State<App>,
    caller: Caller,
    Segments([owner, bucket, name]): Name,
    headers: HeaderMap,
) -> Result<StatusCode, Problem> {
    let bucket = app.stores.attributes(&caller.scope).bucket(owner, bucket)?;
    erase(&bucket, &name, condition(&headers)?).await
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
    app: State<App>,
    caller: Caller,
    Segments([owner, bucket, name]): Name,
    Json(AttributeSwap { old, new, ttl }): Json<AttributeSwap>,
) -> Result<Response, Problem> {
    by_body::compare_and_swap(app, caller, Json(AttributeSwapNamed { owner, bucket, name, old, new, ttl }))
        .await
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
    app: State<App>,
    caller: Caller,
    Segments([owner, bucket]): Segments<2>,
    Query(AttributePage { limit, after }): Query<AttributePage>,
) -> Result<Json<Listed<AttributeAnswer>>, Problem> {
    by_body::list(app, caller, Json(AttributeList { owner, bucket, limit, after })).await
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
    app: State<App>,
    caller: Caller,
    Segments([owner]): Segments<1>,
    Query(WhichBuckets { limit, after, usage }): Query<WhichBuckets>,
) -> Result<Json<BucketsAnswer>, Problem> {
    if usage {
        let usage = app.stores.attributes(&caller.scope).usage(&owner).await?;
        crate::metrics::tell_usage(&app.buckets, &caller.scope, &owner, &usage);
        return Ok(Json(BucketsAnswer::Usage(usage.into())));
    }
    let listed = by_body::list_buckets(app, caller, Json(AttributeBuckets { owner, limit, after })).await?;
    Ok(Json(BucketsAnswer::Page(listed.0)))
}

/// Deletes a bucket
#[utoipa::path(post, path = "/attributes/{owner}/{bucket}/delete-all", operation_id = "delete_bucket", tag = "attributes",
    params(("owner" = String, Path), ("bucket" = String, Path)),
    responses((status = 200, body = Deleted)))]
async fn delete_bucket(
    app: State<App>,
    caller: Caller,
    Segments([owner, bucket]): Segments<2>,
) -> Result<Json<Deleted>, Problem> {
    by_body::delete_all(app, caller, Json(AttributeDeleteAll { owner, bucket: Some(bucket) })).await
}

/// Deletes every attribute of an owner
///
/// The audit log has an entry when it begins and one when it has ended.
#[utoipa::path(post, path = "/attributes/{owner}/delete-all", operation_id = "delete_owner_attributes",
    tag = "attributes",
    params(("owner" = String, Path)),
    responses((status = 200, body = Deleted)))]
async fn delete_owner(
    app: State<App>,
    caller: Caller,
    Segments([owner]): Segments<1>,
) -> Result<Json<Deleted>, Problem> {
    by_body::delete_all(app, caller, Json(AttributeDeleteAll { owner, bucket: None })).await
}
