//! Move of access tokens to another scope.

use super::{AccessTokens, StoredToken};
use crate::model::codec;
use crate::model::digest::Digest;
use crate::model::error::{Error, Result};
use crate::model::key::{Key, Part};
use crate::model::record::Record;
use crate::model::scope::Scope;
use crate::stores::shared::bonds::{Bonds, Companions, Moves};
use crate::stores::shared::epochs::{Parties, Stamp};

impl StoredToken {
    pub(super) fn parties(&self) -> Parties<'_> {
        Parties::new(&self.subject, &self.client_id).session(self.sid.as_deref())
    }
}

/// Profile that was named for a stored token or its grant.
pub(crate) fn profile_of(value: &[u8]) -> Result<Option<String>> {
    Ok(codec::decode::<StoredToken>(value)?.profile)
}

impl Moves for AccessTokens {
    fn bonds(_: &Key, value: &[u8]) -> Result<Bonds> {
        let StoredToken { subject, client_id, sid, stamp, .. } = codec::decode(value)?;
        Ok(Bonds::of_parties(&subject, &client_id, sid.as_deref(), stamp.unwrap_or_default()))
    }

    fn restamped(value: &[u8], stamp: Stamp, _: &Scope) -> Result<Option<Vec<u8>>> {
        let token: StoredToken = codec::decode(value)?;
        Ok(Some(codec::encode(&StoredToken { stamp: Some(stamp), ..token })))
    }

    async fn companions(&self, key: &Key, record: &Record) -> Result<Companions> {
        let token: StoredToken = codec::decode(&record.value)?;
        let digest = match key.partition().as_slice() {
            [Part::Bytes(bytes)] => bytes.as_ref().try_into().map(Digest::from_bytes).ok(),
            _ => None,
        }
        .ok_or_else(|| Error::corrupt("the key of an access token is no digest"))?;
        Ok(Companions::of(self.index_keys(&digest, &token)?))
    }
}
