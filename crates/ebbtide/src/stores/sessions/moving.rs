//! Move of sessions to another scope.

use super::{Sessions, StoredSession};
use crate::model::codec;
use crate::model::digest::Digest;
use crate::model::error::{Error, Result};
use crate::model::key::{Key, Part};
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::scope::Scope;
use crate::stores::shared::bonds::{Bonds, Companions, Moves};
use crate::stores::shared::epochs::Stamp;

/// Profile that was named for a stored session.
pub(crate) fn profile_of(value: &[u8]) -> Result<Option<String>> {
    Ok(codec::decode::<StoredSession>(value)?.profile)
}

impl Moves for Sessions {
    fn bonds(_: &Key, value: &[u8]) -> Result<Bonds> {
        let session: StoredSession = codec::decode(value)?;
        Ok(Bonds { subject: session.subject, stamp: session.stamp.unwrap_or_default(), ..Bonds::default() })
    }

    fn restamped(value: &[u8], stamp: Stamp, _: &Scope) -> Result<Option<Vec<u8>>> {
        let session: StoredSession = codec::decode(value)?;
        Ok(Some(codec::encode(&StoredSession { stamp: Some(stamp), ..session })))
    }

    async fn companions(&self, key: &Key, record: &Record) -> Result<Companions> {
        if key.kind() != Kind::Session {
            return Ok(Companions::default());
        }
        let session: StoredSession = codec::decode(&record.value)?;
        let digest = match key.partition().as_slice() {
            [Part::Bytes(bytes)] => bytes.as_ref().try_into().map(Digest::from_bytes).ok(),
            _ => None,
        }
        .ok_or_else(|| Error::corrupt("the key of a session is no digest"))?;
        let entry = session.subject.map(|subject| self.index_key(&subject, &digest)).transpose()?;
        Ok(Companions::of(entry))
    }
}
