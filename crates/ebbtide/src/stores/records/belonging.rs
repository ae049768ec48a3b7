//! Records that belong to others, and are removed with them.
//!
//! A record names what it belongs to, and its links are written and removed in the commits that write and remove it. A
//! link whose record names another is of an earlier write, and leads to nothing.

use std::borrow::Cow;

use super::state::OpenedRecord;
use super::{ATTEMPTS, Records, contended};
use crate::model::error::{Error, Result};
use crate::model::key::{Key, Part};
use crate::model::record::Record;
use crate::model::write::{Batch, Write};
use crate::stores::shared::belongings::Parent;
use crate::stores::shared::parents::ParentName;
use crate::timekeeping::Now;

impl Records {
    /// Name of the parent of the record at `key`, if that is `parent`.
    pub(in crate::stores) async fn name_if_of(
        &self,
        key: &Key,
        parent: &Parent,
    ) -> Result<Option<ParentName>> {
        let standing = self.read(key, self.stores.now()?).await?;
        let Some(name) = standing.and_then(|standing| standing.state.parent_name()) else { return Ok(None) };
        Ok((name.parent()?.as_ref() == Some(parent)).then_some(name))
    }

    /// Returns whether a record has ended with what it belongs to.
    pub(super) async fn has_ended(&self, standing: &OpenedRecord, now: Now) -> Result<bool> {
        match standing.state.parent_name() {
            Some(name) => self.stores.belongings(&self.scope).has_ended(&name, now).await,
            None => Ok(false),
        }
    }

    /// Collection and id of the record at `key`, if it belongs to `parent`.
    pub(in crate::stores) async fn names_if_of(
        &self,
        key: &Key,
        parent: &Parent,
    ) -> Result<Option<Vec<String>>> {
        let Some(standing) = self.read(key, self.stores.now()?).await? else { return Ok(None) };
        if standing.state.parent()?.as_ref() != Some(parent) {
            return Ok(None);
        }
        let id = String::from_utf8_lossy(&standing.state.id).into_owned();
        Ok(Some(vec![collection_of(key)?.into_owned(), id]))
    }

    /// Removes the record at `key` with its second keys and its links, if it belongs to `parent`; otherwise the links
    /// alone. Returns whether it removed the record.
    pub(in crate::stores) async fn remove_if_of(&self, key: &Key, parent: &Parent) -> Result<bool> {
        let naming = self.naming().await?;
        let collection = collection_of(key)?;
        for _ in 0..ATTEMPTS {
            let now = self.stores.now()?;
            let standing = self.read(key, now).await?;
            let (writes, removes) = match &standing {
                Some(standing) if standing.state.parent()?.as_ref() == Some(parent) => {
                    (self.removal(&naming, &collection, standing)?, true)
                }
                // The links go only if the record is still the one that was read.
                standing => {
                    let [up, down] = self.unlinks(parent, key)?;
                    // The link from a record that names another is that one's.
                    let is_linked = standing.as_ref().is_some_and(|standing| standing.state.is_child());
                    let mut writes = if is_linked { vec![down] } else { vec![up, down] };
                    let key = key.clone();
                    writes.push(match standing {
                        Some(standing) => Write::Check { key, expected: standing.record.version },
                        None => Write::Absent { key },
                    });
                    (writes, false)
                }
            };
            if self.stores.backend().commit(Batch::new(writes)?, now).await?.is_applied() {
                return Ok(removes);
            }
        }
        Err(contended())
    }

    /// Writes that link a record to what it belongs to, in place of what it belonged to.
    pub(super) fn links(
        &self,
        key: &Key,
        before: Option<&ParentName>,
        after: Option<&ParentName>,
    ) -> Result<Vec<Write>> {
        let none = ParentName::default();
        self.stores.belongings(&self.scope).relinks(before, after.unwrap_or(&none), key)
    }

    /// Writes that link an imported record to what it belongs to, and the name of that.
    pub(crate) fn links_of_imported(
        &self,
        key: &Key,
        record: &Record,
    ) -> Result<(Vec<Write>, Option<ParentName>)> {
        let name = self.stores.open_record(key, record.clone())?.state.parent_name();
        Ok((self.links(key, None, name.as_ref())?, name))
    }

    fn unlinks(&self, parent: &Parent, key: &Key) -> Result<[Write; 2]> {
        self.stores.belongings(&self.scope).unlinks(parent, key)
    }

    /// Writes that remove the links of a record that is removed.
    pub(super) fn unlinks_of(&self, key: &Key, standing: &OpenedRecord) -> Result<Vec<Write>> {
        self.links(key, standing.state.parent_name().as_ref(), None)
    }
}

pub(super) fn collection_of(key: &Key) -> Result<Cow<'static, str>> {
    match key.partition().into_iter().next() {
        Some(Part::Text(collection)) => Ok(collection),
        _ => Err(Error::corrupt("the key of a record has no collection")),
    }
}
