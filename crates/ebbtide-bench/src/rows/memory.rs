//! Resident memory with ten million records, compared with Redis. Each store is filled by a process of its own, so
//! that the harness is not counted.

use std::process::Stdio;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use ebbtide::{Clock as _, SystemClock, Timestamp, open_engine};
use ebbtide_bench::results::Bar;
use tempfile::TempDir;
use tokio::process::Command;

use super::grouped;
use crate::context::{Context, ENGINES, shown};
use crate::cpu::resident_mib;
use crate::measured::{Draft, Measured, plain};
use crate::peers::redis::{Log, Redis};
use crate::peers::resp::Reply;
use crate::records;

const RECORDS: u64 = 10_000_000;

/// Number of records read from a filled store.
const READ: u64 = 100_000;

/// Store of many records, and the memory that filling it took.
pub(crate) struct Filled {
    pub(crate) engine: &'static str,
    pub(crate) folder: TempDir,
    pub(crate) records: u64,
    resident_mib: f64,
    most_mib: f64,
}

impl Filled {
    /// Returns the filled store of this engine, shared between parts.
    pub(super) async fn of(context: &Context, engine: &'static str) -> Result<Arc<Self>> {
        let mut known = context.filled.lock().await;
        if let Some(filled) = known.iter().find(|filled| filled.engine == engine) {
            return Ok(Arc::clone(filled));
        }
        let (folder, records) = (context.folder(engine)?, context.scaled(RECORDS));
        eprintln!("  filling {} with {} records", shown(engine), grouped(records));
        let output = Command::new(std::env::current_exe()?)
            .args(["fill", &format!("{engine}:{}", folder.path().display()), &records.to_string()])
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .output()
            .await?;
        ensure!(output.status.success(), "the store is not filled");
        let text = String::from_utf8(output.stdout)?;
        let (resident, most) = text.trim().split_once(' ').context("two figures")?;
        let (resident_mib, most_mib) = (resident.parse()?, most.parse()?);
        let filled = Arc::new(Self { engine, folder, records, resident_mib, most_mib });
        known.push(Arc::clone(&filled));
        Ok(filled)
    }
}

/// Fills the store, reads some of it, and prints the resident and the peak memory.
pub(crate) async fn fill(url: &str, number: u64) -> Result<()> {
    let (store, now) = (open_engine(url).await?, SystemClock.now());
    let ends = ends(now)?;
    records::fill(&store, number, |number| ends[ends_at(number)]).await?;
    let step = (number / READ).max(1);
    for number in (0..number).step_by(usize::try_from(step)?) {
        ensure!(
            store.get(&records::key(number)?, now).await?.is_some(),
            "a record that was written is absent"
        );
    }
    let (resident, most) = resident_mib(std::process::id())?;
    println!("{resident} {most}");
    Ok(())
}

/// Expiries of the records, spread over a day by the minute, beginning an hour from now.
fn ends(now: Timestamp) -> Result<Vec<Timestamp>> {
    (60..60 + 1_440).map(|minute| records::in_seconds(now, 60 * minute)).collect()
}

fn ends_at(number: u64) -> usize {
    usize::try_from(number % 1_440).expect("a small number")
}

pub(super) async fn run(context: &Context, measured: &mut Measured) -> Result<()> {
    let peer = redis_mib(context).await?;
    for &engine in ENGINES {
        let filled = Filled::of(context, engine).await?;
        let ours = plain(format!("{}, a process of its own", shown(engine)), vec![filled.resident_mib]);
        let draft = Draft {
            id: format!("memory-{engine}"),
            what: format!("resident memory with {} records, {}", grouped(filled.records), shown(engine)),
            unit: "MiB",
            bar: Some(Bar::AtMost(0.5)),
            note: format!(
                "After filling and reading {} of them; at most {:.0} MiB meanwhile. The records are in the log, with \
                 an entry of the index each; up to 64 MiB of recent groups stay in memory. Redis keeps every key in memory, without a log here.",
                grouped(READ.min(filled.records)),
                filled.most_mib
            ),
        };
        measured.row(draft, ours, Some(plain("Redis, AOF off", vec![peer])));
    }
    Ok(())
}

/// Resident memory of Redis with as many keys, each a digest with an expiry.
async fn redis_mib(context: &Context) -> Result<f64> {
    const AT_ONCE: u64 = 1_000;
    let redis = Redis::start(context, Log::Off).await?;
    let number = context.scaled(RECORDS);
    eprintln!("  filling Redis with {} records", grouped(number));
    let mut connection = redis.connect().await?;
    for first in (0..number).step_by(usize::try_from(AT_ONCE)?) {
        let upto = (first + AT_ONCE).min(number);
        for number in first..upto {
            let key = records::key(number)?;
            let seconds = (60 * (60 + number % 1_440)).to_string();
            connection.send(&[b"SET", key.as_bytes(), b"", b"NX", b"EX", seconds.as_bytes()]).await?;
        }
        connection.flush().await?;
        for _ in first..upto {
            ensure!(connection.reply().await? == Reply::Status("OK".to_owned()), "a key is taken");
        }
    }
    match connection.ask(&[b"DBSIZE"]).await? {
        Reply::Integer(keys) if keys == i64::try_from(number)? => Ok(resident_mib(redis.pid)?.0),
        other => bail!("Redis holds {other:?} keys, not {number}"),
    }
}
