//! Retry windows of a family: until when an old token is a late tab, and not a thief.

use minicbor::bytes::ByteArray;
use minicbor::{Decode, Encode};

/// Windows that a family remembers: the one of its last rotation, and those of the fifteen before.
pub(super) const WINDOWS: usize = 16;

/// Windows before the last one.
const EARLIER: usize = WINDOWS - 1;

/// Distance of a window that has ended, and needs no end.
const ENDED: u16 = u16::MAX;

/// Ends of the windows before the last one, newest first, each as its distance from the end of the last window in
/// milliseconds. An open window ends at most 60 s after the rotation, so its distance fits 16 bits. The width is fixed:
/// a family takes the same bytes however often it is rotated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(transparent)]
pub(super) struct Windows(#[n(0)] ByteArray<{ 2 * EARLIER }>);

impl Windows {
    /// Windows of a family without rotations.
    pub(super) fn none() -> Self {
        Self([0xFF; 2 * EARLIER].into())
    }

    /// End of the window of the token that was rotated `back` rotations before the last one, if it is known.
    pub(super) fn end(&self, back: usize, last: u64) -> Option<u64> {
        if back == 0 {
            return Some(last);
        }
        let (distances, _) = self.0.as_chunks::<2>();
        let distance = u16::from_be_bytes(*distances.get(back - 1)?);
        (distance != ENDED).then(|| last.saturating_sub(u64::from(distance)))
    }

    /// End of the oldest window, which the next rotation pushes out.
    pub(super) fn oldest(&self, last: u64) -> Option<u64> {
        self.end(EARLIER, last)
    }

    /// Adds a window that ends at `next`, where the last one ends at `last`.
    pub(super) fn push(&mut self, last: u64, next: u64) {
        let mut pushed = [0xFF; 2 * EARLIER];
        let (places, _) = pushed.as_chunks_mut::<2>();
        for (back, place) in places.iter_mut().enumerate() {
            let distance = self.end(back, last).map(|end| next.saturating_sub(end));
            let distance = distance.and_then(|distance| u16::try_from(distance).ok());
            *place = distance.unwrap_or(ENDED).to_be_bytes();
        }
        self.0 = pushed.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_the_last_sixteen_windows_are_known() {
        let mut windows = Windows::none();
        let mut last = 1_000_000;
        for rotation in 1..=40_u64 {
            let next = last + 3_000;
            windows.push(last, next);
            last = next;
            for back in 0..WINDOWS as u64 {
                let end = windows.end(usize::try_from(back).unwrap(), last);
                assert_eq!(end, (back <= rotation).then(|| last - back * 3_000), "{rotation} {back}");
            }
            assert_eq!(windows.end(WINDOWS, last), None);
        }
    }

    #[test]
    fn a_window_of_long_ago_has_no_end() {
        let mut windows = Windows::none();
        windows.push(1_000, 200_000);
        assert_eq!((windows.end(0, 200_000), windows.end(1, 200_000)), (Some(200_000), None));
    }
}
