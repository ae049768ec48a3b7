//! `/v1/replays`

use axum::Json as Answer;
use axum::extract::State;
use axum::routing::post;
use ebbtide::stores::replays::{Proof, Seen};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::App;
use crate::auth::Caller;
use crate::body::{Json, millis, ttl};
use crate::problem::Problem;
use crate::table::Table;

pub(super) fn routes() -> Table {
    Table::new().creator("/replays/check", post(check)).creator("/replays/check-batch", post(check_batch))
}

#[derive(Deserialize)]
struct Item {
    namespace: String,
    jti: String,
    jkt: Option<String>,
    ttl_seconds: Option<i64>,
}

impl Item {
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

async fn check(
    State(app): State<App>,
    caller: Caller,
    Json(item): Json<Item>,
) -> Result<Answer<Value>, Problem> {
    match app.stores.replays(&caller.scope).check_and_record(&item.proof()?).await? {
        Seen::Fresh { expires_at } => {
            Ok(Answer(json!({"outcome": "fresh", "expires_at": millis(expires_at)})))
        }
        Seen::Replay => Err(replay()),
    }
}

#[derive(Deserialize)]
struct Items {
    items: Vec<Item>,
}

async fn check_batch(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<Items>,
) -> Result<Answer<Value>, Problem> {
    const MOST: usize = 1_000;
    if body.items.is_empty() || body.items.len() > MOST {
        return Err(Problem::invalid(format!("a batch has 1 to {MOST} items")));
    }
    let proofs = body.items.into_iter().map(Item::proof).collect::<Result<Vec<_>, _>>()?;
    let seen = app.stores.replays(&caller.scope).check_and_record_batch(&proofs).await?;
    let outcome = |seen: &Seen| if *seen == Seen::Replay { "replay" } else { "fresh" };
    let outcomes: Vec<&str> = seen.iter().map(outcome).collect();
    if outcomes.contains(&"replay") {
        return Err(replay().with("outcomes", outcomes));
    }
    Ok(Answer(json!({ "outcomes": outcomes })))
}

fn replay() -> Problem {
    Problem::conflict("replay", "this was seen before")
}
