//! `/v1/relationships`

use axum::extract::State;
use axum::http::StatusCode;
use ebbtide::stores::relationships::{Edge, RelationType, Relationship, Relationships, TransitiveOutcome};
use ebbtide_api::answers::{AnswerMode, Listed};
use ebbtide_api::relationships::{RelationshipAnswer, RelationshipCheck, RelationshipFound};
use serde::Deserialize;
use utoipa_axum::routes;

use crate::app::App;
use crate::http::auth::Caller;
use crate::http::body::{Json, Query, listed, page};
use crate::http::problem::Problem;
use crate::http::table::Table;

pub(super) fn routes() -> Table {
    Table::new().reader(routes!(list)).creator(routes!(add)).writer(routes!(remove)).reader(routes!(check))
}

/// Adds a relationship, and replaces the one that exists
#[utoipa::path(put, path = "/relationships", operation_id = "add_relationship", tag = "relationships",
    request_body = Relationship, responses((status = 200, body = RelationshipAnswer)))]
async fn add(
    State(app): State<App>,
    caller: Caller,
    Json(relationship): Json<Relationship>,
) -> Result<Json<RelationshipAnswer>, Problem> {
    let related = app.stores.relationships(&caller.scope).add(&relationship).await?;
    Ok(Json(RelationshipAnswer::from(&related)))
}

/// Forward from a subject, or reverse from an object.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct RelationshipEnd {
    /// Either this or `object`.
    #[param(example = "alice")]
    subject: Option<String>,
    object: Option<String>,
    /// `role`, `trust`, `membership`, `ownership`, `delegation` or `custom:NAME`.
    relation_type: Option<String>,
    /// 1 to 1,000 items; 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// The `next` of the page before.
    after: Option<String>,
}

/// Lists the relationships of a subject, or of an object
#[utoipa::path(get, path = "/relationships", operation_id = "list_relationships", tag = "relationships",
    params(RelationshipEnd),
    responses((status = 200, body = Listed<RelationshipAnswer>)))]
async fn list(
    State(app): State<App>,
    caller: Caller,
    Query(from): Query<RelationshipEnd>,
) -> Result<Json<Listed<RelationshipAnswer>>, Problem> {
    let relationships = app.stores.relationships(&caller.scope);
    let kind = from.relation_type.map(|text| text.parse::<RelationType>()).transpose()?;
    let (after, limit) = page(from.limit, from.after.as_deref())?;
    let listing = match (from.subject, from.object) {
        (Some(subject), None) => relationships.list(&subject, kind.as_ref(), after.as_ref(), limit).await?,
        (None, Some(object)) => {
            relationships.list_reverse(&object, kind.as_ref(), after.as_ref(), limit).await?
        }
        _ => return Err(Problem::invalid("either subject or object is given")),
    };
    Ok(Json(listed(&listing)))
}

/// Relationship to remove, with the actor and the reason.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct RelationshipRemove {
    #[param(min_length = 1, example = "alice")]
    subject: String,
    #[param(min_length = 1, example = "member")]
    relation: String,
    #[param(min_length = 1, example = "staff")]
    object: String,
    /// `role`, `trust`, `membership`, `ownership`, `delegation` or `custom:NAME`.
    #[param(example = "membership")]
    relation_type: String,
    /// Actor for the audit log; the holder of the key by default.
    actor: Option<String>,
    reason: Option<String>,
}

/// Removes a relationship, and writes to the audit log
#[utoipa::path(delete, path = "/relationships", operation_id = "remove_relationship", tag = "relationships",
    params(RelationshipRemove),
    responses((status = 204, description = "it is gone"), (status = 404, description = "unknown")))]
async fn remove(
    State(app): State<App>,
    caller: Caller,
    Query(body): Query<RelationshipRemove>,
) -> Result<StatusCode, Problem> {
    let edge = Edge::new(body.subject, body.relation, body.object, body.relation_type.parse()?);
    let context = caller.context(body.actor, body.reason)?;
    let removed = app.stores.relationships(&caller.scope).remove(&edge, &context).await?;
    removed.then_some(StatusCode::NO_CONTENT).ok_or_else(|| Problem::not_found("no such relationship"))
}

/// Checks that a subject is related to an object
#[utoipa::path(post, path = "/relationships/check", operation_id = "check_relationship", tag = "relationships",
    request_body = RelationshipCheck,
    responses(
        (status = 200, body = RelationshipFound),
        (status = 404, description = "unknown: not related; `depth_reached` says whether the search was cut short"),
    ))]
async fn check(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<RelationshipCheck>,
) -> Result<Json<RelationshipFound>, Problem> {
    let relationships = app.stores.relationships(&caller.scope);
    let (transitive, max_depth, answer) = (body.transitive, body.max_depth, body.answer);
    let edge = Edge::from(body);
    let not_related = |problem: Problem| match answer {
        Some(AnswerMode::Always) => Ok(Json(RelationshipFound { related: false, path: Vec::new() })),
        None => Err(problem),
    };
    if !transitive {
        if !relationships.check(&edge).await? {
            return not_related(Problem::not_found("not related"));
        }
        let path = vec![edge.subject, edge.object];
        return Ok(Json(RelationshipFound { related: true, path }));
    }
    let depth = max_depth.unwrap_or(Relationships::DEFAULT_DEPTH);
    match relationships.check_transitive(&edge, depth).await? {
        TransitiveOutcome::Related { path } => Ok(Json(RelationshipFound { related: true, path })),
        TransitiveOutcome::NotRelated { depth_reached } => {
            not_related(Problem::not_found("not related").with("depth_reached", depth_reached))
        }
    }
}
