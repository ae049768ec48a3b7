//! Records as they are stored: a byte of shape, then the sealed state.

use std::time::Duration;

use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};

use super::types::{FoundRecord, ListedRecord, RecordId, RecordValue};
use crate::keyring::Keyring;
use crate::model::codec;
use crate::model::error::{Error, Result};
use crate::model::key::Key;
use crate::model::record::{Record, Version};
use crate::model::rng::Rng;
use crate::model::time::Timestamp;
use crate::stores::Stores;
use crate::stores::shared::belongings::Parent;
use crate::stores::shared::parents::ParentName;

/// Shape of a record that stands by itself: the engine may touch or take it without knowing more.
pub(super) const PLAIN: u8 = 1;

/// Shape of a record with second keys, a group, a cap or something that it belongs to, or that is retained after its end.
pub(super) const LINKED: u8 = 2;

/// State of a record, sealed.
#[derive(Debug, Clone, Encode, Decode)]
pub(super) struct RecordContent {
    #[n(0)]
    pub(super) id: ByteVec,
    #[n(1)]
    value: ByteVec,
    #[n(2)]
    json: bool,
    #[n(3)]
    consumed_at: Option<u64>,
    #[n(4)]
    pub(super) group: Option<String>,
    #[n(5)]
    pub(super) keys: Vec<String>,
    /// End of the record, where it is retained; the engine has the end of the retention.
    #[n(6)]
    ends_at: Option<u64>,
    #[n(7)]
    pub(super) retain_millis: Option<u64>,
    /// Latest end that a touch or a renewal gives.
    #[n(8)]
    cap_at: Option<u64>,
    /// Lifetime that a read renews.
    #[n(9)]
    slide_millis: Option<u64>,
    /// Names of what it belongs to.
    #[n(10)]
    parent: Option<Vec<String>>,
    /// Birth of what it belongs to.
    #[n(11)]
    parent_born: Option<u64>,
}

impl RecordContent {
    pub(super) fn new(id: &RecordId, value: &RecordValue) -> Self {
        Self {
            id: id.as_bytes().to_vec().into(),
            value: value.bytes.to_vec().into(),
            json: value.json,
            consumed_at: None,
            group: None,
            keys: Vec::new(),
            ends_at: None,
            retain_millis: None,
            cap_at: None,
            slide_millis: None,
            parent: None,
            parent_born: None,
        }
    }

    pub(super) fn belong_to(&mut self, parent: &Parent, born: Option<u64>) {
        (self.parent, self.parent_born) = (Some(parent.parts()), born);
    }

    /// Name of what it belongs to.
    pub(super) fn parent_name(&self) -> Option<ParentName> {
        self.parent.clone().map(|parts| ParentName::of_parts(parts, self.parent_born))
    }

    /// Returns true if it belongs to another record.
    pub(super) fn is_child(&self) -> bool {
        self.parent.is_some()
    }

    /// Record that it belongs to.
    pub(super) fn parent(&self) -> Result<Option<Parent>> {
        self.parent.as_deref().map(Parent::read).transpose()
    }

    /// Bounds the lifetime, and lets reads renew it for `slide`.
    pub(super) fn bound(&mut self, cap_at: Timestamp, slide: Option<Duration>) {
        self.cap_at = Some(cap_at.as_millis());
        self.slide_millis = slide.map(|slide| u64::try_from(slide.as_millis()).unwrap_or(u64::MAX));
    }

    /// Takes over all but the value from the record that it replaces.
    pub(super) fn inheriting(self, from: &Self) -> Self {
        Self { value: self.value, json: self.json, ..from.clone() }
    }

    pub(super) fn cap_at(&self) -> Result<Option<Timestamp>> {
        self.cap_at.map(Timestamp::from_stored).transpose()
    }

    pub(super) fn slide(&self) -> Option<Duration> {
        self.slide_millis.map(Duration::from_millis)
    }

    pub(super) fn is_linked(&self) -> bool {
        let has_names = self.group.is_some() || !self.keys.is_empty() || self.is_child();
        has_names || self.retain_millis.is_some() || self.cap_at.is_some()
    }

    pub(super) fn id(&self) -> RecordId {
        self.id.to_vec().into()
    }

    pub(super) fn consume(&mut self, at: Timestamp) {
        self.consumed_at = Some(at.as_millis());
    }

    pub(super) fn consumed_at(&self) -> Result<Option<Timestamp>> {
        self.consumed_at.map(Timestamp::from_stored).transpose()
    }
}

/// Record that the engine holds, live or retained.
#[derive(Debug, Clone)]
pub(super) struct OpenedRecord {
    pub(super) record: Record,
    pub(super) state: RecordContent,
}

impl OpenedRecord {
    /// End of the record.
    pub(super) fn ends_at(&self) -> Result<Timestamp> {
        self.state.ends_at.map_or(Ok(self.record.expires_at), Timestamp::from_stored)
    }

    pub(super) fn found(&self) -> Result<FoundRecord> {
        let RecordContent { value, json, group, .. } = &self.state;
        Ok(FoundRecord {
            id: self.state.id(),
            value: RecordValue { bytes: value.to_vec().into(), json: *json },
            version: self.record.version,
            expires_at: self.ends_at()?,
            consumed_at: self.state.consumed_at()?,
            group: group.clone(),
            cap_at: self.state.cap_at()?,
            slides: self.state.slide().is_some(),
        })
    }

    pub(super) fn listed(&self) -> Result<ListedRecord> {
        Ok(ListedRecord {
            id: self.state.id(),
            version: self.record.version,
            expires_at: self.ends_at()?,
            consumed_at: self.state.consumed_at()?,
            group: self.state.group.clone(),
        })
    }
}

/// Entry of a second key: the id and the group of its record. Its version is the record's.
#[derive(Debug, Clone, Encode, Decode)]
pub(super) struct KeyEntry {
    #[n(0)]
    pub(super) id: ByteVec,
    #[n(1)]
    pub(super) group: Option<String>,
}

/// Mints a version whose last bit is set for a linked record, so that a condition on a version tells the shape.
fn mint(rng: &dyn Rng, linked: bool) -> Version {
    let mut bytes = *Version::mint(rng).as_bytes();
    bytes[15] = bytes[15] & !1 | u8::from(linked);
    Version::from_bytes(bytes)
}

/// Returns true if the version is of a record that stands by itself.
pub(super) fn is_plain(version: Version) -> bool {
    version.as_bytes()[15] & 1 == 0
}

/// Returns true if the value is of a record that stands by itself.
pub(super) fn has_plain_shape(record: &Record) -> bool {
    record.value.first() == Some(&PLAIN)
}

impl Stores {
    pub(super) fn mint_plain(&self) -> Version {
        mint(self.rng(), false)
    }

    /// Seals a state for the record at `key`, with its end, and with the time of its retention behind it.
    pub(super) fn seal_record(&self, key: &Key, state: RecordContent, ends_at: Timestamp) -> Result<Record> {
        self.seal_record_with(&self.keyring(), key, state, ends_at)
    }

    /// The same with a keyring that is at hand, for several records.
    pub(super) fn seal_record_with(
        &self,
        keyring: &Keyring,
        key: &Key,
        mut state: RecordContent,
        ends_at: Timestamp,
    ) -> Result<Record> {
        let mut expires_at = ends_at;
        if let Some(retain) = state.retain_millis {
            state.ends_at = Some(ends_at.as_millis());
            expires_at = ends_at.checked_add(Duration::from_millis(retain))?;
        }
        let linked = state.is_linked();
        let shape = if linked { LINKED } else { PLAIN };
        let plain = zeroize::Zeroizing::new(codec::encode(&state));
        let mut value = Vec::with_capacity(1 + Keyring::SEALED_BYTES + plain.len());
        value.push(shape);
        keyring.seal_into(&mut value, key, &[shape], &plain, self.rng());
        Ok(Record { value: value.into(), version: mint(self.rng(), linked), expires_at })
    }

    /// Opens the record at `key`.
    pub(super) fn open_record(&self, key: &Key, record: Record) -> Result<OpenedRecord> {
        let (shape, sealed) = record
            .value
            .split_first()
            .filter(|(shape, _)| matches!(**shape, PLAIN | LINKED))
            .ok_or_else(|| Error::corrupt("a record has a shape that this build does not know"))?;
        let state = codec::decode(&self.keyring_for(sealed).open(key, &[*shape], sealed)?)?;
        Ok(OpenedRecord { record, state })
    }

    /// Seals the entry of a second key at `key`, with the version and the engine's end of its record.
    pub(super) fn seal_entry(&self, key: &Key, of: &RecordContent, record: &Record) -> Record {
        let entry = KeyEntry { id: of.id.clone(), group: of.group.clone() };
        let value = self.keyring().seal(key, &[], &codec::encode(&entry), self.rng());
        Record { value: value.into(), version: record.version, expires_at: record.expires_at }
    }

    pub(super) fn open_entry(&self, key: &Key, record: &Record) -> Result<KeyEntry> {
        codec::decode(&self.keyring_for(&record.value).open(key, &[], &record.value)?)
    }
}
