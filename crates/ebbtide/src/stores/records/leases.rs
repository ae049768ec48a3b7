//! Leases: one holder at a time, until it releases or its time ends.

use base64ct::{Base64UrlUnpadded, Encoding as _};

use super::Records;
use super::request::Acquire;
use super::types::{AcquireOutcome, RecordId};
use crate::model::digest::Digest;
use crate::model::error::{Error, Result};
use crate::model::kind::Kind;
use crate::model::record::{Record, Version};
use crate::model::secret::Secret;
use crate::model::ttl::{PolicyTarget, Ttl, check_collection};
use crate::model::write::{Batch, Write};
use crate::stores::shared::life::RecordTtl;

/// Life of a lease that is acquired without one.
pub(in crate::stores) const LEASE_TTL: Ttl = Ttl::secs(30);

const PREFIX: &str = "ebl_";

impl Records {
    /// Acquires a lease, if nobody holds it. Of any number of callers exactly one gets it. One round trip.
    pub async fn acquire(&self, acquire: &Acquire) -> Result<AcquireOutcome> {
        check_collection(&acquire.collection)?;
        acquire.id.check("an id")?;
        let key = self.naming().await?.lease(&acquire.collection, &acquire.id)?;
        let now = self.stores.now()?;
        let target = PolicyTarget::new(Kind::Lease, Some(&acquire.collection));
        let life = match acquire.life {
            RecordTtl::Default => RecordTtl::For(self.stores.ttl(target, &self.scope, None, LEASE_TTL)?),
            RecordTtl::Keep | RecordTtl::Never => {
                return Err(Error::invalid("a lease has an end of its own").about("ttl_seconds"));
            }
            life => life,
        };
        let Some(expires_at) = self.end(target, life, None, now)? else {
            return Ok(AcquireOutcome::Expired);
        };
        let secret: [u8; 32] = self.stores.rng().bytes();
        let lease = Secret::new(format!("{PREFIX}{}", Base64UrlUnpadded::encode_string(&secret)));
        // The version is made of the secret, so that a release is one conditional write.
        let record = Record { value: bytes::Bytes::new(), version: version_of(&lease), expires_at };
        let insert = Batch::try_from(Write::Insert { key, record })?;
        let commit = self.stores.backend().commit(insert, now).await?;
        Ok(if commit.is_applied() {
            AcquireOutcome::Acquired { lease, expires_at }
        } else {
            AcquireOutcome::Held
        })
    }

    /// Releases a lease. Returns false if it has ended, or is another's. One round trip.
    pub async fn release(&self, collection: &str, id: impl Into<RecordId>, lease: &Secret) -> Result<bool> {
        check_collection(collection)?;
        let id = id.into();
        id.check("an id")?;
        let key = self.naming().await?.lease(collection, &id)?;
        let remove = Batch::try_from(Write::Remove { key, expected: version_of(lease) })?;
        Ok(self.stores.backend().commit(remove, self.stores.now()?).await?.is_applied())
    }
}

fn version_of(lease: &Secret) -> Version {
    let digest = Digest::of("lease", &[lease.expose().as_bytes()]);
    let (half, _) = digest.as_bytes().split_first_chunk::<16>().expect("a digest has 32 bytes");
    Version::from_bytes(*half)
}
