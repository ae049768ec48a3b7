//! `/v1/sweep`, `/v1/stats`

use std::sync::Arc;

use axum::Json as Answer;
use axum::extract::State;
use axum::routing::{get, post};
use ebbtide::sweeper::{self, SILENCE};
use ebbtide::{Kind, Scope, Sweeper, SystemChance};
use serde_json::{Map, Value, json};

use crate::app::App;
use crate::auth::Caller;
use crate::problem::Problem;
use crate::table::Table;

pub(super) fn routes() -> Table {
    Table::new().admin("/sweep", post(sweep)).admin("/stats", get(stats))
}

/// What concerns the store as a whole is asked of the whole.
fn require_global(caller: &Caller) -> Result<(), Problem> {
    if caller.scope == Scope::Global {
        Ok(())
    } else {
        Err(Problem::forbidden("this concerns the whole store, and not one scope of it"))
    }
}

/// One sweep of everything that has expired, up to one instant; answered when it is done.
async fn sweep(State(app): State<App>, caller: Caller) -> Result<Answer<Value>, Problem> {
    require_global(&caller)?;
    let sweeper = Sweeper::new(Arc::clone(&app.backend.0), Arc::clone(&app.guard), SystemChance);
    let removed = sweeper
        .sweep_now()
        .await?
        .swept
        .removed
        .into_iter()
        .map(|(kind, count)| (kind.name().to_owned(), count.into()));
    Ok(Answer(Value::Object(removed.collect())))
}

async fn stats(State(app): State<App>, caller: Caller) -> Result<Answer<Value>, Problem> {
    require_global(&caller)?;
    let now = ebbtide::Clock::now(app.guard.as_ref());
    let kinds = app.backend.0.stats(now).await?;
    let warnings = sweeper::warnings(app.backend.0.as_ref(), now, SILENCE).await?;
    let of = |kind: Kind, stats: ebbtide::KindStats| {
        let overdue = stats.oldest_overdue.map(|age| age.as_secs());
        let value = json!({"live": stats.live, "expired": stats.expired, "oldest_overdue_seconds": overdue});
        (kind.name().to_owned(), value)
    };
    let kinds: Map<_, _> = kinds.into_iter().map(|(kind, stats)| of(kind, stats)).collect();
    Ok(Answer(json!({"kinds": kinds, "warnings": warnings})))
}
