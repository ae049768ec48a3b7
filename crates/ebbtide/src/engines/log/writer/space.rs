//! Space of the disk: what is kept for writes that end authority.

use std::sync::atomic::Ordering;

use super::Log;

impl Log {
    /// Keeps so many bytes of the disk for writes that end authority.
    pub(crate) fn keep_reserve(&self, bytes: u64) {
        self.reserve_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Bytes that are kept. Of a small disk they are a quarter: a store on it must be able to begin.
    pub(crate) fn reserve(&self) -> u64 {
        self.reserve_bytes.load(Ordering::Relaxed).min(self.disk.size().unwrap_or(u64::MAX) / 4)
    }

    /// Returns true while the disk has less free than the reserve.
    pub(crate) fn is_short(&self) -> bool {
        self.is_short.load(Ordering::Relaxed)
    }

    /// Compares what the disk has free, once `needed` more bytes are taken, with the reserve.
    pub(crate) fn measure_space(&self, needed: u64) {
        let Ok(free) = self.disk.free() else { return };
        #[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
        metrics::gauge!("ebbtide_disk_free_bytes").set(free as f64);
        let is_short = free.saturating_sub(needed) < self.reserve();
        if self.is_short.swap(is_short, Ordering::Relaxed) != is_short {
            if is_short {
                // Taken now, while there is space: others may fill the disk to its end.
                self.want_segment();
                tracing::error!(free, "the disk is almost full; the store accepts no new records");
            } else {
                tracing::info!(free, "the disk has space again; the store accepts new records");
            }
        }
    }
}
