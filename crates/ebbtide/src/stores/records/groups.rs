//! Groups: records that are revoked together, in one write.

use base64ct::{Base64UrlUnpadded, Encoding as _};

use super::Records;
use super::naming::digest_of;
use super::request::check_name;
use crate::model::digest::Digest;
use crate::model::error::{Error, Result};
use crate::model::key::Key;
use crate::model::kind::Kind;
use crate::model::time::Timestamp;
use crate::model::ttl::check_collection;
use crate::model::write::Write;
use crate::stores::audit::{AuditContext, Note};
use crate::stores::shared::epochs::KEPT;
use crate::stores::shared::update::Step;

impl Records {
    /// Revokes a group: every record of it is gone, also one whose write was in flight, and later writes to it are
    /// refused until [`GROUP_CAP`](Self::GROUP_CAP) and a day have passed. Returns the end of that time. One write, and the
    /// entry of the audit log.
    pub async fn revoke_group(
        &self,
        collection: &str,
        group: &str,
        context: Option<&AuditContext>,
    ) -> Result<Timestamp> {
        check_collection(collection)?;
        check_name("group", group)?;
        let key = self.naming().await?.group(collection, group)?;
        self.revoke_group_at(collection, key, context).await
    }

    /// Revokes the group whose name has this digest, as the audit log of a store with the same naming key has it.
    pub(crate) async fn revoke_group_digest(
        &self,
        collection: &str,
        digest: &str,
        context: &AuditContext,
    ) -> Result<Timestamp> {
        check_collection(collection)?;
        let bytes = Base64UrlUnpadded::decode_vec(digest).ok().and_then(|bytes| bytes.try_into().ok());
        let wrong = || Error::invalid("the digest of a group is 32 bytes in base64url");
        let digest = Digest::from_bytes(bytes.ok_or_else(wrong)?);
        let key = Key::new(Kind::RecordGroup, &self.scope, &[collection.into(), digest.part()], &[])?;
        self.revoke_group_at(collection, key, Some(context)).await
    }

    async fn revoke_group_at(
        &self,
        collection: &str,
        key: Key,
        context: Option<&AuditContext>,
    ) -> Result<Timestamp> {
        let names = &[collection.to_owned(), Base64UrlUnpadded::encode_string(&digest_of(&key)?)];
        let key = &key;
        self.stores
            .retry(|now| async move {
                let end = now.end_after(KEPT)?;
                let put = Write::Put { key: key.clone(), record: self.stores.record("", end) };
                let step = Step::write(vec![put], end);
                Ok(match context {
                    Some(context) => {
                        // The name may be private; its digest tells it from others.
                        let note = Note::revoked(context)?.about(Kind::RecordGroup, names.to_vec());
                        step.audited(&self.scope, note)
                    }
                    None => step,
                })
            })
            .await
    }
}
