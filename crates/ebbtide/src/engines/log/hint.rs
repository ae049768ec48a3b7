//! Hint files: the entries of one full segment, so that opening need not read the segment itself.
//!
//! A hint is written after its segment, when all of that is durable, and is not synced: its checksums decide, and a
//! segment without a valid one is read. Entries stand by shard, so that a shard is loaded as a whole. A second hash of
//! the key stands beside the first: entries of two segments belong to the same key if both agree, 128 bits under the
//! secret seed. Of kinds that are listed the keys follow, in order.
//!
//! A store that was opened by hints reads the segments afterwards, in the background; until then the checksum of each
//! frame guards what is read.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use hashbrown::HashTable;

use super::disk::{Disk, File, PAGE};
use super::frame::Frame;
use super::group::{Epoch, HEADER, Header};
use super::index::{Index, IndexEntry, Presence, SHARDS};
use super::manifest::SegmentEntry;
use super::position::Position;
use super::segment::Segment;
use crate::model::error::{Error, Result};
use crate::model::kind::Kind;
use crate::model::time::Timestamp;

const MAGIC: &[u8; 8] = b"ebbhint1";
const ENDING: &str = ".hint";

/// Bytes of an entry: the entry and the second hash.
const ENTRY: usize = 32;

/// Bytes before the sections: magic, epoch, first and last sequence, end, clock mark, length and checksum of the
/// keys, checksum of the kinds that are listed.
const FIXED: usize = 8 + 16 + 8 + 8 + 4 + 8 + 8 + 4 + 4;

/// Bytes of the head: also count and checksum of each section, and a checksum of all of it.
const HEAD: usize = FIXED + SHARDS * 8 + 4;

/// Bytes of a segment that are read at a time.
const WINDOW: usize = 1 << 20;

/// Threads that load shards.
const LOADERS: usize = 2;

/// Hint of one segment, of which the head has been read.
pub(crate) struct Hint {
    epoch: Epoch,
    /// Sequences of its groups.
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// Offset of the end of the last group.
    pub(crate) end: u32,
    /// Last clock mark in the segment.
    pub(crate) mark: Option<Timestamp>,
    keys_len: u64,
    keys_crc: u32,
    /// Checksum of the kinds whose keys are in it.
    listed: u32,
    /// Number of entries and checksum of each shard.
    sections: Vec<(u32, u32)>,
    file: Arc<dyn File>,
}

/// Name of the hint of segment `id`.
pub(crate) fn name(id: u32) -> String {
    format!("{id:08}{ENDING}")
}

/// Number of the segment whose hint has this name.
pub(crate) fn number(file: &str) -> Option<u32> {
    let id = file.strip_suffix(ENDING)?.parse().ok()?;
    (name(id) == file).then_some(id)
}

/// Checksum of the kinds that keep their keys in order.
fn listed_kinds(is_listed: fn(Kind) -> bool) -> u32 {
    let listed = Kind::ALL.iter().copied().filter(|kind| is_listed(*kind));
    crc32c::crc32c(&listed.map(Kind::code).collect::<Vec<_>>())
}

/// Reads the groups of a segment up to the sequence `last`, and checks each. Returns the first sequence and the end.
pub(crate) fn each_group(
    segment: &Segment,
    last: u64,
    visit: &mut dyn FnMut(usize, &[u8]) -> Result<()>,
) -> Result<(u64, u32)> {
    let mut window = Window { segment, start: 0, bytes: Vec::new() };
    let (mut at, mut next, mut first) = (0, None, None);
    while next.is_none_or(|next| next <= last) {
        let header = Header::read(window.at(at, PAGE)?, &segment.epoch);
        let header = header.filter(|header| next.is_none_or(|next| header.sequence == next));
        let group = match header {
            Some(header) => header.body(window.at(at, header.size())?).map(|body| (header, body)),
            None => None,
        };
        let Some((header, body)) = group else {
            return Err(Error::corrupt(format!(
                "segment {} of the log is damaged at byte {at}; groups up to {last} were durable",
                Segment::name(segment.id)
            )));
        };
        visit(at + HEADER, body)?;
        first.get_or_insert(header.sequence);
        next = Some(header.sequence + 1);
        at += header.size();
    }
    Ok((first.unwrap_or(last), u32::try_from(at).expect("a segment is smaller than 4 GiB")))
}

/// Part of a segment in memory: a whole one would be new pages for every segment.
struct Window<'a> {
    segment: &'a Segment,
    /// Offset of the bytes in the segment.
    start: usize,
    bytes: Vec<u8>,
}

impl Window<'_> {
    /// Returns `len` bytes at `at`, fewer at the end of the segment.
    fn at(&mut self, at: usize, len: usize) -> Result<&[u8]> {
        let len = len.min((self.segment.len as usize).saturating_sub(at));
        let is_inside = self.start <= at && at + len <= self.start + self.bytes.len();
        if !is_inside {
            let offset = u32::try_from(at).expect("a segment is smaller than 4 GiB");
            self.segment.read_into(&mut self.bytes, offset, len.max(WINDOW))?;
            self.start = at;
        }
        let from = at - self.start;
        Ok(&self.bytes[from..from + len])
    }
}

/// Writes the hint of a segment whose last group is `last`.
pub(crate) fn write(
    disk: &dyn Disk,
    index: &Index,
    is_listed: fn(Kind) -> bool,
    segment: &Segment,
    last: u64,
) -> Result<()> {
    if segment.read(0, PAGE)?.iter().all(|byte| *byte == 0) {
        // Its first group was too large for it, and is in the next one.
        return Ok(());
    }
    let mut found = Found { shards: vec![Vec::new(); SHARDS], names: Vec::new(), listed: Vec::new() };
    let mut mark = None;
    let (first, end) = each_group(segment, last, &mut |at, body| {
        Frame::each(body, |offset, frame| {
            let (kind, key, presence, may_be_cold) = match frame {
                Frame::Store(stored) => {
                    (stored.kind, stored.key, Presence::Stored(stored.expires_at), stored.may_be_cold)
                }
                Frame::Delete { kind, key, may_be_cold } => (kind, key, Presence::Deleted, may_be_cold),
                Frame::Mark(time) => {
                    mark = Some(time);
                    return Ok(());
                }
            };
            let (hash, check) = (index.hash(kind, key), index.check(kind, key));
            let offset = u32::try_from(at + offset).expect("a segment is smaller than 4 GiB");
            let entry = IndexEntry::new(hash, kind, Position::new(segment.id, offset), presence, may_be_cold);
            found.add(entry, check, is_listed(kind).then_some(key));
            Ok(())
        })
    })?;
    let keys = found.keys();
    let head = head(segment.epoch, (first, last, end), mark, listed_kinds(is_listed), &found.shards, &keys);
    let write = || {
        let file = disk.create(&name(segment.id))?;
        let mut offset = 0;
        for part in std::iter::once(&head).chain(&found.shards).chain([&keys]).filter(|part| !part.is_empty())
        {
            file.write_at(part, offset)?;
            offset += part.len() as u64;
        }
        Ok(())
    };
    write().map_err(|error| {
        let _ = disk.unlink(&name(segment.id));
        super::segment::failed("cannot write a hint of the log", error)
    })
}

/// Entries of a segment in the order of the log. Of several entries of one key the last counts, when they are loaded.
struct Found {
    shards: Vec<Vec<u8>>,
    /// Keys of kinds that are listed, one after the other.
    names: Vec<u8>,
    /// Kind, place among the names, and entry.
    listed: Vec<(u8, Range<usize>, IndexEntry)>,
}

impl Found {
    fn add(&mut self, entry: IndexEntry, check: u64, listed: Option<&[u8]>) {
        let section = &mut self.shards[entry.shard()];
        for word in entry.words().into_iter().chain([check]) {
            section.extend_from_slice(&word.to_le_bytes());
        }
        if let Some(key) = listed {
            let start = self.names.len();
            self.names.extend_from_slice(key);
            self.listed.push((entry.kind_code(), start..self.names.len(), entry));
        }
    }

    /// Keys in order, each once, with the last entry of each.
    fn keys(&mut self) -> Vec<u8> {
        let Self { names, listed, .. } = self;
        listed
            .sort_by(|left, right| (left.0, &names[left.1.clone()]).cmp(&(right.0, &names[right.1.clone()])));
        let mut keys = Vec::new();
        for (place, (kind, name, entry)) in listed.iter().enumerate() {
            let key = &names[name.clone()];
            if listed.get(place + 1).is_some_and(|next| next.0 == *kind && names[next.1.clone()] == *key) {
                continue;
            }
            for word in entry.words() {
                keys.extend_from_slice(&word.to_le_bytes());
            }
            let len = u16::try_from(key.len()).expect("the bounds of a key are below 65,536 bytes");
            keys.extend_from_slice(&len.to_le_bytes());
            keys.extend_from_slice(key);
        }
        keys
    }
}

fn head(
    epoch: Epoch,
    (first, last, end): (u64, u64, u32),
    mark: Option<Timestamp>,
    listed_kinds: u32,
    shards: &[Vec<u8>],
    keys: &[u8],
) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&epoch);
    bytes.extend_from_slice(&first.to_le_bytes());
    bytes.extend_from_slice(&last.to_le_bytes());
    bytes.extend_from_slice(&end.to_le_bytes());
    bytes.extend_from_slice(&mark.map_or(u64::MAX, Timestamp::as_millis).to_le_bytes());
    bytes.extend_from_slice(&(keys.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&crc32c::crc32c(keys).to_le_bytes());
    bytes.extend_from_slice(&listed_kinds.to_le_bytes());
    for section in shards {
        let count = u32::try_from(section.len() / ENTRY).expect("a segment has fewer frames than bytes");
        bytes.extend_from_slice(&count.to_le_bytes());
        bytes.extend_from_slice(&crc32c::crc32c(section).to_le_bytes());
    }
    bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
    bytes
}

/// Hints of the oldest segments, up to the first one without. `next` is the first sequence of the log.
pub(crate) fn find(
    disk: &dyn Disk,
    segments: &[SegmentEntry],
    is_listed: fn(Kind) -> bool,
    mut next: u64,
) -> Vec<Hint> {
    let (mut hints, listed) = (Vec::new(), listed_kinds(is_listed));
    for entry in segments {
        let hint = Hint::read(disk, entry.id).filter(|hint| {
            let closed = entry.closed.is_none_or(|closed| (closed.last, closed.end) == (hint.last, hint.end));
            let is_of_segment = hint.epoch == entry.epoch && hint.first == next && hint.last >= next;
            is_of_segment && closed && hint.listed == listed
        });
        let Some(hint) = hint else { break };
        next = hint.last + 1;
        hints.push(hint);
    }
    hints
}

/// Fills an empty index from hints, and calls `visit` with the keys of listed kinds, in the order of the log. Answers false
/// if a hint is damaged; then the index is to be thrown away.
pub(crate) fn load(index: &Index, hints: &[Hint], visit: &mut dyn FnMut(IndexEntry, &[u8])) -> bool {
    let (next, is_whole) = (AtomicUsize::new(0), AtomicBool::new(true));
    std::thread::scope(|scope| {
        let work = || {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= SHARDS || !is_whole.load(Ordering::Relaxed) {
                    return;
                }
                if load_shard(index, hints, number).is_none() {
                    is_whole.store(false, Ordering::Relaxed);
                }
            }
        };
        for _ in 1..LOADERS {
            scope.spawn(work);
        }
        work();
    });
    is_whole.into_inner() && hints.iter().all(|hint| hint.each_key(visit).is_some())
}

fn load_shard(index: &Index, hints: &[Hint], number: usize) -> Option<()> {
    let most = hints.iter().map(|hint| hint.sections[number].0 as usize).max().unwrap_or(0);
    let mut newest: HashTable<(IndexEntry, u64)> = HashTable::with_capacity(most);
    for hint in hints {
        hint.each_entry(number, &mut |entry, check| {
            let hash = entry.hash();
            match newest.find_mut(hash, |other| other.0.hash() == hash && other.1 == check) {
                Some(older) => older.0 = entry,
                None => drop(newest.insert_unique(hash, (entry, check), |other| other.0.hash())),
            }
        })?;
    }
    index.shard(number).fill(newest.into_iter().map(|(entry, _)| entry));
    Some(())
}

impl Hint {
    /// Reads the head of a hint; none if there is no valid one.
    fn read(disk: &dyn Disk, id: u32) -> Option<Self> {
        let file = disk.open(&name(id)).ok()?;
        let mut head = vec![0; HEAD];
        file.read_at(&mut head, 0).ok()?;
        let mut rest = Reader(&head);
        let magic = rest.take(8)?;
        let hint = Self {
            epoch: rest.take(16)?.try_into().ok()?,
            first: rest.u64()?,
            last: rest.u64()?,
            end: rest.u32()?,
            mark: match rest.u64()? {
                u64::MAX => None,
                millis => Some(Timestamp::from_stored(millis).ok()?),
            },
            keys_len: rest.u64()?,
            keys_crc: rest.u32()?,
            listed: rest.u32()?,
            sections: (0..SHARDS).map(|_| Some((rest.u32()?, rest.u32()?))).collect::<Option<_>>()?,
            file: Arc::clone(&file),
        };
        let is_valid = magic == MAGIC && rest.u32()? == crc32c::crc32c(&head[..HEAD - 4]);
        let len = HEAD as u64 + hint.entries() * ENTRY as u64 + hint.keys_len;
        (is_valid && file.len().ok()? == len).then_some(hint)
    }

    fn entries(&self) -> u64 {
        self.sections.iter().map(|(count, _)| u64::from(*count)).sum()
    }

    fn bytes(&self, offset: u64, len: u64, crc: u32) -> Option<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(len).ok()?];
        self.file.read_at(&mut bytes, offset).ok()?;
        (crc32c::crc32c(&bytes) == crc).then_some(bytes)
    }

    /// Visits the entries of a shard with their second hash; none if they are damaged.
    fn each_entry(&self, shard: usize, visit: &mut dyn FnMut(IndexEntry, u64)) -> Option<()> {
        let (count, crc) = self.sections[shard];
        let before: u64 = self.sections[..shard].iter().map(|(count, _)| u64::from(*count)).sum();
        let offset = HEAD as u64 + before * ENTRY as u64;
        let bytes = self.bytes(offset, u64::from(count) * ENTRY as u64, crc)?;
        let mut rest = Reader(&bytes);
        while !rest.0.is_empty() {
            let entry = IndexEntry::from_words([rest.u64()?, rest.u64()?, rest.u64()?]);
            visit(entry, rest.u64()?);
        }
        Some(())
    }

    /// Visits the keys of listed kinds; none if they are damaged.
    fn each_key(&self, visit: &mut dyn FnMut(IndexEntry, &[u8])) -> Option<()> {
        let offset = HEAD as u64 + self.entries() * ENTRY as u64;
        let bytes = self.bytes(offset, self.keys_len, self.keys_crc)?;
        let mut rest = Reader(&bytes);
        while !rest.0.is_empty() {
            let entry = IndexEntry::from_words([rest.u64()?, rest.u64()?, rest.u64()?]);
            let len = u16::from_le_bytes(rest.take(2)?.try_into().ok()?);
            visit(entry, rest.take(len.into())?);
        }
        Some(())
    }
}

/// Bytes that have not been read yet.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }
}
