//! `ebbtide audit export`

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Error, Result};
use ebbtide::{Clock as _, Scope, SystemClock};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

use super::time;
use crate::args::ScopeTarget;
use crate::client::encoded;
use crate::operator::Operator;
use crate::output::{errln, write_bytes};
use crate::store::Access;

/// Entries of one page.
const PAGE: usize = 500;

/// Time for which an entry may still appear before others that were read: clocks of nodes differ, and commits take
/// time.
const SETTLED: Duration = Duration::from_secs(60);

/// Time before the last entry of a file from which a new run reads again.
const READ_AGAIN: Duration = Duration::from_secs(600);

/// Interval between two looks at the log.
const POLL: Duration = Duration::from_secs(2);

/// Longest pause after a look that failed.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Looks between two listings of the scopes, each of which reads every record.
const LOOKS_PER_LISTING: u32 = 30;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "An entry that the file has already is not written again: a stopped export goes on where it was. With \
    --follow, a server that does not answer is asked again after a pause of up to a minute, and with --below a new scope \
    is found within a minute.\n\n\
    Example:\n  ebbtide audit export --server http://127.0.0.1:7878 --key-file data/root.key --scope tenant:acme --follow --out audit.jsonl"
)]
pub(super) struct Args {
    #[command(flatten)]
    place: ScopeTarget,

    /// Include the logs of the scopes below it
    #[arg(long)]
    below: bool,

    /// Keep running, and write each new entry
    #[arg(long)]
    follow: bool,

    /// Only entries from this time on: RFC 3339, or milliseconds since 1970
    #[arg(long, value_name = "TIME", value_parser = time)]
    from: Option<u64>,

    /// File to append to; - for standard output
    #[arg(long, value_name = "FILE", default_value = "-")]
    out: PathBuf,
}

/// Failure of a look at the logs.
enum Failure {
    /// The log could not be read: another look may succeed.
    Read(Error),
    /// The export could not be written.
    Write(Error),
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Read(error) | Failure::Write(error) => error,
        }
    }
}

/// Place of an entry in the log of its scope: its chain, and its number.
type EntryId = (String, u64);

fn place(entry: &Value) -> EntryId {
    let chain = entry["chain"].as_str().unwrap_or_default().to_owned();
    (chain, entry["sequence"].as_u64().unwrap_or_default())
}

fn at(entry: &Value) -> u64 {
    entry["at"].as_u64().unwrap_or_default()
}

/// Progress in the log of one scope.
#[derive(Debug, Default, PartialEq, Eq)]
struct Progress {
    /// Time before which nothing is read.
    from: Option<u64>,
    /// Position behind the entries that are not read again.
    start: Option<String>,
    /// Entries behind that position that were written.
    written: HashSet<EntryId>,
}

/// Export into one file.
struct Export<'a> {
    source: &'a dyn Operator,
    out: Out,
    from: Option<u64>,
    progress: HashMap<Scope, Progress>,
}

pub(super) async fn run(args: Args) -> Result<ExitCode> {
    let (target, scope) = (&args.place.target, &args.place.scope.name);
    let source = target.tool(Access::Read).await?;
    let (out, progress) = open(&args.out, scope)?;
    let mut export = Export { source: &*source, out, from: args.from, progress };
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let (mut looks, mut pause) = (0_u32, POLL);
    let mut scopes = BTreeSet::from([scope.clone()]);
    loop {
        let looked = async {
            if args.below && looks.is_multiple_of(LOOKS_PER_LISTING) {
                scopes.extend(source.scopes(scope, true).await.map_err(Failure::Read)?);
            }
            export.look(&scopes).await
        };
        match looked.await {
            Ok(()) if !args.follow => return Ok(ExitCode::SUCCESS),
            Ok(()) => (looks, pause) = (looks.wrapping_add(1), POLL),
            Err(Failure::Read(error)) if args.follow => {
                pause = (2 * pause).min(LONGEST_PAUSE);
                errln!("cannot read the audit log, trying again in {} s: {error:#}", pause.as_secs());
            }
            Err(failure) => return Err(failure.into()),
        }
        tokio::select! {
            () = sleep(pause) => {}
            _ = terminate.recv() => return Ok(ExitCode::SUCCESS),
            _ = interrupt.recv() => return Ok(ExitCode::SUCCESS),
        }
    }
}

impl Export<'_> {
    /// Writes the new entries of these logs.
    async fn look(&mut self, scopes: &BTreeSet<Scope>) -> Result<(), Failure> {
        for scope in scopes {
            self.look_at(scope).await?;
        }
        self.out.flush().map_err(Failure::Write)
    }

    async fn look_at(&mut self, scope: &Scope) -> Result<(), Failure> {
        let (name, first) = (scope.to_string(), self.from);
        let progress = self.progress.entry(scope.clone()).or_default();
        let from = progress.from.max(first);
        let mut after = progress.start.clone();
        loop {
            let (items, next) =
                page(self.source, &name, from, after.as_deref()).await.map_err(Failure::Read)?;
            let now = SystemClock.now().as_millis();
            let settled =
                items.iter().all(|entry| u128::from(now.saturating_sub(at(entry))) > SETTLED.as_millis());
            let mut places = Vec::with_capacity(items.len());
            for mut entry in items {
                let place = place(&entry);
                if progress.written.insert(place.clone()) {
                    entry["scope"] = json!(name);
                    self.out.write(format!("{entry}\n").as_bytes()).map_err(Failure::Write)?;
                }
                places.push(place);
            }
            let Some(next) = next else { return Ok(()) };
            if settled {
                // Nothing before this position is read again.
                for place in &places {
                    progress.written.remove(place);
                }
                progress.start = Some(next.clone());
            }
            after = Some(next);
        }
    }
}

/// Some entries of a log, and the position behind them.
async fn page(
    source: &dyn Operator,
    scope: &str,
    from: Option<u64>,
    after: Option<&str>,
) -> Result<(Vec<Value>, Option<String>)> {
    let from = from.map(|from| format!("&from={from}")).unwrap_or_default();
    let after = after.map(|after| format!("&after={}", encoded(after))).unwrap_or_default();
    let path = format!("/v1/audit?limit={PAGE}&scope={}{from}{after}", encoded(scope));
    let mut page = source.call("GET", &path, None, None).await?.success()?;
    let items = page["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
    Ok((items, page["next"].as_str().map(str::to_owned)))
}

/// File, or standard output.
enum Out {
    File(File),
    Standard,
}

impl Out {
    fn write(&mut self, line: &[u8]) -> Result<()> {
        match self {
            Self::File(file) => file.write_all(line).context("cannot write the export"),
            Self::Standard => write_bytes(line),
        }
    }

    fn flush(&mut self) -> Result<()> {
        match self {
            Self::File(file) => file.sync_data().context("cannot write the export"),
            Self::Standard => Ok(()),
        }
    }
}

/// Opens the file, and reads how far it is. A last line that was cut off is removed: its entry is written again.
fn open(path: &Path, scope: &Scope) -> Result<(Out, HashMap<Scope, Progress>)> {
    if path == Path::new("-") {
        return Ok((Out::Standard, HashMap::new()));
    }
    let cannot = |what: &str| format!("cannot {what} {}", path.display());
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).mode(0o600);
    let file = options.open(path).with_context(|| cannot("open"))?;
    let (progress, whole) = read(&file, scope).with_context(|| cannot("read"))?;
    file.set_len(whole).with_context(|| cannot("repair"))?;
    Ok((Out::File(file), progress))
}

/// Progress that a file shows, and its length up to the last whole line.
fn read(file: &File, scope: &Scope) -> Result<(HashMap<Scope, Progress>, u64)> {
    let mut progress: HashMap<Scope, Progress> = HashMap::new();
    let mut recent: HashMap<Scope, Vec<(u64, EntryId)>> = HashMap::new();
    let (mut reader, mut line, mut whole) = (BufReader::new(file), Vec::new(), 0);
    loop {
        line.clear();
        match reader.read_until(b'\n', &mut line) {
            Ok(0) => break,
            Ok(read) if line.ends_with(b"\n") => whole += read as u64,
            Ok(_) => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.into()),
        }
        let Ok(entry) = serde_json::from_slice::<Value>(&line) else { continue };
        let scope = match entry["scope"].as_str() {
            Some(named) => named.parse()?,
            None => scope.clone(),
        };
        let of = progress.entry(scope.clone()).or_default();
        let margin = u64::try_from(READ_AGAIN.as_millis()).unwrap_or(u64::MAX);
        of.from = of.from.max(Some(at(&entry).saturating_sub(margin)));
        let recent = recent.entry(scope).or_default();
        recent.push((at(&entry), place(&entry)));
        if recent.len() >= 2 * PAGE && recent.len().is_power_of_two() {
            recent.retain(|(at, _)| Some(*at) >= of.from);
        }
    }
    for (scope, recent) in recent {
        let of = progress.entry(scope).or_default();
        of.written =
            recent.into_iter().filter(|(at, _)| Some(*at) >= of.from).map(|(_, place)| place).collect();
    }
    Ok((progress, whole))
}
