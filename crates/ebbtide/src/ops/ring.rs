//! The keyring as a store knows it: the ids of its keys, what the nodes have, and whether every record is
//! authenticated.
//!
//! A store remembers the keys that it was used with. A ring that has none of them, or another secret under the same id,
//! is a stranger's and is refused at opening. So is one with another secret under the id of the naming key.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use minicbor::bytes::ByteArray;
use minicbor::{Decode, Encode};

use crate::admin::Admin;
use crate::backend::BackendExt as _;
use crate::keyring::shared::SharedKeyring;
use crate::keyring::{KeyId, Keyring, NamingKey};
use crate::layers::authenticated::{is_authenticated, is_genuine, is_sealed};
use crate::model::codec;
use crate::model::error::{Error, Result};
use crate::model::key::{Key, Part, Prefix};
use crate::model::kind::Kind;
use crate::model::record::{Record, Version};
use crate::model::rng::Rng;
use crate::model::scope::Scope;
use crate::model::time::Timestamp;
use crate::model::write::{Batch, Write};

const PARTITION: &str = "keyring";
const NODES: &str = "keyring-nodes";
const PROOF: &str = "ring";
const NOTE: &str = "ring-note";

/// Attempts against other nodes that open at the same time.
const ATTEMPTS: usize = 16;

/// Time after which a node that reports no more counts as gone.
const REPORTED: std::time::Duration = std::time::Duration::from_secs(30);

#[derive(Clone, PartialEq, Encode, Decode)]
struct StoredKey {
    #[n(0)]
    id: ByteArray<4>,
    /// MAC under the key: tells the key apart from another with the same id.
    #[n(1)]
    proof: ByteArray<32>,
}

#[derive(Clone, PartialEq, Encode, Decode)]
struct StoredRing {
    #[n(0)]
    keys: Vec<StoredKey>,
    /// True if every record with authority has a tag.
    #[n(1)]
    authenticated: bool,
    /// Key of the tag.
    #[n(2)]
    signer: Option<ByteArray<4>>,
    /// MAC over the rest: nobody else adds a key, or lets rows without a tag be accepted again.
    #[n(3)]
    tag: Option<ByteArray<32>>,
}

impl StoredRing {
    fn signed(mut self, keyring: &Keyring) -> Result<Self> {
        (self.signer, self.tag) = (None, None);
        let tag = keyring.mac(keyring.active(), NOTE, &[&codec::encode(&self)]);
        self.tag = Some(tag.ok_or_else(|| Error::corrupt("the keyring lost a key"))?.into());
        self.signer = Some((*keyring.active().as_bytes()).into());
        Ok(self)
    }

    /// `Corrupt` unless a key of the ring has signed the note; `Unavailable` if only other nodes have that key.
    fn check(&self, keyring: &Keyring) -> Result<()> {
        let bare = Self { signer: None, tag: None, ..self.clone() };
        let (Some(signer), Some(tag)) = (&self.signer, &self.tag) else {
            return Err(Error::corrupt("the note of the keyring in the store is not authenticated"));
        };
        let signer = KeyId::from_bytes(**signer);
        if keyring.keys().iter().all(|key| key.id != signer) {
            return Err(Error::unavailable(format!(
                "the note of the keyring in the store is signed with the key {signer}, which this keyring lacks: copy the \
                 keyring of the other nodes"
            )));
        }
        if keyring.verify(signer, NOTE, &[&codec::encode(&bare)], &tag[..]) {
            return Ok(());
        }
        Err(Error::corrupt("the note of the keyring in the store was not written with this keyring"))
    }
}

/// Keyring as a store knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct KnownRing {
    /// Ids of the keys that the store was used with.
    pub keys: Vec<KeyId>,
    /// True if every record with authority has a tag, so that one without is `Corrupt`.
    pub authenticated: bool,
}

/// Keys that a node has.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeRing {
    /// Id of the process.
    pub node: String,
    /// Key that it derives new tokens with.
    pub active: KeyId,
    /// Keys that it has.
    pub keys: Vec<KeyId>,
    /// Time of the report.
    pub at: Timestamp,
}

#[derive(Encode, Decode)]
struct StoredNode {
    #[n(0)]
    active: ByteArray<4>,
    #[n(1)]
    keys: Vec<ByteArray<4>>,
    #[n(2)]
    at: u64,
}

/// State of a store's entry of its naming key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NamingEntry {
    /// Nothing is missing: the secret is proven, or no record was named with this key.
    Settled,
    /// The id is there, and no proof of the secret.
    Unproven,
}

/// Operations on the keyring that a store knows.
pub struct Rings<'a> {
    engine: &'a dyn Admin,
    rng: &'a dyn Rng,
    now: Timestamp,
    looks: bool,
}

impl std::fmt::Debug for Rings<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Rings({})", self.engine.info().engine)
    }
}

impl<'a> Rings<'a> {
    /// Operations on the store of `engine`, as of `now`.
    pub fn new(engine: &'a dyn Admin, rng: &'a dyn Rng, now: Timestamp) -> Self {
        Self { engine, rng, now, looks: false }
    }

    /// Looks for records from before there were tags also where that reads a whole table: for the commands of an
    /// operator.
    #[must_use]
    pub fn looking(mut self) -> Self {
        self.looks = true;
        self
    }

    /// Keyring that the store knows; none before the first one is used.
    pub async fn known(&self) -> Result<Option<KnownRing>> {
        Ok(self.read().await?.map(|(stored, _)| KnownRing {
            keys: stored.keys.iter().map(|key| KeyId::from_bytes(*key.id)).collect(),
            authenticated: stored.authenticated,
        }))
    }

    /// Checks that `keyring` is the store's, without a write.
    pub async fn check(&self, keyring: &Keyring) -> Result<Option<KnownRing>> {
        if let Some((stored, _)) = self.read().await? {
            same(&stored, keyring)?;
            stored.check(keyring)?;
        }
        let _ = self.check_naming(keyring).await?;
        self.known().await
    }

    /// Checks that `keyring` is the store's, and lets the store know its keys. The first one is taken over; a new store
    /// is marked as one whose records are all authenticated.
    pub async fn adopt(&self, keyring: &Keyring) -> Result<KnownRing> {
        for _ in 0..ATTEMPTS {
            let read = self.read().await?;
            let (mut stored, version) = if let Some((stored, version)) = read {
                (stored, Some(version))
            } else {
                let authenticated = self.is_new(keyring).await?;
                (StoredRing { keys: Vec::new(), authenticated, signer: None, tag: None }, None)
            };
            same(&stored, keyring)?;
            if version.is_some() {
                stored.check(keyring)?;
            }
            if self.check_naming(keyring).await? == NamingEntry::Unproven
                && !self.prove_naming(keyring).await?
            {
                continue;
            }
            let before = stored.clone();
            for key in keyring.keys() {
                if !stored.keys.iter().any(|known| *known.id == *key.id.as_bytes()) {
                    stored
                        .keys
                        .push(StoredKey { id: (*key.id.as_bytes()).into(), proof: proof(keyring, key.id)? });
                }
            }
            // A key that is retired next must not be the one that the note is signed with.
            let signed = stored.signer.as_deref() == Some(keyring.active().as_bytes());
            if (stored == before && signed) || self.write(&stored.clone().signed(keyring)?, version).await? {
                let keys = stored.keys.iter().map(|key| KeyId::from_bytes(*key.id)).collect();
                return Ok(KnownRing { keys, authenticated: stored.authenticated });
            }
        }
        Err(Error::unavailable("other nodes change the ids of the keyring at the same time; try again"))
    }

    /// Marks the store as one whose records with authority all have a tag.
    pub async fn set_authenticated(&self, keyring: &Keyring) -> Result<()> {
        self.edit(keyring, |stored| stored.authenticated = true).await
    }

    /// Forgets a key that was retired.
    pub async fn forget(&self, id: KeyId, keyring: &Keyring) -> Result<()> {
        self.edit(keyring, |stored| stored.keys.retain(|key| *key.id != *id.as_bytes())).await
    }

    /// Reports the keys that this node has.
    pub async fn report(&self, node: &[u8; 8], keyring: &Keyring) -> Result<()> {
        let stored = StoredNode {
            active: (*keyring.active().as_bytes()).into(),
            keys: keyring.keys().iter().map(|key| (*key.id.as_bytes()).into()).collect(),
            at: self.now.as_millis(),
        };
        let key = Key::new(Kind::System, &Scope::Global, &[NODES.into()], &[node.into()])?;
        let record = Record::new(codec::encode(&stored), self.now.checked_add(REPORTED)?, self.rng);
        let _ = self.engine.put(key, record, self.now).await?;
        Ok(())
    }

    /// Nodes that have reported within the last half minute.
    pub async fn nodes(&self) -> Result<Vec<NodeRing>> {
        let prefix = Prefix::partition(Kind::System, &Scope::Global, &[NODES.into()], &[])?;
        let (mut nodes, mut after) = (Vec::new(), None);
        loop {
            let page = self.engine.scan(&prefix, after.as_ref(), 500, self.now).await?;
            for (key, record) in &page.items {
                let stored: StoredNode = codec::decode(&record.value)?;
                let sort = key.sort();
                let [Part::Bytes(node)] = sort.as_slice() else { continue };
                nodes.push(NodeRing {
                    node: hex(node),
                    active: KeyId::from_bytes(*stored.active),
                    keys: stored.keys.iter().map(|id| KeyId::from_bytes(**id)).collect(),
                    at: Timestamp::from_stored(stored.at)?,
                });
            }
            after = page.next;
            if after.is_none() {
                return Ok(nodes);
            }
        }
    }

    /// `Invalid` if a node has reported without the key `id`: what is made with it would be unknown there.
    pub async fn check_everywhere(&self, id: KeyId) -> Result<()> {
        let nodes = self.nodes().await?;
        let without: Vec<_> = nodes.iter().filter(|node| !node.keys.contains(&id)).collect();
        if without.is_empty() {
            return Ok(());
        }
        let names: BTreeSet<_> = without.iter().map(|node| node.node.as_str()).collect();
        Err(Error::invalid(format!(
            "{} of {} nodes do not have the key {id} yet ({}); copy the keyring to them first",
            without.len(),
            nodes.len(),
            names.into_iter().collect::<Vec<_>>().join(", ")
        )))
    }

    /// `Invalid` if a node still derives new tokens with the key `id`: they would be unknown after its retirement.
    pub async fn check_inactive(&self, id: KeyId) -> Result<()> {
        let nodes = self.nodes().await?;
        let active = nodes.iter().filter(|node| node.active == id).count();
        if active == 0 {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "{active} of {} nodes still make tokens with the key {id}; copy the keyring to them first",
            nodes.len()
        )))
    }

    /// Returns whether the store has no record that would need a tag. A store without a note of its keyring, but with
    /// records that this ring has authenticated, has lost the note: someone removed it, so that rows without a tag
    /// would be accepted again.
    ///
    /// An engine without order would have to read its whole table. There a store without a note counts as new: rows
    /// without a tag are refused, so that removing the note gains nothing.
    async fn is_new(&self, keyring: &Keyring) -> Result<bool> {
        if !self.engine.info().has_order && !self.looks {
            return Ok(true);
        }
        let kinds = Kind::ALL.iter().copied().filter(|kind| is_authenticated(*kind) || is_sealed(*kind));
        let mut prefixes: Vec<_> = kinds.map(|kind| vec![Prefix::kind_wide(kind)]).collect();
        if !self.engine.info().has_order {
            // One walk over the table finds all kinds mixed; elsewhere those of the first kind would hide the others.
            prefixes = vec![prefixes.concat()];
        }
        let shared = SharedKeyring::new(keyring.clone());
        let mut is_new = true;
        for prefixes in prefixes {
            is_new &= self.has_nothing(&prefixes, &shared).await?;
        }
        Ok(is_new)
    }

    /// Returns whether there is no record of these kinds, and looks at the first ones.
    async fn has_nothing(&self, prefixes: &[Prefix], shared: &SharedKeyring) -> Result<bool> {
        let mut after = None;
        loop {
            let page = self.engine.list(prefixes, after.as_ref(), 100, self.now).await?;
            if page.items.iter().any(|(key, record)| is_genuine(shared, key, record)) {
                return Err(Error::corrupt(
                    "the store has lost the note of its keyring, but has records that this keyring has authenticated",
                ));
            }
            // A page may be empty and still have a next.
            after = page.next;
            if !page.items.is_empty() || after.is_none() {
                return Ok(page.items.is_empty());
            }
        }
    }

    /// Compares the naming key of `keyring` with the entry of the store. `Invalid` if its secret is another one: every
    /// record would be unknown. A ring with another id, or without a naming key, is refused when records are used.
    async fn check_naming(&self, keyring: &Keyring) -> Result<NamingEntry> {
        let Some(naming) = keyring.naming_key() else { return Ok(NamingEntry::Settled) };
        let there =
            self.engine.get_many(&[NamingKey::id_place()?, NamingKey::proof_place()?], self.now).await?;
        match there.as_slice() {
            [Some(id), proof] if id.value[..] == naming.id().as_bytes()[..] => match proof {
                None => Ok(NamingEntry::Unproven),
                Some(proof) if naming.has_made(&proof.value) => Ok(NamingEntry::Settled),
                Some(_) => Err(Error::invalid(naming.other_secret())),
            },
            _ => Ok(NamingEntry::Settled),
        }
    }

    /// Adds the proof of the naming key's secret to an entry of an earlier version, which has the id alone. False if
    /// another node was first.
    async fn prove_naming(&self, keyring: &Keyring) -> Result<bool> {
        let Some(naming) = keyring.naming_key() else { return Ok(true) };
        let record = Record::new(naming.proof().as_bytes().to_vec(), Timestamp::NEVER, self.rng);
        let write = Write::Insert { key: NamingKey::proof_place()?, record };
        Ok(self.engine.commit(Batch::new(vec![write])?, self.now).await?.is_applied())
    }

    async fn edit(&self, keyring: &Keyring, change: impl Fn(&mut StoredRing)) -> Result<()> {
        for _ in 0..ATTEMPTS {
            let Some((mut stored, version)) = self.read().await? else { return Ok(()) };
            stored.check(keyring)?;
            change(&mut stored);
            if self.write(&stored.signed(keyring)?, Some(version)).await? {
                return Ok(());
            }
        }
        Err(Error::unavailable("other nodes change the ids of the keyring at the same time; try again"))
    }

    async fn read(&self) -> Result<Option<(StoredRing, Version)>> {
        let record = self.engine.get(&place()?, self.now).await?;
        record.map(|record| Ok((codec::decode(&record.value)?, record.version))).transpose()
    }

    async fn write(&self, stored: &StoredRing, expected: Option<Version>) -> Result<bool> {
        let (key, record) = (place()?, Record::new(codec::encode(stored), Timestamp::NEVER, self.rng));
        let write = match expected {
            Some(expected) => Write::Replace { key, expected, record },
            None => Write::Insert { key, record },
        };
        Ok(self.engine.commit(Batch::new(vec![write])?, self.now).await?.is_applied())
    }
}

/// Key of the note.
pub(crate) fn place() -> Result<Key> {
    Key::new(Kind::System, &Scope::Global, &[PARTITION.into()], &[])
}

fn proof(keyring: &Keyring, id: KeyId) -> Result<ByteArray<32>> {
    let proof = keyring.mac(id, PROOF, &[]).ok_or_else(|| Error::corrupt("the keyring lost a key"))?;
    Ok(proof.into())
}

/// `Invalid` unless the ring has a key that the store knows, and no other key under an id that it knows. A ring may
/// lack keys that were retired.
fn same(stored: &StoredRing, keyring: &Keyring) -> Result<()> {
    let ids: Vec<_> = keyring.keys().iter().map(|key| key.id).collect();
    let is_ours = |key: &StoredKey| keyring.verify(KeyId::from_bytes(*key.id), PROOF, &[], &key.proof[..]);
    let is_foreign = |key: &StoredKey| ids.contains(&KeyId::from_bytes(*key.id)) && !is_ours(key);
    if stored.keys.is_empty() || (stored.keys.iter().any(is_ours) && !stored.keys.iter().any(is_foreign)) {
        return Ok(());
    }
    let known: Vec<_> = stored.keys.iter().map(|key| KeyId::from_bytes(*key.id).to_string()).collect();
    Err(Error::invalid(format!(
        "this is not the keyring of the store, which was used with the keys {}; name the right file",
        known.join(", ")
    )))
}

/// Text of an id.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines::memory::Memory;
    use crate::model::error::ErrorKind;
    use crate::model::rng::SeededRng;

    #[tokio::test]
    async fn a_note_of_another_hand_is_corrupt() {
        let (memory, rng, now) = (Memory::default(), SeededRng::new(1), Timestamp::ZERO);
        let ring = Keyring::generate(&rng, now);
        let rings = Rings::new(&memory, &rng, now);
        assert!(rings.adopt(&ring).await.unwrap().authenticated, "a new store");
        let (genuine, version) = rings.read().await.unwrap().unwrap();
        let accepting = StoredRing { authenticated: false, ..genuine.clone() };
        let bare = StoredRing { signer: None, tag: None, ..accepting.clone() };
        let mut version = version;
        for forged in [accepting, bare] {
            assert!(rings.write(&forged, Some(version)).await.unwrap());
            assert_eq!(rings.adopt(&ring).await.unwrap_err().kind(), ErrorKind::Corrupt);
            assert_eq!(rings.check(&ring).await.unwrap_err().kind(), ErrorKind::Corrupt);
            assert_eq!(rings.set_authenticated(&ring).await.unwrap_err().kind(), ErrorKind::Corrupt);
            version = rings.read().await.unwrap().unwrap().1;
        }
        assert!(rings.write(&genuine, Some(version)).await.unwrap());
        assert!(rings.adopt(&ring).await.unwrap().authenticated);
    }

    #[tokio::test]
    async fn a_naming_key_with_another_secret_is_refused_and_an_entry_of_the_id_alone_gains_its_proof() {
        let (memory, rng, now) = (Memory::default(), SeededRng::new(3), Timestamp::ZERO);
        let ring = Keyring::generate(&rng, now);
        let flipped = ring.with_flipped_naming_key();
        let rings = Rings::new(&memory, &rng, now);
        rings.adopt(&ring).await.unwrap();
        let proof = async || rings.engine.get(&NamingKey::proof_place().unwrap(), now).await.unwrap();
        assert!(proof().await.is_none(), "no record was named yet");
        // Entered by an earlier version.
        let naming = ring.naming_key().unwrap();
        let record = Record::new(naming.id().as_bytes().to_vec(), Timestamp::NEVER, &rng);
        assert!(rings.engine.insert(NamingKey::id_place().unwrap(), record, now).await.unwrap().is_applied());
        rings.check(&ring).await.unwrap();
        assert!(proof().await.is_none(), "a check writes nothing");
        for _ in 0..2 {
            rings.adopt(&ring).await.unwrap();
            assert!(naming.has_made(&proof().await.unwrap().value));
            for error in [rings.adopt(&flipped).await.unwrap_err(), rings.check(&flipped).await.unwrap_err()]
            {
                assert_eq!(error.kind(), ErrorKind::Invalid);
                assert!(error.message().contains("the secret of the naming key"), "{error}");
            }
        }
    }

    #[tokio::test]
    async fn the_note_follows_the_active_key_and_a_stranger_is_refused() {
        let (memory, rng, now) = (Memory::default(), SeededRng::new(2), Timestamp::ZERO);
        let mut ring = Keyring::generate(&rng, now);
        let (rings, old) = (Rings::new(&memory, &rng, now), ring.active());
        rings.adopt(&ring).await.unwrap();
        let new = ring.add(&rng, now).unwrap();
        ring.activate(new).unwrap();
        assert_eq!(rings.adopt(&ring).await.unwrap().keys, [old, new]);
        ring.retire(old).unwrap();
        rings.forget(old, &ring).await.unwrap();
        assert_eq!(rings.adopt(&ring).await.unwrap().keys, [new], "signed with the key that is left");
        let stranger = Keyring::generate(&rng, now);
        assert_eq!(rings.adopt(&stranger).await.unwrap_err().kind(), ErrorKind::Invalid);
        rings.report(&[1; 8], &ring).await.unwrap();
        assert!(rings.check_inactive(new).await.is_err(), "a node makes tokens with it");
        assert!(rings.check_inactive(old).await.is_ok());
        assert!(rings.check_everywhere(old).await.is_err());
    }
}
