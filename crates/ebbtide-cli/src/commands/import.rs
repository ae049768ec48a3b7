//! `ebbtide import`

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal as _, stdin};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use ebbtide::{Kind, Scope};
use ebbtide_api::transfer::{ImportAnswer, ImportRequest, ImportedItem, MAX_IMPORT_ITEMS};
use serde_json::Value;

use crate::args::StoreTarget;
use crate::operator::Operator;
use crate::output::{errln, outln};
use crate::store::Access;

/// Read records from JSON lines, or keys from a Redis server, into a scope
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Read records from JSON lines, or keys from a Redis server, into a scope.\n\n\
        Approvals, relationships, attributes and records are read from any system; lines of other kinds are those of \
        `ebbtide export`, and need the keyring that they were exported with. A line that names a scope must name that of \
        --scope, or one that --scope-map maps, unless --own-scopes is given.\n\n\
        With --from, strings and counters are read with their ends, and become keys of the Redis protocol. Keys of \
        other types are skipped. A password belongs in the URL: redis://:PASSWORD@HOST:PORT/DB.\n\n\
        Existing records are never overwritten, so a second run writes nothing. Every skipped line is reported on \
        standard error, with the reason.\n\n\
        With --server, lines are sent in batches of 500 at most, and the key needs the role admin. Only the root key \
        imports API keys.",
    after_help = "Examples:\n  \
    ebbtide import --store fjall:data --scope tenant:acme --dry-run approvals.jsonl\n  \
    ebbtide export --store fjall:old --scope global | ebbtide import --store fjall:new --scope global\n  \
    ebbtide import --server http://127.0.0.1:7878 --scope-map tenant:acme=tenant:beta acme.jsonl\n  \
    ebbtide import --server http://127.0.0.1:7878 --scope tenant:acme --from redis://127.0.0.1:6379\n\n\
    Exit status: 0 success, 1 a line or a key is invalid or in conflict with a record, 2 the import failed."
)]
pub(crate) struct Args {
    #[command(flatten)]
    target: StoreTarget,

    /// Scope of the lines that name none: global, tenant:T, env:E, tenant:T/env:E or custom:A/B/C
    #[arg(long, value_name = "SCOPE", required_unless_present_any = ["scope_map", "own_scopes"])]
    scope: Option<Scope>,

    /// Import the lines that name the scope FROM into TO; repeat it for several
    #[arg(long, value_name = "FROM=TO", value_parser = mapping)]
    scope_map: Vec<(Scope, Scope)>,

    /// Import the other lines into the scopes that they name
    #[arg(long, conflicts_with = "scope")]
    own_scopes: bool,

    /// Write nothing, and report the result that an import would have
    #[arg(long)]
    dry_run: bool,

    /// Redis server to read strings and counters from: redis://[:PASSWORD@]HOST[:PORT][/DB]
    #[arg(
        long,
        value_name = "URL",
        conflicts_with = "file",
        env = "EBBTIDE_IMPORT_FROM",
        hide_env_values = true
    )]
    from: Option<String>,

    /// File to read [default: standard input]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

/// Reads `FROM=TO`.
fn mapping(text: &str) -> Result<(Scope, Scope), String> {
    let (from, to) = text.split_once('=').ok_or("a mapping is FROM=TO, such as tenant:a=tenant:b")?;
    let scope = |text: &str| text.parse::<Scope>().map_err(|error| error.message().to_owned());
    Ok((scope(from)?, scope(to)?))
}

/// Bytes of lines that are sent at a time. A longer line is sent by itself.
const MOST_BYTES: usize = 256 << 10;

/// Lines that are sent at a time.
#[derive(Debug, Default)]
struct Batch {
    items: Vec<Value>,
    /// Number of each line in its file.
    numbers: Vec<usize>,
    bytes: usize,
}

impl Batch {
    fn is_full(&self, more: usize) -> bool {
        self.items.len() == MAX_IMPORT_ITEMS || !self.items.is_empty() && self.bytes + more > MOST_BYTES
    }

    fn push(&mut self, number: usize, line: &str) {
        // A line that is not JSON is no object, which the answer says.
        self.items.push(serde_json::from_str(line).unwrap_or_default());
        self.numbers.push(number);
        self.bytes += line.len();
    }
}

/// An import in progress.
struct Import {
    operator: Box<dyn Operator>,
    /// Request without items.
    settings: Value,
    written: BTreeMap<String, u64>,
    skipped: BTreeMap<String, u64>,
}

impl Import {
    /// Imports the lines of a batch, and reports those that are skipped.
    async fn send(&mut self, batch: &mut Batch) -> Result<()> {
        let Batch { items, numbers, .. } = std::mem::take(batch);
        let (Some(first), Some(last)) = (numbers.first(), numbers.last()) else { return Ok(()) };
        let mut body = self.settings.clone();
        body["items"] = items.into();
        let answer: ImportAnswer =
            async { self.operator.call("POST", "/v1/import", None, Some(body)).await?.read() }
                .await
                .with_context(|| {
                    format!("cannot import the lines {first} to {last}; run the import again to go on")
                })?;
        for (number, outcome) in numbers.iter().zip(answer.outcomes) {
            match outcome {
                ImportedItem::Written(kind) => *self.written.entry(kind).or_default() += 1,
                ImportedItem::Skipped(why) => {
                    errln!("line {number} is skipped: {why}");
                    *self.skipped.entry(why).or_default() += 1;
                }
            }
        }
        Ok(())
    }
}

/// Lines of standard input. On a terminal it says how to end them.
fn typed_lines() -> Box<dyn BufRead> {
    if stdin().is_terminal() {
        errln!("enter the lines, and Ctrl-D on a line of its own:");
    }
    Box::new(stdin().lock())
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    if let Some(from) = &args.from {
        let scope = args.scope.context("name the scope of the keys with --scope")?;
        #[cfg(feature = "redis")]
        return super::import_redis::run(from, &args.target, &scope, args.dry_run).await;
        #[cfg(not(feature = "redis"))]
        {
            let _ = (from, scope);
            return Err(crate::store::without("import --from", "redis"));
        }
    }
    // Before the store: without input no store is created.
    let reader: Box<dyn BufRead> = match &args.file {
        Some(path) => {
            let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
            Box::new(BufReader::new(file))
        }
        None => typed_lines(),
    };
    let operator =
        if args.dry_run { args.target.reader().await? } else { args.target.operator(Access::Create).await? };
    // A line without a scope goes where the first mapping leads.
    let scope = args.scope.as_ref().or_else(|| args.scope_map.first().map(|(_, to)| to));
    let settings = ImportRequest {
        scope: scope.filter(|_| !args.own_scopes).map(ToString::to_string),
        scope_map: args.scope_map.iter().map(|(from, to)| (from.to_string(), to.to_string())).collect(),
        own_scopes: args.own_scopes,
        dry_run: args.dry_run,
        ..ImportRequest::default()
    };
    let settings = serde_json::to_value(settings)?;
    let mut import = Import { operator, settings, written: BTreeMap::new(), skipped: BTreeMap::new() };
    let mut batch = Batch::default();
    for (number, line) in reader.lines().enumerate() {
        let line = line.context("cannot read the lines")?;
        if line.trim().is_empty() {
            continue;
        }
        if batch.is_full(line.len()) {
            import.send(&mut batch).await?;
        }
        batch.push(number + 1, &line);
    }
    import.send(&mut batch).await?;
    let Import { written, skipped, .. } = import;
    let total: u64 = written.values().sum();
    let of = |kind: Kind| written.get(kind.name()).copied().unwrap_or_default();
    let (approvals, relationships) = (of(Kind::Approval), of(Kind::Relationship));
    let others = total - approvals - relationships;
    outln!(
        "{} {approvals} approvals and {relationships} relationships{}{}; {} lines skipped",
        if args.dry_run { "would write" } else { "wrote" },
        if others > 0 { format!(" and {others} other records") } else { String::new() },
        args.scope.as_ref().map(|scope| format!(" in {scope}")).unwrap_or_default(),
        skipped.values().sum::<u64>(),
    )?;
    let mut harmless = true;
    for (why, count) in &skipped {
        outln!("  {count} × {why}")?;
        harmless &= matches!(why.as_str(), "it is there already" | "it has expired");
    }
    Ok(if harmless { ExitCode::SUCCESS } else { ExitCode::from(1) })
}
