//! Faults that tests plant, to show that the tests catch them. Builds without tests have none.

/// One planted fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PlantedFault {
    /// Groups are written and not synced.
    SyncSkipped,
    /// Callers are answered before the sync.
    AcknowledgedBeforeSync,
    /// A cold read counts even if retirement moved records meanwhile.
    EpochNotCompared,
    /// Retirement drops tombstones.
    TombstoneDropped,
    /// Retirement removes a segment before its checkpoint is durable.
    UnlinkBeforeCheckpoint,
    /// New files are used without a sync of the directory.
    DirectoryNotSynced,
    /// A refusal does not wait for the group that it rests on.
    RefusalDoesNotWait,
    /// Recovery takes the floor from whole groups only, not from headers with a damaged body.
    FloorFromWholeGroups,
    /// Recovery goes on in the segment that it has cut.
    ContinueInCutSegment,
    /// The checkpoint does not wait for the groups that were open when the walk ended.
    CheckpointDoesNotWait,
}

/// Faults of one store.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    #[cfg(test)]
    pub(crate) planted: Option<PlantedFault>,
}

impl Faults {
    /// Returns true if `fault` is planted.
    #[cfg(test)]
    pub(crate) fn has(self, fault: PlantedFault) -> bool {
        self.planted == Some(fault)
    }

    /// Returns false: only tests plant faults.
    #[cfg(not(test))]
    #[expect(clippy::unused_self, reason = "tests have faults")]
    pub(crate) const fn has(self, _: PlantedFault) -> bool {
        false
    }
}
