//! Chains of entries: each belongs to one process, which alone appends to it.
//!
//! A process has as many chains in a scope as it has audited changes in flight there at once. A change takes a chain
//! that no other change uses, so that audited changes neither wait for each other nor compete for a record.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::str::FromStr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use minicbor::bytes::ByteArray;
use minicbor::{Decode, Encode};

use super::entry::Note;
use super::mark::ChainMark;
use crate::keyring::{KeyId, Keyring};
use crate::model::codec;
use crate::model::digest::Digest;
use crate::model::error::{Error, Result};
use crate::model::record::{Record, Version};
use crate::model::rng::Rng;
use crate::model::scope::Scope;
use crate::model::time::Timestamp;

/// Scopes whose chains a process keeps. Beyond them it begins new chains, which costs a head for each.
const MOST_SCOPES: usize = 10_000;

/// Id of a chain: the process that writes it, and its number in that process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChainId([u8; ChainId::BYTES]);

impl ChainId {
    const BYTES: usize = 10;

    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let wrong = |_| Error::corrupt("the id of a chain of the audit log has another length");
        bytes.try_into().map(Self).map_err(wrong)
    }

    pub(super) fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }

    /// Chain of that number of a process; none if no process has an id of this length.
    pub(super) fn from_parts(process: &[u8], number: u16) -> Option<Self> {
        let mut id = [0; Self::BYTES];
        id[..8].copy_from_slice(process.get(..8).filter(|_| process.len() == 8)?);
        id[8..].copy_from_slice(&number.to_be_bytes());
        Some(Self(id))
    }

    /// Process, and number of the chain in it.
    pub(super) fn parts(&self) -> ([u8; 8], u16) {
        (std::array::from_fn(|index| self.0[index]), u16::from_be_bytes([self.0[8], self.0[9]]))
    }

    /// Id of the process, which mints it when it writes its first entry.
    #[must_use]
    pub fn process(&self) -> String {
        format!("{:016x}", u64::from_be_bytes(self.parts().0))
    }
}

impl fmt::Display for ChainId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.process(), self.parts().1)
    }
}

impl fmt::Debug for ChainId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChainId({self})")
    }
}

impl FromStr for ChainId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || Error::invalid("a chain is 16 hexadecimal digits, a hyphen and a number");
        let (process, number) = text.split_once('-').ok_or_else(wrong)?;
        if process.len() != 16 || !process.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let mut id = [0; Self::BYTES];
        id[..8].copy_from_slice(&u64::from_str_radix(process, 16).map_err(|_| wrong())?.to_be_bytes());
        id[8..].copy_from_slice(&number.parse::<u16>().map_err(|_| wrong())?.to_be_bytes());
        Ok(Self(id))
    }
}

/// Chains of one process.
#[derive(Default)]
pub(crate) struct Chains(Mutex<OpenChains>);

#[derive(Default)]
struct OpenChains {
    process: Option<[u8; 8]>,
    scopes: HashMap<Scope, OfScope>,
}

#[derive(Default)]
struct OfScope {
    next: u16,
    idle: Vec<Chain>,
    /// Ends that are known to be written, for checkpoints.
    written: BTreeMap<ChainId, Head>,
    changed: bool,
}

/// Chain that one change uses.
pub(crate) struct Chain {
    pub(super) id: ChainId,
    pub(super) head: Head,
    /// Version of the stored head; none before the first entry.
    pub(super) version: Option<Version>,
    /// Time of the last entry. A change that began before it may take the chain after it.
    pub(super) at: Timestamp,
}

impl Chains {
    fn open(&self) -> MutexGuard<'_, OpenChains> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a chain of `scope` that no other change uses.
    pub(super) fn take(&self, scope: &Scope, rng: &dyn Rng) -> Chain {
        let mut open = self.open();
        if open.scopes.len() >= MOST_SCOPES && !open.scopes.contains_key(scope) {
            open.scopes.retain(|_, of| of.changed);
            // A scope that is used again must not continue a chain that was forgotten.
            open.process = None;
        }
        let process = *open.process.get_or_insert_with(|| rng.bytes());
        let of = open.scopes.entry(scope.clone()).or_default();
        of.idle.pop().unwrap_or_else(|| {
            let mut id = [0; ChainId::BYTES];
            id[..8].copy_from_slice(&process);
            id[8..].copy_from_slice(&of.next.to_be_bytes());
            of.next = of.next.wrapping_add(1);
            Chain { id: ChainId(id), head: Head::genesis(), version: None, at: Timestamp::ZERO }
        })
    }

    /// Returns a chain after a commit that was applied.
    pub(super) fn appended(&self, scope: &Scope, chain: Chain) {
        let mut open = self.open();
        let of = open.scopes.entry(scope.clone()).or_default();
        of.written.insert(chain.id, chain.head.clone());
        of.changed = true;
        of.idle.push(chain);
    }

    /// Returns a chain whose entry was not written.
    pub(super) fn unused(&self, scope: &Scope, chain: Chain) {
        self.open().scopes.entry(scope.clone()).or_default().idle.push(chain);
    }

    /// Forgets a chain whose stored end is not the one that this process wrote: its scope was deleted, or its log was
    /// changed by someone else.
    pub(super) fn forget(&self, scope: &Scope, chain: &Chain) {
        if let Some(of) = self.open().scopes.get_mut(scope) {
            of.written.remove(&chain.id);
        }
    }

    /// Ends of the chains of `scope` that this process has written.
    pub(super) fn written(&self, scope: &Scope) -> Vec<ChainMark> {
        self.open().scopes.get(scope).map_or_else(Vec::new, |of| marks(&of.written))
    }

    /// Scopes with entries since the last checkpoint, with the ends of their chains. They count as checkpointed.
    pub(super) fn changed(&self) -> Vec<(Scope, Vec<ChainMark>)> {
        let mut open = self.open();
        let changed = open.scopes.iter_mut().filter(|(_, of)| of.changed);
        changed
            .map(|(scope, of)| {
                of.changed = false;
                (scope.clone(), marks(&of.written))
            })
            .collect()
    }

    /// Marks a scope as changed again, after its checkpoint could not be written.
    pub(super) fn not_checkpointed(&self, scope: &Scope) {
        self.open().scopes.entry(scope.clone()).or_default().changed = true;
    }

    /// Id of the process, once it has written an entry.
    pub(super) fn process(&self) -> Option<[u8; 8]> {
        self.open().process
    }
}

fn marks(written: &BTreeMap<ChainId, Head>) -> Vec<ChainMark> {
    written.iter().map(|(id, head)| head.mark(Some(*id))).collect()
}

/// Stored entry of a chain. The hash covers the stored bytes of the body, so that another encoding cannot break the
/// chain; the tag authenticates the hash, so that nobody without the keyring makes an entry.
#[derive(Clone, Encode, Decode)]
pub(super) struct Link {
    #[n(0)]
    #[cbor(with = "minicbor::bytes")]
    pub(super) body: Vec<u8>,
    #[n(1)]
    pub(super) previous: ByteArray<32>,
    /// Expiry of the entry before this one.
    #[n(2)]
    pub(super) previous_expires_at: u64,
    #[n(3)]
    pub(super) hash: ByteArray<32>,
    #[n(4)]
    pub(super) sequence: u64,
    #[n(5)]
    pub(super) key: ByteArray<4>,
    #[n(6)]
    pub(super) tag: ByteArray<32>,
}

const ENTRY_TAG: &str = "audit-entry";
const HEAD_TAG: &str = "audit-head";

impl Link {
    pub(super) fn new(
        scope: &Scope,
        chain: &Chain,
        note: &Note,
        at: Timestamp,
        expires_at: Timestamp,
        keyring: &Keyring,
    ) -> Result<Self> {
        let sequence = chain.head.sequence.checked_add(1);
        let mut link = Self {
            body: note.encoded(at),
            previous: chain.head.hash,
            previous_expires_at: chain.head.expires_at,
            hash: [0; 32].into(),
            sequence: sequence
                .ok_or_else(|| Error::corrupt("a chain of the audit log is at its last number"))?,
            key: (*keyring.active().as_bytes()).into(),
            tag: [0; 32].into(),
        };
        link.hash = link.computed_hash(scope, chain.id, expires_at).into();
        link.sign(keyring)?;
        Ok(link)
    }

    /// Signs the hash with the active key.
    pub(super) fn sign(&mut self, keyring: &Keyring) -> Result<()> {
        let id = keyring.active();
        let tag = keyring.mac(id, ENTRY_TAG, &[&self.hash[..]]).ok_or_else(no_key)?;
        (self.key, self.tag) = ((*id.as_bytes()).into(), tag.into());
        Ok(())
    }

    /// Computes the hash. It covers scope, chain, number and expiry too, so that an entry fits nowhere else.
    fn computed_hash(&self, scope: &Scope, chain: ChainId, expires_at: Timestamp) -> [u8; 32] {
        let scope = scope.to_string();
        let parts: [&[u8]; 7] = [
            scope.as_bytes(),
            chain.as_bytes(),
            &self.sequence.to_be_bytes(),
            &self.previous[..],
            &self.previous_expires_at.to_be_bytes(),
            &expires_at.as_millis().to_be_bytes(),
            &self.body,
        ];
        *Digest::of("audit-chain", &parts).as_bytes()
    }

    /// Returns whether hash and tag are right for an entry of this chain.
    pub(super) fn is_genuine(
        &self,
        scope: &Scope,
        chain: ChainId,
        expires_at: Timestamp,
        keyring: &Keyring,
    ) -> bool {
        let key = KeyId::from_bytes(*self.key);
        *self.hash == self.computed_hash(scope, chain, expires_at)
            && keyring.verify(key, ENTRY_TAG, &[&self.hash[..]], &self.tag[..])
    }

    pub(super) fn head(&self, expires_at: Timestamp) -> Head {
        Head { sequence: self.sequence, hash: self.hash, expires_at: expires_at.as_millis() }
    }
}

/// End of a chain.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub(super) struct Head {
    #[n(0)]
    pub(super) sequence: u64,
    #[n(1)]
    pub(super) hash: ByteArray<32>,
    /// Expiry of the last entry.
    #[n(2)]
    pub(super) expires_at: u64,
}

impl Head {
    pub(super) fn genesis() -> Self {
        Self { sequence: 0, hash: [0; 32].into(), expires_at: 0 }
    }

    pub(super) fn expires_at(&self) -> Result<Timestamp> {
        Timestamp::from_stored(self.expires_at)
    }

    pub(super) fn mark(&self, chain: Option<ChainId>) -> ChainMark {
        ChainMark {
            chain,
            sequence: self.sequence,
            hash: Digest::from_bytes(*self.hash),
            expires_at: Some(self.expires_at),
        }
    }

    /// Bytes of a stored head: the head, and its tag.
    pub(super) fn signed(&self, scope: &Scope, chain: ChainId, keyring: &Keyring) -> Result<Vec<u8>> {
        let key = keyring.active();
        let body = codec::encode(self);
        let tag = keyring.mac(key, HEAD_TAG, &[scope.to_string().as_bytes(), chain.as_bytes(), &body]);
        let tag = tag.ok_or_else(no_key)?;
        Ok(codec::encode(&SignedHead { body, key: (*key.as_bytes()).into(), tag: tag.into() }))
    }

    /// Stored head under the active key; none if it is already.
    pub(super) fn resealed(
        record: &Record,
        scope: &Scope,
        chain: ChainId,
        keyring: &Keyring,
    ) -> Result<Option<Vec<u8>>> {
        let signed: SignedHead = codec::decode(&record.value)?;
        if *signed.key == *keyring.active().as_bytes() {
            return Ok(None);
        }
        let head = Self::read(record, scope, chain, keyring)
            .ok_or_else(|| Error::corrupt("the head of a chain of the audit log is not genuine"))?;
        head.signed(scope, chain, keyring).map(Some)
    }

    /// Reads a stored head; none if somebody else wrote it.
    pub(super) fn read(record: &Record, scope: &Scope, chain: ChainId, keyring: &Keyring) -> Option<Self> {
        let signed: SignedHead = codec::decode(&record.value).ok()?;
        let scope = scope.to_string();
        let parts: [&[u8]; 3] = [scope.as_bytes(), chain.as_bytes(), &signed.body];
        let genuine = keyring.verify(KeyId::from_bytes(*signed.key), HEAD_TAG, &parts, &signed.tag[..]);
        codec::decode(&signed.body).ok().filter(|_| genuine)
    }
}

#[derive(Encode, Decode)]
struct SignedHead {
    #[n(0)]
    #[cbor(with = "minicbor::bytes")]
    body: Vec<u8>,
    #[n(1)]
    key: ByteArray<4>,
    #[n(2)]
    tag: ByteArray<32>,
}

pub(super) fn no_key() -> Error {
    Error::corrupt("the active key is not in the keyring")
}
