//! Calls about many approvals or relationships at once, and about the access of scopes.

use axum::extract::State;
use axum::http::StatusCode;
use ebbtide::Scope;
use ebbtide::stores::approvals::{ApprovalQuery, Approvals};
use ebbtide::stores::relationships::{Edge, RelationshipFilter, Relationships};
use ebbtide::stores::shared::extension::Extension;
use ebbtide_api::access::{
    ApprovalBatch, AttributeExtend, BatchChecked, DeleteAll, Reach, ReachedAnswer, RelationshipBatch,
    RelationshipExtend, RelationshipNames, ScopeAccess, ScopeAccessAnswer,
};
use ebbtide_api::answers::{AnswerMode, Deleted};
use ebbtide_api::approvals::ApprovalExtended;
use ebbtide_api::attributes::AttributeExtendNamed;
use utoipa_axum::routes;

use super::approvals::extended;
use super::attributes::by_body;
use crate::app::App;
use crate::http::auth::Caller;
use crate::http::body::{Json, Path};
use crate::http::problem::Problem;
use crate::http::table::Table;

pub(super) fn routes() -> Table {
    Table::new()
        .reader(routes!(check_approvals))
        .walks()
        .admin(routes!(delete_approvals))
        .walks()
        .reader(routes!(check_relationships))
        .walks()
        .admin(routes!(delete_relationships))
        .walks()
        .reader(routes!(reachable))
        .walks()
        .reader(routes!(reaching))
        .walks()
        .admin(routes!(extend_relationship))
        .admin(routes!(extend_attribute))
        .reader(routes!(access))
}

fn check_size(items: usize, most: usize) -> Result<(), Problem> {
    if (1..=most).contains(&items) {
        return Ok(());
    }
    Err(Problem::invalid(format!("items must have 1 to {most} entries")).with("member", "items"))
}

/// Answers 200 only if all outcomes are yes, or the request asks for an answer in any case.
fn all(outcomes: Vec<bool>, answer: Option<AnswerMode>, no: &str) -> Result<Json<BatchChecked>, Problem> {
    if answer == Some(AnswerMode::Always) || outcomes.iter().all(|yes| *yes) {
        return Ok(Json(BatchChecked { outcomes }));
    }
    Err(Problem::not_found(no).with("outcomes", outcomes))
}

/// Checks several approvals
#[utoipa::path(post, path = "/approvals/check-batch", operation_id = "check_approvals", tag = "approvals",
    request_body = ApprovalBatch,
    responses(
        (status = 200, description = "all are approved; or any outcomes, with `\"answer\": \"always\"`", body = BatchChecked),
        (status = 404, description = "unknown: `outcomes` says which are approved"),
    ))]
async fn check_approvals(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<ApprovalBatch>,
) -> Result<Json<BatchChecked>, Problem> {
    check_size(body.items.len(), Approvals::MAX_QUESTIONS)?;
    let questions: Vec<_> = body
        .items
        .iter()
        .map(|names| ApprovalQuery {
            identity: &names.identity,
            resource: &names.resource,
            action: &names.action,
        })
        .collect();
    let approvals = app.stores.approvals(&caller.scope);
    let mut outcomes = Vec::new();
    if body.below {
        for ApprovalQuery { identity, resource, action } in questions {
            outcomes.push(approvals.get_below(identity, resource, action).await?.is_some());
        }
    } else {
        outcomes = approvals.check_many(&questions).await?;
    }
    all(outcomes, body.answer, "not all are approved")
}

/// Deletes every approval of the scope, and writes to the audit log
#[utoipa::path(post, path = "/approvals/delete-all", operation_id = "delete_approvals", tag = "approvals",
    request_body = DeleteAll, responses((status = 200, body = Deleted)))]
async fn delete_approvals(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<DeleteAll>,
) -> Result<Json<Deleted>, Problem> {
    let context = caller.context(body.actor, body.reason)?;
    let deleted = app.stores.approvals(&caller.scope).delete_all(body.below, &context).await?;
    Ok(Json(Deleted { deleted }))
}

/// Checks several relationships
#[utoipa::path(post, path = "/relationships/check-batch", operation_id = "check_relationships",
    tag = "relationships",
    request_body = RelationshipBatch,
    responses(
        (status = 200, description = "all exist; or any outcomes, with `\"answer\": \"always\"`", body = BatchChecked),
        (status = 404, description = "unknown: `outcomes` says which exist"),
    ))]
async fn check_relationships(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<RelationshipBatch>,
) -> Result<Json<BatchChecked>, Problem> {
    check_size(body.items.len(), Relationships::MAX_QUESTIONS)?;
    let relationships = app.stores.relationships(&caller.scope);
    let mut outcomes = Vec::with_capacity(body.items.len());
    for RelationshipNames { subject, relation, object, relation_type } in body.items {
        if body.below {
            let filter = RelationshipFilter::new(Some(subject), Some(object)).relation(Some(relation));
            outcomes.push(relationships.get_below(filter.relation_type(relation_type)).await?.is_some());
            continue;
        }
        outcomes.push(match relation_type {
            Some(kind) => relationships.check(&Edge::new(subject, relation, object, kind)).await?,
            None => relationships.get_of_any_type(&subject, &relation, &object).await?.is_some(),
        });
    }
    all(outcomes, body.answer, "not all are related")
}

/// Deletes every relationship of the scope, and writes to the audit log
#[utoipa::path(post, path = "/relationships/delete-all", operation_id = "delete_relationships",
    tag = "relationships",
    request_body = DeleteAll, responses((status = 200, body = Deleted)))]
async fn delete_relationships(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<DeleteAll>,
) -> Result<Json<Deleted>, Problem> {
    let context = caller.context(body.actor, body.reason)?;
    let deleted = app.stores.relationships(&caller.scope).delete_all(body.below, &context).await?;
    Ok(Json(Deleted { deleted }))
}

/// Relationships of the caller's scope, and the depth of a search in them.
fn reach(app: &App, caller: &Caller, body: &Reach) -> (Relationships, usize) {
    let depth = body.max_depth.unwrap_or(Relationships::DEFAULT_DEPTH);
    (app.stores.relationships(&caller.scope), depth)
}

/// Lists every name that a subject reaches over relationships of one type and relation
#[utoipa::path(post, path = "/relationships/reachable", operation_id = "reachable", tag = "relationships",
    request_body = Reach, responses((status = 200, body = ReachedAnswer)))]
async fn reachable(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<Reach>,
) -> Result<Json<ReachedAnswer>, Problem> {
    let (relationships, depth) = reach(&app, &caller, &body);
    Ok(Json(relationships.reachable(&body.name, &body.relation, &body.relation_type, depth).await?.into()))
}

/// Lists every name that reaches an object over relationships of one type and relation
#[utoipa::path(post, path = "/relationships/reaching", operation_id = "reaching", tag = "relationships",
    request_body = Reach, responses((status = 200, body = ReachedAnswer)))]
async fn reaching(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<Reach>,
) -> Result<Json<ReachedAnswer>, Problem> {
    let (relationships, depth) = reach(&app, &caller, &body);
    Ok(Json(relationships.reaching(&body.name, &body.relation, &body.relation_type, depth).await?.into()))
}

/// Extends a relationship, and writes to the audit log
#[utoipa::path(post, path = "/relationships/extend", operation_id = "extend_relationship", tag = "relationships",
    request_body = RelationshipExtend,
    responses(
        (status = 200, body = ApprovalExtended),
        (status = 404, description = "unknown: no such relationship"),
        (status = 409, description = "conflict: it does not expire before that, or its cap is sooner"),
    ))]
async fn extend_relationship(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<RelationshipExtend>,
) -> Result<Json<ApprovalExtended>, Problem> {
    let context = caller.context(body.on_behalf_of, Some(body.reason))?;
    let extension = Extension::from_now_in(body.ttl, context);
    let edge = Edge::new(body.subject, body.relation, body.object, body.relation_type);
    let outcome = app.stores.relationships(&caller.scope).extend(&edge, &extension).await?;
    extended(outcome, "no such relationship")
}

/// Extends an attribute, and writes to the audit log
#[utoipa::path(post, path = "/attributes/{owner}/{bucket}/{name}/extend", operation_id = "extend_attribute",
    tag = "attributes",
    params(("owner" = String, Path), ("bucket" = String, Path), ("name" = String, Path)),
    request_body = AttributeExtend,
    responses(
        (status = 200, body = ApprovalExtended),
        (status = 404, description = "unknown: no such attribute"),
        (status = 409, description = "conflict: it does not expire before that, or its cap is sooner"),
    ))]
async fn extend_attribute(
    app: State<App>,
    caller: Caller,
    Path((owner, bucket, name)): Path<(String, String, String)>,
    Json(AttributeExtend { ttl, on_behalf_of, reason }): Json<AttributeExtend>,
) -> Result<Json<ApprovalExtended>, Problem> {
    let named = AttributeExtendNamed { owner, bucket, name, ttl, on_behalf_of, reason };
    by_body::extend(app, caller, Json(named)).await
}

/// Validates that a caller of one scope may act in another
#[utoipa::path(post, path = "/scopes/access", operation_id = "validate_scope_access", tag = "operator",
    request_body = ScopeAccess,
    responses((status = 200, description = "it may", body = ScopeAccessAnswer)))]
async fn access(caller: Caller, Json(body): Json<ScopeAccess>) -> Result<Json<ScopeAccessAnswer>, Problem> {
    let requested: Scope = body.requested.parse()?;
    let by = body.caller.map_or_else(|| Ok(caller.scope.clone()), |scope| scope.parse::<Scope>())?;
    let answer = ScopeAccessAnswer::new(&by, &requested);
    if answer.allowed {
        return Ok(Json(answer));
    }
    let refused = Problem::new(StatusCode::FORBIDDEN, "forbidden", "the caller's scope does not cover it");
    Err(refused.with("caller", answer.caller).with("requested", answer.requested))
}
