//! The index of the log: a keyed hash of each key, and the place of its newest frame.
//!
//! An entry has 24 bytes. With the control byte of the table and a load between 7/16 and 7/8 a record costs 29 to 57
//! bytes, whatever the length of its key. The key itself is in the frame, and the frame decides: keys with equal
//! hashes have an entry each.

use std::hash::Hasher;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hashbrown::HashTable;
use siphasher::sip::SipHasher13;

use super::position::Position;
use crate::model::kind::Kind;
use crate::model::time::Timestamp;

/// Number of shards.
pub(crate) const SHARDS: usize = 256;

const DELETED: u64 = 1 << 63;
const MAY_BE_COLD: u64 = 1 << 62;
const EXPIRY: u64 = (1 << 48) - 1;

/// Newest frame of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    hash: u64,
    /// Kind in the highest byte, then the position.
    place: u64,
    /// Flags, and the expiry in the lower 48 bits.
    state: u64,
}

/// State of a key in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    /// A record with this expiry.
    Stored(Timestamp),
    /// Nothing: the record was deleted or swept.
    Deleted,
}

impl IndexEntry {
    pub(crate) fn new(hash: u64, kind: Kind, at: Position, presence: Presence, may_be_cold: bool) -> Self {
        let state = match presence {
            Presence::Stored(expires_at) => expires_at.as_millis().min(EXPIRY),
            Presence::Deleted => DELETED,
        };
        let cold = if may_be_cold { MAY_BE_COLD } else { 0 };
        Self { hash, place: u64::from(kind.code()) << 56 | at.bits(), state: state | cold }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// Number of the shard that it belongs to.
    pub(crate) fn shard(&self) -> usize {
        shard_number(self.hash)
    }

    /// The entry as it stands in a hint.
    pub(crate) fn words(&self) -> [u64; 3] {
        [self.hash, self.place, self.state]
    }

    pub(crate) fn from_words([hash, place, state]: [u64; 3]) -> Self {
        Self { hash, place, state }
    }

    pub(crate) fn kind_code(&self) -> u8 {
        (self.place >> 56) as u8
    }

    pub(crate) fn position(&self) -> Position {
        Position::from_bits(self.place & ((1 << 56) - 1))
    }

    /// Returns true if the key may have a copy in the cold store, which this entry masks.
    pub(crate) fn may_be_cold(&self) -> bool {
        self.state & MAY_BE_COLD != 0
    }

    pub(crate) fn is_deleted(&self) -> bool {
        self.state & DELETED != 0
    }

    /// Returns true if a record is stored and live at `now`.
    pub(crate) fn is_live(&self, now: Timestamp) -> bool {
        !self.is_deleted() && now.as_millis() < self.expiry()
    }

    /// Returns true if a record is stored and a sweep up to `until` removes it.
    pub(crate) fn is_swept(&self, until: Timestamp) -> bool {
        !self.is_deleted() && self.expiry() < until.as_millis()
    }

    /// Milliseconds at which the record ends; the highest number for one that does not.
    pub(crate) fn expiry(&self) -> u64 {
        match self.state & EXPIRY {
            EXPIRY => u64::MAX,
            millis => millis,
        }
    }

    /// The same place, without a record: it goes on masking cold copies.
    pub(crate) fn masked(self) -> Self {
        Self { state: DELETED | MAY_BE_COLD, ..self }
    }
}

/// One shard. Its epoch is raised whenever records leave the index for the cold store, or the cold store loses some: a
/// cold read counts only if the epoch is the same afterwards.
pub(crate) struct Shard {
    entries: HashTable<IndexEntry>,
    pub(crate) epoch: u64,
    /// No record of the shard ends before this, in milliseconds.
    first_end: u64,
}

impl Default for Shard {
    fn default() -> Self {
        Self { entries: HashTable::new(), epoch: 0, first_end: u64::MAX }
    }
}

impl Shard {
    /// Notes that a record may end at that time.
    pub(crate) fn expect_end(&mut self, end: u64) {
        self.first_end = self.first_end.min(end);
    }

    /// Takes a note of the entry, if it is of a record.
    fn expect(&mut self, entry: IndexEntry) {
        if !entry.is_deleted() {
            self.expect_end(entry.expiry());
        }
    }

    /// Entries that the sweep of these kinds up to `until` removes. The next sweep looks at this shard when one of the others
    /// has ended: whoever does not remove all of these notes them again with [`expect_end`](Self::expect_end).
    pub(crate) fn take_due(&mut self, until: Timestamp, kinds: &[bool; 256]) -> Vec<IndexEntry> {
        if self.first_end >= until.as_millis() {
            return Vec::new();
        }
        let mut due = Vec::new();
        self.first_end = u64::MAX;
        for entry in self.entries.iter().filter(|entry| !entry.is_deleted()) {
            if kinds[usize::from(entry.kind_code())] && entry.is_swept(until) {
                due.push(*entry);
            } else {
                self.first_end = self.first_end.min(entry.expiry());
            }
        }
        due
    }

    /// Entries with this hash: most often none or one.
    pub(crate) fn with_hash(&self, hash: u64) -> impl Iterator<Item = IndexEntry> {
        self.entries.iter_hash(hash).filter(move |entry| entry.hash == hash).copied()
    }

    /// Adds an entry, in the place of `old` if that is there.
    pub(crate) fn set(&mut self, old: Option<IndexEntry>, new: IndexEntry) {
        self.expect(new);
        if let Some(old) = old
            && let Some(place) = self.entries.find_mut(old.hash, |entry| *entry == old)
        {
            *place = new;
            return;
        }
        self.entries.insert_unique(new.hash, new, |entry| entry.hash);
    }

    /// Fills an empty shard with entries of distinct keys.
    pub(crate) fn fill(&mut self, entries: impl ExactSizeIterator<Item = IndexEntry>) {
        self.entries = HashTable::with_capacity(entries.len());
        for entry in entries {
            self.expect(entry);
            self.entries.insert_unique(entry.hash, entry, |entry| entry.hash);
        }
    }

    /// Removes exactly this entry, and answers whether it was there.
    pub(crate) fn remove(&mut self, old: IndexEntry) -> bool {
        match self.entries.find_entry(old.hash, |entry| *entry == old) {
            Ok(found) => {
                found.remove();
                true
            }
            Err(_) => false,
        }
    }

    /// Returns true if exactly this entry is there.
    pub(crate) fn contains(&self, entry: IndexEntry) -> bool {
        self.entries.find(entry.hash, |other| *other == entry).is_some()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = IndexEntry> {
        self.entries.iter().copied()
    }

    /// Returns memory after many removals.
    pub(crate) fn shrink(&mut self) {
        if self.entries.len() * 4 < self.entries.capacity() {
            self.entries.shrink_to_fit(|entry| entry.hash);
        }
    }
}

/// All shards.
pub(crate) struct Index {
    shards: Box<[Mutex<Shard>]>,
    hasher: SipHasher13,
    /// A second hash, for hints.
    checker: SipHasher13,
    /// Bits of the hash that count: tests let keys collide.
    mask: u64,
}

impl Index {
    pub(crate) fn new(seed: &[u8; 16]) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: SipHasher13::new_with_key(seed),
            checker: SipHasher13::new_with_key(&seed.map(|byte| !byte)),
            mask: u64::MAX,
        }
    }

    /// The same index with a hash of which only the bits of `mask` count.
    #[cfg(test)]
    pub(crate) fn masked(self, mask: u64) -> Self {
        Self { mask, ..self }
    }

    /// Hash of a key, under the seed of the manifest.
    pub(crate) fn hash(&self, kind: Kind, key: &[u8]) -> u64 {
        let mut hasher = self.hasher;
        hasher.write_u8(kind.code());
        hasher.write(key);
        hasher.finish() & self.mask
    }

    /// Second hash of a key, independent of the first.
    pub(crate) fn check(&self, kind: Kind, key: &[u8]) -> u64 {
        let mut hasher = self.checker;
        hasher.write_u8(kind.code());
        hasher.write(key);
        hasher.finish()
    }

    /// Locks the shard with this number.
    pub(crate) fn shard(&self, number: usize) -> MutexGuard<'_, Shard> {
        // Every change is made after all that could panic.
        self.shards[number].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the shard of this hash.
    pub(crate) fn shard_of(&self, hash: u64) -> MutexGuard<'_, Shard> {
        self.shard(shard_number(hash))
    }

    /// Locks the shards of all these hashes, in order, so that no two callers wait for each other.
    pub(crate) fn lock(&self, hashes: &[u64]) -> Locked<'_> {
        if let [hash] = hashes {
            return Locked::One(self.shard_of(*hash));
        }
        let mut numbers: Vec<usize> = hashes.iter().map(|hash| shard_number(*hash)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        Locked::Many(numbers.into_iter().map(|number| (number, self.shard(number))).collect())
    }
}

/// Number of the shard of a hash. The table uses the lowest bits and the highest seven.
fn shard_number(hash: u64) -> usize {
    (hash >> 48) as usize % SHARDS
}

/// Locked shards.
pub(crate) enum Locked<'a> {
    /// The shard of a single key.
    One(MutexGuard<'a, Shard>),
    /// Shards with their numbers, in order.
    Many(Vec<(usize, MutexGuard<'a, Shard>)>),
}

impl Locked<'_> {
    /// The shard of a hash that was locked.
    pub(crate) fn shard(&mut self, hash: u64) -> &mut Shard {
        match self {
            Self::One(shard) => shard,
            Self::Many(shards) => {
                let number = shard_number(hash);
                let at = shards.binary_search_by_key(&number, |(number, _)| *number);
                &mut shards[at.expect("the shard of each key of the batch was locked")].1
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(hash: u64, offset: u32) -> IndexEntry {
        IndexEntry::new(hash, Kind::Probe, Position::new(3, offset), Presence::Stored(Timestamp::MAX), false)
    }

    #[test]
    fn an_entry_has_24_bytes_and_keeps_what_it_was_made_of() {
        assert_eq!(size_of::<IndexEntry>(), 24);
        let at = Position::new(Position::MAX_SEGMENT, u32::MAX);
        let entry = IndexEntry::new(7, Kind::ProbeIndex, at, Presence::Stored(Timestamp::NEVER), true);
        assert_eq!((entry.position(), entry.kind_code()), (at, Kind::ProbeIndex.code()));
        assert!(entry.may_be_cold() && entry.is_live(Timestamp::MAX) && !entry.is_swept(Timestamp::NEVER));
        let last = IndexEntry::new(7, Kind::Probe, at, Presence::Stored(Timestamp::MAX), false);
        assert!(
            !last.is_live(Timestamp::MAX) && !last.is_swept(Timestamp::MAX) && last.is_live(Timestamp::ZERO)
        );
        let masked = last.masked();
        assert!(masked.is_deleted() && masked.may_be_cold() && masked.position() == at);
        assert!(!masked.is_live(Timestamp::ZERO) && !masked.is_swept(Timestamp::NEVER));
    }

    #[test]
    fn equal_hashes_coexist() {
        let index = Index::new(&[1; 16]);
        let mut shard = index.shard_of(9);
        shard.set(None, entry(9, 1));
        shard.set(None, entry(9, 2));
        shard.set(None, entry(10, 3));
        assert_eq!(shard.with_hash(9).count(), 2);
        shard.set(Some(entry(9, 1)), entry(9, 4));
        let mut offsets: Vec<_> = shard.with_hash(9).map(|entry| entry.position().offset()).collect();
        offsets.sort_unstable();
        assert_eq!(offsets, [2, 4]);
        assert!(!shard.remove(entry(9, 1)) && shard.remove(entry(9, 2)));
        assert_eq!(shard.with_hash(9).count(), 1);
    }

    #[test]
    fn a_sweep_looks_only_at_shards_in_which_a_record_has_ended() {
        let index = Index::new(&[1; 16]);
        let at = |millis| Timestamp::from_millis(millis).unwrap();
        let new = |number: u64, end| {
            let hash = index.hash(Kind::Probe, &number.to_le_bytes());
            IndexEntry::new(hash, Kind::Probe, Position::new(1, 1), Presence::Stored(at(end)), false)
        };
        for number in 0..10_000 {
            let entry = new(number, if number == 7 { 1_000 } else { 900_000 + number });
            index.shard_of(entry.hash()).set(None, entry);
        }
        let due = |until| {
            let shards = (0..SHARDS).map(|number| index.shard(number).take_due(at(until), &[true; 256]));
            shards.filter(|entries| !entries.is_empty()).collect::<Vec<_>>()
        };
        let looked_at = |until| (0..SHARDS).filter(|number| index.shard(*number).first_end < until).count();
        assert_eq!((looked_at(1_000), looked_at(1_001)), (0, 1), "one shard of all is looked at");
        assert!(due(1_000).is_empty(), "the end itself is not past");
        assert_eq!(due(1_001), [[new(7, 1_000)]]);
        assert_eq!(looked_at(1_001), 0, "nothing is left there");
        // A sweep that was broken off leaves it to the next; one of other kinds too.
        index.shard_of(new(7, 1_000).hash()).expect_end(1_000);
        let others: usize =
            (0..SHARDS).map(|number| index.shard(number).take_due(at(2_000), &[false; 256]).len()).sum();
        assert_eq!((others, due(2_000).len(), looked_at(900_000)), (0, 1, 0));
        // Loading by hints takes note of the ends as well.
        let mut shard = Shard::default();
        shard.fill([new(1, 50), new(2, 40)].into_iter());
        assert_eq!(shard.first_end, 40);
        shard.set(Some(new(2, 40)), new(2, 40).masked());
        assert_eq!(shard.take_due(at(60), &[true; 256]), [new(1, 50)]);
    }

    #[test]
    fn shards_are_locked_in_order_and_once() {
        let index = Index::new(&[1; 16]);
        let hashes: Vec<u64> = (0..100).map(|n: u64| index.hash(Kind::Probe, &n.to_le_bytes())).collect();
        let mut locked = index.lock(&hashes);
        assert!(
            matches!(&locked, Locked::Many(shards) if shards.is_sorted_by(|left, right| left.0 < right.0))
        );
        for hash in hashes {
            locked.shard(hash).set(None, entry(hash, 1));
        }
        drop(locked);
        assert_eq!((0..SHARDS).map(|number| index.shard(number).iter().count()).sum::<usize>(), 100);
        assert_ne!(index.hash(Kind::Probe, b"a"), index.hash(Kind::ProbeIndex, b"a"));
        assert_ne!(index.hash(Kind::Probe, b"a"), Index::new(&[2; 16]).hash(Kind::Probe, b"a"));
    }
}
