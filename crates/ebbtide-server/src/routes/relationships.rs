//! `/v1/relationships`

use axum::extract::State;
use axum::http::StatusCode;
use ebbtide::stores::relationships::{
    AddOutcome, Edge, RelationType, Relationship, RelationshipFilter, Relationships, TransitiveOutcome,
};
use ebbtide_api::access::Counted;
use ebbtide_api::answers::AnswerMode;
use ebbtide_api::relationships::{
    RelationshipAnswer, RelationshipCheck, RelationshipFound, RelationshipLifetime, RelationshipsAnswer,
};
use serde::Deserialize;
use utoipa_axum::routes;

use crate::app::App;
use crate::http::auth::Caller;
use crate::http::body::{Json, Query, listed, millis, page};
use crate::http::problem::Problem;
use crate::http::table::Table;

pub(super) fn routes() -> Table {
    Table::new()
        .reader(routes!(list))
        .creator(routes!(add))
        .writer(routes!(remove))
        .reader(routes!(check))
        .may_walk()
}

/// Adds a relationship, and replaces the one that exists
#[utoipa::path(put, path = "/relationships", operation_id = "add_relationship", tag = "relationships",
    request_body = Relationship, responses((status = 200, body = RelationshipAnswer),
        (status = 409, description = "conflict: it would live longer than the one that exists; extend that")))]
async fn add(
    State(app): State<App>,
    caller: Caller,
    Json(relationship): Json<Relationship>,
) -> Result<Json<RelationshipAnswer>, Problem> {
    let relationships = app.stores.relationships(&caller.scope);
    if caller.may_extend("relationships/extend") {
        return Ok(Json(RelationshipAnswer::from(&relationships.add(&relationship).await?)));
    }
    match relationships.add_no_longer(&relationship).await? {
        AddOutcome::Added(related) => Ok(Json(RelationshipAnswer::from(related.as_ref()))),
        AddOutcome::Longer { expires_at } => {
            let detail = "this would lengthen the life of a relationship; extend it with POST /v1/relationships/extend";
            Err(Problem::conflict("conflict", detail).with("expires_at", millis(expires_at)))
        }
        _ => Err(Problem::not_found("no such relationship")),
    }
}

/// Relationships that have the names that are given.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct RelationshipEnd {
    /// Without this and `object`, every relationship of the scope is read.
    #[param(example = "alice")]
    subject: Option<String>,
    object: Option<String>,
    relation: Option<String>,
    /// `role`, `trust`, `membership`, `ownership`, `delegation` or `custom:NAME`.
    relation_type: Option<String>,
    /// Includes the scopes that the request's covers. It reads every relationship of those scopes.
    #[serde(default)]
    below: bool,
    /// Answers `{"count": …}` instead of a list.
    #[serde(default)]
    count: bool,
    /// 1 to 1,000 items; 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// The `next` of the page before.
    after: Option<String>,
}

/// Lists or counts the relationships of a subject, of an object, of a scope and below
#[utoipa::path(get, path = "/relationships", operation_id = "list_relationships", tag = "relationships",
    params(RelationshipEnd),
    responses((status = 200, body = RelationshipsAnswer)))]
async fn list(
    State(app): State<App>,
    caller: Caller,
    Query(from): Query<RelationshipEnd>,
) -> Result<Json<RelationshipsAnswer>, Problem> {
    let relationships = app.stores.relationships(&caller.scope);
    let kind = from.relation_type.map(|text| text.parse::<RelationType>()).transpose()?;
    let (after, limit) = page(from.limit, from.after.as_deref())?;
    let filter = RelationshipFilter::new(from.subject, from.object).relation(from.relation);
    let filter = filter.relation_type(kind).below(from.below);
    if from.count {
        let count = relationships.count_found(&filter).await?;
        return Ok(Json(RelationshipsAnswer::Count(Counted { count })));
    }
    let listing = relationships.find(&filter, after.as_ref(), limit).await?;
    Ok(Json(RelationshipsAnswer::Page(listed(&listing))))
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
    /// Name that the caller acts for, for the audit log. The id of the key is in the log anyway.
    #[serde(rename = "on_behalf_of", alias = "actor")]
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
    let depth = body.max_depth.unwrap_or(Relationships::DEFAULT_DEPTH);
    let answer = body.answer;
    let not_related = move |problem: Problem| match answer {
        Some(AnswerMode::Always) => Ok(Json(RelationshipFound::none())),
        None => Err(problem),
    };
    let RelationshipCheck { subject, relation, object, relation_type, .. } = body;
    if !body.transitive {
        let path = vec![subject.clone(), object.clone()];
        let found = if body.below {
            let filter = RelationshipFilter::new(Some(subject), Some(object));
            let filter = filter.relation(Some(relation)).relation_type(relation_type);
            let find = async move { relationships.get_below(filter).await };
            Box::pin(app.walk(&caller, find)).await??
        } else if let Some(kind) = relation_type {
            relationships.get(&Edge::new(subject, relation, object, kind)).await?
        } else if let Some(found) = relationships.get_of_named_type(&subject, &relation, &object).await? {
            Some(found)
        } else {
            // The custom types of a subject may be many.
            let any = async move { relationships.get_of_any_type(&subject, &relation, &object).await };
            Box::pin(app.walk(&caller, any)).await??
        };
        let Some(found) = found else { return not_related(Problem::not_found("not related")) };
        let life = Some(RelationshipLifetime::from(&found));
        return Ok(Json(RelationshipFound { related: true, path, life }));
    }
    if body.below {
        return Err(Problem::invalid("below and transitive exclude each other").with("member", "below"));
    }
    let kinds = relation_type.map_or(vec![RelationType::Trust, RelationType::Membership], |kind| vec![kind]);
    let search = async move {
        let mut cut_short = false;
        for kind in kinds {
            let edge = Edge::new(&subject, &relation, &object, kind);
            match relationships.check_transitive(&edge, depth).await? {
                TransitiveOutcome::Related { path } => {
                    return Ok(Json(RelationshipFound { related: true, path, life: None }));
                }
                TransitiveOutcome::NotRelated { depth_reached } => cut_short |= depth_reached,
                _ => {}
            }
        }
        not_related(Problem::not_found("not related").with("depth_reached", cut_short))
    };
    app.walk(&caller, search).await?
}
