//! Checkpoints: what each process has written, authenticated, and kept apart from the log.
//!
//! A checkpoint stands in another table than the log. A log that is cut at its end, or emptied as a whole, lacks what
//! the last checkpoint has. The first entry of a chain is checkpointed in its own commit, later ones each minute and
//! when a store is closed.

use minicbor::bytes::ByteArray;
use minicbor::{Decode, Encode};

use super::chain::{ChainId, no_key};
use super::mark::{ChainMark, Mark};
use super::verify::{Break, ChainFault};
use super::{Audit, PAGE};
use crate::keyring::{KeyId, Keyring};
use crate::model::codec;
use crate::model::digest::Digest;
use crate::model::error::Result;
use crate::model::key::{Key, Part, Prefix};
use crate::model::kind::Kind;
use crate::model::scope::Scope;
use crate::model::time::Timestamp;
use crate::model::write::{Batch, Write};
use crate::stores::Stores;
use crate::stores::shared::paging::Pages;
use crate::timekeeping::Now;

const TAG: &str = "audit-checkpoint";
pub(super) const PARTITION: &str = "audit-checkpoint";

/// Chains of one checkpoint record; a process with more writes several.
const MOST_CHAINS: usize = 1_000;

/// Number of the checkpoint that is written with the first entry of a chain, beside the number of the chain. Those of
/// a whole process count from zero.
const FIRST: u64 = 1 << 32;

/// Result of [`Stores::checkpoint_audit`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct AuditCheckpoint {
    /// Ends of the chains of each scope that had entries since the last checkpoint.
    pub scopes: Vec<(Scope, Mark)>,
    /// Digest of all of them.
    pub digest: Option<Digest>,
}

#[derive(Encode, Decode)]
struct StoredCheckpoint {
    #[n(0)]
    #[cbor(with = "minicbor::bytes")]
    body: Vec<u8>,
    #[n(1)]
    key: ByteArray<4>,
    #[n(2)]
    tag: ByteArray<32>,
}

#[derive(Encode, Decode)]
struct StoredMark {
    #[n(0)]
    #[cbor(with = "minicbor::bytes")]
    chain: Vec<u8>,
    #[n(1)]
    sequence: u64,
    #[n(2)]
    hash: ByteArray<32>,
    #[n(3)]
    expires_at: u64,
}

impl Stores {
    /// Writes a checkpoint of every scope that this process has audited changes in since the last one.
    pub async fn checkpoint_audit(&self) -> Result<AuditCheckpoint> {
        let mut changed = self.chains().changed();
        changed.sort_by_cached_key(|(scope, _)| scope.to_string());
        let mut checkpoint = AuditCheckpoint::default();
        let mut failed = None;
        for (scope, mut marks) in changed {
            if failed.is_none() {
                match self.audit(&scope).write_checkpoint(&mut marks).await {
                    Ok(()) => {
                        checkpoint.scopes.push((scope, Mark(marks)));
                        continue;
                    }
                    Err(error) => failed = Some(error),
                }
            }
            self.chains().not_checkpointed(&scope);
        }
        if let Some(error) = failed {
            return Err(error);
        }
        if !checkpoint.scopes.is_empty() {
            let lines: Vec<_> =
                checkpoint.scopes.iter().map(|(scope, mark)| format!("{scope} {mark}")).collect();
            let parts: Vec<_> = lines.iter().map(String::as_bytes).collect();
            checkpoint.digest = Some(Digest::of(TAG, &parts));
        }
        Ok(checkpoint)
    }
}

impl Audit {
    async fn write_checkpoint(&self, marks: &mut Vec<ChainMark>) -> Result<()> {
        let Some(process) = self.stores.chains().process() else { return Ok(()) };
        let now = self.stores.now()?;
        // The end of a log from before: from now on nobody can add to it unnoticed.
        if let Some((head, _)) = self.legacy_head(now).await? {
            marks.push(head.mark(None));
        }
        let keyring = self.stores.keyring();
        for (number, marks) in (0_u64..).zip(marks.chunks(MOST_CHAINS)) {
            let key = self.checkpoint_key(process, number)?;
            let ends = marks.iter().filter_map(|mark| mark.expires_at).max().unwrap_or_default();
            let record = self.stores.record(signed(&key, marks, &keyring)?, Timestamp::from_stored(ends)?);
            let _ = self.stores.backend().commit(Batch::new(vec![Write::Put { key, record }])?, now).await?;
        }
        Ok(())
    }

    fn checkpoint_key(&self, process: [u8; 8], number: u64) -> Result<Key> {
        Key::new(Kind::System, &self.scope, &[PARTITION.into()], &[process.as_slice().into(), number.into()])
    }

    /// Write of the checkpoint that goes with the first entry of a chain.
    pub(super) fn first_checkpoint(
        &self,
        mark: &ChainMark,
        expires_at: Timestamp,
        keyring: &Keyring,
    ) -> Result<Write> {
        let (process, number) = mark.chain.map(|chain| chain.parts()).unwrap_or_default();
        let key = self.checkpoint_key(process, FIRST + u64::from(number))?;
        let record = self.stores.record(signed(&key, std::slice::from_ref(mark), keyring)?, expires_at);
        Ok(Write::Put { key, record })
    }

    /// Ends of chains that every process has checkpointed, or the fault of a checkpoint of another hand.
    pub(super) async fn checkpointed(
        &self,
        now: Now,
    ) -> Result<std::result::Result<Vec<ChainMark>, ChainFault>> {
        let prefix = Prefix::partition(Kind::System, &self.scope, &[PARTITION.into()], &[])?;
        let (mut pages, mut marks) = (Pages::new(&self.stores, &prefix, PAGE).at(now), Vec::new());
        let keyring = self.stores.keyring();
        while let Some(items) = pages.next().await? {
            for (key, record) in &items {
                match read(key, &record.value, &keyring) {
                    Ok(some) => marks.extend(some),
                    Err(_) => return Ok(Err((chain_of(key), 0, Break::Checkpoint))),
                }
            }
        }
        Ok(Ok(marks))
    }
}

/// Chain that the key of a checkpoint names, or the first one of its process.
fn chain_of(key: &Key) -> Option<ChainId> {
    let sort = key.sort();
    let [Part::Bytes(process), Part::Int(number)] = sort.as_slice() else { return None };
    let number = number.saturating_sub(FIRST);
    ChainId::from_parts(process, u16::try_from(number).ok()?)
}

fn signed(key: &Key, marks: &[ChainMark], keyring: &Keyring) -> Result<Vec<u8>> {
    let stored = |mark: &ChainMark| StoredMark {
        chain: mark.chain.map_or_else(Vec::new, |chain| chain.as_bytes().to_vec()),
        sequence: mark.sequence,
        hash: (*mark.hash.as_bytes()).into(),
        expires_at: mark.expires_at.unwrap_or_default(),
    };
    let body = codec::encode(&marks.iter().map(stored).collect::<Vec<_>>());
    let id = keyring.active();
    let tag = keyring.mac(id, TAG, &[key.as_bytes(), &body]).ok_or_else(no_key)?;
    Ok(codec::encode(&StoredCheckpoint { body, key: (*id.as_bytes()).into(), tag: tag.into() }))
}

/// Stored checkpoint under the active key; none if it is already.
pub(super) fn resealed(key: &Key, value: &[u8], keyring: &Keyring) -> Result<Option<Vec<u8>>> {
    let stored: StoredCheckpoint = codec::decode(value)?;
    if *stored.key == *keyring.active().as_bytes() {
        return Ok(None);
    }
    signed(key, &read(key, value, keyring)?, keyring).map(Some)
}

fn read(key: &Key, value: &[u8], keyring: &Keyring) -> Result<Vec<ChainMark>> {
    let stored: StoredCheckpoint = codec::decode(value)?;
    if !keyring.verify(KeyId::from_bytes(*stored.key), TAG, &[key.as_bytes(), &stored.body], &stored.tag[..])
    {
        return Err(crate::Error::corrupt("a checkpoint of the audit log was not written by this store"));
    }
    let marks: Vec<StoredMark> = codec::decode(&stored.body)?;
    let mark = |mark: StoredMark| {
        Ok(ChainMark {
            chain: (!mark.chain.is_empty()).then(|| ChainId::from_bytes(&mark.chain)).transpose()?,
            sequence: mark.sequence,
            hash: Digest::from_bytes(*mark.hash),
            expires_at: Some(mark.expires_at),
        })
    };
    marks.into_iter().map(mark).collect()
}
