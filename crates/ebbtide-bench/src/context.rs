//! Context that all parts of a run share.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use ebbtide::{Admin, open_engine};
use tempfile::TempDir;
use tokio::sync::Mutex;

use crate::rows::memory::Filled;

/// Embedded engines of this build.
pub(crate) const ENGINES: &[&str] =
    if cfg!(feature = "rocksdb") { &["fjall", "rocksdb"] } else { &["fjall"] };

pub(crate) struct Context {
    pub(crate) quick: bool,
    /// Directory for all files of the run, removed at the end.
    work: TempDir,
    postgres: Option<String>,
    /// Stores that several parts use.
    pub(crate) filled: Mutex<Vec<Arc<Filled>>>,
}

impl Context {
    pub(crate) fn new(quick: bool) -> Result<Self> {
        Ok(Self {
            quick,
            work: tempfile::Builder::new().prefix("ebbtide-bench-").tempdir()?,
            postgres: std::env::var("EBBTIDE_TEST_POSTGRES").ok(),
            filled: Mutex::default(),
        })
    }

    /// Number of rounds of each side, after a warm-up.
    pub(crate) fn rounds(&self) -> usize {
        if self.quick { 2 } else { 5 }
    }

    /// Duration of a round.
    pub(crate) fn round(&self) -> Duration {
        Duration::from_secs(if self.quick { 1 } else { 3 })
    }

    /// Number of records, divided by twenty in a quick run.
    pub(crate) fn scaled(&self, records: u64) -> u64 {
        if self.quick { records / 20 } else { records }
    }

    /// Creates a directory that is removed when dropped.
    pub(crate) fn folder(&self, name: &str) -> Result<TempDir> {
        Ok(tempfile::Builder::new().prefix(name).tempdir_in(self.work.path())?)
    }

    /// URL of the server that `scripts/bench` starts.
    pub(crate) fn postgres(&self) -> Result<&str> {
        self.postgres.as_deref().context("EBBTIDE_TEST_POSTGRES names no server; scripts/bench starts one")
    }
}

/// Opens the store of an embedded engine.
pub(crate) async fn embedded(engine: &str, folder: &Path) -> Result<Arc<dyn Admin>> {
    Ok(open_engine(&format!("{engine}:{}", folder.display())).await?)
}

/// Display name of the engine.
pub(crate) fn shown(engine: &str) -> &str {
    if engine == "rocksdb" { "RocksDB" } else { engine }
}
