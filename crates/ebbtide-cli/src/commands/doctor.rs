//! `ebbtide doctor`

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};

use crate::args::StoreArg;
use crate::output::{errln, outln};
use crate::store;

/// Examine the files of an embedded store, and name what is damaged
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Examine the files of an embedded store, and name what is damaged.\n\n\
        Reads every group of the log, every table of the cold store, the manifest and the keyring, and changes \
        nothing. The store must not be open: stop the server first, or examine a backup. Exits with 0 if nothing is \
        damaged and with 1 if something is; such a store does not open, since it would answer as if nothing had been \
        lost. Put a backup in its place, or salvage it. The keyring is the file in EBBTIDE_KEYRING, or else \
        keyring.json beside the data; if there is none, doctor says so, and it is no damage.\n\n\
        With --salvage DIR, everything that can be read is copied into a new store in DIR, also from a damaged store. \
        What was lost may have been a delete or a revocation, so that the copy is fenced as a restored backup is: what \
        was issued is ended, and replay checks are refused until every proof from before has ended. Repeat revocations \
        from exported audit logs with `ebbtide restore DIR --audit`. Exits with 0 if the copy is complete and fenced, \
        and with 1 if something was lost: the copy is fenced, but incomplete.\n\n\
        A server logs the highest acknowledged group each minute, and has it as the metric ebbtide_log_acknowledged. \
        With --expect SEQ, a log that ends before that group is damaged: the disk lost what it had promised to keep.",
    after_help = "Examples:\n  \
        ebbtide doctor --store fjall:/var/lib/ebbtide\n  \
        ebbtide doctor --store fjall:/var/lib/ebbtide --expect 48213 --json\n  \
        ebbtide doctor --store fjall:/var/lib/ebbtide --salvage /var/lib/ebbtide-salvaged\n  \
        ebbtide doctor --store fjall:/var/lib/ebbtide --forget-old"
)]
pub(crate) struct Args {
    #[command(flatten)]
    store: StoreArg,

    /// Highest group that was acknowledged: a log that ends before it is damaged
    #[arg(long, value_name = "SEQ")]
    expect: Option<u64>,

    /// Copy what is readable into a new store in DIR, fenced and marked as salvaged
    #[arg(long, value_name = "DIR", conflicts_with = "forget_old")]
    salvage: Option<PathBuf>,

    /// Remove the files of the old format, which were kept when the store was moved over
    #[arg(long)]
    forget_old: bool,
}

#[cfg(not(any(feature = "fjall", feature = "rocksdb")))]
#[expect(clippy::unused_async, reason = "other builds wait")]
pub(crate) async fn run(args: Args, _json: bool) -> Result<ExitCode> {
    let _ = (args.expect, args.forget_old, &args.salvage);
    store::require_engine(&args.store.url)?;
    anyhow::bail!("only an embedded store can be examined")
}

#[cfg(any(feature = "fjall", feature = "rocksdb"))]
pub(crate) async fn run(args: Args, json: bool) -> Result<ExitCode> {
    use ebbtide::engines::embedded::doctor;

    store::require_engine(&args.store.url)?;
    let url = args.store.url.parse()?;
    let mut report = doctor::examine(&url, args.expect).context("cannot examine the store")?;
    examine_keyring(&url, &mut report);
    if let Some(dir) = &args.salvage {
        return salvage(&url, dir, &report, json).await;
    }
    if json {
        outln!("{}", serde_json::to_string(&report)?)?;
    } else {
        print(&report)?;
    }
    if !report.damage.is_empty() {
        return Ok(ExitCode::from(1));
    }
    if args.forget_old {
        let was_there = doctor::forget_old(&url)?;
        errln!(
            "{}",
            if was_there { "removed the files of the old format" } else { "no files of an old format" }
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Adds the state of the keyring to the report: of the file in `EBBTIDE_KEYRING`, or else of the one beside the data.
/// A file that cannot be read is damage, since the store does not open with it. One that is missing beside the data may
/// be kept elsewhere.
#[cfg(any(feature = "fjall", feature = "rocksdb"))]
fn examine_keyring(url: &ebbtide::StoreUrl, report: &mut ebbtide::engines::embedded::doctor::Report) {
    use ebbtide::Keyring;
    use ebbtide::engines::embedded::doctor::Damage;

    let named = std::env::var_os("EBBTIDE_KEYRING").filter(|path| !path.is_empty()).map(PathBuf::from);
    let beside = url.folder().map(|folder| folder.join(Keyring::FILE_NAME));
    let is_named = named.is_some();
    let Some(path) = named.or(beside) else { return };
    let problem = match path.try_exists() {
        Ok(false) if is_named => "there is no keyring at this path, which EBBTIDE_KEYRING names".to_owned(),
        Ok(false) => {
            let note =
                "there is no keyring beside the data: the store opens only with the one it was made with";
            report.notes.push(note.to_owned());
            return;
        }
        _ => match Keyring::load(&path) {
            Ok(_) => return,
            Err(error) => format!("{:#}", anyhow::Error::new(error)),
        },
    };
    let place = if is_named { path.display().to_string() } else { Keyring::FILE_NAME.to_owned() };
    report.damage.push(Damage { place, problem });
}

/// Copies what is readable into a directory beside `dir`, fences it, and gives it its name last: what stands in `dir`
/// is complete.
#[cfg(any(feature = "fjall", feature = "rocksdb"))]
async fn salvage(
    url: &ebbtide::StoreUrl,
    dir: &std::path::Path,
    report: &ebbtide::engines::embedded::doctor::Report,
    json: bool,
) -> Result<ExitCode> {
    use ebbtide::engines::embedded::salvage;

    let is_free = match std::fs::read_dir(dir) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => true,
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", dir.display())),
    };
    anyhow::ensure!(is_free, "{} is not empty", dir.display());
    let mut unfinished = dir.to_owned().into_os_string();
    unfinished.push(".unfinished");
    let unfinished = PathBuf::from(unfinished);
    anyhow::ensure!(
        !unfinished.exists(),
        "{} is left from a salvage that did not end; remove it first",
        unfinished.display()
    );
    let salvaged = salvage::salvage(url, &unfinished).context("cannot salvage the store")?;
    let copy = format!("{}:{}", url.engine(), unfinished.display());
    let fenced = {
        let db = store::open_signing(&copy, store::Access::Write).await?;
        ebbtide::restore::restore(&db, &[]).await.context("the copy is not fenced")?
    };
    let placed = std::fs::rename(&unfinished, dir).and_then(|()| {
        let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty());
        std::fs::File::open(parent.unwrap_or_else(|| std::path::Path::new(".")))?.sync_all()
    });
    placed.with_context(|| format!("cannot give {} its name", dir.display()))?;
    let until = fenced.until.map(ebbtide::Timestamp::as_millis);
    // The copy stands either way: the status says whether anything is missing from it.
    let status = if salvaged.lost.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) };
    if json {
        let mut value = serde_json::to_value(report)?;
        value["salvage"] = serde_json::json!({
            "dir": dir, "records": salvaged.records, "lost": salvaged.lost, "fence_until": until,
        });
        outln!("{value}")?;
        return Ok(status);
    }
    print(report)?;
    for (kind, count) in &salvaged.records {
        outln!("{count:>12} {kind}")?;
    }
    for lost in &salvaged.lost {
        outln!("lost: {}: {}", lost.place, lost.problem)?;
    }
    if let Some(until) = until {
        outln!("replay checks are refused until {}", crate::output::local_time(until))?;
    }
    let extent = if salvaged.lost.is_empty() { "" } else { ", incompletely" };
    outln!("salvaged into {}{extent}; repeat revocations with `ebbtide restore --audit`", dir.display())?;
    Ok(status)
}

#[cfg(any(feature = "fjall", feature = "rocksdb"))]
fn print(report: &ebbtide::engines::embedded::doctor::Report) -> Result<()> {
    outln!(
        "log: {} segments, {} groups, {} records and deletes; the last group is {}",
        report.segments,
        report.groups,
        report.frames,
        report.last_sequence
    )?;
    outln!("cold store: {} records", report.cold_records)?;
    if report.torn_bytes > 0 {
        outln!(
            "torn tail: {} bytes, never acknowledged; opening copies them aside and cuts them",
            report.torn_bytes
        )?;
    }
    if report.has_old {
        outln!("old format: kept in the directory `old`; remove it with --forget-old")?;
    }
    if report.salvaged {
        outln!("salvaged: copied from a damaged store; deletes and revocations may be missing")?;
    }
    for note in &report.notes {
        outln!("note: {note}")?;
    }
    for damage in &report.damage {
        outln!("damaged: {}: {}", damage.place, damage.problem)?;
    }
    let verdict = if report.damage.is_empty() {
        "nothing is damaged"
    } else {
        "the store is damaged and does not open"
    };
    outln!("{verdict}")
}
