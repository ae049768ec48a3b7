//! Move of grants to another scope, with their provider tokens. Refresh tokens of before stay valid: the family knows
//! the scopes that it was moved from.

use super::family::Family;
use super::refresh::Refresh;
use super::{GrantId, Grants, Holder, Listed};
use crate::model::codec;
use crate::model::error::{Error, Result};
use crate::model::key::{Key, Part, Prefix};
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::scope::Scope;
use crate::model::secret::Secret;
use crate::stores::shared::bonds::{Bonds, Companions, Moves};
use crate::stores::shared::epochs::Stamp;

impl Moves for Grants {
    fn bonds(_: &Key, value: &[u8]) -> Result<Bonds> {
        let family: Family = codec::decode(value)?;
        let (subject, client) = (&family.subject, &family.client_id);
        Ok(Bonds::of_parties(subject, client, family.sid.as_deref(), family.stamp()))
    }

    fn restamped(value: &[u8], stamp: Stamp, from: &Scope) -> Result<Option<Vec<u8>>> {
        let mut family: Family = codec::decode(value)?;
        family.moved(from, stamp);
        Ok(Some(codec::encode(&family)))
    }

    async fn companions(&self, key: &Key, record: &Record) -> Result<Companions> {
        if key.kind() != Kind::Grant {
            return Ok(Companions::default());
        }
        let family: Family = codec::decode(&record.value)?;
        let id = match key.partition().as_slice() {
            [Part::Bytes(id)] => id.as_ref().try_into().map(GrantId::from_bytes).ok(),
            _ => None,
        }
        .ok_or_else(|| Error::corrupt("the key of a grant is no id"))?;
        let entry = |holder: Holder<'_>| holder.key(Listed::Grants, &self.scope, id.as_bytes());
        let mut keys =
            vec![entry(Holder::Subject(&family.subject))?, entry(Holder::Client(&family.client_id))?];
        if family.salt.is_some() {
            let attached = Prefix::partition(Kind::ProviderToken, &self.scope, &[id.as_bytes().into()], &[])?;
            let tokens = self.stores.backend().scan_all(&attached, self.stores.now()?).await?;
            keys.extend(tokens.into_iter().map(|(key, _)| key));
        }
        Ok(Companions::of(keys))
    }
}

/// Profile that was named for a stored grant.
pub(crate) fn profile_of(value: &[u8]) -> Result<Option<String>> {
    Ok(codec::decode::<Family>(value)?.profile)
}

/// Salt that the provider tokens of a stored grant are sealed with.
pub(crate) fn salt_of(value: &[u8]) -> Result<Option<[u8; 32]>> {
    Ok(codec::decode::<Family>(value)?.salt.map(|salt| *salt))
}

impl Grants {
    /// Reads a refresh token of this scope, or of one that its grant was moved from. A MAC that fits neither is none.
    pub(super) async fn read_token(&self, secret: &Secret) -> Result<Option<Refresh>> {
        let ring = self.stores.shared_keyring();
        if let Some(token) = Refresh::read(secret, ring, &self.scope)? {
            return Ok(Some(token));
        }
        let Some(claimed) = Refresh::claimed(secret, ring)? else { return Ok(None) };
        let Some(standing) = self.read(claimed, self.stores.now()?).await? else { return Ok(None) };
        for scope in standing.family.moved_from() {
            if let Some(token) = Refresh::read(secret, ring, &scope.parse()?)? {
                return Ok(Some(token));
            }
        }
        Ok(None)
    }
}
