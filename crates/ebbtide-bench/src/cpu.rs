//! Processor time and memory by process.

use std::collections::BTreeMap;

use anyhow::Result;
use procfs::process::{Process, Stat, all_processes};

/// Processes to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Whose {
    /// This process, which makes the calls and, with an embedded store, also answers them.
    Ours,
    /// Finished child processes, such as a load generator.
    Children,
    /// Server with all of its processes.
    Server(u32),
}

/// Meter of processor time since its start.
pub(crate) struct Meter(Vec<(&'static str, Whose, f64)>);

impl Meter {
    pub(crate) fn start(who: &[(&'static str, Whose)]) -> Result<Self> {
        Ok(Self(who.iter().map(|&(name, whose)| Ok((name, whose, seconds(whose)?))).collect::<Result<_>>()?))
    }

    /// Seconds of each since the start.
    pub(crate) fn stop(self) -> Result<BTreeMap<String, f64>> {
        self.0.into_iter().map(|(name, whose, then)| Ok((name.to_owned(), seconds(whose)? - then))).collect()
    }
}

fn seconds(whose: Whose) -> Result<f64> {
    let ticks = match whose {
        Whose::Ours => own(&Process::myself()?.stat()?),
        Whose::Children => ended_children(&Process::myself()?.stat()?),
        Whose::Server(pid) => {
            let pid = i32::try_from(pid)?;
            let root = Process::new(pid)?.stat()?;
            // A process that ends during this loop counts towards its parent the next time.
            let children = all_processes()?.filter_map(|process| process.ok()?.stat().ok());
            let children: u64 = children.filter(|stat| stat.ppid == pid).map(|stat| own(&stat)).sum();
            own(&root) + ended_children(&root) + children
        }
    };
    Ok(ticks as f64 / procfs::ticks_per_second() as f64)
}

fn own(stat: &Stat) -> u64 {
    stat.utime + stat.stime
}

fn ended_children(stat: &Stat) -> u64 {
    u64::try_from(stat.cutime + stat.cstime).unwrap_or(0)
}

/// Parent of a process.
pub(crate) fn parent(pid: i32) -> Result<u32> {
    Ok(u32::try_from(Process::new(pid)?.stat()?.ppid)?)
}

/// Memory of a process in MiB: resident now, and peak.
pub(crate) fn resident_mib(pid: u32) -> Result<(f64, f64)> {
    let status = Process::new(i32::try_from(pid)?)?.status()?;
    let mib = |kib: Option<u64>| kib.map_or(f64::NAN, |kib| kib as f64 / 1_024.0);
    Ok((mib(status.vmrss), mib(status.vmhwm)))
}
