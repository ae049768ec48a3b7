//! Keys of records: digests under the store's naming key.

use super::Records;
use super::types::RecordId;
use crate::keyring::{KeyId, NamingKey};
use crate::model::digest::Digest;
use crate::model::error::{Error, Result};
use crate::model::key::{Key, Part, Prefix};
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::scope::Scope;
use crate::model::time::Timestamp;
use crate::stores::Stores;

/// Maker of the keys of one scope's records.
pub(super) struct Naming<'a> {
    key: NamingKey,
    scope: &'a Scope,
}

impl Naming<'_> {
    pub(super) fn record(&self, collection: &str, id: &[u8]) -> Result<Key> {
        self.make(Kind::Record, "record", collection, id)
    }

    pub(super) fn second_key(&self, collection: &str, key: &str) -> Result<Key> {
        self.make(Kind::RecordKey, "record-key", collection, key.as_bytes())
    }

    pub(super) fn group(&self, collection: &str, group: &str) -> Result<Key> {
        self.make(Kind::RecordGroup, "record-group", collection, group.as_bytes())
    }

    pub(super) fn counter(&self, collection: &str, id: &RecordId) -> Result<Key> {
        self.make(Kind::Counter, "counter", collection, id.as_bytes())
    }

    pub(super) fn lease(&self, collection: &str, id: &RecordId) -> Result<Key> {
        self.make(Kind::Lease, "lease", collection, id.as_bytes())
    }

    fn make(&self, kind: Kind, purpose: &str, collection: &str, name: &[u8]) -> Result<Key> {
        let digest = self.key.digest(purpose, &[collection.as_bytes(), name]);
        Key::new(kind, self.scope, &[collection.into(), digest.part()], &[])
    }

    /// Records of a collection, in the order of their digests where the engine has one.
    pub(super) fn collection(&self, collection: &str) -> Result<Prefix> {
        Prefix::partitions(Kind::Record, self.scope, &[collection.into()])
    }
}

/// Digest in the key of a record.
pub(super) fn digest_of(key: &Key) -> Result<[u8; Digest::BYTES]> {
    let malformed = || Error::corrupt("the key of a record is not a collection and a digest");
    match key.partition().as_slice() {
        [_, Part::Bytes(digest)] => digest.as_ref().try_into().map_err(|_| malformed()),
        _ => Err(malformed()),
    }
}

impl Records {
    /// Naming key of the store. `Unavailable` if the keyring has none, or another than the store.
    pub(super) async fn naming(&self) -> Result<Naming<'_>> {
        let key = self.stores.naming_key().await?;
        Ok(Naming { key, scope: &self.scope })
    }
}

impl Stores {
    /// Naming key of the keyring, once it is known to be the store's.
    pub(crate) async fn naming_key(&self) -> Result<NamingKey> {
        let naming = self.keyring().naming_key().cloned().ok_or_else(|| {
            Error::unavailable(
                "the keyring has no naming key, which records need; add one with `ebbtide keyring \
                 add-naming-key`, and copy the file to every node",
            )
        })?;
        let id = naming.id();
        let theirs = *self.naming_checked().get_or_try_init(|| self.enter_naming_key(&naming)).await?;
        if theirs == id {
            return Ok(naming);
        }
        Err(Error::unavailable(format!(
            "the records of this store are named with the key {theirs}, and the keyring has {id}; use the keyring that \
             the store was made with"
        )))
    }

    /// Enters the naming key in the store, by its id and the proof of its secret, and returns the id that is there.
    /// `Unavailable` if it is the same id with another secret. A store of an earlier version has the id alone, and gets
    /// the proof.
    async fn enter_naming_key(&self, naming: &NamingKey) -> Result<KeyId> {
        let there = self.find_or_enter(NamingKey::id_place()?, naming.id().as_bytes()).await?;
        let theirs = read_id(&there)?;
        if theirs != naming.id() {
            return Ok(theirs);
        }
        let proof = self.find_or_enter(NamingKey::proof_place()?, naming.proof().as_bytes()).await?;
        if naming.has_made(&proof.value) {
            return Ok(theirs);
        }
        Err(Error::unavailable(naming.other_secret()))
    }

    /// Record at `key`, which gets this value if there is none. Of several nodes, one enters its value.
    async fn find_or_enter(&self, key: Key, value: &[u8]) -> Result<Record> {
        let now = self.now()?;
        if let Some(record) = self.backend().get(&key, now).await? {
            return Ok(record);
        }
        let record = self.record(value.to_vec(), Timestamp::NEVER);
        if self.backend().insert(key.clone(), record.clone(), now).await?.is_applied() {
            return Ok(record);
        }
        let there = self.backend().get(&key, now).await?;
        there.ok_or_else(|| Error::unavailable("the naming key of the store was removed; try again"))
    }
}

fn read_id(record: &Record) -> Result<KeyId> {
    let id = record.value.as_ref().try_into().map(KeyId::from_bytes);
    id.map_err(|_| Error::corrupt("the store's entry of its naming key is malformed"))
}
