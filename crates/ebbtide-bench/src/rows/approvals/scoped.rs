//! Cost of scopes: the same records in the global scope and in a tenant's environment.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, ensure};
use ebbtide::{
    Admin, BackendExt as _, Batch, Budget, Clock as _, Digest, Key, Kind, Record, Scope, Stopwatch,
    SystemClock, SystemRng, Timestamp, Write,
};
use ebbtide_bench::results::Bar;
use tempfile::TempDir;

use super::super::families::stored_bytes;
use super::{Graph, middle};
use crate::context::{Context, embedded};
use crate::measured::{Draft, Measured, plain};
use crate::records::in_seconds;

const KIND: Kind = Kind::AccessToken;
const RECORDS: u64 = 100_000;
const VALUE_BYTES: usize = 200;

/// Number of lookups on one side before the other side's turn.
const BLOCK: u64 = 200;

/// Number of pairs of blocks.
const PAIRS: u64 = 4_000;

const SCOPED: &str = "tenant:acme/env:prod";
const GLOBAL: &str = "global";

const BAR: Option<Bar> = Some(Bar::AtMost(1.05));

struct ScopedStore {
    // Dropped before its directory.
    store: Arc<dyn Admin>,
    folder: TempDir,
    scope: Scope,
    records: u64,
    now: Timestamp,
}

pub(super) async fn run(context: &Context, measured: &mut Measured) -> Result<()> {
    let scoped = ScopedStore::new(context, Graph::scope()?).await?;
    let global = ScopedStore::new(context, Scope::Global).await?;
    lookups(context, measured, &scoped, &global).await?;
    let records = super::super::grouped(scoped.records);
    let draft = |id: &str, what: &str, bar, note: &str| Draft {
        id: format!("approvals-{id}"),
        what: format!("{what} of {records} records of {VALUE_BYTES} bytes in a tenant's environment"),
        unit: "bytes",
        bar,
        note: note.to_owned(),
    };
    let (ours, peer) = (scoped.bytes().await?, global.bytes().await?);
    let note = "The sum of keys, values, versions and expiries, as a scan finds them: what is handed to the engine, before \
         it leaves out what neighbouring keys have in common.";
    let row = draft("scope-bytes-raw", "keys and values", None, note);
    measured.row(row, plain(SCOPED, vec![ours]), Some(plain(GLOBAL, vec![peer])));
    let (ours, peer) = (scoped.table_bytes()?, global.table_bytes()?);
    let note = "The tables after a compaction, without the journal, which is of a fixed size. The values do not compress.";
    let row = draft("scope-bytes", "bytes on the disk", BAR, note);
    measured.row(row, plain(SCOPED, vec![ours]), Some(plain(GLOBAL, vec![peer])));
    Ok(())
}

/// Both sides look up in turns, each first every other time; the ratio is the median of the pairs.
async fn lookups(
    context: &Context,
    measured: &mut Measured,
    scoped: &ScopedStore,
    global: &ScopedStore,
) -> Result<()> {
    let pairs = context.scaled(PAIRS);
    let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    // A tenth more, to warm up.
    for pair in 0..pairs + pairs / 10 {
        let (mine, other) = if pair % 2 == 0 {
            let mine = scoped.lookup_micros(pair).await?;
            (mine, global.lookup_micros(pair).await?)
        } else {
            let other = global.lookup_micros(pair).await?;
            (scoped.lookup_micros(pair).await?, other)
        };
        if pair >= pairs / 10 {
            ours.push(mine);
            theirs.push(other);
            ratios.push(mine / other);
        }
    }
    let rounds = |took: &[f64]| -> Vec<f64> {
        let size = took.len().div_ceil(context.rounds());
        took.chunks(size).map(|some| middle(some.to_vec())).collect()
    };
    let draft = Draft {
        id: "approvals-scope-lookup".to_owned(),
        what: "a lookup in a tenant's environment".to_owned(),
        unit: "µs",
        bar: BAR,
        note: format!(
            "Everything is in tables. One caller on fjall makes the key and reads, in blocks of {BLOCK} on one side and then on the other. The ratio is \
             the middle one of {pairs} pairs of blocks; a round's figure is the middle of a part of them."
        ),
    };
    let (ours, theirs) = (plain(SCOPED, rounds(&ours)), plain(GLOBAL, rounds(&theirs)));
    measured.row_with_ratio(draft, ours, Some(theirs), middle(ratios));
    Ok(())
}

impl ScopedStore {
    async fn new(context: &Context, scope: Scope) -> Result<Self> {
        let folder = context.folder("scope")?;
        let (store, now) = (embedded("fjall", folder.path()).await?, SystemClock.now());
        let side = Self { store, folder, scope, records: context.scaled(RECORDS), now };
        let late = in_seconds(now, 86_400)?;
        let mut number = 0;
        while number < side.records {
            let upto = (number + Batch::MAX_WRITES as u64).min(side.records);
            let writes = (number..upto)
                .map(|number| Ok(Write::Put { key: side.key(number)?, record: record(late) }))
                .collect::<Result<Vec<_>>>()?;
            ensure!(
                side.store.commit(Batch::new(writes)?, now).await?.is_applied(),
                "a put has no condition"
            );
            number = upto;
        }
        side.compact().await?;
        Ok(side)
    }

    fn key(&self, number: u64) -> Result<Key> {
        let digest = Digest::of("bench", &[&number.to_be_bytes()]);
        Ok(Key::new(KIND, &self.scope, &[digest.part()], &[])?)
    }

    /// Time of one lookup in a block.
    async fn lookup_micros(&self, block: u64) -> Result<f64> {
        let stopwatch = Stopwatch::start();
        for number in block * BLOCK..(block + 1) * BLOCK {
            let spread = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
            let found = self.store.get(&self.key(spread % self.records)?, self.now).await?;
            ensure!(found.is_some(), "a record is absent");
        }
        Ok(stopwatch.elapsed().as_secs_f64() * 1e6 / BLOCK as f64)
    }

    async fn bytes(&self) -> Result<f64> {
        stored_bytes(self.store.as_ref(), &[KIND]).await
    }

    /// Moves everything into tables on both sides: lookups in memory are faster, and the length of the keys changes
    /// the share that is in memory.
    async fn compact(&self) -> Result<()> {
        // A sweep compacts only kinds with expired records, so write one that expires.
        let soon = in_seconds(self.now, 60)?;
        ensure!(
            self.store.put(self.key(self.records)?, record(soon), self.now).await?.is_applied(),
            "it is put"
        );
        let swept = self.store.sweep_all(in_seconds(self.now, 300)?, &Budget::everything(&[KIND])).await?;
        ensure!(swept.total() == 1, "{} records are swept, not one", swept.total());
        Ok(())
    }

    /// Size of the tables.
    fn table_bytes(&self) -> Result<f64> {
        let bytes = bytes_of_tables(self.folder.path(), false)?;
        ensure!(bytes > 0, "no tables are found");
        Ok(bytes as f64)
    }
}

fn record(ends: Timestamp) -> Record {
    let mut value = vec![0; VALUE_BYTES];
    ebbtide::Rng::fill(&SystemRng, &mut value);
    Record::new(value, ends, &SystemRng)
}

/// Size of the files in directories called `tables`, and below.
fn bytes_of_tables(folder: &Path, is_within: bool) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.metadata()?.is_dir() {
            bytes += bytes_of_tables(&entry.path(), is_within || entry.file_name() == "tables")?;
        } else if is_within {
            bytes += entry.metadata()?.len();
        }
    }
    Ok(bytes)
}
