//! Answers of `/v1/nonces`.

use ebbtide::Timestamp;
use ebbtide::stores::nonces::IssuedNonce;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::answers::millis;

#[derive(Serialize, Deserialize, ToSchema)]
pub struct NonceIssued {
    pub nonce: String,
    pub expires_at: Option<u64>,
}

impl From<IssuedNonce> for NonceIssued {
    fn from(issued: IssuedNonce) -> Self {
        Self { nonce: issued.nonce.expose().to_owned(), expires_at: millis(issued.expires_at) }
    }
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct NonceGood {
    /// `valid` or `accepted`.
    #[schema(example = "accepted")]
    pub outcome: String,
    pub expires_at: Option<u64>,
}

impl NonceGood {
    #[must_use]
    pub fn new(outcome: &str, expires_at: Timestamp) -> Self {
        Self { outcome: outcome.to_owned(), expires_at: millis(expires_at) }
    }
}
