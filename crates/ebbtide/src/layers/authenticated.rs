//! A backend that authenticates the records that carry authority.
//!
//! Each value has a tag, made with a subkey of the keyring over kind, key, version, exact expiry and value. Attributes are
//! sealed instead, which hides their values too. A row that somebody else wrote, changed or moved is `Corrupt`. A row that was put back as it once was, and one that was deleted,
//! are not noticed.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use subtle::ConstantTimeEq as _;

use crate::admin::Admin;
use crate::backend::{Backend, Cursor, Page, defaults};
use crate::delegate;
use crate::keyring::shared::{Loaded, SharedKeyring, TAG_BYTES};
use crate::keyring::{KeyId, Keyring};
use crate::model::alteration::{Alteration, Altered};
use crate::model::error::{Error, Result};
use crate::model::key::{Key, Prefix};
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::rng::Rng;
use crate::model::time::Timestamp;
use crate::model::write::{Batch, Commit, Write};

/// First byte of an authenticated value. The values of the stores begin with their format, which is another byte.
const AUTHENTICATED: u8 = 0xA7;

/// First byte of a sealed value.
const SEALED: u8 = 0xA8;

/// Bytes before an authenticated value: the mark, the id of the key, the tag.
const HEADER: usize = 1 + KeyId::BYTES + TAG_BYTES;

/// Treatment of rows without a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Untagged {
    /// Accepted: the store has rows from before there were tags.
    Accepted = 0,
    /// `Corrupt`: every row has been given a tag.
    Refused = 1,
    /// Tags are neither made nor compared: for tools that read without the keyring.
    Unread = 2,
}

/// Backend whose records of [`kinds with authority`](is_authenticated) are authenticated.
pub struct Authenticated {
    inner: Arc<dyn Admin>,
    keyring: SharedKeyring,
    rng: Arc<dyn Rng>,
    untagged: AtomicU8,
}

/// Returns true for the kinds whose values are sealed as a whole.
#[must_use]
pub const fn is_sealed(kind: Kind) -> bool {
    matches!(kind, Kind::Attribute)
}

/// Returns true for the kinds whose records are authenticated.
#[must_use]
pub const fn is_authenticated(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Grant
            | Kind::AccessToken
            | Kind::Code
            | Kind::DeviceCode
            | Kind::Challenge
            | Kind::PushedRequest
            | Kind::Client
            | Kind::ApiKey
            | Kind::Session
            | Kind::Approval
            | Kind::Relationship
            | Kind::RelationshipReverse
    )
}

impl Authenticated {
    /// Authenticates the records of `inner`.
    pub fn new(inner: Arc<dyn Admin>, keyring: SharedKeyring, rng: Arc<dyn Rng>, untagged: Untagged) -> Self {
        Self { inner, keyring, rng, untagged: AtomicU8::new(untagged as u8) }
    }

    /// Refuses rows without a tag from now on.
    pub fn refuse_untagged(&self) {
        self.untagged.store(Untagged::Refused as u8, Ordering::Release);
    }

    /// `Invalid` without the keyring of the store: nobody would take what is signed for genuine.
    pub(crate) fn require_keyring(&self) -> Result<()> {
        if self.is(Untagged::Unread) {
            return Err(Error::invalid("this needs the keyring of the store, which was opened without it"));
        }
        Ok(())
    }

    /// Value of a record as the engine has it, by the rules of a read: one without a tag is `Corrupt` in a store whose
    /// records all have one.
    pub(crate) fn verified(&self, key: &Key, record: &Record) -> Result<Bytes> {
        self.check(key, record.clone()).map(|record| record.value)
    }

    fn is(&self, untagged: Untagged) -> bool {
        self.untagged.load(Ordering::Acquire) == untagged as u8
    }

    fn sign(&self, loaded: &Loaded, key: &Key, record: &mut Record) {
        if !self.is(Untagged::Unread) {
            record.value = stored(loaded, key, record, self.rng.as_ref());
        }
    }

    fn batch(&self, batch: Batch) -> Result<Batch> {
        if !batch.writes().iter().any(|write| is_protected(write.key().kind())) {
            return Ok(batch);
        }
        let loaded = self.keyring.loaded();
        let mut writes = batch.into_writes();
        for write in &mut writes {
            if let Write::Put { key, record }
            | Write::Insert { key, record }
            | Write::Replace { key, record, .. } = write
            {
                self.sign(&loaded, key, record);
            }
        }
        Batch::new(writes)
    }

    fn check(&self, key: &Key, mut record: Record) -> Result<Record> {
        if !is_protected(key.kind()) {
            return Ok(record);
        }
        if !is_tagged(key.kind(), &record.value) {
            if self.is(Untagged::Refused) {
                return Err(Error::corrupt(format!(
                    "a record of the kind {} is not authenticated",
                    key.kind()
                )));
            }
            return Ok(record);
        }
        record.value = if self.is(Untagged::Unread) {
            record.value.slice_ref(value_of(key.kind(), &record.value))
        } else {
            verified(&self.keyring, key, &record)?
        };
        Ok(record)
    }

    fn page(&self, page: Page) -> Result<Page> {
        let check = |(key, record): (Key, Record)| self.check(&key, record).map(|record| (key, record));
        Ok(Page { items: page.items.into_iter().map(check).collect::<Result<_>>()?, next: page.next })
    }
}

const fn is_protected(kind: Kind) -> bool {
    is_authenticated(kind) || is_sealed(kind)
}

/// Context of a sealed value: its version and expiry.
fn context(record: &Record) -> Vec<u8> {
    [record.version.as_bytes().as_slice(), &record.expires_at.as_millis().to_be_bytes()].concat()
}

/// Value as it is stored: sealed, with a tag, or as it is.
fn stored(loaded: &Loaded, key: &Key, record: &Record, rng: &dyn Rng) -> Bytes {
    if is_sealed(key.kind()) {
        let sealed = loaded.ring().seal(key, &context(record), &record.value, rng);
        return [&[SEALED], sealed.as_slice()].concat().into();
    }
    if !is_authenticated(key.kind()) {
        return record.value.clone();
    }
    let id = loaded.ring().active();
    let tag = loaded.record_tag(id, key, record, &record.value).expect("the active key is in the ring");
    let mut value = Vec::with_capacity(HEADER + record.value.len());
    value.push(AUTHENTICATED);
    value.extend_from_slice(id.as_bytes());
    value.extend_from_slice(&tag);
    value.extend_from_slice(&record.value);
    value.into()
}

/// Value as it is stored under the active key.
pub(crate) fn protected(keyring: &SharedKeyring, key: &Key, record: &Record, rng: &dyn Rng) -> Bytes {
    stored(&keyring.loaded(), key, record, rng)
}

fn header(value: &[u8]) -> Option<(KeyId, [u8; TAG_BYTES])> {
    let (&AUTHENTICATED, rest) = value.split_first()? else { return None };
    let (id, rest) = rest.split_first_chunk()?;
    Some((KeyId::from_bytes(*id), *rest.first_chunk()?))
}

/// Returns whether a stored value is sealed or has a tag. The values of the stores begin with another byte.
fn is_tagged(kind: Kind, value: &[u8]) -> bool {
    if is_sealed(kind) {
        value.first() == Some(&SEALED)
    } else {
        is_authenticated(kind) && header(value).is_some()
    }
}

/// Key that a stored value is sealed or authenticated under; none without.
pub(crate) fn protected_under(kind: Kind, value: &[u8]) -> Option<KeyId> {
    if !is_tagged(kind, value) {
        return None;
    }
    Keyring::sealed_under(&value[1..])
}

/// Value without its tag, not verified. A sealed value stays sealed.
pub(crate) fn value_of(kind: Kind, value: &[u8]) -> &[u8] {
    if is_authenticated(kind) && is_tagged(kind, value) { &value[HEADER..] } else { value }
}

/// Value of a stored record: opened, or compared with its tag. One without either is taken as it is.
pub(crate) fn verified(keyring: &SharedKeyring, key: &Key, record: &Record) -> Result<Bytes> {
    let Some(id) = protected_under(key.kind(), &record.value) else { return Ok(record.value.clone()) };
    let loaded = keyring.loaded_with(id);
    if is_sealed(key.kind()) {
        let plain = loaded.ring().open(key, &context(record), &record.value[1..])?;
        return Ok(Bytes::copy_from_slice(&plain));
    }
    let value = record.value.slice(HEADER..);
    let unknown = || {
        Error::unavailable(format!("a record is authenticated under key {id}, which is not in the keyring"))
    };
    let expected = loaded.record_tag(id, key, record, &value).ok_or_else(unknown)?;
    let tag = header(&record.value).map(|(_, tag)| tag).unwrap_or_default();
    if bool::from(expected.ct_eq(&tag)) {
        return Ok(value);
    }
    Err(Error::corrupt(format!(
        "a record of the kind {} was not written by this store: its tag is wrong",
        key.kind()
    )))
}

/// Returns whether a stored record has a tag that is right.
pub(crate) fn is_genuine(keyring: &SharedKeyring, key: &Key, record: &Record) -> bool {
    is_tagged(key.kind(), &record.value) && verified(keyring, key, record).is_ok()
}

/// Returns whether a stored record must be written again for the active key.
pub(crate) fn needs_tag(key: &Key, record: &Record, ring: &Keyring) -> bool {
    is_protected(key.kind()) && protected_under(key.kind(), &record.value) != Some(ring.active())
}

impl std::fmt::Debug for Authenticated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Authenticated({})", self.inner.info().engine)
    }
}

#[async_trait]
impl Backend for Authenticated {
    fn get<'a, 'b, 'async_trait>(
        &'a self,
        key: &'b Key,
        now: Timestamp,
    ) -> Pin<Box<dyn Future<Output = Result<Option<Record>>> + Send + 'async_trait>>
    where
        'a: 'async_trait,
        'b: 'async_trait,
        Self: 'async_trait,
    {
        let found = self.inner.get(key, now);
        if !is_protected(key.kind()) {
            return found;
        }
        Box::pin(async move { found.await?.map(|record| self.check(key, record)).transpose() })
    }

    async fn get_many(&self, keys: &[Key], now: Timestamp) -> Result<Vec<Option<Record>>> {
        let found = self.inner.get_many(keys, now).await?;
        let check =
            |(key, record): (&Key, Option<Record>)| record.map(|record| self.check(key, record)).transpose();
        keys.iter().zip(found).map(check).collect()
    }

    async fn take(&self, key: &Key, now: Timestamp) -> Result<Option<Record>> {
        self.inner.take(key, now).await?.map(|record| self.check(key, record)).transpose()
    }

    // In the form that `async_trait` gives it: what only passes a call on boxes nothing.
    fn commit<'a, 'async_trait>(
        &'a self,
        batch: Batch,
        now: Timestamp,
    ) -> Pin<Box<dyn Future<Output = Result<Commit>> + Send + 'async_trait>>
    where
        'a: 'async_trait,
        Self: 'async_trait,
    {
        match self.batch(batch) {
            Ok(batch) => self.inner.commit(batch, now),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }

    async fn commit_each(&self, batches: Vec<Batch>, now: Timestamp) -> Result<Vec<Commit>> {
        let batches = batches.into_iter().map(|batch| self.batch(batch)).collect::<Result<_>>()?;
        self.inner.commit_each(batches, now).await
    }

    fn alter<'a, 'b, 'c, 'async_trait>(
        &'a self,
        key: &'b Key,
        alteration: &'c Alteration,
        now: Timestamp,
    ) -> Pin<Box<dyn Future<Output = Result<Altered>> + Send + 'async_trait>>
    where
        'a: 'async_trait,
        'b: 'async_trait,
        'c: 'async_trait,
        Self: 'async_trait,
    {
        // An engine that changes a value by itself has no keyring.
        if is_protected(key.kind()) {
            return Box::pin(defaults::alter(self, key, alteration, now));
        }
        self.inner.alter(key, alteration, now)
    }

    async fn scan(
        &self,
        prefix: &Prefix,
        after: Option<&Cursor>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Page> {
        self.page(self.inner.scan(prefix, after, limit, now).await?)
    }

    delegate!(self => self.inner; sweep info);
}

#[async_trait]
impl Admin for Authenticated {
    async fn list(
        &self,
        prefixes: &[Prefix],
        after: Option<&Cursor>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Page> {
        self.page(self.inner.list(prefixes, after, limit, now).await?)
    }

    delegate!(self => self.inner; count clear erase set_clock_mark stats stats_at_hand clock_mark engine_clock
        warnings backup);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::BackendExt as _;
    use crate::engines::memory::Memory;
    use crate::model::error::ErrorKind;
    use crate::model::rng::SeededRng;
    use crate::model::scope::Scope;

    fn key(name: &str) -> Key {
        Key::new(Kind::Grant, &Scope::Global, &[name.into()], &[]).unwrap()
    }

    #[tokio::test]
    async fn a_row_of_another_hand_is_corrupt() {
        let (rng, now) = (SeededRng::new(1), Timestamp::ZERO);
        let memory: Arc<dyn Admin> = Arc::new(Memory::default());
        let ring = SharedKeyring::new(Keyring::generate(&rng, now));
        let store =
            Authenticated::new(Arc::clone(&memory), ring, Arc::new(SeededRng::new(3)), Untagged::Refused);
        let ends = Timestamp::from_millis(10_000).unwrap();
        assert!(store.put(key("a"), Record::new("alice", ends, &rng), now).await.unwrap().is_applied());
        assert_eq!(store.get(&key("a"), now).await.unwrap().unwrap().value.as_ref(), b"alice");
        let row = memory.get(&key("a"), now).await.unwrap().unwrap();
        assert_eq!(row.value.len(), HEADER + 5);
        let mut changed: Vec<(&str, Record)> = (0..row.value.len())
            .map(|at| {
                let mut value = row.value.to_vec();
                value[at] ^= 1;
                ("a byte is changed", Record { value: value.into(), ..row.clone() })
            })
            .collect();
        changed.push(("a later end", Record { expires_at: Timestamp::NEVER, ..row.clone() }));
        changed.push(("another version", Record::new(row.value.clone(), ends, &rng)));
        changed.push(("no tag", Record { value: "alice".into(), ..row.clone() }));
        for (case, record) in changed {
            let _ = memory.put(key("a"), record, now).await.unwrap();
            let error = store.get(&key("a"), now).await.unwrap_err();
            // A changed key id is one that the ring does not have.
            assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unavailable), "{case}: {error}");
            let prefix = Prefix::kind_wide(Kind::Grant);
            assert!(store.scan(&prefix, None, 10, now).await.is_err(), "{case}");
            assert!(store.get_many(&[key("a")], now).await.is_err(), "{case}");
        }
        let _ = memory.put(key("b"), row.clone(), now).await.unwrap();
        assert_eq!(store.get(&key("b"), now).await.unwrap_err().kind(), ErrorKind::Corrupt, "moved");
        let _ = memory.put(key("a"), row, now).await.unwrap();
        assert!(store.take(&key("a"), now).await.unwrap().is_some());
    }

    #[tokio::test]
    async fn attributes_are_sealed_and_open_where_they_were_written() {
        let (rng, now) = (SeededRng::new(1), Timestamp::ZERO);
        let memory: Arc<dyn Admin> = Arc::new(Memory::default());
        let ring = SharedKeyring::new(Keyring::generate(&rng, now));
        let store =
            Authenticated::new(Arc::clone(&memory), ring, Arc::new(SeededRng::new(3)), Untagged::Accepted);
        let key =
            |name: &str| Key::new(Kind::Attribute, &Scope::Global, &["o".into()], &[name.into()]).unwrap();
        let old = Record::new("\u{1}old", Timestamp::NEVER, &rng);
        let _ = memory.put(key("old"), old, now).await.unwrap();
        assert_eq!(
            store.get(&key("old"), now).await.unwrap().unwrap().value.as_ref(),
            b"\x01old",
            "from before"
        );
        let _ = store.put(key("a"), Record::new("hunter2", Timestamp::NEVER, &rng), now).await.unwrap();
        let row = memory.get(&key("a"), now).await.unwrap().unwrap();
        assert!(!row.value.windows(7).any(|window| window == b"hunter2"));
        assert_eq!(store.get(&key("a"), now).await.unwrap().unwrap().value.as_ref(), b"hunter2");
        let _ = memory.put(key("b"), row, now).await.unwrap();
        assert_eq!(store.get(&key("b"), now).await.unwrap_err().kind(), ErrorKind::Corrupt, "moved");
    }

    #[tokio::test]
    async fn rows_from_before_are_accepted_until_they_are_refused() {
        let (rng, now) = (SeededRng::new(1), Timestamp::ZERO);
        let memory: Arc<dyn Admin> = Arc::new(Memory::default());
        let _ = memory.put(key("a"), Record::new("\u{1}old", Timestamp::NEVER, &rng), now).await.unwrap();
        let ring = SharedKeyring::new(Keyring::generate(&rng, now));
        let store =
            Authenticated::new(Arc::clone(&memory), ring, Arc::new(SeededRng::new(3)), Untagged::Accepted);
        assert!(store.get(&key("a"), now).await.unwrap().is_some());
        store.refuse_untagged();
        assert_eq!(store.get(&key("a"), now).await.unwrap_err().kind(), ErrorKind::Corrupt);
    }
}
