//! Groups: records that are revoked together, in one write.

use std::time::Duration;

use super::Records;
use super::request::check_name;
use crate::model::error::Result;
use crate::model::kind::Kind;
use crate::model::time::Timestamp;
use crate::model::ttl::check_collection;
use crate::model::write::Write;
use crate::stores::audit::{AuditContext, Note};
use crate::stores::shared::update::Step;

/// Time for which a marker outlives what it revokes: for writes that were in flight.
const BEYOND: Duration = Duration::from_secs(24 * 3600);

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
        check_name("a group", group)?;
        let key = self.naming().await?.group(collection, group)?;
        let key = &key;
        self.stores
            .retry(|now| async move {
                let end = now.end_after(Self::GROUP_CAP + BEYOND)?;
                let put = Write::Put { key: key.clone(), record: self.stores.record("", end) };
                let step = Step::write(vec![put], end);
                Ok(match context {
                    Some(context) => {
                        let note =
                            Note::revoked(context)?.about(Kind::RecordGroup, vec![collection.to_owned()]);
                        step.audited(&self.scope, note)
                    }
                    None => step,
                })
            })
            .await
    }
}
