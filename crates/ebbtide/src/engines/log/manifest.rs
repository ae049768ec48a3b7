//! The manifest: the list of what must be there, outside the log and replaced atomically.
//!
//! It names segments, kinds, keyrings, the format, the last checkpoint and the seed of the index. A file that it
//! names and that is missing is an error, and so is a missing manifest beside segments: a store never opens with
//! less than it had.

use std::io;
use std::sync::Arc;

use minicbor::{CborLen, Decode, Encode};

use super::disk::Disk;
use super::faults::{Faults, PlantedFault};
use super::group::Epoch;
use super::segment::failed;
use crate::model::error::{Error, Result};
use crate::model::kind::Kind;

/// Name of the manifest.
pub(crate) const NAME: &str = "manifest";

/// Name of a manifest that is being written.
pub(crate) const NEW: &str = "manifest.new";

/// First bytes of a manifest; the digit is the format of the log.
const MAGIC: &[u8; 8] = b"ebblog1\n";

/// Bytes before the content: magic, length, CRC-32C of the content.
const HEAD: usize = 16;

/// Content of the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode, CborLen)]
pub(crate) struct Manifest {
    /// Key of the hash of the index.
    #[cbor(n(0), with = "minicbor::bytes")]
    pub(crate) hash_seed: [u8; 16],
    /// Kinds of record that the store may hold: codes and names.
    #[n(1)]
    pub(crate) kinds: Vec<(u8, String)>,
    /// Identifiers of the keyrings that payloads are sealed with.
    #[n(2)]
    pub(crate) keyrings: Vec<String>,
    /// Last segment whose records are all in the cold store. It and those before it are never replayed.
    #[n(3)]
    pub(crate) checkpoint: u32,
    /// Sequence of the first group that is replayed.
    #[n(4)]
    pub(crate) first_sequence: u64,
    /// Sequence of a group that was durable when this was written.
    #[n(5)]
    pub(crate) durable_to: u64,
    /// Number of the next new segment.
    #[n(6)]
    pub(crate) next_segment: u32,
    /// Clock mark at the checkpoint, in milliseconds.
    #[n(7)]
    pub(crate) clock_mark: Option<u64>,
    /// Segments that are replayed or written to, in the order of their numbers.
    #[n(8)]
    pub(crate) segments: Vec<SegmentEntry>,
    /// Windows of the cold store, with the code of their kind and the number of their last bulk: one that is missing, or
    /// that has fallen behind, is damage.
    #[n(9)]
    pub(crate) windows: Vec<(u8, u64, u64)>,
}

/// A segment in the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode, CborLen)]
pub(crate) struct SegmentEntry {
    #[n(0)]
    pub(crate) id: u32,
    #[cbor(n(1), with = "minicbor::bytes")]
    pub(crate) epoch: Epoch,
    /// Length of the file.
    #[n(2)]
    pub(crate) len: u32,
    /// End of a segment that recovery has cut: nothing behind it counts.
    #[n(3)]
    pub(crate) closed: Option<Closed>,
}

/// End of a cut segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode, CborLen)]
pub(crate) struct Closed {
    /// Sequence of its last group.
    #[n(0)]
    pub(crate) last: u64,
    /// Offset of the end of that group.
    #[n(1)]
    pub(crate) end: u32,
}

/// Codes and names of all kinds of this build.
pub(crate) fn kinds() -> Vec<(u8, String)> {
    Kind::ALL.iter().map(|kind| (kind.code(), kind.name().to_owned())).collect()
}

impl Manifest {
    /// Manifest of an empty store.
    pub(crate) fn new(hash_seed: [u8; 16], keyrings: Vec<String>) -> Self {
        Self {
            hash_seed,
            kinds: kinds(),
            keyrings,
            checkpoint: 0,
            first_sequence: 1,
            durable_to: 0,
            next_segment: 1,
            clock_mark: None,
            segments: Vec::new(),
            windows: Vec::new(),
        }
    }

    fn encode(&self) -> Vec<u8> {
        let content = minicbor::to_vec(self).expect("writing to memory does not fail");
        let length = u32::try_from(content.len()).expect("a manifest is small");
        let mut bytes = Vec::with_capacity(HEAD + content.len());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(&crc32c::crc32c(&content).to_le_bytes());
        bytes.extend_from_slice(&content);
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let damaged = || Error::corrupt("the manifest of the log is damaged");
        let (head, content) = bytes.split_first_chunk::<HEAD>().ok_or_else(damaged)?;
        let length = u32::try_from(content.len()).map_err(|_| damaged())?;
        if head[..8] != *MAGIC
            || head[8..12] != length.to_le_bytes()
            || head[12..] != crc32c::crc32c(content).to_le_bytes()
        {
            return Err(damaged());
        }
        minicbor::decode(content).map_err(|error| damaged().caused_by(error))
    }

    /// Reads the manifest; none if there is none.
    pub(crate) fn read(disk: &dyn Disk) -> Result<Option<Self>> {
        let read = disk.open(NAME).and_then(|file| file.read_all());
        let bytes = match read {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed("cannot read the manifest of the log", error)),
        };
        let manifest = Self::decode(&bytes)?;
        for (code, name) in &manifest.kinds {
            if Kind::from_code(*code).is_none_or(|kind| kind.name() != name) {
                return Err(Error::corrupt(format!(
                    "the store holds records of kind {name}, which this version does not know"
                )));
            }
        }
        Ok(Some(manifest))
    }
}

/// Outcome of a replacement that failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The old manifest is still there.
    Kept(Error),
    /// Either manifest may be there after a crash: the store must be reopened.
    Unknown(Error),
}

impl Failure {
    /// The error of the caller. No `From`: a second one for `Error` would leave `?` in async blocks without a type.
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Kept(error) | Self::Unknown(error) => error,
        }
    }
}

/// The manifest of an open store. Changes are durable before they are seen.
pub(crate) struct ManifestFile {
    disk: Arc<dyn Disk>,
    current: Manifest,
    faults: Faults,
}

impl ManifestFile {
    pub(crate) fn new(disk: Arc<dyn Disk>, current: Manifest, faults: Faults) -> Self {
        Self { disk, current, faults }
    }

    pub(crate) fn current(&self) -> &Manifest {
        &self.current
    }

    /// Replaces the manifest by a changed one: written beside it, synced, renamed, directory synced.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut Manifest)) -> Result<(), Failure> {
        let mut next = self.current.clone();
        change(&mut next);
        let kept = |error| Failure::Kept(failed("cannot write the manifest of the log", error));
        let file = self.disk.create(NEW).map_err(kept)?;
        file.write_at(&next.encode(), 0).map_err(kept)?;
        file.sync_data().map_err(kept)?;
        let unknown = |error| Failure::Unknown(failed("cannot replace the manifest of the log", error));
        self.disk.rename(NEW, NAME).map_err(unknown)?;
        if !self.faults.has(PlantedFault::DirectoryNotSynced) {
            self.disk.sync_dir().map_err(unknown)?;
        }
        self.current = next;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines::log::disk::sim::SimDisk;

    fn entry(id: u32) -> SegmentEntry {
        SegmentEntry { id, epoch: [3; 16], len: 8_192, closed: Some(Closed { last: 9, end: 4_096 }) }
    }

    fn written(disk: &SimDisk, segments: u32) -> ManifestFile {
        let new = Manifest::new([1; 16], vec!["ring".to_owned()]);
        let mut file = ManifestFile::new(Arc::new(disk.clone()), new, Faults::default());
        for id in 1..=segments {
            file.change(|manifest| manifest.segments.push(entry(id))).unwrap();
        }
        file
    }

    #[test]
    fn a_manifest_is_read_as_it_was_written_and_every_flipped_byte_is_found() {
        let disk = SimDisk::new(1);
        assert_eq!(Manifest::read(&disk).unwrap(), None);
        let file = written(&disk, 2);
        assert_eq!(Manifest::read(&disk).unwrap().as_ref(), Some(file.current()));
        for at in 0..disk.length(NAME) {
            let disk = disk.fork();
            disk.damage(NAME, |bytes| bytes[at] ^= 1);
            assert_eq!(Manifest::read(&disk).unwrap_err().kind(), crate::ErrorKind::Corrupt, "{at}");
        }
        for len in 0..disk.length(NAME) {
            let disk = disk.fork();
            disk.damage(NAME, |bytes| bytes.truncate(len));
            assert!(Manifest::read(&disk).is_err(), "{len}");
        }
    }

    #[test]
    fn a_crash_at_any_call_leaves_the_old_manifest_or_the_new_one() {
        for seed in 0..40 {
            for call in 0..6 {
                let disk = SimDisk::new(seed);
                let mut file = written(&disk, 1);
                let old = file.current().clone();
                disk.stop_at(disk.calls() + call);
                let outcome = file.change(|manifest| manifest.segments.push(entry(2)));
                disk.behave();
                disk.crash();
                let found = Manifest::read(&disk).unwrap().unwrap();
                match outcome {
                    Ok(()) => assert_eq!(found.segments.len(), 2),
                    Err(Failure::Kept(_)) => assert_eq!(found, old),
                    Err(Failure::Unknown(_)) => assert!(found == old || found.segments.len() == 2),
                }
            }
        }
    }
}
