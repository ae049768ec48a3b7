//! `/v1/scopes`

use axum::Json as Answer;
use axum::extract::State;
use axum::routing::{delete, get};
use ebbtide::{Reach, Scope};
use serde::Deserialize;
use serde_json::Value;

use crate::app::App;
use crate::auth::Caller;
use crate::body::{Asked, Names};
use crate::describe;
use crate::problem::Problem;
use crate::table::Table;

pub(super) fn routes() -> Table {
    Table::new().admin("/scopes/{scope}", get(count)).admin("/scopes/{scope}", delete(remove))
}

/// Exact is the rule; `below=true` reaches what the scope covers.
#[derive(Deserialize)]
struct Far {
    #[serde(default)]
    below: bool,
}

impl Far {
    fn reach(&self, caller: &Caller, scope: &str) -> Result<Reach, Problem> {
        let scope: Scope = scope.parse()?;
        caller.require(&scope)?;
        Ok(if self.below { Reach::Below(scope) } else { Reach::Exact(scope) })
    }
}

/// How many live records there are, by kind.
async fn count(
    State(app): State<App>,
    caller: Caller,
    Names(scope): Names<String>,
    Asked(far): Asked<Far>,
) -> Result<Answer<Value>, Problem> {
    let reach = far.reach(&caller, &scope)?;
    let counts = app.stores.scopes(&caller.scope).count(&reach).await?;
    Ok(Answer(describe::counts(&reach, "counts", &counts)))
}

#[derive(Deserialize)]
struct Why {
    actor: Option<String>,
    reason: Option<String>,
}

/// Deletes every record of the scope but its log; answered when it is done. After a fault, what is left is deleted by
/// another call.
async fn remove(
    State(app): State<App>,
    caller: Caller,
    Names(scope): Names<String>,
    Asked(far): Asked<Far>,
    Asked(why): Asked<Why>,
) -> Result<Answer<Value>, Problem> {
    let reach = far.reach(&caller, &scope)?;
    let because = caller.because(why.actor, why.reason)?;
    let deletion = app.stores.scopes(&caller.scope).delete(&reach, &because).await?;
    Ok(Answer(describe::counts(&reach, "deleted", &deletion.finish().await?)))
}
