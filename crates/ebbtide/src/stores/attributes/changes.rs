//! Several changes in one commit.

use std::collections::BTreeSet;

use super::bucket::Bucket;
use super::draft::{Draft, Stamp};
use super::{Attributes, parent_of};
use crate::model::error::{Error, Result};
use crate::model::key::Key;
use crate::model::record::{Record, Version};
use crate::model::scope::Scope;
use crate::model::write::{Commit, Write};
use crate::stores::Stores;
use crate::stores::shared::parents::{MetParents, ParentName};
use crate::stores::shared::tombstones::Principal;
use crate::timekeeping::Now;

/// Attempts to insert over attributes that have ended and that others change meanwhile.
const ATTEMPTS: usize = 8;

/// Version that no record has: versions are minted at random.
const NO_VERSION: Version = Version::from_bytes([0; 16]);

/// Changes to attributes of one scope that are committed together: at least one, to distinct attributes, and with one
/// more for each owner no more than [`Batch::MAX_WRITES`](crate::Batch::MAX_WRITES).
#[derive(Debug)]
#[must_use = "nothing is written before the commit"]
pub struct Changes {
    attributes: Attributes,
    /// None if the time was not to be had, which `writes` says.
    now: Option<Now>,
    writes: Result<Vec<Write>>,
    /// Owners whose attributes it may create.
    owners: BTreeSet<String>,
}

impl Changes {
    pub(super) fn new(attributes: Attributes) -> Self {
        let (now, writes) = match attributes.stores.now() {
            Ok(now) => (Some(now), Ok(Vec::new())),
            Err(error) => (None, Err(error)),
        };
        Self { attributes, now, writes, owners: BTreeSet::new() }
    }

    /// Stores a value, whether or not there is one.
    pub fn set(self, bucket: &Bucket, name: &str, value: impl Into<Draft>) -> Self {
        self.store(bucket, name, &value.into(), |key, record| Write::Put { key, record })
    }

    /// Stores a value if there is none.
    pub fn insert(self, bucket: &Bucket, name: &str, value: impl Into<Draft>) -> Self {
        self.store(bucket, name, &value.into(), |key, record| Write::Insert { key, record })
    }

    /// Stores a value if the present version is `expected`.
    pub fn replace(self, bucket: &Bucket, name: &str, expected: Version, value: impl Into<Draft>) -> Self {
        self.store(bucket, name, &value.into(), |key, record| Write::Replace { key, expected, record })
    }

    /// Deletes an attribute, whether or not there is one.
    pub fn delete(self, bucket: &Bucket, name: &str) -> Self {
        self.push(bucket, name, |key| Write::Delete { key })
    }

    /// Deletes an attribute if the present version is `expected`.
    pub fn remove_if(self, bucket: &Bucket, name: &str, expected: Version) -> Self {
        self.push(bucket, name, |key| Write::Remove { key, expected })
    }

    /// Requires that the present version is `expected`, and changes nothing.
    pub fn check(self, bucket: &Bucket, name: &str, expected: Version) -> Self {
        self.push(bucket, name, |key| Write::Check { key, expected })
    }

    /// Version and expiry that each change gives, in their order; none for one that stores no value.
    #[must_use]
    pub fn stamps(&self) -> Vec<Option<Stamp>> {
        let stamp = |write: &Write| match write {
            Write::Put { record, .. } | Write::Insert { record, .. } | Write::Replace { record, .. } => {
                Some(Stamp { version: record.version, expires_at: record.expires_at })
            }
            _ => None,
        };
        self.writes.iter().flatten().map(stamp).collect()
    }

    /// Commits all changes, or none. A refusal names the first change whose condition did not hold. Returns `Invalid`
    /// for a change that cannot be made, a bucket of another scope, and an owner who is being deleted.
    pub async fn commit(self) -> Result<Commit> {
        let Attributes { stores, scope } = &self.attributes;
        let owners: Vec<_> = self.owners.iter().map(|owner| Principal::Owner(owner)).collect();
        let writes = self.writes?;
        let now = self.now.map_or_else(|| stores.now(), Ok)?;
        for _ in 0..ATTEMPTS {
            let (judged, replaced) = judged(stores, scope, &writes).await?;
            match stores.commit_for(scope, &owners, judged, now).await?.unless_deleted()? {
                // Another writer has changed one that is absent to callers.
                Commit::Refused { index } if replaced.contains(&index) => {}
                commit => return Ok(commit),
            }
        }
        Err(Error::unavailable("the attributes were changed by others at every attempt; try again"))
    }

    fn store(
        self,
        bucket: &Bucket,
        name: &str,
        draft: &Draft,
        write: impl FnOnce(Key, Record) -> Write,
    ) -> Self {
        if draft.belongs_to.is_some() {
            return self
                .failed(Error::invalid("an attribute with belongs_to is set alone").about("belongs_to"));
        }
        if !bucket.may_lengthen() {
            let message = "attributes of a bucket whose lives only the extend call lengthens are set alone";
            return self.failed(Error::invalid(message));
        }
        let Some(now) = self.now else { return self };
        match bucket.record(draft, ParentName::default(), now) {
            Ok(record) => {
                let mut changes = self.push(bucket, name, |key| write(key, record));
                changes.owners.insert(bucket.owner().to_owned());
                changes
            }
            Err(error) => self.failed(error),
        }
    }

    fn push(mut self, bucket: &Bucket, name: &str, write: impl FnOnce(Key) -> Write) -> Self {
        if *bucket.scope() != self.attributes.scope {
            return self.failed(Error::invalid("changes in one commit are to buckets of one scope"));
        }
        match (bucket.key(name), &mut self.writes) {
            (Ok(key), Ok(writes)) => writes.push(write(key)),
            (Err(error), _) => return self.failed(error),
            (_, Err(_)) => {}
        }
        self
    }

    /// Keeps the first error, which the commit returns.
    fn failed(mut self, error: Error) -> Self {
        if self.writes.is_ok() {
            self.writes = Err(error);
        }
        self
    }
}

/// Writes of a commit, in which no condition holds for an attribute that has ended with what it belongs to, and the
/// places of the insertions that replace such a one. One trip more, if there are conditions.
async fn judged(stores: &Stores, scope: &Scope, writes: &[Write]) -> Result<(Vec<Write>, Vec<usize>)> {
    let (mut judged, mut unlinks, mut replaced) = (writes.to_vec(), Vec::new(), Vec::new());
    let depends = |write: &Write| !matches!(write, Write::Put { .. } | Write::Delete { .. });
    let places: Vec<usize> = (0..writes.len()).filter(|place| depends(&writes[*place])).collect();
    if places.is_empty() {
        return Ok((judged, replaced));
    }
    let keys: Vec<Key> = places.iter().map(|place| writes[*place].key().clone()).collect();
    let now = stores.now()?;
    let found = stores.backend().get_many(&keys, now).await?;
    let mut parents = MetParents::new(stores, now);
    for ((place, key), record) in places.into_iter().zip(keys).zip(found) {
        let Some(there) = record else { continue };
        let parent = parent_of(&there)?;
        if !parents.ended(scope, parent.as_ref()).await? {
            continue;
        }
        judged[place] = match writes[place].clone() {
            Write::Insert { record, .. } => {
                let unlinked =
                    stores.belongings(scope).relinks(parent.as_ref(), &ParentName::default(), &key)?;
                unlinks.extend(unlinked);
                replaced.push(place);
                Write::Replace { key, expected: there.version, record }
            }
            _ => Write::Check { key, expected: NO_VERSION },
        };
    }
    judged.extend(unlinks);
    Ok((judged, replaced))
}
