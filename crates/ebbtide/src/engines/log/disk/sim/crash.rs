//! Crashes, kills and damage of a simulated disk.

use super::SimDisk;

impl SimDisk {
    /// Ends the process: the page cache stays, handles do not.
    pub(crate) fn kill(&self) {
        let mut state = self.state();
        state.generation += 1;
    }

    /// Cuts the power. Plans and odds stay as they are.
    pub(crate) fn crash(&self) {
        let mut guard = self.state();
        let state = &mut *guard;
        state.generation += 1;
        for inode in state.inodes.values_mut() {
            inode.crash(&mut state.dice, &mut state.fired);
        }
        for (name, states) in std::mem::take(&mut state.unsynced) {
            let choice = usize::try_from(state.dice.below(states.len() as u64)).unwrap_or(0);
            state.fired.lost_names += u64::from(choice + 1 < states.len());
            match states[choice] {
                Some(inode) => state.names.insert(name, inode),
                None => state.names.remove(&name),
            };
        }
        let named: Vec<u64> = state.names.values().copied().collect();
        state.inodes.retain(|inode, _| named.contains(inode));
    }

    /// Names of all files.
    pub(crate) fn names(&self) -> Vec<String> {
        self.state().names.keys().cloned().collect()
    }

    /// Length of a file.
    pub(crate) fn length(&self, name: &str) -> usize {
        let state = self.state();
        state.inodes[&state.names[name]].len()
    }

    /// Changes the bytes of a file on the disk.
    pub(crate) fn damage(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut guard = self.state();
        let state = &mut *guard;
        let inode = state.names[name];
        state.inodes.get_mut(&inode).expect("a name has an inode").damage(change);
    }

    /// Removes a file from the disk.
    pub(crate) fn remove(&self, name: &str) {
        let mut state = self.state();
        state.names.remove(name);
        state.unsynced.remove(name);
    }
}
