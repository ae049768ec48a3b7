//! Answers of `/v1/challenges`.

use ebbtide::stores::challenges::{Challenge, IssuedChallenge};
use ebbtide::stores::shared::payload::Payload;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::answers::millis;

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ChallengeIssued {
    pub id: String,
    /// Secret for the subject alone.
    #[schema(example = "123456")]
    pub secret: String,
    pub expires_at: Option<u64>,
}

impl From<IssuedChallenge> for ChallengeIssued {
    fn from(issued: IssuedChallenge) -> Self {
        Self {
            id: issued.id.to_string(),
            secret: issued.secret.expose().to_owned(),
            expires_at: millis(issued.expires_at),
        }
    }
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ChallengeSeen {
    /// `verified`, or `open` after a peek.
    #[schema(example = "verified")]
    pub outcome: String,
    pub id: String,
    pub purpose: String,
    pub subject: String,
    /// `digits6`, `token` or `bytes32`.
    #[schema(example = "digits6")]
    pub form: String,
    pub expires_at: Option<u64>,
    /// Number of wrong secrets that are still allowed.
    pub attempts_left: u32,
    /// Payload; null for a peek without the secret.
    pub data: Option<Value>,
}

impl ChallengeSeen {
    #[must_use]
    pub fn new(outcome: &str, seen: Challenge) -> Self {
        Self {
            outcome: outcome.to_owned(),
            id: seen.id.to_string(),
            purpose: seen.purpose,
            subject: seen.subject,
            form: seen.form.name().to_owned(),
            expires_at: millis(seen.expires_at),
            attempts_left: seen.attempts_left,
            data: seen.data.map(Payload::into_inner),
        }
    }
}
