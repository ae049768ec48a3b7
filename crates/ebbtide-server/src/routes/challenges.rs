//! `/v1/challenges`

use axum::extract::State;
use axum::http::StatusCode;
use ebbtide::stores::challenges::{ChallengeRequest, Peek, Verify, VerifyOutcome};
use ebbtide_api::challenges::{ChallengeIssued, ChallengeSeen};
use utoipa_axum::routes;

use crate::app::App;
use crate::http::auth::Caller;
use crate::http::body::Json;
use crate::http::problem::Problem;
use crate::http::table::Table;

pub(super) fn routes() -> Table {
    Table::new().creator(routes!(issue)).writer(routes!(verify)).writer(routes!(peek))
}

/// Issues a challenge: a one-time code, a link or 32 bytes
#[utoipa::path(post, path = "/challenges", operation_id = "issue_challenge", tag = "challenges",
    request_body = ChallengeRequest, responses((status = 201, body = ChallengeIssued)))]
async fn issue(
    State(app): State<App>,
    caller: Caller,
    Json(request): Json<ChallengeRequest>,
) -> Result<(StatusCode, Json<ChallengeIssued>), Problem> {
    let issued = app.stores.challenges(&caller.scope).issue(request).await?;
    Ok((StatusCode::CREATED, Json(issued.into())))
}

/// Verifies the secret of a challenge once
#[utoipa::path(post, path = "/challenges/verify", operation_id = "verify_challenge", tag = "challenges",
    request_body = Verify,
    responses(
        (status = 200, body = ChallengeSeen),
        (status = 404, description = "unknown"),
        (status = 409, description = "used: it was verified before"),
        (status = 410, description = "expired; or revoked: a later challenge has ended it"),
        (status = 422, description = "mismatch: the secret is wrong; `attempts_left` tells how many may be"),
        (status = 429, description = "exceeded: too many wrong secrets; or limited, as everywhere"),
    ))]
async fn verify(
    State(app): State<App>,
    caller: Caller,
    Json(request): Json<Verify>,
) -> Result<Json<ChallengeSeen>, Problem> {
    answer("verified", app.stores.challenges(&caller.scope).verify(&request).await?)
}

/// Looks at a challenge without using it up
#[utoipa::path(post, path = "/challenges/peek", operation_id = "peek_challenge", tag = "challenges",
    request_body = Peek,
    responses(
        (status = 200, body = ChallengeSeen),
        (status = 404, description = "unknown"),
        (status = 409, description = "used: it was verified before"),
        (status = 410, description = "expired; or revoked: a later challenge has ended it"),
        (status = 422, description = "mismatch: the secret is wrong, and the attempt is counted"),
        (status = 429, description = "exceeded: too many wrong secrets; or limited, as everywhere"),
    ))]
async fn peek(
    State(app): State<App>,
    caller: Caller,
    Json(request): Json<Peek>,
) -> Result<Json<ChallengeSeen>, Problem> {
    answer("open", app.stores.challenges(&caller.scope).peek(&request).await?)
}

fn answer(outcome: &str, answer: VerifyOutcome) -> Result<Json<ChallengeSeen>, Problem> {
    match answer {
        VerifyOutcome::Verified(seen) => Ok(Json(ChallengeSeen::new(outcome, *seen))),
        VerifyOutcome::Used => Err(Problem::conflict("used", "the challenge was verified before")),
        VerifyOutcome::Expired => Err(Problem::expired("the challenge was not verified in its time")),
        VerifyOutcome::Superseded => {
            Err(Problem::new(StatusCode::GONE, "revoked", "a later challenge has ended this one"))
        }
        VerifyOutcome::Mismatch { attempts_left } => {
            Err(Problem::mismatch("secret").with("attempts_left", attempts_left))
        }
        VerifyOutcome::Exceeded => Err(Problem::new(
            StatusCode::TOO_MANY_REQUESTS,
            "exceeded",
            "too many wrong secrets were presented for this challenge",
        )
        .with("attempts_left", 0)),
        _ => Err(Problem::not_found("no such challenge in this scope")),
    }
}
