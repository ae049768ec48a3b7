//! Calls on attributes with the names in the body. Names of any form fit there, and stand in no log of a proxy.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use ebbtide::stores::attributes::{Bucket, Changes, Draft, SwapOutcome};
use ebbtide::stores::shared::extension::Extension;
use ebbtide::{Commit, Timestamp, Version};
use ebbtide_api::answers::{Deleted, Listed};
use ebbtide_api::approvals::ApprovalExtended;
use ebbtide_api::attributes::{
    AttributeAnswer, AttributeBuckets, AttributeDelete, AttributeDeleteAll, AttributeExtendNamed,
    AttributeIf, AttributeList, AttributeName, AttributePut, AttributeStamp, AttributeSwapNamed,
    AttributeWrite, AttributeWrites, AttributesWritten,
};
use utoipa_axum::routes;

use super::super::approvals::extended;
use super::{Condition, bucket_of, erase, longer, tagged, unknown, write};
use crate::app::App;
use crate::http::auth::Caller;
use crate::http::body::{Json, listed, page};
use crate::http::problem::Problem;
use crate::http::quota::Added;
use crate::http::table::Table;

/// Tables of one call each.
pub(super) fn tables() -> Vec<Table> {
    vec![
        Table::new().reader(routes!(get)),
        Table::new().creator(routes!(put)),
        Table::new().writer(routes!(delete)),
        Table::new().writer(routes!(compare_and_swap)),
        Table::new().reader(routes!(list)).walks(),
        Table::new().reader(routes!(list_buckets)).walks(),
        Table::new().writer(routes!(delete_all)).walks(),
        Table::new().writer(routes!(take)),
        Table::new().creator(routes!(commit)),
        Table::new().admin(routes!(extend)),
    ]
}

fn bucket(app: &App, caller: &Caller, owner: String, bucket: String) -> Result<Bucket, Problem> {
    bucket_of(app, caller, owner, bucket)
}

fn condition(given: Option<AttributeIf>) -> Result<Condition, Problem> {
    Ok(match given {
        None => Condition::None,
        Some(AttributeIf::Absent) => Condition::Absent,
        Some(AttributeIf::Present) => Condition::Present,
        Some(AttributeIf::Version(version)) => {
            let invalid = |_| {
                Problem::invalid("`if.version`: expected the `version` of an earlier answer")
                    .with("member", "if.version")
            };
            Condition::OneOf(vec![version.parse().map_err(invalid)?])
        }
    })
}

/// Bucket, name and draft of an attribute to set, and the condition.
fn split(app: &App, caller: &Caller, body: AttributePut) -> Result<Set, Problem> {
    let bucket = bucket(app, caller, body.owner, body.bucket)?;
    let mut draft = Draft::new(body.data).ttl(body.ttl).renewal(body.max_ttl, body.sliding);
    draft.timestamp = body.timestamp.map(Timestamp::from_millis).transpose()?;
    draft.belongs_to = body.belongs_to;
    Ok((bucket, body.name, draft, body.condition))
}

type Set = (Bucket, String, Draft, Option<AttributeIf>);

/// Reads an attribute by names in the body
#[utoipa::path(post, path = "/attributes/get", operation_id = "get_attribute_by_body", tag = "attributes",
    request_body = AttributeName,
    responses(
        (status = 200, body = AttributeAnswer, headers(("etag" = String, description = "its version"))),
        (status = 404, description = "unknown"),
    ))]
pub(super) async fn get(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<AttributeName>,
) -> Result<Response, Problem> {
    let found = bucket(&app, &caller, body.owner, body.bucket)?.get(&body.name).await?;
    found.map(|found| tagged(found.version, AttributeAnswer::from(&found))).ok_or_else(unknown)
}

/// Sets an attribute by names in the body; with `if`, only if it holds
#[utoipa::path(post, path = "/attributes/set", operation_id = "set_attribute_by_body", tag = "attributes",
    request_body = AttributePut,
    responses(
        (status = 200, body = AttributeStamp, headers(("etag" = String, description = "its version"))),
        (status = 409, description = "conflict: it would live longer than the one that exists; extend that"),
        (status = 412, description = "conflict: the attribute has another version, or does not exist"),
    ))]
async fn put(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<AttributePut>,
) -> Result<Response, Problem> {
    let (bucket, name, draft, given) = split(&app, &caller, body)?;
    write(&bucket, &name, condition(given)?, draft).await
}

/// Deletes an attribute by names in the body; with `if`, only if it holds
#[utoipa::path(post, path = "/attributes/delete", operation_id = "delete_attribute_by_body", tag = "attributes",
    request_body = AttributeDelete,
    responses(
        (status = 204, description = "it is gone"),
        (status = 404, description = "unknown"),
        (status = 412, description = "conflict: the attribute has another version, or does not exist"),
    ))]
async fn delete(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<AttributeDelete>,
) -> Result<StatusCode, Problem> {
    let bucket = bucket(&app, &caller, body.owner, body.bucket)?;
    erase(&bucket, &body.name, condition(body.condition)?).await
}

/// Changes an attribute, by names in the body, if its value is the old one
#[utoipa::path(post, path = "/attributes/compare-and-swap", operation_id = "swap_attribute_by_body",
    tag = "attributes",
    request_body = AttributeSwapNamed,
    responses(
        (status = 200, body = AttributeStamp, headers(("etag" = String, description = "its version"))),
        (status = 409, description = "conflict: the attribute has another value, or does not exist"),
    ))]
pub(super) async fn compare_and_swap(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<AttributeSwapNamed>,
) -> Result<Response, Problem> {
    let bucket = bucket(&app, &caller, body.owner, body.bucket)?;
    let draft = Draft::new(body.new).ttl(body.ttl);
    match bucket.compare_and_swap(&body.name, &body.old, draft).await? {
        SwapOutcome::Swapped(written) => Ok(tagged(written.version, AttributeStamp::from(written))),
        SwapOutcome::Longer { expires_at } => Err(longer(expires_at)),
        _ => Err(Problem::conflict("conflict", "the attribute has another value, or does not exist")),
    }
}

/// Lists a bucket by names in the body
#[utoipa::path(post, path = "/attributes/list", operation_id = "list_bucket_by_body", tag = "attributes",
    request_body = AttributeList, responses((status = 200, body = Listed<AttributeAnswer>)))]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<AttributeList>,
) -> Result<Json<Listed<AttributeAnswer>>, Problem> {
    let (after, limit) = page(body.limit, body.after.as_deref())?;
    let bucket = bucket(&app, &caller, body.owner, body.bucket)?;
    Ok(Json(listed(&bucket.list(after.as_ref(), limit).await?)))
}

/// Lists the names of an owner's buckets, with the owner in the body
#[utoipa::path(post, path = "/attributes/list-buckets", operation_id = "list_buckets_by_body", tag = "attributes",
    request_body = AttributeBuckets, responses((status = 200, body = Listed<String>)))]
pub(super) async fn list_buckets(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<AttributeBuckets>,
) -> Result<Json<Listed<String>>, Problem> {
    let (after, limit) = page(body.limit, body.after.as_deref())?;
    let listing =
        app.stores.attributes(&caller.scope).list_buckets(&body.owner, after.as_ref(), limit).await?;
    Ok(Json(listed::<String, String>(&listing)))
}

/// Deletes a bucket, or every attribute of an owner, by names in the body
///
/// The deletion of everything of an owner is in the audit log, when it begins and when it has ended.
#[utoipa::path(post, path = "/attributes/delete-all", operation_id = "delete_all_by_body", tag = "attributes",
    request_body = AttributeDeleteAll, responses((status = 200, body = Deleted)))]
pub(super) async fn delete_all(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<AttributeDeleteAll>,
) -> Result<Json<Deleted>, Problem> {
    let deleted = if let Some(name) = body.bucket {
        bucket(&app, &caller, body.owner, name)?.delete_bucket().await?
    } else {
        let context = caller.context(None, None)?;
        app.stores.attributes(&caller.scope).delete_owner_audited(&body.owner, &context).await?
    };
    Ok(Json(Deleted { deleted }))
}

/// Reads an attribute and removes it: of any number of callers, one gets it
#[utoipa::path(post, path = "/attributes/take", operation_id = "take_attribute", tag = "attributes",
    request_body = AttributeName,
    responses((status = 200, body = AttributeAnswer), (status = 404, description = "unknown")))]
async fn take(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<AttributeName>,
) -> Result<Response, Problem> {
    let taken = bucket(&app, &caller, body.owner, body.bucket)?.take(&body.name).await?;
    taken.map(|taken| tagged(taken.version, AttributeAnswer::from(&taken))).ok_or_else(unknown)
}

/// Makes several changes together, or none
///
/// They are to distinct attributes.
#[utoipa::path(post, path = "/attributes/commit", operation_id = "commit_attributes", tag = "attributes",
    request_body = AttributeWrites,
    responses(
        (status = 200, body = AttributesWritten),
        (status = 409, description = "conflict: `index` names the first change whose condition did not hold"),
    ))]
async fn commit(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<AttributeWrites>,
) -> Result<(axum::Extension<Added>, Json<AttributesWritten>), Problem> {
    if body.writes.len() > MOST_WRITES {
        return Err(Problem::invalid(format!("writes: at most {MOST_WRITES} are made together"))
            .with("member", "writes"));
    }
    let mut changes = app.stores.attributes(&caller.scope).changes();
    for write in body.writes {
        changes = add(changes, &app, &caller, write)?;
    }
    let stamps = changes.stamps();
    match changes.commit().await? {
        Commit::Applied => {
            let added = Added(stamps.iter().flatten().count() as u64);
            let items = stamps.into_iter().map(|stamp| stamp.map(Into::into)).collect();
            Ok((axum::Extension(added), Json(AttributesWritten { items })))
        }
        Commit::Refused { index } => {
            let problem =
                Problem::conflict("conflict", "the condition of a change did not hold; none was made");
            Err(problem.with("index", index))
        }
    }
}

/// Most changes of one commit; a batch also checks their owners.
const MOST_WRITES: usize = 90;

fn version(text: &str) -> Result<Version, Problem> {
    text.parse().map_err(|_| {
        Problem::invalid("version: expected the `version` of an earlier answer").with("member", "version")
    })
}

fn add(changes: Changes, app: &App, caller: &Caller, write: AttributeWrite) -> Result<Changes, Problem> {
    let present =
        || Problem::invalid("`if`: expected \"absent\" or a version in a commit").with("member", "if");
    Ok(match write {
        AttributeWrite::Set(body) => {
            let (bucket, name, draft, given) = split(app, caller, body)?;
            match given {
                None => changes.set(&bucket, &name, draft),
                Some(AttributeIf::Absent) => changes.insert(&bucket, &name, draft),
                Some(AttributeIf::Version(text)) => changes.replace(&bucket, &name, version(&text)?, draft),
                Some(AttributeIf::Present) => return Err(present()),
            }
        }
        AttributeWrite::Delete(body) => {
            let bucket = bucket(app, caller, body.owner, body.bucket)?;
            match body.condition {
                None => changes.delete(&bucket, &body.name),
                Some(AttributeIf::Version(text)) => changes.remove_if(&bucket, &body.name, version(&text)?),
                Some(_) => return Err(present()),
            }
        }
        AttributeWrite::Check(body) => {
            let bucket = bucket(app, caller, body.owner, body.bucket)?;
            changes.check(&bucket, &body.name, version(&body.version)?)
        }
    })
}

/// Extends an attribute by names in the body, and writes to the audit log
#[utoipa::path(post, path = "/attributes/extend", operation_id = "extend_attribute_by_body", tag = "attributes",
    request_body = AttributeExtendNamed,
    responses(
        (status = 200, body = ApprovalExtended),
        (status = 404, description = "unknown: no such attribute"),
        (status = 409, description = "conflict: it does not expire before that, or its cap is sooner"),
    ))]
pub(in crate::routes) async fn extend(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<AttributeExtendNamed>,
) -> Result<Json<ApprovalExtended>, Problem> {
    let context = caller.context(body.on_behalf_of, Some(body.reason))?;
    let bucket = bucket(&app, &caller, body.owner, body.bucket)?;
    let outcome = bucket.extend(&body.name, &Extension::from_now_in(body.ttl, context)).await?;
    extended(outcome, "no such attribute")
}
