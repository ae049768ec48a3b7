//! Moving records out of the log, for rows that measure the cold store.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use ebbtide::open_engine;

/// Seconds that segments get to retire.
const PATIENCE: u64 = 900;

/// Lets all segments of a store retire that nobody has open, so that its records are in the cold store.
pub(super) async fn chill(engine: &str, folder: &Path) -> Result<()> {
    let _store = open_engine(&format!("{engine}:{}?horizon_seconds=1", folder.display())).await?;
    for _ in 0..PATIENCE {
        tokio::time::sleep(Duration::from_secs(1)).await;
        // The one that is written to, and the one that is ready.
        if segments(folder)? <= 2 {
            return Ok(());
        }
    }
    anyhow::bail!("the segments of the log did not retire in {PATIENCE} s");
}

fn segments(folder: &Path) -> Result<usize> {
    let mut count = 0;
    for entry in std::fs::read_dir(folder.join("log"))? {
        count += usize::from(entry?.path().extension().is_some_and(|ending| ending == "log"));
    }
    Ok(count)
}
