//! `/v1/sweep`, `/v1/stats`

use std::collections::BTreeMap;

use axum::Json as Answer;
use axum::extract::State;
use ebbtide::{Budget, Kind, KindStats, Scope};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::routes;

use crate::answers::by_name;
use crate::app::App;
use crate::auth::Caller;
use crate::problem::Problem;
use crate::table::Table;

pub(super) fn routes() -> Table {
    Table::new().admin(routes!(sweep)).admin(routes!(stats))
}

/// What concerns the store as a whole is asked of the whole.
fn require_global(caller: &Caller) -> Result<(), Problem> {
    if caller.scope == Scope::Global {
        Ok(())
    } else {
        Err(Problem::forbidden("this concerns the whole store, and not one scope of it"))
    }
}

/// Sweeps everything that has expired, up to one instant; answered when it is done
#[utoipa::path(post, path = "/sweep", operation_id = "sweep", tag = "operator",
    responses((status = 200, description = "removed records by kind", body = BTreeMap<String, u64>)))]
async fn sweep(
    State(app): State<App>,
    caller: Caller,
) -> Result<Answer<BTreeMap<&'static str, u64>>, Problem> {
    require_global(&caller)?;
    let swept = app.guard.sweep(&Budget::everything(Kind::ALL)).await?;
    Ok(Answer(by_name(&swept.removed)))
}

#[derive(Serialize, ToSchema)]
struct KindStatsAnswer {
    live: u64,
    /// Expired, and still present.
    expired: u64,
    oldest_overdue_seconds: Option<u64>,
}

impl From<KindStats> for KindStatsAnswer {
    fn from(stats: KindStats) -> Self {
        let oldest_overdue_seconds = stats.oldest_overdue.map(|age| age.as_secs());
        Self { live: stats.live, expired: stats.expired, oldest_overdue_seconds }
    }
}

#[derive(Serialize, ToSchema)]
struct StatsAnswer {
    kinds: BTreeMap<&'static str, KindStatsAnswer>,
    /// What an operator should mend.
    warnings: Vec<String>,
}

/// How many records are live, and how many expired are still present, by kind
#[utoipa::path(get, path = "/stats", operation_id = "stats", tag = "operator",
    responses((status = 200, body = StatsAnswer)))]
async fn stats(State(app): State<App>, caller: Caller) -> Result<Answer<StatsAnswer>, Problem> {
    require_global(&caller)?;
    let now = ebbtide::Clock::now(app.guard.as_ref());
    let kinds = app.backend.0.stats(now).await?;
    let kinds = kinds.into_iter().map(|(kind, stats)| (kind.name(), stats.into())).collect();
    Ok(Answer(StatsAnswer { kinds, warnings: app.backend.0.warnings().await? }))
}
