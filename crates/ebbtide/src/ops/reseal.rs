//! Moving every sealed and authenticated record to the active key of the keyring.

use std::collections::BTreeMap;
use std::sync::Arc;

use minicbor::bytes::{ByteArray, ByteVec};
use minicbor::{Decode, Encode};

use crate::admin::Admin;
use crate::backend::{BackendExt as _, Cursor};
use crate::keyring::{KeyId, Keyring};
use crate::layers::authenticated::{self, protected_under};
use crate::model::codec;
use crate::model::error::Result;
use crate::model::key::{Key, Prefix};
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::rng::Rng;
use crate::model::scope::Scope;
use crate::model::time::Timestamp;
use crate::model::write::{Batch, Write};
use crate::ops::ring::Rings;
use crate::stores::Stores;
use crate::stores::shared::payload::Resealing;
use crate::stores::{audit, grants, registry};

/// Records of one step.
const PAGE: usize = 500;

/// Progress of a reseal.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Resealed {
    /// Records that were looked at.
    pub looked: u64,
    /// Records that were moved to the active key.
    pub moved: u64,
    /// Records that another writer changed meanwhile. Whoever writes a record uses the active key.
    pub changed: u64,
}

#[derive(Encode, Decode)]
struct StoredProgress {
    #[n(0)]
    to: ByteArray<4>,
    #[n(1)]
    place: ByteVec,
    #[n(2)]
    looked: u64,
    #[n(3)]
    moved: u64,
    #[n(4)]
    changed: u64,
}

/// Moves sealed values and tags to the active key, in steps of a bounded size that any process can resume. Values,
/// versions and expiries stay as they are.
pub struct Resealer {
    stores: Stores,
    engine: Arc<dyn Admin>,
    rng: Arc<dyn Rng>,
    to: KeyId,
    after: Option<Cursor>,
    done: Resealed,
}

impl std::fmt::Debug for Resealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Resealer({}, {:?})", self.to, self.done)
    }
}

impl Resealer {
    /// Resumes the reseal to the active key, or begins one.
    pub async fn start(
        stores: &Stores,
        engine: &Arc<dyn Admin>,
        rng: Arc<dyn Rng>,
        now: Timestamp,
    ) -> Result<Self> {
        let to = stores.keyring().active();
        let mut resealer = Self {
            stores: stores.clone(),
            engine: Arc::clone(engine),
            rng,
            to,
            after: None,
            done: Resealed::default(),
        };
        if let Some(record) = engine.get(&place()?, now).await? {
            let stored: StoredProgress = codec::decode(&record.value)?;
            if *stored.to == *to.as_bytes() {
                resealer.after = Some(Cursor::from_bytes(stored.place.to_vec()));
                resealer.done =
                    Resealed { looked: stored.looked, moved: stored.moved, changed: stored.changed };
            }
        }
        Ok(resealer)
    }

    /// Progress, with that of the processes before.
    #[must_use]
    pub fn done(&self) -> &Resealed {
        &self.done
    }

    /// Moves some records, and returns whether there may be more. At the end, the store is marked as one whose records
    /// are all authenticated.
    pub async fn step(&mut self, now: Timestamp) -> Result<bool> {
        let page = self.engine.list(&prefixes(), self.after.as_ref(), PAGE, now).await?;
        let (mut batches, mut looked) = (Vec::new(), 0);
        for (key, record) in page.items {
            looked += 1;
            if let Some(value) = moved(&self.stores, &key, &record)? {
                let expected = record.version;
                let record = Record { value: value.into(), ..record };
                batches.push(Batch::new(vec![Write::Replace { key, expected, record }])?);
            }
        }
        let tried = batches.len() as u64;
        if tried > 0 {
            let commits = self.engine.commit_each(batches, now).await?;
            let moved = commits.iter().filter(|commit| commit.is_applied()).count() as u64;
            self.done.moved += moved;
            self.done.changed += tried - moved;
        }
        self.done.looked += looked;
        self.after = page.next;
        let Some(after) = &self.after else {
            let rings = Rings::new(self.engine.as_ref(), self.rng.as_ref(), now);
            rings.set_authenticated(&self.stores.keyring()).await?;
            self.stores.refuse_untagged();
            let _ = self.engine.delete(place()?, now).await?;
            return Ok(false);
        };
        let stored = StoredProgress {
            to: (*self.to.as_bytes()).into(),
            place: after.as_bytes().to_vec().into(),
            looked: self.done.looked,
            moved: self.done.moved,
            changed: self.done.changed,
        };
        let record = Record::new(codec::encode(&stored), Timestamp::NEVER, self.rng.as_ref());
        let _ = self.engine.put(place()?, record, now).await?;
        Ok(true)
    }
}

/// Counts the records that depend on the key `id`, by kind: sealed, authenticated, with refresh tokens derived from
/// it, or a code of six digits that is compared with it. It reads the whole store.
pub async fn uses(
    stores: &Stores,
    engine: &dyn Admin,
    id: KeyId,
    now: Timestamp,
) -> Result<BTreeMap<Kind, u64>> {
    let (mut uses, mut after) = (BTreeMap::new(), None);
    loop {
        let page = engine.list(&prefixes(), after.as_ref(), PAGE, now).await?;
        for (key, record) in &page.items {
            if depends_on(stores, (key, record), id, now)? {
                *uses.entry(key.kind()).or_default() += 1;
            }
        }
        after = page.next;
        if after.is_none() {
            return Ok(uses);
        }
    }
}

/// Returns whether a record depends on the key `id`. One that is sealed under another key than the active one counts for
/// all keys but that one: `reseal` comes before the first retirement.
fn depends_on(stores: &Stores, (key, record): (&Key, &Record), id: KeyId, now: Timestamp) -> Result<bool> {
    let kind = key.kind();
    if protected_under(kind, &record.value) == Some(id) {
        return Ok(true);
    }
    let value = authenticated::value_of(kind, &record.value);
    let derives = match kind {
        Kind::Grant => grants::derives_with(value) == Some(id),
        Kind::ProviderToken => Keyring::sealed_under(value) == Some(id),
        _ => registry::depends_on(kind, value, id, now)?,
    };
    Ok(derives || moved(stores, key, record)?.is_some())
}

/// Stored value of a record under the active key; none if it is already.
fn moved(stores: &Stores, key: &Key, record: &Record) -> Result<Option<Vec<u8>>> {
    if matches!(key.kind(), Kind::Audit | Kind::System) {
        return audit::resealed(stores, key, record);
    }
    let keyring = stores.shared_keyring();
    // A row without a tag is not given one in a store whose rows all have one: somebody else wrote it.
    let value = stores.verified(key, record)?;
    let resealed = registry::reseal(stores, Resealing::at(key), &value)?;
    if resealed.is_none() && !authenticated::needs_tag(key, record, &stores.keyring()) {
        return Ok(None);
    }
    let value = resealed.map_or(value, Into::into);
    let plain = Record { value, ..record.clone() };
    Ok(Some(authenticated::protected(keyring, key, &plain, stores.rng()).to_vec()))
}

fn prefixes() -> Vec<Prefix> {
    Kind::ALL.iter().copied().filter(|kind| !kind.is_probe()).map(Prefix::kind_wide).collect()
}

fn place() -> Result<Key> {
    Key::new(Kind::System, &Scope::Global, &["reseal".into()], &[])
}
