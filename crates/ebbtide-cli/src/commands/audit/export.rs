//! `ebbtide audit export`

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use base64ct::{Base64UrlUnpadded, Encoding as _};
use ebbtide::{Clock as _, Cursor, Ebbtide, Scope, SystemClock};
use ebbtide_api::describe;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

use crate::args::ScopeTarget;
use crate::client::{Client, encoded};
use crate::output::write_bytes;
use crate::store::{self, Access};

/// Entries of one page.
const PAGE: usize = 500;

/// Time for which an entry may still appear before others that were read: clocks of nodes differ, and commits take
/// time.
const SETTLED: Duration = Duration::from_secs(60);

/// Interval between two looks at the log.
const POLL: Duration = Duration::from_secs(2);

#[derive(Debug, clap::Args)]
#[command(
    after_help = "An entry that the file has already is not written again: a stopped export goes on where it was.\n\n\
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

    /// File to append to; - for standard output
    #[arg(long, value_name = "FILE", default_value = "-")]
    out: PathBuf,
}

/// Logs to read.
enum Source {
    Local(Box<Ebbtide>),
    Remote(Client),
}

impl Source {
    /// Scopes whose logs are exported.
    async fn scopes(&self, scope: &Scope, below: bool) -> Result<BTreeSet<Scope>> {
        match self {
            _ if !below => Ok(BTreeSet::from([scope.clone()])),
            Self::Local(db) => super::logs_below(db.stores(), scope.clone()).await,
            Self::Remote(server) => {
                let mut scopes = BTreeSet::from([scope.clone()]);
                for (scope, _) in server.scopes(scope).await? {
                    scopes.insert(scope.parse()?);
                }
                Ok(scopes)
            }
        }
    }

    async fn page(&self, scope: &Scope, after: Option<&str>) -> Result<(Vec<Value>, Option<String>)> {
        match self {
            Self::Local(db) => {
                let after = after.map(Base64UrlUnpadded::decode_vec).transpose().ok().flatten();
                let after = after.map(Cursor::from_bytes);
                let audit = db.at(scope).audit();
                let page = audit.list(after.as_ref(), PAGE).await.context("cannot read the audit log")?;
                let next = page.next.map(|next| Base64UrlUnpadded::encode_string(next.as_bytes()));
                Ok((page.items.iter().map(describe::entry).collect(), next))
            }
            Self::Remote(server) => {
                let after = after.map(|after| format!("&after={}", encoded(after))).unwrap_or_default();
                let path = format!("/v1/audit?limit={PAGE}&scope={}{after}", encoded(&scope.to_string()));
                let mut page = server.call("GET", &path, None, None).await?.success()?;
                let items = page["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
                Ok((items, page["next"].as_str().map(str::to_owned)))
            }
        }
    }
}

/// Entries that were written: scope, chain and number.
type Written = HashSet<(String, String, u64)>;

fn place(entry: &Value, scope: &str) -> (String, String, u64) {
    let text = |name: &str| entry[name].as_str().map(str::to_owned);
    let sequence = entry["sequence"].as_u64().unwrap_or_default();
    (text("scope").unwrap_or_else(|| scope.to_owned()), text("chain").unwrap_or_default(), sequence)
}

pub(super) async fn run(args: Args) -> Result<ExitCode> {
    let (target, scope) = (&args.place.target, &args.place.scope.name);
    let source = match target.server()? {
        Some(server) => Source::Remote(server),
        None => Source::Local(Box::new(store::open(target.store()?, Access::Read).await?)),
    };
    let (mut out, mut written) = open(&args.out, &scope.to_string())?;
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut starts: HashMap<Scope, String> = HashMap::new();
    loop {
        for scope in source.scopes(scope, args.below).await? {
            export(&source, &scope, &mut starts, &mut out, &mut written).await?;
        }
        out.flush()?;
        if !args.follow {
            return Ok(ExitCode::SUCCESS);
        }
        tokio::select! {
            () = sleep(POLL) => {}
            _ = terminate.recv() => return Ok(ExitCode::SUCCESS),
            _ = interrupt.recv() => return Ok(ExitCode::SUCCESS),
        }
    }
}

/// Writes the new entries of one log.
async fn export(
    source: &Source,
    scope: &Scope,
    starts: &mut HashMap<Scope, String>,
    out: &mut Out,
    written: &mut Written,
) -> Result<()> {
    let (name, mut after) = (scope.to_string(), starts.get(scope).cloned());
    loop {
        let (items, next) = source.page(scope, after.as_deref()).await?;
        let mut settled = !items.is_empty();
        for mut entry in items {
            entry["scope"] = json!(name);
            let age = SystemClock.now().as_millis().saturating_sub(entry["at"].as_u64().unwrap_or_default());
            settled &= u128::from(age) > SETTLED.as_millis();
            if written.insert(place(&entry, &name)) {
                out.write(format!("{entry}\n").as_bytes())?;
            }
        }
        let Some(next) = next else { return Ok(()) };
        if settled {
            starts.insert(scope.clone(), next.clone());
        }
        after = Some(next);
    }
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

fn open(path: &Path, scope: &str) -> Result<(Out, Written)> {
    if path == Path::new("-") {
        return Ok((Out::Standard, Written::new()));
    }
    let mut written = Written::new();
    match File::open(path) {
        Ok(file) => {
            for line in BufReader::new(file).lines() {
                let Ok(entry) = serde_json::from_str::<Value>(&line?) else { continue };
                written.insert(place(&entry, scope));
            }
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
    Ok((Out::File(file.with_context(|| format!("cannot open {}", path.display()))?), written))
}
