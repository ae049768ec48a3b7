//! Queue of callers that share statements, and the statements of it in flight.
//!
//! A lone caller does not wait: if no statement is in flight, its own goes out at once. Those that arrive meanwhile go
//! out together when that one returns. A statement that takes long, because one of its rows is locked, holds up
//! nobody: the next goes out beside it.

use std::mem::take;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum number of statements in flight that are not held up.
const MOVING: usize = 2;

/// Number of waiting callers for which a further statement goes out beside one in flight.
const ENOUGH_FOR_A_LANE: usize = 16;

/// Queue of one kind.
pub(super) struct Lanes<T> {
    state: Mutex<LaneState<T>>,
    most: usize,
}

struct LaneState<T> {
    waiting: Vec<T>,
    lanes: usize,
    stalled: usize,
}

/// Decision about a waiting caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pick {
    Take,
    /// It waits for a statement in flight.
    Leave,
    /// Nobody waits for its answer.
    Drop,
    /// The statement is full.
    Stop,
}

impl<T> Lanes<T> {
    /// `most` bounds the statements in flight, those that are held up included.
    pub(super) fn new(most: usize) -> Self {
        let state = LaneState { waiting: Vec::new(), lanes: 0, stalled: 0 };
        Self { state: Mutex::new(state), most: most.max(MOVING) }
    }

    /// Queues a caller. Returns true if a lane was opened, which the caller must drive.
    #[must_use]
    pub(super) fn push(&self, item: T) -> bool {
        let mut state = self.state();
        state.waiting.push(item);
        self.opens(&mut state)
    }

    /// Queues a caller for an open lane, or for the next [`Lanes::nudge`].
    pub(super) fn put_back(&self, item: T) {
        self.state().waiting.push(item);
    }

    /// Returns true if a lane was opened for those that wait, which the caller must drive.
    #[must_use]
    pub(super) fn nudge(&self) -> bool {
        self.opens(&mut self.state())
    }

    fn opens(&self, state: &mut LaneState<T>) -> bool {
        let moving = state.lanes - state.stalled;
        let opens = !state.waiting.is_empty()
            && state.lanes < self.most
            && (moving == 0 || (moving < MOVING && state.waiting.len() >= ENOUGH_FOR_A_LANE));
        state.lanes += usize::from(opens);
        opens
    }

    fn state(&self) -> MutexGuard<'_, LaneState<T>> {
        // Nothing panics while the queue is in an inconsistent state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lane that was opened. It closes on drop even if a statement panics: the next caller opens one again.
    pub(super) fn lane(&self) -> Lane<'_, T> {
        Lane { lanes: self, open: true, stalled: false }
    }
}

/// Slot for one of the statements in flight.
pub(super) struct Lane<'a, T> {
    lanes: &'a Lanes<T>,
    open: bool,
    stalled: bool,
}

impl<T> Lane<'_, T> {
    /// Takes the next callers. If there are none, the lane closes in the same step, so that the next caller opens one.
    pub(super) fn next(&mut self, mut pick: impl FnMut(&T) -> Pick) -> Option<Vec<T>> {
        let mut state = self.lanes.state();
        let (mut taken, mut left) = (Vec::new(), Vec::new());
        let mut waiting = take(&mut state.waiting).into_iter();
        for item in waiting.by_ref() {
            match pick(&item) {
                Pick::Take => taken.push(item),
                Pick::Leave => left.push(item),
                Pick::Drop => {}
                Pick::Stop => {
                    left.push(item);
                    break;
                }
            }
        }
        left.extend(waiting);
        state.waiting = left;
        if taken.is_empty() {
            state.lanes -= 1;
            self.open = false;
            return None;
        }
        Some(taken)
    }

    /// The statement takes long. Returns true if a lane was opened for those that wait, which the caller must drive.
    #[must_use]
    pub(super) fn stall(&mut self) -> bool {
        let mut state = self.lanes.state();
        self.stalled = true;
        state.stalled += 1;
        self.lanes.opens(&mut state)
    }

    /// The statement has returned.
    pub(super) fn go_on(&mut self) {
        if self.stalled {
            self.stalled = false;
            self.lanes.state().stalled -= 1;
        }
    }
}

impl<T> Drop for Lane<'_, T> {
    fn drop(&mut self) {
        self.go_on();
        if self.open {
            self.lanes.state().lanes -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_opens_for_the_first_and_beside_one_that_is_held_up() {
        let lanes = Lanes::new(3);
        assert!(lanes.push(1));
        let mut first = lanes.lane();
        assert_eq!(first.next(|_| Pick::Take), Some(vec![1]));
        assert!(!lanes.push(2), "one is in flight");
        assert!(first.stall(), "and is held up");
        let mut second = lanes.lane();
        assert_eq!(second.next(|_| Pick::Take), Some(vec![2]));
        first.go_on();
        assert!((0..14).all(|_| !lanes.push(3)));
        assert_eq!(second.next(|_| Pick::Take).map(|taken| taken.len()), Some(14));
        assert_eq!(second.next(|_| Pick::Take), None);
        assert_eq!(first.next(|_| Pick::Take), None);
        assert!(lanes.push(4), "both have closed");
    }

    #[test]
    fn those_that_are_left_keep_their_order() {
        let lanes = Lanes::new(2);
        assert!(lanes.push(1));
        assert!((2..=6).all(|item| !lanes.push(item)));
        let mut lane = lanes.lane();
        let pick = |item: &i32| match item {
            1 => Pick::Leave,
            2 => Pick::Drop,
            5 => Pick::Stop,
            _ => Pick::Take,
        };
        assert_eq!(lane.next(pick), Some(vec![3, 4]));
        assert_eq!(lane.next(|_| Pick::Take), Some(vec![1, 5, 6]));
    }
}
