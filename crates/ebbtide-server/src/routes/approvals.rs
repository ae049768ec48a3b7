//! `/v1/approvals`

use std::collections::BTreeMap;

use axum::Json as Answer;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{delete, get, post, put};
use ebbtide::Timestamp;
use ebbtide::stores::approvals::{Approval, Granted};
use ebbtide::stores::extension::{Extended, Extension};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::App;
use crate::auth::Caller;
use crate::body::{Asked, Json, PageAsked, millis, next, ttl};
use crate::problem::Problem;
use crate::table::Table;

pub(super) fn routes() -> Table {
    Table::new()
        .reader("/approvals", get(read))
        .creator("/approvals", put(grant))
        .writer("/approvals", delete(revoke))
        .reader("/approvals/check", post(check))
        .admin("/approvals/extend", post(extend))
}

#[derive(Deserialize)]
struct Grant {
    identity: String,
    resource: String,
    action: String,
    granted_by: String,
    ttl_seconds: Option<i64>,
    #[serde(default)]
    metadata: BTreeMap<String, String>,
}

async fn grant(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<Grant>,
) -> Result<Answer<Value>, Problem> {
    let mut approval = Approval::new(body.identity, body.resource, body.action, body.granted_by)
        .with_scope(caller.scope.clone());
    if let Some(ttl) = ttl(body.ttl_seconds)? {
        approval = approval.with_ttl(ttl);
    }
    for (name, value) in body.metadata {
        approval = approval.with_metadata(name, value);
    }
    Ok(Answer(granted(&app.stores.approvals(&caller.scope).grant(&approval).await?)))
}

fn granted(granted: &Granted) -> Value {
    json!({
        "identity": granted.identity,
        "resource": granted.resource,
        "action": granted.action,
        "granted_by": granted.granted_by,
        "granted_at": millis(granted.granted_at),
        "expires_at": millis(granted.expires_at),
        "metadata": granted.metadata,
        "scope": granted.scope.to_string(),
    })
}

/// Which approval, or whose.
#[derive(Deserialize)]
struct Which {
    identity: String,
    resource: Option<String>,
    action: Option<String>,
}

async fn read(
    State(app): State<App>,
    caller: Caller,
    Asked(which): Asked<Which>,
    Asked(page): Asked<PageAsked>,
) -> Result<Answer<Value>, Problem> {
    let approvals = app.stores.approvals(&caller.scope);
    match (which.resource, which.action) {
        (Some(resource), Some(action)) => {
            let found = approvals.get(&which.identity, &resource, &action).await?;
            found.map(|found| Answer(granted(&found))).ok_or_else(unknown)
        }
        (None, None) => {
            let listing = approvals.list(&which.identity, page.after()?.as_ref(), page.limit()?).await?;
            let items: Vec<_> = listing.items.iter().map(granted).collect();
            Ok(Answer(json!({"items": items, "next": next(listing.next.as_ref())})))
        }
        _ => Err(Problem::invalid("resource and action are given together")),
    }
}

#[derive(Deserialize)]
struct Named {
    identity: String,
    resource: String,
    action: String,
}

async fn check(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<Named>,
) -> Result<Answer<Value>, Problem> {
    let approvals = app.stores.approvals(&caller.scope);
    // The check is what renews an approval whose life slides; what it answers with is read behind it.
    if !approvals.check(&body.identity, &body.resource, &body.action).await? {
        return Err(unknown());
    }
    let found = approvals.get(&body.identity, &body.resource, &body.action).await?.ok_or_else(unknown)?;
    let mut answer = granted(&found);
    answer["approved"] = true.into();
    Ok(Answer(answer))
}

#[derive(Deserialize)]
struct Extend {
    identity: String,
    resource: String,
    action: String,
    ttl_seconds: i64,
    actor: String,
    reason: String,
}

async fn extend(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<Extend>,
) -> Result<Answer<Value>, Problem> {
    let ttl = ebbtide::Ttl::from_secs(body.ttl_seconds)?;
    let extension = Extension::from_now(ttl, body.actor, body.reason)?;
    let approvals = app.stores.approvals(&caller.scope);
    extended(approvals.extend(&body.identity, &body.resource, &body.action, &extension).await?)
}

fn extended(extended: Extended) -> Result<Answer<Value>, Problem> {
    let refused = |detail, expires_at: Timestamp| {
        Err(Problem::conflict("conflict", detail).with("expires_at", millis(expires_at)))
    };
    match extended {
        Extended::Extended { expires_at, .. } => Ok(Answer(json!({ "expires_at": millis(expires_at) }))),
        Extended::NotLonger { expires_at } => refused("it lives that long already", expires_at),
        Extended::BeyondCap { expires_at, .. } => refused("that is past its cap", expires_at),
        Extended::Unknown => Err(unknown()),
    }
}

#[derive(Deserialize)]
struct Revoke {
    identity: String,
    resource: String,
    action: String,
    actor: Option<String>,
    reason: Option<String>,
}

async fn revoke(
    State(app): State<App>,
    caller: Caller,
    Asked(body): Asked<Revoke>,
) -> Result<StatusCode, Problem> {
    let because = caller.because(body.actor, body.reason)?;
    let approvals = app.stores.approvals(&caller.scope);
    let revoked = approvals.revoke(&body.identity, &body.resource, &body.action, &because).await?;
    revoked.then_some(StatusCode::NO_CONTENT).ok_or_else(unknown)
}

fn unknown() -> Problem {
    Problem::not_found("no such approval")
}
