//! Places in the log.

use std::fmt;

/// Place of a byte in the log: a segment and an offset in its file. Later bytes have higher positions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct Position(u64);

impl Position {
    /// Highest number of a segment: an index entry keeps the kind in the byte above it.
    pub(crate) const MAX_SEGMENT: u32 = (1 << 24) - 1;

    pub(crate) const fn new(segment: u32, offset: u32) -> Self {
        Self((segment as u64) << 32 | offset as u64)
    }

    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    pub(crate) const fn segment(self) -> u32 {
        (self.0 >> 32) as u32
    }

    #[expect(clippy::cast_possible_truncation, reason = "the offset is the lower half")]
    pub(crate) const fn offset(self) -> u32 {
        self.0 as u32
    }
}

impl fmt::Debug for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.segment(), self.offset())
    }
}
