//! Machine and software versions of a run.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::Command;

use anyhow::Result;
use ebbtide::{Clock as _, Stopwatch, SystemClock};
use ebbtide_bench::results::Results;
use procfs::{CpuInfo, Current as _, Meminfo};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::context::{Context, ENGINES};
use crate::peers::postgres;

const LOCK: &str = include_str!("../../../Cargo.lock");

/// Records the time, the machine and the software versions.
pub(crate) async fn describe(context: &Context, results: &mut Results) -> Result<()> {
    let now = i64::try_from(SystemClock.now().as_millis() / 1_000)?;
    results.measured_at = OffsetDateTime::from_unix_timestamp(now)?.format(&Rfc3339)?;
    // If only some parts are run, the others may come from a quick run.
    results.quick = context.quick || (results.quick && !results.rows.is_empty());
    results.machine = machine(context)?;
    results.software.extend(software(context).await);
    Ok(())
}

fn machine(context: &Context) -> Result<BTreeMap<String, String>> {
    let processors = CpuInfo::current()?;
    let cores = std::thread::available_parallelism()?.get().to_string();
    let memory = Meminfo::current()?.mem_total as f64 / f64::from(1 << 30);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned();
    let mut machine = BTreeMap::from([
        ("cores".to_owned(), cores),
        ("memory".to_owned(), format!("{memory:.0} GiB")),
        ("kernel".to_owned(), format!("Linux {kernel}")),
        ("one fsync".to_owned(), format!("{:.2} ms", fsync_millis(context)?)),
    ]);
    if let Some(model) = processors.model_name(0) {
        machine.insert("processor".to_owned(), model.to_owned());
    }
    Ok(machine)
}

/// Median of two hundred: 4 KiB appended to a file and made durable.
fn fsync_millis(context: &Context) -> Result<f64> {
    let folder = context.folder("fsync")?;
    let mut file = std::fs::File::create(folder.path().join("file"))?;
    let mut took = Vec::new();
    for _ in 0..200 {
        let stopwatch = Stopwatch::start();
        file.write_all(&[7; 4_096])?;
        file.sync_data()?;
        took.push(stopwatch.elapsed().as_secs_f64() * 1e3);
    }
    took.sort_by(f64::total_cmp);
    Ok(took[took.len() / 2])
}

async fn software(context: &Context) -> BTreeMap<String, String> {
    let mut software = BTreeMap::from([("ebbtide".to_owned(), env!("CARGO_PKG_VERSION").to_owned())]);
    let mut note = |name: &str, version: Option<String>| {
        if let Some(version) = version {
            software.insert(name.to_owned(), version);
        }
    };
    note("commit", printed("git", &["rev-parse", "--short", "HEAD"]));
    note("rustc", printed("rustc", &["--version"]).and_then(|text| word(&text, 1)));
    note("Redis", printed("redis-server", &["--version"]).and_then(|text| text_behind(&text, "v=")));
    note("wrk", printed("wrk", &["--version"]).and_then(|text| word(&text, 1)));
    for engine in ENGINES {
        note(crate::context::shown(engine), locked(engine));
    }
    if let Ok(server) = context.postgres() {
        note("PostgreSQL", postgres::version(server).await.ok());
    }
    software
}

/// First line that a program prints to either stream, regardless of its exit status: wrk's version is an error.
fn printed(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok()?;
    let text = if output.stdout.is_empty() { output.stderr } else { output.stdout };
    Some(String::from_utf8_lossy(&text).lines().next()?.trim().to_owned())
}

fn word(text: &str, number: usize) -> Option<String> {
    text.split_whitespace().nth(number).map(str::to_owned)
}

fn text_behind(text: &str, mark: &str) -> Option<String> {
    word(text.split_once(mark)?.1, 0)
}

fn locked(name: &str) -> Option<String> {
    let (_, entry) = LOCK.split_once(&format!("name = \"{name}\"\nversion = \""))?;
    Some(entry.split_once('"')?.0.to_owned())
}
