//! Opening a store of ten million records, compared with an empty one; starting a server.

use std::path::Path;

use anyhow::{Result, ensure};
use ebbtide::{Clock as _, Stopwatch, SystemClock};
use ebbtide_bench::results::Bar;

use super::grouped;
use super::memory::Filled;
use crate::context::{Context, ENGINES, embedded, shown};
use crate::measured::{Draft, Measured, plain};
use crate::peers::server::Server;
use crate::records::key;

pub(super) async fn run(context: &Context, measured: &mut Measured) -> Result<()> {
    for &engine in ENGINES {
        let filled = Filled::of(context, engine).await?;
        let empty = context.folder(engine)?;
        let (mut ours, mut peer) = (Vec::new(), Vec::new());
        for number in 0..=context.rounds() {
            let (full, none) = (
                open_millis(engine, filled.folder.path(), true).await?,
                open_millis(engine, empty.path(), false).await?,
            );
            if number > 0 {
                ours.push(full);
                peer.push(none);
            }
        }
        let draft = Draft {
            id: format!("open-{engine}"),
            what: format!("opening {} with {} records", shown(engine), grouped(filled.records)),
            unit: "ms",
            bar: Some(Bar::AtMost(500.0)),
            note: format!(
                "The same store opened again and again, each time until it has answered one read. The records are in the log: \
                 the hints of its segments are read, and the last segment. Opening an empty store takes {:.1} ms.",
                plain("", peer).median()
            ),
        };
        let full = plain(format!("{}, {} records", shown(engine), grouped(filled.records)), ours);
        measured.row(draft, full, None);
    }
    let mut rounds = Vec::new();
    for number in 0..=context.rounds() {
        let server = Server::start(context).await?;
        if number > 0 {
            rounds.push(server.ready_after.as_secs_f64() * 1e3);
        }
    }
    let draft = Draft {
        id: "open-server".to_owned(),
        what: "`ebbtide serve` on a new folder until it listens".to_owned(),
        unit: "ms",
        bar: Some(Bar::AtMost(200.0)),
        note: "From the start of the process. It makes the store, a keyring and the root key.".to_owned(),
    };
    measured.row(draft, plain("ebbtide serve, fjall", rounds), None);
    Ok(())
}

/// Time to open a store and answer a read; checks that the first record exists or not.
async fn open_millis(engine: &str, folder: &Path, holds: bool) -> Result<f64> {
    let key = key(0)?;
    let stopwatch = Stopwatch::start();
    let store = embedded(engine, folder).await?;
    let found = store.get(&key, SystemClock.now()).await?;
    let took = stopwatch.elapsed();
    ensure!(found.is_some() == holds, "the first record is not as it was left");
    Ok(took.as_secs_f64() * 1e3)
}
