//! A disk that crashes, from a seed.
//!
//! Each file has the bytes that reads see and the bytes that a power loss leaves. A sync copies the first to the
//! second, page by page. On a crash every page that was not synced is kept, dropped, torn at a sector or damaged,
//! independently of all others, and every name that was changed since the directory was synced is any of the files
//! that it stood for since.

mod crash;
mod inode;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Disk, File, PAGE};
use inode::Inode;

/// Kind of call, for faults that are planned by call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DiskCall {
    Create,
    Open,
    Rename,
    Unlink,
    List,
    SyncDir,
    Write,
    Read,
    SyncData,
    Len,
    Resize,
}

/// Fault that a call meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum DiskFault {
    /// No space left on the device; a write may have been done in part.
    NoSpace,
    /// Input/output error; a failed sync leaves pages that no later sync writes.
    Io,
    /// A sync that answers `Ok` and does nothing.
    DroppedSync,
}

/// Faults by chance, in parts of 10,000 for each call.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Odds {
    pub(crate) no_space: u64,
    pub(crate) io: u64,
    pub(crate) dropped_sync: u64,
}

/// Count of what happened, so that a run can show that its faults did fire.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Fired {
    pub(crate) no_space: u64,
    pub(crate) io: u64,
    pub(crate) dropped_syncs: u64,
    pub(crate) kept_pages: u64,
    pub(crate) dropped_pages: u64,
    pub(crate) torn_pages: u64,
    pub(crate) damaged_pages: u64,
    pub(crate) lost_names: u64,
}

/// The generator of a simulated run: splitmix64.
#[derive(Debug, Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not zero.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Chance of `parts` in 10,000.
    pub(crate) fn hit(&mut self, parts: u64) -> bool {
        parts > 0 && self.below(10_000) < parts
    }
}

#[derive(Clone)]
struct DiskState {
    dice: Dice,
    inodes: BTreeMap<u64, Inode>,
    next_inode: u64,
    names: BTreeMap<String, u64>,
    /// States of each name that was changed since the last sync of the directory, the oldest first.
    unsynced: BTreeMap<String, Vec<Option<u64>>>,
    /// Raised by a crash or a kill: handles from before fail.
    generation: u64,
    calls: u64,
    /// Call number from which on all calls but reads fail, or that alone fails.
    planned: Option<(u64, DiskFault, bool)>,
    /// Call number at which the machine stops: that call and all later ones fail, and have no effect.
    stops_at: Option<u64>,
    odds: Odds,
    fired: Fired,
    /// Bytes that the disk says are free.
    free: u64,
}

/// A simulated disk. Clones are the same disk.
#[derive(Clone)]
pub(crate) struct SimDisk(Arc<Mutex<DiskState>>);

impl SimDisk {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(DiskState {
            dice: Dice::new(seed),
            inodes: BTreeMap::new(),
            next_inode: 1,
            names: BTreeMap::new(),
            unsynced: BTreeMap::new(),
            generation: 0,
            calls: 0,
            planned: None,
            stops_at: None,
            odds: Odds::default(),
            fired: Fired::default(),
            free: u64::MAX,
        })))
    }

    /// A disk of its own with the same state.
    pub(crate) fn fork(&self) -> Self {
        Self(Arc::new(Mutex::new(self.state().clone())))
    }

    /// Uses another seed from here on.
    pub(crate) fn reseed(&self, seed: u64) {
        self.state().dice = Dice::new(seed);
    }

    /// Calls so far that a fault could meet.
    pub(crate) fn calls(&self) -> u64 {
        self.state().calls
    }

    pub(crate) fn fired(&self) -> Fired {
        self.state().fired
    }

    pub(crate) fn set_odds(&self, odds: Odds) {
        self.state().odds = odds;
    }

    /// Fails the call with number `call`; with `sticky` all later ones that write as well.
    pub(crate) fn plan(&self, call: u64, fault: DiskFault, sticky: bool) {
        self.state().planned = Some((call, fault, sticky));
    }

    /// Stops the machine before the call with number `call`.
    pub(crate) fn stop_at(&self, call: u64) {
        self.state().stops_at = Some(call);
    }

    /// Lets the disk say that so many bytes are free.
    pub(crate) fn set_free(&self, bytes: u64) {
        self.state().free = bytes;
    }

    /// Removes all plans and odds.
    pub(crate) fn behave(&self) {
        let mut state = self.state();
        (state.planned, state.stops_at, state.odds) = (None, None, Odds::default());
    }

    fn state(&self) -> MutexGuard<'_, DiskState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn call(
        &self,
        call: DiskCall,
        generation: Option<u64>,
    ) -> io::Result<(MutexGuard<'_, DiskState>, Option<DiskFault>)> {
        let mut state = self.state();
        if generation.is_some_and(|generation| generation != state.generation) {
            return Err(io::Error::other("this handle is from before the crash"));
        }
        let fault = state.meet(call)?;
        Ok((state, fault))
    }
}

impl DiskState {
    /// Decides the fate of a call. Only a write goes on with a fault in hand, to be done in part, and a sync.
    fn meet(&mut self, call: DiskCall) -> io::Result<Option<DiskFault>> {
        let number = self.calls;
        self.calls += 1;
        if self.stops_at.is_some_and(|stop| number >= stop) {
            return Err(io::Error::other("the machine has stopped"));
        }
        let is_read = matches!(call, DiskCall::Open | DiskCall::List | DiskCall::Read | DiskCall::Len);
        let is_sync = matches!(call, DiskCall::SyncData | DiskCall::SyncDir);
        let planned = self.planned.filter(|(at, fault, sticky)| {
            (number == *at || (*sticky && number > *at && !is_read))
                && (*fault != DiskFault::DroppedSync || is_sync)
        });
        let odds = self.odds;
        let fault = match planned {
            Some((_, fault, _)) => Some(fault),
            None if is_sync && self.dice.hit(odds.dropped_sync) => Some(DiskFault::DroppedSync),
            None if self.dice.hit(odds.io) => Some(DiskFault::Io),
            None if !is_read && self.dice.hit(odds.no_space) => Some(DiskFault::NoSpace),
            None => None,
        };
        match fault {
            Some(DiskFault::NoSpace) => self.fired.no_space += 1,
            Some(DiskFault::Io) => self.fired.io += 1,
            Some(DiskFault::DroppedSync) => self.fired.dropped_syncs += 1,
            None => {}
        }
        match fault {
            Some(fault) if !is_sync && call != DiskCall::Write => Err(fault.error()),
            fault => Ok(fault),
        }
    }

    fn rename_to(&mut self, name: &str, inode: Option<u64>) {
        let before = self.names.get(name).copied();
        self.unsynced.entry(name.to_owned()).or_insert_with(|| vec![before]).push(inode);
        match inode {
            Some(inode) => self.names.insert(name.to_owned(), inode),
            None => self.names.remove(name),
        };
    }
}

impl DiskFault {
    fn error(self) -> io::Error {
        match self {
            Self::NoSpace => io::Error::from(io::ErrorKind::StorageFull),
            Self::Io | Self::DroppedSync => io::Error::other("input/output error"),
        }
    }
}

impl Disk for SimDisk {
    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let (mut state, _) = self.call(DiskCall::Create, None)?;
        let inode = state.next_inode;
        state.next_inode += 1;
        state.inodes.insert(inode, Inode::default());
        state.rename_to(name, Some(inode));
        Ok(Arc::new(SimFile { disk: self.clone(), inode, generation: state.generation }))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let (state, _) = self.call(DiskCall::Open, None)?;
        let inode = state.names.get(name).copied().ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(SimFile { disk: self.clone(), inode, generation: state.generation }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (mut state, _) = self.call(DiskCall::Rename, None)?;
        let inode = state.names.get(from).copied().ok_or(io::ErrorKind::NotFound)?;
        state.rename_to(to, Some(inode));
        state.rename_to(from, None);
        Ok(())
    }

    fn unlink(&self, name: &str) -> io::Result<()> {
        let (mut state, _) = self.call(DiskCall::Unlink, None)?;
        if !state.names.contains_key(name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        state.rename_to(name, None);
        Ok(())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.call(DiskCall::List, None)?.0.names.keys().cloned().collect())
    }

    fn sync_dir(&self) -> io::Result<()> {
        let (mut state, fault) = self.call(DiskCall::SyncDir, None)?;
        match fault {
            Some(DiskFault::DroppedSync) => Ok(()),
            Some(fault) => Err(fault.error()),
            None => {
                state.unsynced.clear();
                Ok(())
            }
        }
    }

    fn free(&self) -> io::Result<u64> {
        Ok(self.state().free)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(u64::MAX)
    }
}

struct SimFile {
    disk: SimDisk,
    inode: u64,
    generation: u64,
}

impl SimFile {
    fn with<T>(
        &self,
        call: DiskCall,
        work: impl FnOnce(&mut Inode, &mut Dice, Option<DiskFault>) -> io::Result<T>,
    ) -> io::Result<T> {
        let (mut guard, fault) = self.disk.call(call, Some(self.generation))?;
        let state = &mut *guard;
        let inode = state.inodes.get_mut(&self.inode).ok_or(io::ErrorKind::NotFound)?;
        work(inode, &mut state.dice, fault)
    }
}

impl File for SimFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        self.with(DiskCall::Write, |inode, dice, fault| {
            let Some(fault) = fault else {
                inode.write(bytes, offset);
                return Ok(());
            };
            let part = usize::try_from(dice.below(bytes.len() as u64 + 1)).unwrap_or(0);
            inode.write(&bytes[..part], offset);
            Err(fault.error())
        })
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        self.with(DiskCall::Read, |inode, _, fault| match fault {
            Some(fault) => Err(fault.error()),
            None => inode.read(bytes, offset).ok_or_else(|| io::ErrorKind::UnexpectedEof.into()),
        })
    }

    /// Every other page is in memory.
    fn read_cached(&self, bytes: &mut [u8], offset: u64) -> usize {
        let Ok(offset) = usize::try_from(offset) else { return 0 };
        if (offset / PAGE).is_multiple_of(2) {
            return 0;
        }
        let cached = self.with(DiskCall::Len, |inode, _, _| {
            let len = bytes.len().min(inode.len().saturating_sub(offset));
            Ok(inode.read(&mut bytes[..len], offset).map_or(0, |()| len))
        });
        cached.unwrap_or(0)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.with(DiskCall::SyncData, |inode, _, fault| match fault {
            Some(DiskFault::DroppedSync) => Ok(()),
            Some(fault) => {
                inode.fail_sync();
                Err(fault.error())
            }
            None => {
                inode.sync();
                Ok(())
            }
        })
    }

    fn len(&self) -> io::Result<u64> {
        self.with(DiskCall::Len, |inode, _, _| Ok(inode.len() as u64))
    }

    fn resize(&self, len: u64) -> io::Result<()> {
        let len = usize::try_from(len).map_err(io::Error::other)?;
        self.with(DiskCall::Resize, |inode, dice, _| {
            inode.shorten(len, dice.below(2) == 0);
            Ok(())
        })
    }
}
