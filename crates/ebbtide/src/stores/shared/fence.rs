//! Fence of a restored backup.

use std::sync::{PoisonError, RwLock};

use crate::model::time::Timestamp;

/// Fence of a restored backup, which does not know what was used before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fence {
    /// Time at which it was set.
    pub(crate) at: Timestamp,
    /// Time until which a proof from before it may still be valid.
    pub(crate) until: Timestamp,
}

/// Fence that the stores of a process share.
#[derive(Debug, Default)]
pub(crate) struct FenceState(RwLock<Option<Fence>>);

impl FenceState {
    pub(crate) fn set(&self, fence: Fence) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(fence);
    }

    pub(crate) fn get(&self) -> Option<Fence> {
        *self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}
