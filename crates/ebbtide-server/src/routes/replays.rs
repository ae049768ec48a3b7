//! `/v1/replays`

use axum::Extension;
use axum::extract::State;
use ebbtide::stores::replays::{Proof, ReplayOutcome};
use ebbtide_api::replays::{ReplayFresh, ReplayOutcomes};
use serde::Deserialize;
use utoipa::ToSchema;
use utoipa_axum::routes;

use crate::app::App;
use crate::http::auth::Caller;
use crate::http::body::Json;
use crate::http::problem::Problem;
use crate::http::quota::Added;
use crate::http::route::Verb;
use crate::http::table::Table;

pub(super) fn routes() -> Table {
    Table::new().creator(routes!(check)).hot(Verb::Post, check).creator(routes!(check_batch))
}

/// Records a proof, unless it was seen before
///
/// Of any number of callers with one proof, on any number of nodes, exactly one is answered 200.
#[utoipa::path(post, path = "/replays/check", operation_id = "check_replay", tag = "replays",
    request_body = Proof,
    responses(
        (status = 200, body = ReplayFresh),
        (status = 409, description = "replay: the proof was seen before"),
        (status = 410, description = "expired: the proof has ended, seen before or not"),
    ))]
async fn check(
    State(app): State<App>,
    caller: Caller,
    Json(proof): Json<Proof>,
) -> Result<Json<ReplayFresh>, Problem> {
    match app.stores.replays(&caller.scope).check(&proof).await? {
        ReplayOutcome::Fresh { expires_at } => Ok(Json(expires_at.into())),
        ReplayOutcome::Expired => Err(expired()),
        _ => Err(replay()),
    }
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ReplayBatch {
    #[schema(min_items = 1, max_items = 1000)]
    items: Vec<Proof>,
}

/// Records several proofs; those that are fresh are recorded even if others are replays
#[utoipa::path(post, path = "/replays/check-batch", operation_id = "check_replays", tag = "replays",
    request_body = ReplayBatch,
    responses(
        (status = 200, description = "all proofs are fresh", body = ReplayOutcomes),
        (status = 409, description = "replay: one was seen before; `outcomes` has the outcome of each"),
        (status = 410, description = "expired: one has ended, and none was seen before"),
    ))]
async fn check_batch(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<ReplayBatch>,
) -> Result<(Extension<Added>, Json<ReplayOutcomes>), Problem> {
    const MOST: usize = 1_000;
    if body.items.is_empty() || body.items.len() > MOST {
        return Err(Problem::invalid(format!("a batch has 1 to {MOST} items")).with("member", "items"));
    }
    let outcomes = app.stores.replays(&caller.scope).check_batch(&body.items).await?;
    let replayed = outcomes.contains(&ReplayOutcome::Replay);
    let ended = outcomes.contains(&ReplayOutcome::Expired);
    let answer = ReplayOutcomes::from(outcomes);
    if replayed {
        Err(replay().with("outcomes", answer.outcomes))
    } else if ended {
        Err(expired().with("outcomes", answer.outcomes))
    } else {
        Ok((Extension(Added(body.items.len() as u64)), Json(answer)))
    }
}

fn expired() -> Problem {
    Problem::expired("the proof has ended")
}

fn replay() -> Problem {
    Problem::conflict("replay", "the proof was seen before")
}
