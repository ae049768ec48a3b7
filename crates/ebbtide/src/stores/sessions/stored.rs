//! Sessions as they are stored.

use minicbor::{Decode, Encode};

use super::handle;
use crate::model::digest::Digest;
use crate::model::error::Result;
use crate::model::time::Timestamp;
use crate::stores::shared::epochs::Stamp;
use crate::timekeeping::Now;

#[derive(Encode, Decode)]
pub(super) struct StoredSession {
    #[n(0)]
    pub(super) subject: Option<String>,
    /// Contents, sealed for this record; `None` once they are claimed.
    #[cbor(n(1), with = "minicbor::bytes")]
    pub(super) fields: Option<Vec<u8>>,
    #[n(2)]
    pub(super) valid_until: u64,
    #[n(3)]
    pub(super) ttl_millis: u64,
    #[n(4)]
    pub(super) created_at: u64,
    #[n(5)]
    pub(super) ends_at: u64,
    /// Epoch of its subject.
    #[n(6)]
    pub(super) stamp: Option<Stamp>,
    /// Name that grants refer to the session by, where it is not the handle.
    #[n(7)]
    pub(super) sid: Option<String>,
    #[n(8)]
    pub(super) profile: Option<String>,
    /// True if reads renew it.
    #[n(9)]
    pub(super) sliding: Option<bool>,
}

impl StoredSession {
    /// Name that codes and grants refer to the session by.
    pub(super) fn sid(&self, digest: &Digest) -> String {
        self.sid.clone().unwrap_or_else(|| handle(digest))
    }

    /// Returns whether a read renews the session now. In doubt of the clock none does.
    pub(super) fn is_due(&self, now: Now) -> Result<bool> {
        if self.sliding != Some(true) || !now.is_confirmed() {
            return Ok(false);
        }
        let left = Timestamp::from_stored(self.valid_until)?.since(now.latest()).as_millis();
        Ok(left < u128::from(self.ttl_millis - self.ttl_millis / 10))
    }

    /// Returns whether the session is neither claimed nor expired.
    pub(super) fn lives(&self, now: Now) -> Result<bool> {
        Ok(self.fields.is_some() && now.before(Timestamp::from_stored(self.valid_until)?)?)
    }
}
