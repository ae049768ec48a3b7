//! The clocks of this machine.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::mark::BootId;
use super::reading::Clocks;

/// The file that systemd-timesyncd touches at every synchronization. It lies in memory, so that a reboot removes it.
pub const SYNCHRONIZED_FILE: &str = "/run/systemd/timesync/synchronized";

/// The clocks of this machine.
///
/// * The boot-time clock is `CLOCK_BOOTTIME` on Linux and Android, and `CLOCK_MONOTONIC` on Apple systems, where it
///   counts suspend. Elsewhere it is the monotonic clock of the standard library, which may not count suspend: the
///   wall is then ahead after it, which is a doubt.
/// * The boot id is the kernel's on Linux. Elsewhere there is none, so that every start counts as one after a reboot.
/// * The kernel's own flag (`adjtimex`) cannot be read without `unsafe`: neither `rustix` nor `nix` has the call. The
///   time of the last synchronization is that of a file which the time service touches, by default that of
///   systemd-timesyncd. For chrony or a container, name or mount another one with
///   [`with_synchronized_file`](Self::with_synchronized_file). Without it, holds last a day.
#[derive(Debug, Clone)]
pub struct SystemClocks {
    boot_id: Option<BootId>,
    synchronized: PathBuf,
}

impl Default for SystemClocks {
    fn default() -> Self {
        Self { boot_id: read_boot_id(), synchronized: SYNCHRONIZED_FILE.into() }
    }
}

impl SystemClocks {
    /// The clocks of this machine. The boot id is read here, once.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the time of the last synchronization from another file's modification time.
    #[must_use]
    pub fn with_synchronized_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.synchronized = path.into();
        self
    }
}

impl Clocks for SystemClocks {
    #[expect(clippy::disallowed_methods, reason = "this is the clock that is handed in")]
    fn wall(&self) -> Duration {
        // A clock before 1970 shows 1970: it is then behind every mark.
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }

    fn boot(&self) -> Duration {
        boot_time()
    }

    fn boot_id(&self) -> Option<BootId> {
        self.boot_id
    }

    fn synchronized_at(&self) -> Option<Duration> {
        let modified = std::fs::metadata(&self.synchronized).ok()?.modified().ok()?;
        modified.duration_since(UNIX_EPOCH).ok()
    }
}

#[cfg(unix)]
fn boot_time() -> Duration {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Monotonic;
    let time = rustix::time::clock_gettime(CLOCK);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(not(unix))]
#[expect(clippy::disallowed_methods, reason = "this is the clock that is handed in")]
fn boot_time() -> Duration {
    use std::sync::OnceLock;
    use std::time::Instant;
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

/// The kernel's boot id. A time namespace shifts the boot-time clock, so its offset is part of the identity.
fn read_boot_id() -> Option<BootId> {
    if !cfg!(any(target_os = "linux", target_os = "android")) {
        return None;
    }
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let offsets = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    boot_id_of(&text, &offsets)
}

fn boot_id_of(text: &str, offsets: &str) -> Option<BootId> {
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    if digits.len() != 32 {
        return None;
    }
    let mut id = u128::from_str_radix(&digits, 16).ok()?;
    let boottime = offsets.lines().find_map(|line| line.trim_start().strip_prefix("boottime"));
    if let Some(shift) = boottime {
        let mut parts = shift.split_whitespace().map(str::parse::<i64>);
        let (seconds, nanos) = (parts.next()?.ok()?, parts.next()?.ok()?);
        id ^= (u128::from(seconds.cast_unsigned()) << 64) | u128::from(nanos.cast_unsigned());
    }
    Some(BootId::from_bytes(id.to_be_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_boot_clock_runs_and_the_boot_id_stays() {
        let clocks = SystemClocks::new();
        let before = clocks.boot();
        assert!(clocks.boot() >= before);
        assert!(clocks.wall() > Duration::from_secs(1_700_000_000));
        assert_eq!(clocks.boot_id(), SystemClocks::new().boot_id());
        if cfg!(target_os = "linux") {
            assert!(clocks.boot_id().is_some());
            assert!(before > Duration::ZERO);
        }
    }

    #[test]
    fn a_time_namespace_is_another_boot() {
        let text = "3f0e4c1a-0d7b-4f5e-9c55-0123456789ab\n";
        let plain =
            boot_id_of(text, "monotonic           0         0\nboottime            0         0\n").unwrap();
        assert_eq!(boot_id_of(text, ""), Some(plain));
        assert_ne!(boot_id_of(text, "boottime  -5  7"), Some(plain));
        assert_eq!(boot_id_of("3f0e4c1a", ""), None);
        assert_eq!(boot_id_of(text, "boottime x"), None);
    }

    #[test]
    fn the_time_of_synchronization_is_that_of_the_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let clocks = SystemClocks::new().with_synchronized_file(file.path());
        let at = clocks.synchronized_at().unwrap();
        assert!(clocks.wall().saturating_sub(at) < Duration::from_secs(60));
        assert_eq!(clocks.with_synchronized_file("/nowhere").synchronized_at(), None);
    }
}
