//! `/v1/relationships`

use std::collections::BTreeMap;

use axum::Json as Answer;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{delete, get, post, put};
use ebbtide::stores::relationships::{Edge, Related, RelationType, Relationship, Relationships, Transitive};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::App;
use crate::auth::Caller;
use crate::body::{Asked, Json, PageAsked, millis, next, ttl};
use crate::problem::Problem;
use crate::table::Table;

pub(super) fn routes() -> Table {
    Table::new()
        .reader("/relationships", get(list))
        .creator("/relationships", put(add))
        .writer("/relationships", delete(remove))
        .reader("/relationships/check", post(check))
}

/// `membership`, or `{"custom": "…"}`.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Type {
    Role,
    Trust,
    Membership,
    Ownership,
    Delegation,
    Custom(String),
}

impl From<Type> for RelationType {
    fn from(given: Type) -> Self {
        match given {
            Type::Role => Self::Role,
            Type::Trust => Self::Trust,
            Type::Membership => Self::Membership,
            Type::Ownership => Self::Ownership,
            Type::Delegation => Self::Delegation,
            Type::Custom(name) => Self::Custom(name),
        }
    }
}

fn type_answer(relation_type: &RelationType) -> Value {
    match relation_type {
        RelationType::Custom(name) => json!({ "custom": name }),
        named => named.to_string().into(),
    }
}

#[derive(Deserialize)]
struct Add {
    subject: String,
    relation: String,
    object: String,
    relation_type: Type,
    created_by: String,
    ttl_seconds: Option<i64>,
    #[serde(default)]
    metadata: BTreeMap<String, String>,
}

async fn add(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<Add>,
) -> Result<Answer<Value>, Problem> {
    let edge = Edge::new(body.subject, body.relation, body.object, body.relation_type.into());
    let mut relationship = Relationship::new(edge, body.created_by).with_scope(caller.scope.clone());
    if let Some(ttl) = ttl(body.ttl_seconds)? {
        relationship = relationship.with_ttl(ttl);
    }
    for (name, value) in body.metadata {
        relationship = relationship.with_metadata(name, value);
    }
    Ok(Answer(related(&app.stores.relationships(&caller.scope).add(&relationship).await?)))
}

fn related(related: &Related) -> Value {
    json!({
        "subject": related.edge.subject,
        "relation": related.edge.relation,
        "object": related.edge.object,
        "relation_type": type_answer(&related.edge.relation_type),
        "created_by": related.created_by,
        "created_at": millis(related.created_at),
        "expires_at": millis(related.expires_at),
        "metadata": related.metadata,
        "scope": related.scope.to_string(),
    })
}

/// Forward from a subject, or reverse from an object. A type of one's own is `custom:NAME` here.
#[derive(Deserialize)]
struct End {
    subject: Option<String>,
    object: Option<String>,
    relation_type: Option<String>,
}

async fn list(
    State(app): State<App>,
    caller: Caller,
    Asked(from): Asked<End>,
    Asked(page): Asked<PageAsked>,
) -> Result<Answer<Value>, Problem> {
    let relationships = app.stores.relationships(&caller.scope);
    let kind = from.relation_type.map(|text| text.parse::<RelationType>()).transpose()?;
    let (after, limit) = (page.after()?, page.limit()?);
    let listing = match (from.subject, from.object) {
        (Some(subject), None) => relationships.list(&subject, kind.as_ref(), after.as_ref(), limit).await?,
        (None, Some(object)) => {
            relationships.list_reverse(&object, kind.as_ref(), after.as_ref(), limit).await?
        }
        _ => return Err(Problem::invalid("either subject or object is given")),
    };
    let items: Vec<_> = listing.items.iter().map(related).collect();
    Ok(Answer(json!({"items": items, "next": next(listing.next.as_ref())})))
}

#[derive(Deserialize)]
struct Remove {
    subject: String,
    relation: String,
    object: String,
    relation_type: String,
    actor: Option<String>,
    reason: Option<String>,
}

async fn remove(
    State(app): State<App>,
    caller: Caller,
    Asked(body): Asked<Remove>,
) -> Result<StatusCode, Problem> {
    let edge = Edge::new(body.subject, body.relation, body.object, body.relation_type.parse()?);
    let because = caller.because(body.actor, body.reason)?;
    let removed = app.stores.relationships(&caller.scope).remove(&edge, &because).await?;
    removed.then_some(StatusCode::NO_CONTENT).ok_or_else(|| Problem::not_found("no such relationship"))
}

#[derive(Deserialize)]
struct Check {
    subject: String,
    relation: String,
    object: String,
    relation_type: Type,
    #[serde(default)]
    transitive: bool,
    max_depth: Option<usize>,
}

async fn check(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<Check>,
) -> Result<Answer<Value>, Problem> {
    let relationships = app.stores.relationships(&caller.scope);
    let edge = Edge::new(body.subject, body.relation, body.object, body.relation_type.into());
    let not_related = || Problem::not_found("not related");
    if !body.transitive {
        let related = relationships.check(&edge).await?;
        let path = [edge.subject, edge.object];
        return related.then(|| Answer(json!({"related": true, "path": path}))).ok_or_else(not_related);
    }
    let depth = body.max_depth.unwrap_or(Relationships::DEFAULT_DEPTH);
    match relationships.check_transitive(&edge, depth).await? {
        Transitive::Related { path } => Ok(Answer(json!({"related": true, "path": path}))),
        Transitive::NotRelated { depth_reached } => Err(not_related().with("depth_reached", depth_reached)),
    }
}
