//! `/v1/replays`

use axum::extract::State;
use ebbtide::stores::replays::{Proof, ReplayOutcome};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::routes;

use crate::app::App;
use crate::http::auth::Caller;
use crate::http::body::{Json, millis, ttl};
use crate::http::problem::Problem;
use crate::http::table::Table;

pub(super) fn routes() -> Table {
    Table::new().creator(routes!(check)).creator(routes!(check_batch))
}

/// What must not be seen twice: an identifier within a namespace, bound to a key where there is one.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ReplayCheck {
    #[schema(min_length = 1, max_length = 256, example = "dpop")]
    namespace: String,
    #[schema(min_length = 1, max_length = 256, example = "n-0S6")]
    jti: String,
    #[schema(min_length = 1, max_length = 256)]
    jkt: Option<String>,
    /// How long it is refused; 60 by default.
    #[schema(minimum = 1)]
    ttl_seconds: Option<i64>,
}

impl ReplayCheck {
    fn proof(self) -> Result<Proof, Problem> {
        let mut proof = Proof::new(self.namespace, self.jti)?;
        if let Some(jkt) = self.jkt {
            proof = proof.with_thumbprint(jkt)?;
        }
        Ok(match ttl(self.ttl_seconds)? {
            Some(ttl) => proof.with_ttl(ttl),
            None => proof,
        })
    }
}

#[derive(Serialize, ToSchema)]
struct ReplayFresh {
    #[schema(example = "fresh")]
    outcome: &'static str,
    /// Until when it will be refused.
    expires_at: Option<u64>,
}

/// Records a proof, unless it was seen before
///
/// Of any number of callers with one proof, on any number of nodes, exactly one is answered 200.
#[utoipa::path(post, path = "/replays/check", operation_id = "check_replay", tag = "replays",
    request_body = ReplayCheck,
    responses((status = 200, body = ReplayFresh), (status = 409, description = "replay: it was seen before")))]
async fn check(
    State(app): State<App>,
    caller: Caller,
    Json(item): Json<ReplayCheck>,
) -> Result<Json<ReplayFresh>, Problem> {
    match app.stores.replays(&caller.scope).check_and_record(&item.proof()?).await? {
        ReplayOutcome::Fresh { expires_at } => {
            Ok(Json(ReplayFresh { outcome: "fresh", expires_at: millis(expires_at) }))
        }
        ReplayOutcome::Replay => Err(replay()),
    }
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ReplayBatch {
    #[schema(min_items = 1, max_items = 1000)]
    items: Vec<ReplayCheck>,
}

#[derive(Serialize, ToSchema)]
struct ReplayOutcomes {
    #[schema(example = json!(["fresh"]))]
    outcomes: Vec<&'static str>,
}

/// Records several proofs; what is fresh among them is recorded even if another is not
#[utoipa::path(post, path = "/replays/check-batch", operation_id = "check_replays", tag = "replays",
    request_body = ReplayBatch,
    responses(
        (status = 200, description = "all are fresh", body = ReplayOutcomes),
        (status = 409, description = "replay: one was seen before; `outcomes` tells which"),
    ))]
async fn check_batch(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<ReplayBatch>,
) -> Result<Json<ReplayOutcomes>, Problem> {
    const MOST: usize = 1_000;
    if body.items.is_empty() || body.items.len() > MOST {
        return Err(Problem::invalid(format!("a batch has 1 to {MOST} items")));
    }
    let proofs = body.items.into_iter().map(ReplayCheck::proof).collect::<Result<Vec<_>, _>>()?;
    let seen = app.stores.replays(&caller.scope).check_and_record_batch(&proofs).await?;
    let outcome = |seen: &ReplayOutcome| if *seen == ReplayOutcome::Replay { "replay" } else { "fresh" };
    let outcomes: Vec<&str> = seen.iter().map(outcome).collect();
    if outcomes.contains(&"replay") {
        return Err(replay().with("outcomes", outcomes));
    }
    Ok(Json(ReplayOutcomes { outcomes }))
}

fn replay() -> Problem {
    Problem::conflict("replay", "this was seen before")
}
