//! Recovery on a simulated disk.

mod crashes;
mod damage;

use std::collections::BTreeMap;

use super::*;
use crate::engines::log::disk::sim::SimDisk;
use crate::engines::log::faults::PlantedFault;
use crate::engines::log::frame;
use crate::engines::log::group::Builder;
use crate::model::key::Key;
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::rng::SeededRng;
use crate::model::scope::Scope;
use crate::model::time::Timestamp;

/// Records by the number in their key; the value is the sequence of their group.
type Model = BTreeMap<u64, u64>;

/// A writer of one group at a time, without threads.
struct Plain {
    disk: Arc<dyn Disk>,
    settings: Settings,
    recovered: Recovered,
    found: Model,
}

const SEGMENT: u32 = 16 << 10;

fn settings(seed: u64, fault: Option<PlantedFault>) -> Settings {
    Settings {
        segment_len: SEGMENT,
        first_len: SEGMENT,
        keyrings: vec!["ring".to_owned()],
        rng: Arc::new(SeededRng::new(seed)),
        faults: Faults { planted: fault },
    }
}

fn replay(found: &mut Model, frame: Frame<'_>) {
    if let Frame::Store(stored) = frame {
        let key = Key::decode(stored.kind, stored.key).unwrap();
        let crate::model::key::Part::Int(number) = key.partition()[0] else {
            panic!("the tests use numbers")
        };
        found.insert(number, u64::from_le_bytes(*stored.value.first_chunk().unwrap()));
    }
}

fn frames(number: u64, sequence: u64, padding: usize) -> Vec<u8> {
    let key = Key::new(Kind::Probe, &Scope::Global, &[number.into()], &[]).unwrap();
    let value = [&sequence.to_le_bytes()[..], &vec![0xAB; padding]].concat();
    let mut out = Vec::new();
    frame::store(&mut out, &key, &Record::new(value, Timestamp::NEVER, &SeededRng::new(1)), false);
    out
}

impl Plain {
    fn open(disk: &SimDisk, settings: &Settings) -> Result<Self> {
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        let mut found = Model::new();
        let recovered = open(&disk, settings, &[], &mut |_, _, frame| {
            replay(&mut found, frame);
            Ok(())
        })?;
        Ok(Self { disk, settings: settings.clone(), recovered, found })
    }

    /// Writes a group, in a new segment if it does not fit, and syncs it unless told not to.
    fn write(&mut self, frames: &[u8], sync: bool) -> Result<u64> {
        let mut builder = Builder::new(Vec::new());
        builder.append(frames);
        let sequence = self.recovered.last_sequence + 1;
        let size = crate::engines::log::group::pages(builder.len());
        if self.recovered.tail as usize + size > SEGMENT as usize {
            self.roll()?;
        }
        let bytes = builder.finish(&self.recovered.current.epoch, sequence, sequence - 1);
        let write = || {
            self.recovered.current.file.write_at(&bytes, self.recovered.tail.into())?;
            if sync { self.recovered.current.file.sync_data() } else { Ok(()) }
        };
        write().map_err(|error| failed("write", error))?;
        self.recovered.tail += u32::try_from(size).unwrap();
        self.recovered.last_sequence = sequence;
        Ok(sequence)
    }

    fn roll(&mut self) -> Result<()> {
        let manifest = &mut self.recovered.manifest;
        let (id, epoch) = (manifest.current().next_segment, self.settings.rng.bytes());
        let segment = Segment::create(self.disk.as_ref(), id, epoch, SEGMENT, self.settings.faults);
        let segment = segment.map_err(|error| failed("create", error))?;
        manifest
            .change(|next| {
                next.segments.push(segment.entry());
                next.next_segment = id + 1;
            })
            .map_err(manifest::Failure::into_error)?;
        self.recovered.current = Arc::new(segment);
        self.recovered.tail = 0;
        Ok(())
    }
}

#[test]
fn an_empty_disk_becomes_a_log_and_a_log_opens_as_it_was_left() {
    let disk = SimDisk::new(1);
    let settings = settings(1, None);
    let mut log = Plain::open(&disk, &settings).unwrap();
    assert!(log.found.is_empty());
    let mut model = Model::new();
    for number in 0..12 {
        let sequence = log.write(&frames(number % 5, number + 1, 100), true).unwrap();
        model.insert(number % 5, sequence);
    }
    assert!(log.recovered.current.id > 2, "several segments are used");
    for _ in 0..3 {
        log = Plain::open(&disk, &settings).unwrap();
        assert_eq!(log.found, model);
        assert_eq!(log.recovered.last_sequence, 12);
    }
    assert!(disk.names().iter().all(|name| !name.contains("torn")));
}

#[test]
fn a_missing_manifest_segment_or_keyring_is_corrupt() {
    let disk = SimDisk::new(1);
    let mut log = Plain::open(&disk, &settings(1, None)).unwrap();
    for number in 0..6 {
        log.write(&frames(number, number + 1, 100), true).unwrap();
    }
    for name in disk.names() {
        let disk = disk.fork();
        disk.remove(&name);
        let error = Plain::open(&disk, &settings(1, None)).err().unwrap();
        assert_eq!(error.kind(), crate::ErrorKind::Corrupt, "{name}: {error}");
        assert!(name == "manifest" || error.message().contains(&name), "{error}");
    }
    let without = Settings { keyrings: Vec::new(), ..settings(1, None) };
    let error = Plain::open(&disk, &without).err().unwrap();
    assert!(error.message().contains("keyring ring"), "{error}");
}
