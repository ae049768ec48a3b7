//! `/v1/relationships`

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::StatusCode;
use ebbtide::stores::relationships::{
    Edge, Related, RelationType, Relationship, Relationships, TransitiveOutcome,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::routes;

use crate::app::App;
use crate::http::auth::Caller;
use crate::http::body::{Json, Query, listed, millis, page, ttl};
use crate::http::problem::Problem;
use crate::http::table::Table;
use ebbtide_api::answers::Listed;

pub(super) fn routes() -> Table {
    Table::new().reader(routes!(list)).creator(routes!(add)).writer(routes!(remove)).reader(routes!(check))
}

/// `membership`, or `{"custom": "…"}`.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum RelationshipType {
    Role,
    Trust,
    Membership,
    Ownership,
    Delegation,
    Custom(String),
}

impl From<RelationshipType> for RelationType {
    fn from(given: RelationshipType) -> Self {
        match given {
            RelationshipType::Role => Self::Role,
            RelationshipType::Trust => Self::Trust,
            RelationshipType::Membership => Self::Membership,
            RelationshipType::Ownership => Self::Ownership,
            RelationshipType::Delegation => Self::Delegation,
            RelationshipType::Custom(name) => Self::Custom(name),
        }
    }
}

impl From<&RelationType> for RelationshipType {
    fn from(stored: &RelationType) -> Self {
        match stored {
            RelationType::Role => Self::Role,
            RelationType::Trust => Self::Trust,
            RelationType::Membership => Self::Membership,
            RelationType::Ownership => Self::Ownership,
            RelationType::Delegation => Self::Delegation,
            RelationType::Custom(name) => Self::Custom(name.clone()),
        }
    }
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct RelationshipAdd {
    #[schema(min_length = 1, example = "alice")]
    subject: String,
    #[schema(min_length = 1, example = "member")]
    relation: String,
    #[schema(min_length = 1, example = "staff")]
    object: String,
    relation_type: RelationshipType,
    #[schema(min_length = 1, example = "admin")]
    created_by: String,
    /// Without it, it does not end.
    #[schema(minimum = 1)]
    ttl_seconds: Option<i64>,
    #[serde(default)]
    metadata: BTreeMap<String, String>,
}

/// Adds a relationship; one that stands there gives way to it
#[utoipa::path(put, path = "/relationships", operation_id = "add_relationship", tag = "relationships",
    request_body = RelationshipAdd, responses((status = 200, body = RelationshipAnswer)))]
async fn add(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<RelationshipAdd>,
) -> Result<Json<RelationshipAnswer>, Problem> {
    let edge = Edge::new(body.subject, body.relation, body.object, body.relation_type.into());
    let mut relationship = Relationship::new(edge, body.created_by).with_scope(caller.scope.clone());
    if let Some(ttl) = ttl(body.ttl_seconds)? {
        relationship = relationship.with_ttl(ttl);
    }
    for (name, value) in body.metadata {
        relationship = relationship.with_metadata(name, value);
    }
    let related = app.stores.relationships(&caller.scope).add(&relationship).await?;
    Ok(Json(RelationshipAnswer::from(&related)))
}

#[derive(Serialize, ToSchema)]
struct RelationshipAnswer {
    subject: String,
    relation: String,
    object: String,
    relation_type: RelationshipType,
    created_by: String,
    created_at: Option<u64>,
    expires_at: Option<u64>,
    metadata: BTreeMap<String, String>,
    scope: String,
}

impl From<&Related> for RelationshipAnswer {
    fn from(related: &Related) -> Self {
        Self {
            subject: related.edge.subject.clone(),
            relation: related.edge.relation.clone(),
            object: related.edge.object.clone(),
            relation_type: RelationshipType::from(&related.edge.relation_type),
            created_by: related.created_by.clone(),
            created_at: millis(related.created_at),
            expires_at: millis(related.expires_at),
            metadata: related.metadata.clone(),
            scope: related.scope.to_string(),
        }
    }
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

/// Which one, by whom and why.
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
    /// For the audit log; whoever does not say is the holder of the key.
    actor: Option<String>,
    reason: Option<String>,
}

/// Removes a relationship, and tells the audit log
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

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct RelationshipCheck {
    #[schema(min_length = 1, example = "alice")]
    subject: String,
    #[schema(min_length = 1, example = "member")]
    relation: String,
    #[schema(min_length = 1, example = "staff")]
    object: String,
    relation_type: RelationshipType,
    /// Makes no difference: what was added can be asked for as it was written.
    #[serde(rename = "created_by")]
    _created_by: Option<String>,
    /// Makes no difference.
    #[serde(rename = "ttl_seconds")]
    _ttl_seconds: Option<i64>,
    /// Makes no difference.
    #[serde(rename = "metadata")]
    _metadata: Option<BTreeMap<String, String>>,
    /// Over several steps, for trust and membership.
    #[serde(default)]
    transitive: bool,
    /// How many steps at the most; 10 by default.
    #[schema(minimum = 1)]
    max_depth: Option<usize>,
}

#[derive(Serialize, ToSchema)]
struct RelationshipFound {
    related: bool,
    /// From the subject to the object.
    path: Vec<String>,
}

/// Whether a subject is related to an object
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
    let edge = Edge::new(body.subject, body.relation, body.object, body.relation_type.into());
    let not_related = || Problem::not_found("not related");
    if !body.transitive {
        let related = relationships.check(&edge).await?;
        let path = vec![edge.subject, edge.object];
        return related.then_some(Json(RelationshipFound { related, path })).ok_or_else(not_related);
    }
    let depth = body.max_depth.unwrap_or(Relationships::DEFAULT_DEPTH);
    match relationships.check_transitive(&edge, depth).await? {
        TransitiveOutcome::Related { path } => Ok(Json(RelationshipFound { related: true, path })),
        TransitiveOutcome::NotRelated { depth_reached } => {
            Err(not_related().with("depth_reached", depth_reached))
        }
    }
}
