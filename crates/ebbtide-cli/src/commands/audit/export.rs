//! `ebbtide audit export`

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use base64ct::{Base64UrlUnpadded, Encoding as _};
use ebbtide::stores::audit::Audit;
use ebbtide::{Clock as _, Cursor, SystemClock};
use ebbtide_api::describe;
use serde_json::Value;
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

    /// Keep running, and write each new entry
    #[arg(long)]
    follow: bool,

    /// File to append to; - for standard output
    #[arg(long, value_name = "FILE", default_value = "-")]
    out: PathBuf,
}

/// Log to read.
enum Source {
    Local(Box<Audit>),
    Remote { server: Client, scope: String },
}

impl Source {
    async fn page(&self, after: Option<&str>) -> Result<(Vec<Value>, Option<String>)> {
        match self {
            Self::Local(audit) => {
                let after = after.map(Base64UrlUnpadded::decode_vec).transpose().ok().flatten();
                let after = after.map(Cursor::from_bytes);
                let page = audit.list(after.as_ref(), PAGE).await.context("cannot read the audit log")?;
                let next = page.next.map(|next| Base64UrlUnpadded::encode_string(next.as_bytes()));
                Ok((page.items.iter().map(describe::entry).collect(), next))
            }
            Self::Remote { server, scope } => {
                let after = after.map(|after| format!("&after={}", encoded(after))).unwrap_or_default();
                let path = format!("/v1/audit?limit={PAGE}&scope={}{after}", encoded(scope));
                let mut page = server.call("GET", &path, None, None).await?.success()?;
                let items = page["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
                Ok((items, page["next"].as_str().map(str::to_owned)))
            }
        }
    }
}

/// Entries that were written.
type Written = HashSet<(String, u64)>;

pub(super) async fn run(args: Args) -> Result<ExitCode> {
    let place = &args.place;
    let source = if let Some(server) = place.target.server()? {
        Source::Remote { server, scope: place.scope.name.to_string() }
    } else {
        let db = store::open(place.target.store()?, Access::Read).await?;
        Source::Local(Box::new(db.at(&place.scope.name).audit()))
    };
    let (mut out, mut written) = open(&args.out)?;
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut start: Option<String> = None;
    loop {
        let mut after = start.clone();
        loop {
            let (items, next) = source.page(after.as_deref()).await?;
            let mut settled = !items.is_empty();
            for entry in &items {
                let of = (
                    entry["chain"].as_str().unwrap_or_default().to_owned(),
                    entry["sequence"].as_u64().unwrap_or_default(),
                );
                let age =
                    SystemClock.now().as_millis().saturating_sub(entry["at"].as_u64().unwrap_or_default());
                settled &= u128::from(age) > SETTLED.as_millis();
                if written.insert(of) {
                    out.write(format!("{entry}\n").as_bytes())?;
                }
            }
            if settled && next.is_some() {
                start.clone_from(&next);
            }
            after = next;
            if after.is_none() {
                break;
            }
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

fn open(path: &Path) -> Result<(Out, Written)> {
    if path == Path::new("-") {
        return Ok((Out::Standard, Written::new()));
    }
    let mut written = Written::new();
    match File::open(path) {
        Ok(file) => {
            for line in BufReader::new(file).lines() {
                let Ok(entry) = serde_json::from_str::<Value>(&line?) else { continue };
                let chain = entry["chain"].as_str().unwrap_or_default().to_owned();
                written.insert((chain, entry["sequence"].as_u64().unwrap_or_default()));
            }
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
    Ok((Out::File(file.with_context(|| format!("cannot open {}", path.display()))?), written))
}
