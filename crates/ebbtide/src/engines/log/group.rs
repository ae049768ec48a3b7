//! Byte layout of a group: the unit that is written, synced and acknowledged.
//!
//! A group starts on a page boundary of its segment and fills whole pages:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 16 | epoch of the segment |
//! | 16 | 8 | sequence number |
//! | 24 | 8 | `durable_to`: sequence of the last group whose sync had returned before this one was written |
//! | 32 | 4 | length of the body |
//! | 36 | 4 | CRC-32C of the body and of the zeros up to the next page boundary |
//! | 40 | 4 | CRC-32C of the 40 bytes above |
//! | 44 | 4 | zero |
//! | 48 | | body: frames, one after the other |
//!
//! Numbers are little-endian. The header has a checksum of its own, so that a damaged length steers nothing and
//! `durable_to` counts even where the body is damaged. The epoch is secret and random: no value that a caller stores
//! can pass for a header. The checksum of the body covers the padding, so that each byte of a group is checked.

use super::disk::PAGE;

/// Secret random bytes that mark the groups of one segment.
pub(crate) type Epoch = [u8; 16];

/// Bytes of a header.
pub(crate) const HEADER: usize = 48;

/// Bytes of a header that its checksum covers.
const CHECKED: usize = 40;

/// Rounds up to a page boundary.
pub(crate) const fn pages(len: usize) -> usize {
    len.div_ceil(PAGE) * PAGE
}

/// Header of a group, without its epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) sequence: u64,
    pub(crate) durable_to: u64,
    pub(crate) length: u32,
    body_crc: u32,
}

impl Header {
    /// Reads a header; none if its checksum or its epoch is wrong.
    pub(crate) fn read(bytes: &[u8], epoch: &Epoch) -> Option<Self> {
        let bytes = bytes.first_chunk::<HEADER>()?;
        let crc = u32_at(bytes, CHECKED)?;
        if !bytes.starts_with(epoch) || crc32c::crc32c(&bytes[..CHECKED]) != crc || u32_at(bytes, 44)? != 0 {
            return None;
        }
        Some(Self {
            sequence: u64_at(bytes, 16)?,
            durable_to: u64_at(bytes, 24)?,
            length: u32_at(bytes, 32)?,
            body_crc: u32_at(bytes, 36)?,
        })
    }

    /// Bytes of the group on the disk: whole pages.
    pub(crate) const fn size(&self) -> usize {
        pages(HEADER + self.length as usize)
    }

    /// Body of the group that starts at the front of `bytes`; none if it is cut short or its checksum is wrong.
    pub(crate) fn body<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let padded = bytes.get(HEADER..self.size())?;
        (crc32c::crc32c(padded) == self.body_crc).then(|| &padded[..self.length as usize])
    }
}

/// A group in memory that frames are appended to. Its bytes begin with room for the header.
#[derive(Debug)]
pub(crate) struct Builder {
    bytes: Vec<u8>,
    crc: u32,
}

impl Builder {
    /// An empty group in this buffer, whose memory is used again.
    pub(crate) fn new(mut buffer: Vec<u8>) -> Self {
        buffer.clear();
        buffer.resize(HEADER, 0);
        Self { bytes: buffer, crc: 0 }
    }

    /// Appends frames and returns their offset in the group.
    pub(crate) fn append(&mut self, frames: &[u8]) -> usize {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(frames);
        self.crc = crc32c::crc32c_append(self.crc, frames);
        at
    }

    /// Length so far, the header included.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Pads the group to whole pages and writes its header.
    pub(crate) fn finish(mut self, epoch: &Epoch, sequence: u64, durable_to: u64) -> Vec<u8> {
        let end = self.bytes.len();
        let length = u32::try_from(end - HEADER).expect("a group is smaller than a segment");
        self.bytes.resize(pages(end), 0);
        let body_crc = crc32c::crc32c_append(self.crc, &self.bytes[end..]);
        let header = &mut self.bytes[..HEADER];
        header[..16].copy_from_slice(epoch);
        header[16..24].copy_from_slice(&sequence.to_le_bytes());
        header[24..32].copy_from_slice(&durable_to.to_le_bytes());
        header[32..36].copy_from_slice(&length.to_le_bytes());
        header[36..40].copy_from_slice(&body_crc.to_le_bytes());
        let crc = crc32c::crc32c(&header[..CHECKED]);
        header[CHECKED..44].copy_from_slice(&crc.to_le_bytes());
        self.bytes
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPOCH: Epoch = [7; 16];

    fn group(frames: &[&[u8]]) -> Vec<u8> {
        let mut builder = Builder::new(Vec::new());
        for frame in frames {
            builder.append(frame);
        }
        builder.finish(&EPOCH, 5, 4)
    }

    #[test]
    fn a_group_is_read_as_it_was_written() {
        let (full, over, long) = ([9; 4_048], [9; 4_049], [1; 9_000]);
        let cases: [&[&[u8]]; 6] = [&[], &[b"one"], &[b"one", b"two"], &[&full], &[&over], &[&long]];
        for frames in cases {
            let bytes = group(frames);
            assert_eq!(bytes.len() % PAGE, 0);
            let header = Header::read(&bytes, &EPOCH).unwrap();
            assert_eq!((header.sequence, header.durable_to), (5, 4));
            assert_eq!(header.size(), bytes.len());
            assert_eq!(header.body(&bytes).unwrap(), frames.concat());
        }
    }

    #[test]
    fn every_flipped_byte_is_found_and_a_bad_body_leaves_the_header() {
        let bytes = group(&[&[3; 100]]);
        for at in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[at] ^= 0x40;
            match Header::read(&bytes, &EPOCH) {
                None => assert!(at < HEADER, "{at}"),
                Some(header) => {
                    assert!(at >= HEADER, "{at}");
                    assert_eq!(header.durable_to, 4);
                    assert_eq!(header.body(&bytes), None, "{at}");
                }
            }
        }
    }

    #[test]
    fn a_header_of_another_segment_and_zeros_are_none() {
        assert_eq!(Header::read(&group(&[]), &[8; 16]), None);
        assert_eq!(Header::read(&[0; PAGE], &[0; 16]), None);
        assert_eq!(Header::read(&group(&[])[..40], &EPOCH), None);
    }
}
