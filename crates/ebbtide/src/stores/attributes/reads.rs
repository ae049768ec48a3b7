//! Reads, which renew a sliding attribute, and extensions.

use super::bucket::Bucket;
use super::draft::{Attribute, StoredAttribute};
use super::parent_of;
use crate::model::error::Result;
use crate::stores::shared::extension::{ExtendOutcome, Extension};
use crate::stores::shared::finding::Finding;
use crate::stores::shared::lifetime::RecordHandle;
use crate::stores::shared::tombstones::Principal;

impl Bucket {
    /// Returns the attribute, if there is one. An error is no answer: do not take it for absence.
    ///
    /// Reads renew a sliding attribute, unless less than a tenth of the TTL has passed since the last renewal. A
    /// failed renewal is an error. If another writer was faster, the attribute is returned as it was read. A renewal
    /// writes a new version.
    pub async fn get(&self, name: &str) -> Result<Option<Attribute>> {
        let record = self.handle(name)?.read().await?;
        record.map(|record| StoredAttribute::decode(&record)?.attribute(name.to_owned(), &record)).transpose()
    }

    /// Extends an attribute, and appends to the audit log in the same commit.
    pub async fn extend(&self, name: &str, extension: &Extension) -> Result<ExtendOutcome> {
        self.handle(name)?.extend(extension).await
    }

    pub(crate) async fn explain(&self, name: &str) -> Result<Finding> {
        Finding::of(&self.handle(name)?).await
    }

    fn handle(&self, name: &str) -> Result<RecordHandle<'_>> {
        Ok(RecordHandle {
            stores: self.stores(),
            scope: self.scope(),
            keys: vec![self.key(name)?],
            target: vec![self.owner().to_owned(), self.name().to_owned(), name.to_owned()],
            whose: vec![Principal::Owner(self.owner())],
            lifetime: |record| Ok(StoredAttribute::decode(record)?.lifetime()),
            parent: parent_of,
        })
    }
}
