//! `/v1/sweep`, `/v1/stats`

use std::sync::Arc;

use axum::Json as Answer;
use axum::extract::State;
use axum::routing::{get, post};
use ebbtide::sweeper::{self, SILENCE};
use ebbtide::{Scope, Sweeper, SystemChance};
use serde_json::Value;

use crate::app::App;
use crate::auth::Caller;
use crate::describe;
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
    Ok(Answer(describe::stats(&kinds, &warnings)))
}
