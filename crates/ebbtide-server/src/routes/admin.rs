//! `/v1/sweep`, `/v1/stats`, `/v1/clock`

use std::collections::BTreeMap;

use axum::extract::State;
use ebbtide::ops::sweeper;
use ebbtide::{Kind, Scope, Sweeper, SystemRng};
use serde::Deserialize;
use utoipa::ToSchema;
use utoipa_axum::routes;

use crate::app::App;
use crate::http::auth::Caller;
use crate::http::body::Json;
use crate::http::problem::Problem;
use crate::http::table::Table;
use ebbtide_api::answers::by_name;
use ebbtide_api::clock::{ClockAccepted, ClockAnswer};
use ebbtide_api::stats::{StatsAnswer, SweepRequest};

pub(super) fn routes() -> Table {
    Table::new()
        .admin(routes!(sweep))
        .admin(routes!(stats))
        .admin(routes!(clock))
        .admin(routes!(accept_clock))
}

/// Refuses a caller of a narrower scope: the call concerns the whole store.
fn require_global(caller: &Caller) -> Result<(), Problem> {
    if caller.scope == Scope::Global {
        Ok(())
    } else {
        Err(Problem::forbidden("this concerns the whole store, and not one scope of it"))
    }
}

/// Sweeps every record that has expired by now, and answers when it is done
///
/// Without a body, or without `kinds`, all kinds. Kinds that are named are in the answer with zero too.
#[utoipa::path(post, path = "/sweep", operation_id = "sweep", tag = "operator",
    request_body = Option<SweepRequest>,
    responses((status = 200, description = "removed records by kind", body = BTreeMap<String, u64>)))]
async fn sweep(
    State(app): State<App>,
    caller: Caller,
    body: Result<Option<Json<SweepRequest>>, Problem>,
) -> Result<Json<BTreeMap<String, u64>>, Problem> {
    require_global(&caller)?;
    let mut sweeper = Sweeper::new(app.timed().clone(), SystemRng);
    let mut removed = BTreeMap::new();
    if let Some(kinds) = body?.and_then(|Json(body)| body.kinds) {
        let kinds = kinds.iter().map(|kind| kind.parse()).collect::<ebbtide::Result<Vec<Kind>>>()?;
        if kinds.is_empty() {
            return Err(Problem::invalid("kinds must name at least one kind"));
        }
        removed.extend(kinds.iter().map(|kind| (*kind, 0)));
        sweeper = sweeper.kinds(&kinds);
    }
    removed.extend(sweeper.sweep_now().await?.swept.removed);
    Ok(Json(by_name(&removed)))
}

/// Counts live records, and expired ones that are not swept yet, by kind
#[utoipa::path(get, path = "/stats", operation_id = "stats", tag = "operator",
    responses((status = 200, body = StatsAnswer)))]
async fn stats(State(app): State<App>, caller: Caller) -> Result<Json<StatsAnswer>, Problem> {
    require_global(&caller)?;
    let now = app.now()?;
    let kinds = app.backend.0.stats(now.earliest()).await?;
    let warnings = sweeper::warnings(app.backend.0.as_ref(), now.latest(), app.silence).await?;
    Ok(Json(StatsAnswer::new(&kinds, warnings)))
}

/// Describes the clock by which the store's answers are judged
#[utoipa::path(get, path = "/clock", operation_id = "clock", tag = "operator",
    responses((status = 200, body = ClockAnswer)))]
async fn clock(State(app): State<App>, caller: Caller) -> Result<Json<ClockAnswer>, Problem> {
    require_global(&caller)?;
    Ok(Json(ClockAnswer::from(&app.time().status())))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct AcceptClock {
    /// Defaults to the holder of the API key.
    actor: Option<String>,
    reason: Option<String>,
    /// Allows the store's time to go back.
    #[serde(default)]
    back: bool,
}

/// Makes the wall clock of the node the store's time; this is audited
#[utoipa::path(post, path = "/clock/accept", operation_id = "accept_clock", tag = "operator",
    request_body = AcceptClock,
    responses((status = 200, body = ClockAccepted)))]
async fn accept_clock(
    State(app): State<App>,
    caller: Caller,
    Json(asked): Json<AcceptClock>,
) -> Result<Json<ClockAccepted>, Problem> {
    require_global(&caller)?;
    let context = caller.context(asked.actor, asked.reason)?;
    Ok(Json(ClockAccepted::from(&app.db.accept_clock(&context, asked.back).await?)))
}
