//! Damage of a log of three segments, byte by byte.

use super::*;
use crate::ErrorKind;
use crate::engines::log::disk::PAGE;

const SECTOR: usize = 512;

/// Three segments of small groups, closed by a seal, and the records in them.
fn three_segments() -> (SimDisk, Model, Position) {
    let disk = SimDisk::new(1);
    let mut log = Plain::open(&disk, &settings(1, None)).unwrap();
    let mut model = Model::new();
    let mut number = 0;
    while log.recovered.current.id < 3 || log.recovered.tail < 2 * 4_096 {
        number += 1;
        let padding = if number % 3 == 0 { 4_500 } else { 40 };
        log.write(&frames(number, number, padding), true).unwrap();
        model.insert(number, number);
    }
    let seal = Position::new(log.recovered.current.id, log.recovered.tail);
    log.write(&[], true).unwrap();
    (disk, model, seal)
}

/// Reads the log without mending it, as opening does first.
fn read(disk: &SimDisk) -> Result<Model> {
    let mut found = Model::new();
    scan(disk, Faults::default(), &[], &mut |_, _, frame| {
        replay(&mut found, frame);
        Ok(())
    })?;
    Ok(found)
}

/// Damage before the seal is corrupt; at the seal and behind it nothing is lost.
fn judge(disk: &SimDisk, name: &str, at: usize, seal: Position, model: &Model) {
    let outcome = read(disk);
    let id = Segment::number(name);
    let is_dead = id.is_some_and(|id| Position::new(id, u32::try_from(at / PAGE * PAGE).unwrap()) >= seal);
    if is_dead {
        let found = outcome.unwrap_or_else(|error| panic!("{name} at {at}: {error}"));
        assert_eq!(&found, model, "{name} at {at}");
        return;
    }
    let error = outcome.err().unwrap_or_else(|| panic!("{name} at {at} opened"));
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{name} at {at}: {error}");
    if id.is_some() {
        assert!(error.message().contains(name), "{name} at {at}: {error}");
    }
}

#[test]
fn every_flipped_byte_is_corrupt_or_behind_the_end() {
    let (disk, model, seal) = three_segments();
    assert_eq!(read(&disk).unwrap(), model);
    for name in disk.names() {
        for at in 0..disk.length(&name) {
            disk.damage(&name, |bytes| bytes[at] ^= 0x10);
            judge(&disk, &name, at, seal, &model);
            disk.damage(&name, |bytes| bytes[at] ^= 0x10);
        }
    }
}

#[test]
fn every_zeroed_sector_is_corrupt_or_behind_the_end() {
    let (disk, model, seal) = three_segments();
    for name in disk.names() {
        for at in (0..disk.length(&name)).step_by(SECTOR) {
            let damaged = disk.fork();
            let mut changed = false;
            damaged.damage(&name, |bytes| {
                let end = bytes.len().min(at + SECTOR);
                changed = bytes[at..end].iter().any(|byte| *byte != 0);
                bytes[at..end].fill(0);
            });
            if changed {
                judge(&damaged, &name, at, seal, &model);
            }
        }
    }
}

#[test]
fn every_removed_or_shortened_file_is_corrupt() {
    let (disk, ..) = three_segments();
    for name in disk.names() {
        let removed = disk.fork();
        removed.remove(&name);
        assert_eq!(read(&removed).unwrap_err().kind(), ErrorKind::Corrupt, "{name} removed");
        for len in (0..disk.length(&name)).step_by(SECTOR) {
            let shortened = disk.fork();
            shortened.damage(&name, |bytes| bytes.truncate(len));
            assert_eq!(read(&shortened).unwrap_err().kind(), ErrorKind::Corrupt, "{name} cut at {len}");
        }
    }
}

/// The last acknowledged group is damaged, and the group behind it has a whole header and a torn body.
fn damaged_below_a_torn_body() -> SimDisk {
    let disk = SimDisk::new(1);
    let mut log = Plain::open(&disk, &settings(1, None)).unwrap();
    log.write(&frames(1, 1, 10), true).unwrap();
    log.write(&frames(2, 2, 10), true).unwrap();
    let (id, torn) = (log.recovered.current.id, log.recovered.tail as usize);
    log.write(&frames(3, 3, 6_000), true).unwrap();
    disk.damage(&Segment::name(id), |bytes| {
        bytes[torn - PAGE + 60] ^= 1;
        bytes[torn + PAGE..torn + 2 * PAGE].fill(0);
    });
    disk
}

#[test]
fn the_floor_comes_from_headers_with_a_torn_body_too() {
    let disk = damaged_below_a_torn_body();
    let error = Plain::open(&disk, &settings(1, None)).err().expect("group 2 was acknowledged");
    assert!(error.message().contains("00000001.log") && error.message().contains("group 2"), "{error}");
    let planted = settings(1, Some(PlantedFault::FloorFromWholeGroups));
    assert!(Plain::open(&disk, &planted).is_ok(), "the planted fault loses group 2");
}
