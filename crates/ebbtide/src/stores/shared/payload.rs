//! Payloads: JSON that a caller keeps with a record, stored sealed and never printed.

use std::fmt;

use serde::{Deserialize, Deserializer};
use serde_json::Value;
use zeroize::Zeroizing;

use crate::keyring::Keyring;
use crate::model::error::{Error, Result};
use crate::model::key::Key;
use crate::stores::Stores;

/// JSON that is stored sealed and does not print.
#[derive(Clone, PartialEq, Default, Deserialize)]
#[serde(transparent)]
pub struct Payload(Value);

impl Payload {
    /// Longest payload, in bytes of JSON text.
    pub const MAX_BYTES: usize = 131_072;

    /// Wraps `value`, which then does not print.
    pub fn new(value: impl Into<Value>) -> Self {
        Self(value.into())
    }

    /// JSON of the payload. Reviews look at every call.
    #[must_use]
    pub fn expose(&self) -> &Value {
        &self.0
    }

    /// Unwraps the JSON.
    #[must_use]
    pub fn into_inner(self) -> Value {
        self.0
    }
}

impl From<Value> for Payload {
    fn from(value: Value) -> Self {
        Self(value)
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Payload(…)")
    }
}

/// Deserializes a payload that may be left out, where null is a payload.
pub(crate) fn present<'de, D: Deserializer<'de>>(payload: D) -> Result<Option<Payload>, D::Error> {
    Payload::deserialize(payload).map(Some)
}

/// Keys of a record that is sealed anew: the one that its parts are sealed for, and the one that they will be sealed
/// for, which is another one if the record moves.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Resealing<'a> {
    pub(crate) from: &'a Key,
    pub(crate) to: &'a Key,
}

impl<'a> Resealing<'a> {
    /// The record stays where it is.
    pub(crate) fn at(key: &'a Key) -> Self {
        Self { from: key, to: key }
    }
}

impl Stores {
    /// Seals a payload for the record at `key`.
    pub(crate) fn seal(&self, key: &Key, context: &[u8], payload: &Payload) -> Result<Vec<u8>> {
        let text = serde_json::to_vec(&payload.0)
            .map_err(|error| Error::invalid("a payload is not JSON").about("data").caused_by(error))?;
        let text = Zeroizing::new(text);
        if text.len() > Payload::MAX_BYTES {
            return Err(Error::invalid(format!(
                "a payload has at most {} bytes as JSON; this one has {}",
                Payload::MAX_BYTES,
                text.len()
            ))
            .about("data"));
        }
        Ok(self.keyring().seal(key, context, &text, self.rng()))
    }

    /// Opens a payload that [`seal`](Self::seal) sealed for the record at `key`.
    pub(crate) fn open(&self, key: &Key, context: &[u8], sealed: &[u8]) -> Result<Payload> {
        let text = self.keyring_for(sealed).open(key, context, sealed)?;
        // The parser's error may quote the text, so it is left out.
        serde_json::from_slice(&text).map(Payload).map_err(|_| Error::corrupt("a sealed payload is not JSON"))
    }

    /// Seals anew what is sealed under another key than the active one, or for another record; none if there is no need.
    pub(crate) fn reseal(&self, at: Resealing<'_>, context: &[u8], sealed: &[u8]) -> Result<Option<Vec<u8>>> {
        let ring = self.keyring();
        if at.from == at.to && Keyring::sealed_under(sealed) == Some(ring.active()) {
            return Ok(None);
        }
        let text = self.keyring_for(sealed).open(at.from, context, sealed)?;
        Ok(Some(ring.seal(at.to, context, &text, self.rng())))
    }

    /// Seals an optional payload anew; true if there was need.
    pub(crate) fn reseal_some(&self, at: Resealing<'_>, sealed: &mut Option<Vec<u8>>) -> Result<bool> {
        let Some(present) = sealed else { return Ok(false) };
        let Some(anew) = self.reseal(at, &[], present)? else { return Ok(false) };
        *present = anew;
        Ok(true)
    }

    /// Opens an optional payload.
    pub(crate) fn open_some(&self, key: &Key, sealed: Option<&[u8]>) -> Result<Option<Payload>> {
        sealed.map(|sealed| self.open(key, &[], sealed)).transpose()
    }
}
