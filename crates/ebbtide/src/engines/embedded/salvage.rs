//! Salvage: what can be read of a damaged store, copied into a new one.
//!
//! Groups and tables are read one by one, and what is damaged is left out and named. The copy may lack deletes and
//! revocations that were in a damaged group, so that whoever asks for it must fence it before it is served. The file
//! `SALVAGED` marks it.

mod partly;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::ops::Bound;
use std::path::Path;

use self::partly::{OpenPartly, Part};
use super::doctor::{Damage, in_full, lost_windows};
use super::folder::{self, Folder, FolderState};
use super::{Options, moving};
use crate::engines::log::cold::{OldStore, Visit};
use crate::engines::log::disk::real::RealDisk;
use crate::engines::log::disk::{Disk, PAGE};
use crate::engines::log::faults::Faults;
use crate::engines::log::frame::Frame;
use crate::engines::log::group::{Epoch, HEADER, Header};
use crate::engines::log::manifest::{Manifest, SegmentEntry};
use crate::engines::log::recovery;
use crate::engines::log::segment::{Segment, failed};
use crate::engines::log::writer::read_frame;
use crate::engines::url::StoreUrl;
use crate::model::error::{Error, Result};
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::time::Timestamp;

/// Records of the cold store that are read at a time.
const PAGE_ROWS: usize = 10_000;

/// Result of a salvage.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Salvaged {
    /// Records that were copied, by the name of their kind.
    pub records: BTreeMap<String, u64>,
    /// Places that could not be read. If there is none, the copy is complete.
    pub lost: Vec<Damage>,
}

/// Copies what is readable of the store at `url` into the new or empty directory `target`, which becomes a store. Nothing
/// of the source is changed. The copy must be fenced before it is served.
pub fn salvage(url: &StoreUrl, target: &Path) -> Result<Salvaged> {
    match url {
        #[cfg(feature = "fjall")]
        StoreUrl::Fjall(url) => {
            salvage_in::<crate::engines::log::cold::fjall::FjallCold>(url.as_str(), target)
        }
        #[cfg(feature = "rocksdb")]
        StoreUrl::RocksDb(url) => {
            salvage_in::<crate::engines::log::cold::rocksdb::RocksCold>(url.as_str(), target)
        }
        _ => Err(Error::invalid("only an embedded store of this build can be salvaged")),
    }
}

fn salvage_in<C: OpenPartly>(rest: &str, target: &Path) -> Result<Salvaged> {
    let options = Options::parse(rest)?;
    if !options.path.is_dir() {
        return Err(Error::invalid(format!("no store at {}", options.path.display())));
    }
    let _lock = folder::lock_unchanged(&options.path)?;
    let source = SalvageSource::<C>::read(&options)?;
    let (new, state) = Folder::take(target, C::NAME)?;
    if state != FolderState::New {
        return Err(Error::invalid("the directory for what is salvaged holds a store"));
    }
    folder::copy_beside(&options.path, target)?;
    let records = moving::write_new::<C>(&new, &options, &source)?;
    let lost = source.lost.into_inner();
    let salvaged = Salvaged { records, lost };
    write_mark(target, &salvaged)
        .map_err(|error| folder::unusable("cannot write the file SALVAGED", error))?;
    new.finish()?;
    Ok(salvaged)
}

/// Says durably that this store was salvaged, and what was lost.
fn write_mark(target: &Path, salvaged: &Salvaged) -> std::io::Result<()> {
    let mut file = folder::new_file(&target.join(folder::SALVAGED))?;
    file.write_all(&serde_json::to_vec_pretty(salvaged)?)?;
    file.sync_all()?;
    folder::sync_dir(target)
}

/// Segment and offset of a frame; none where the newest frame is a delete.
type FrameLocation = Option<(u32, u32)>;

/// Readable part of a store.
struct SalvageSource<C> {
    cold: Option<Part<C>>,
    segments: BTreeMap<u32, Segment>,
    /// Place of the newest frame of each key in the log.
    frames: BTreeMap<(Kind, Box<[u8]>), FrameLocation>,
    mark: Option<Timestamp>,
    /// Windows that the manifest names.
    windows: Vec<(u8, u64, u64)>,
    lost: RefCell<Vec<Damage>>,
}

impl<C: OpenPartly> SalvageSource<C> {
    fn read(options: &Options) -> Result<Self> {
        let mut source = Self {
            cold: None,
            segments: BTreeMap::new(),
            frames: BTreeMap::new(),
            mark: None,
            windows: Vec::new(),
            lost: RefCell::default(),
        };
        let log = options.path.join(folder::LOG);
        if log.is_dir() {
            let disk = RealDisk::open_to_read(&log)
                .map_err(|error| folder::unusable("cannot open the directory of the log", error))?;
            source.read_log(&disk)?;
            // Opening would cut a torn tail, which was never acknowledged: nothing is lost with it.
            if matches!(recovery::scan(&disk, Faults::default(), &[], &mut |_, _, _| Ok(())), Ok(Some(_))) {
                source.lost.get_mut().clear();
            }
        } else {
            source.lose("log", "the directory is missing");
        }
        let cold = options.path.join(folder::COLD);
        if cold.is_dir() {
            match partly::open::<C>(&cold, options.cache_bytes) {
                Ok(mut part) => {
                    let lost = source.lost.get_mut();
                    lost.append(&mut part.lost);
                    lost.extend(lost_windows(&part.shadow.cold, &source.windows));
                    source.cold = Some(part);
                }
                Err(error) => source.lose("cold", in_full(&error)),
            }
        } else {
            source.lose("cold", "the directory is missing");
        }
        Ok(source)
    }

    fn lose(&self, place: impl Into<String>, problem: impl Into<String>) {
        self.lost.borrow_mut().push(Damage { place: place.into(), problem: problem.into() });
    }

    fn read_log(&mut self, disk: &dyn Disk) -> Result<()> {
        let manifest = match Manifest::read(disk) {
            Ok(Some(manifest)) => Some(manifest),
            Ok(None) => {
                self.lose("log/manifest", "the manifest is missing; all segments are read");
                None
            }
            Err(error) => {
                self.lose("log/manifest", format!("{}; all segments are read", in_full(&error)));
                None
            }
        };
        if let Some(manifest) = manifest {
            self.mark = manifest.clock_mark.and_then(|mark| Timestamp::from_stored(mark).ok());
            self.windows.clone_from(&manifest.windows);
            for entry in &manifest.segments {
                self.read_segment(disk, entry.id, Some(entry));
            }
            return Ok(());
        }
        let names = disk.list().map_err(|error| failed("cannot list the files of the log", error))?;
        for id in names.iter().filter_map(|name| Segment::number(name)) {
            self.read_segment(disk, id, None);
        }
        Ok(())
    }

    /// Reads every whole group of a segment.
    fn read_segment(&mut self, disk: &dyn Disk, id: u32, entry: Option<&SegmentEntry>) {
        let name = format!("log/{}", Segment::name(id));
        let read = disk.open(&Segment::name(id)).and_then(|file| Ok((file.read_all()?, file)));
        let (mut bytes, file) = match read {
            Ok(read) => read,
            Err(error) => return self.lose(name, error.to_string()),
        };
        if let Some(closed) = entry.and_then(|entry| entry.closed) {
            bytes.truncate(closed.end as usize);
        }
        let Some(epoch) = entry.map(|entry| entry.epoch).or_else(|| find_epoch(&bytes)) else {
            // A segment without a group was never used.
            return;
        };
        let Ok(len) = u32::try_from(bytes.len()) else { return self.lose(name, "the segment is too long") };
        self.segments.insert(id, Segment { id, epoch, len, file });
        let (mut at, mut is_lost) = (0, false);
        while at < bytes.len() {
            let header = Header::read(&bytes[at..], &epoch);
            let body = header.and_then(|header| Some((header, header.body(&bytes[at..])?)));
            let Some((header, body)) = body else {
                let page = &bytes[at..bytes.len().min(at + PAGE)];
                if !is_lost && page.iter().any(|byte| *byte != 0) {
                    let group =
                        header.map_or_else(String::new, |header| format!("group {} ", header.sequence));
                    self.lose(&name, format!("{group}at byte {at} is damaged"));
                    is_lost = true;
                }
                at += PAGE;
                continue;
            };
            is_lost = false;
            let read = Frame::each(body, |offset, frame| {
                self.note(frame, id, at + HEADER + offset);
                Ok(())
            });
            if let Err(error) = read {
                self.lose(&name, format!("group {}: {}", header.sequence, in_full(&error)));
            }
            at += header.size();
        }
    }

    fn note(&mut self, frame: Frame<'_>, segment: u32, offset: usize) {
        let place = match frame {
            Frame::Mark(mark) => {
                self.mark = self.mark.max(Some(mark));
                return;
            }
            Frame::Delete { .. } => None,
            Frame::Store(_) => u32::try_from(offset).ok().map(|offset| (segment, offset)),
        };
        if let Some((kind, key)) = frame.key() {
            self.frames.insert((kind, key.into()), place);
        }
    }

    /// Visits the record of the log at `place`.
    fn visit_frame(&self, key: &[u8], place: (u32, u32), visit: Visit<'_>) -> Result<()> {
        let Some(segment) = self.segments.get(&place.0) else { return Ok(()) };
        match Frame::read(&read_frame(segment, place.1)?)?.0 {
            Frame::Store(stored) => visit(key, stored.record()),
            _ => Ok(()),
        }
    }

    /// Visits all cold records of a kind that can be read, in the order of their keys.
    fn each_cold(&self, kind: Kind, visit: Visit<'_>) -> Result<()> {
        let Some(Part { shadow, .. }) = &self.cold else { return Ok(()) };
        let cold = &shadow.cold;
        let mut after: Option<Box<[u8]>> = None;
        loop {
            let start = after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            let Ok(page) = cold.scan(kind, start, &[], PAGE_ROWS) else { break };
            for (key, record) in page.rows {
                visit(&key, record)?;
                after = Some(key);
            }
            if !page.more {
                return Ok(());
            }
        }
        // A table is damaged: each window is read as far as it goes.
        let mut rest: BTreeMap<Box<[u8]>, Record> = BTreeMap::new();
        for window in cold.windows(kind) {
            let read = cold.each(kind, window, &mut |key, record| {
                if after.as_deref().is_none_or(|after| key > after) {
                    rest.insert(key.into(), record);
                }
                Ok(())
            });
            if let Err(error) = read {
                self.lose(format!("cold/{}-{}", kind.name(), window.0), in_full(&error));
            }
        }
        rest.into_iter().try_for_each(|(key, record)| visit(&key, record))
    }
}

impl<C: OpenPartly> OldStore for SalvageSource<C> {
    fn clock_mark(&self) -> Result<Option<Timestamp>> {
        Ok(self.mark)
    }

    fn each(&self, kind: Kind, visit: Visit<'_>) -> Result<()> {
        let end = Kind::ALL.iter().copied().filter(|other| *other > kind).min();
        let first = (kind, Box::default());
        let range = match end {
            Some(end) => self.frames.range(first..(end, Box::default())),
            None => self.frames.range(first..),
        };
        let mut frames = range.map(|((_, key), place)| (key, *place)).peekable();
        self.each_cold(kind, &mut |key, record| {
            while let Some((newer, place)) = frames.next_if(|(newer, _)| ***newer < *key) {
                place.map_or(Ok(()), |place| self.visit_frame(newer, place, visit))?;
            }
            // The log is newer than the cold store.
            match frames.next_if(|(newer, _)| ***newer == *key) {
                Some((_, Some(place))) => self.visit_frame(key, place, visit),
                Some((_, None)) => Ok(()),
                None => visit(key, record),
            }
        })?;
        frames.try_for_each(|(key, place)| place.map_or(Ok(()), |place| self.visit_frame(key, place, visit)))
    }
}

/// Epoch of a segment that no manifest names: the one of its first header.
fn find_epoch(bytes: &[u8]) -> Option<Epoch> {
    bytes.chunks(PAGE).find_map(|page| {
        let epoch = *page.first_chunk()?;
        Header::read(page, &epoch).map(|_| epoch)
    })
}
