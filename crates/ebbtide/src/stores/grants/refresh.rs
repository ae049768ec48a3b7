//! Refresh tokens: derived, not stored.

use zeroize::Zeroizing;

use super::GrantId;
use crate::keyring::shared::SharedKeyring;
use crate::keyring::{KeyId, Keyring};
use crate::model::error::Result;
use crate::model::scope::Scope;
use crate::model::secret::Secret;
use crate::stores::shared::token;

const PURPOSE: &str = "refresh-mac";
const KEY: usize = KeyId::BYTES;
const ID: usize = KEY + GrantId::BYTES;
const GENERATION: usize = ID + 8;
const WHOLE: usize = GENERATION + 32;

/// Content of a refresh token with a valid MAC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refresh {
    pub(super) key: KeyId,
    pub(super) grant_id: GrantId,
    pub(super) generation: u64,
}

impl Refresh {
    /// Text of the token, the same each time; none if its key is not in the keyring.
    pub(super) fn to_secret(self, keyring: &Keyring, scope: &Scope) -> Option<Secret> {
        let mut bytes = Zeroizing::new([0; WHOLE]);
        bytes[..KEY].copy_from_slice(self.key.as_bytes());
        bytes[KEY..ID].copy_from_slice(self.grant_id.as_bytes());
        bytes[ID..GENERATION].copy_from_slice(&self.generation.to_be_bytes());
        let scope = scope.to_string();
        let mac = keyring.mac(self.key, PURPOSE, &[scope.as_bytes(), &bytes[KEY..GENERATION]])?;
        bytes[GENERATION..].copy_from_slice(&mac);
        Some(token::write(token::REFRESH, bytes.as_slice()))
    }

    /// Reads a token; none unless it was made for this scope under a key of the keyring. `Unavailable` if it was made
    /// under a key that only other nodes have.
    pub(super) fn read(secret: &Secret, keyring: &SharedKeyring, scope: &Scope) -> Result<Option<Self>> {
        let Some(bytes) = token::decode::<WHOLE>(token::REFRESH, secret).map(Zeroizing::new) else {
            return Ok(None);
        };
        let Some(key) = bytes.first_chunk() else { return Ok(None) };
        let ring = keyring.for_token(KeyId::from_bytes(*key))?;
        Ok(Self::verified(&bytes, &ring, scope))
    }

    /// Grant that a token names, whoever made it; none if its key is not in the keyring.
    pub(super) fn claimed(secret: &Secret, keyring: &SharedKeyring) -> Result<Option<GrantId>> {
        let bytes = token::decode::<WHOLE>(token::REFRESH, secret).map(Zeroizing::new);
        let Some(bytes) = bytes else { return Ok(None) };
        let Some(key) = bytes.first_chunk().map(|key| KeyId::from_bytes(*key)) else { return Ok(None) };
        // Without the key no MAC can be right, and the record could not be authenticated.
        if keyring.for_token(key)?.mac(key, PURPOSE, &[]).is_none() {
            return Ok(None);
        }
        Ok(bytes[KEY..].first_chunk().map(|id| GrantId::from_bytes(*id)))
    }

    fn verified(bytes: &[u8; WHOLE], keyring: &Keyring, scope: &Scope) -> Option<Self> {
        let key = KeyId::from_bytes(*bytes.first_chunk()?);
        let (said, mac) = bytes[KEY..].split_at(GENERATION - KEY);
        let scope = scope.to_string();
        if !keyring.verify(key, PURPOSE, &[scope.as_bytes(), said], mac) {
            return None;
        }
        let (grant_id, generation) = said.split_first_chunk()?;
        let generation = u64::from_be_bytes(*generation.first_chunk()?);
        Some(Self { key, grant_id: GrantId::from_bytes(*grant_id), generation })
    }
}
