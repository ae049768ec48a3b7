//! Reading, with the renewal of what slides; and the extension of lives.

use super::bucket::Bucket;
use super::draft::{Attribute, StoredAttribute};
use crate::model::error::Result;
use crate::stores::shared::extension::{ExtendOutcome, Extension};
use crate::stores::shared::finding::Finding;
use crate::stores::shared::lifetime::Standing;
use crate::stores::shared::tombstones::Principal;

impl Bucket {
    /// The attribute, if there is one. An error is no answer: never take it for absence.
    ///
    /// Where reads renew it, this one writes its new end, unless less than a tenth of the TTL has gone by since the
    /// last renewal; a fault of that write is an error. If another change was faster, what was read is the answer,
    /// and nothing is written. A renewal is a writing with a version of its own.
    pub async fn get(&self, name: &str) -> Result<Option<Attribute>> {
        let record = self.standing(name)?.read().await?;
        record.map(|record| StoredAttribute::decode(&record)?.attribute(name.to_owned(), &record)).transpose()
    }

    /// Lets an attribute live longer, and writes into the audit log who did it and why, in one commit.
    pub async fn extend(&self, name: &str, extension: &Extension) -> Result<ExtendOutcome> {
        self.standing(name)?.extend(extension).await
    }

    pub(crate) async fn explain(&self, name: &str) -> Result<Finding> {
        Finding::of(&self.standing(name)?).await
    }

    fn standing(&self, name: &str) -> Result<Standing<'_>> {
        Ok(Standing {
            stores: self.stores(),
            scope: self.scope(),
            keys: vec![self.key(name)?],
            target: vec![self.owner().to_owned(), self.name().to_owned(), name.to_owned()],
            whose: vec![Principal::Owner(self.owner())],
            lifetime: |record| Ok(StoredAttribute::decode(record)?.lifetime()),
        })
    }
}
