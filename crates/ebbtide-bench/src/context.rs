//! What all parts of a run have in common.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use ebbtide::{Admin, open_engine};
use tempfile::TempDir;
use tokio::sync::Mutex;

use crate::rows::memory::Filled;

/// The embedded engines of this build.
pub(crate) const ENGINES: &[&str] =
    if cfg!(feature = "rocksdb") { &["fjall", "rocksdb"] } else { &["fjall"] };

pub(crate) struct Context {
    pub(crate) quick: bool,
    /// Everything that is written while measuring: removed at the end.
    work: TempDir,
    postgres: Option<String>,
    /// Stores that more than one part looks at.
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

    /// How many rounds are kept of each side, behind one that warms up.
    pub(crate) fn rounds(&self) -> usize {
        if self.quick { 2 } else { 5 }
    }

    /// How long a round is.
    pub(crate) fn round(&self) -> Duration {
        Duration::from_secs(if self.quick { 1 } else { 3 })
    }

    /// So many records; in a quick run a twentieth of them.
    pub(crate) fn scaled(&self, records: u64) -> u64 {
        if self.quick { records / 20 } else { records }
    }

    /// A new folder, removed when it is dropped.
    pub(crate) fn folder(&self, name: &str) -> Result<TempDir> {
        Ok(tempfile::Builder::new().prefix(name).tempdir_in(self.work.path())?)
    }

    /// The server that `scripts/bench` has started.
    pub(crate) fn postgres(&self) -> Result<&str> {
        self.postgres.as_deref().context("EBBTIDE_TEST_POSTGRES names no server; scripts/bench starts one")
    }
}

/// Opens the store of an embedded engine.
pub(crate) async fn embedded(engine: &str, folder: &Path) -> Result<Arc<dyn Admin>> {
    Ok(open_engine(&format!("{engine}:{}", folder.display())).await?)
}

/// The engine's name as it is shown.
pub(crate) fn shown(engine: &str) -> &str {
    if engine == "rocksdb" { "RocksDB" } else { engine }
}
