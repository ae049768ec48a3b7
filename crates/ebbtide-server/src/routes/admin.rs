//! `/v1/sweep`, `/v1/stats`

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use ebbtide::ops::sweeper;
use ebbtide::{Kind, Scope, Sweeper, SystemRng};
use utoipa_axum::routes;

use crate::app::App;
use crate::http::auth::Caller;
use crate::http::body::Json;
use crate::http::problem::Problem;
use crate::http::table::Table;
use ebbtide_api::answers::by_name;
use ebbtide_api::stats::{StatsAnswer, SweepRequest};

pub(super) fn routes() -> Table {
    Table::new().admin(routes!(sweep)).admin(routes!(stats))
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
    let mut sweeper = Sweeper::new(Arc::clone(&app.backend.0), Arc::clone(&app.guard), SystemRng);
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
    let now = ebbtide::Clock::now(app.guard.as_ref());
    let kinds = app.backend.0.stats(now).await?;
    let warnings = sweeper::warnings(app.backend.0.as_ref(), now, app.silence).await?;
    Ok(Json(StatsAnswer::new(&kinds, warnings)))
}
