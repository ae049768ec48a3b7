//! `ebbtide audit`

use std::io::{BufWriter, Write};
use std::process::ExitCode;

use anyhow::{Context, Result};
use ebbtide::audit::{Break, Entry, Verdict};
use ebbtide::{Kind, Stores, Timestamp};
use serde_json::json;

use crate::args::{Audit, AuditVerify, Place};

pub(crate) async fn run(args: Audit) -> Result<ExitCode> {
    match args {
        Audit::List(place) => list(place).await,
        Audit::Verify(args) => verify(args).await,
    }
}

async fn list(place: Place) -> Result<ExitCode> {
    let backend = ebbtide::open(&place.store).await.context("the store cannot be opened")?;
    let audit = Stores::new(backend).audit(&place.scope);
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut after = None;
    loop {
        let page = audit.list(after.as_ref(), 500).await.context("the log cannot be read")?;
        for entry in &page.items {
            writeln!(out, "{}", json_line(entry))?;
        }
        after = page.next;
        if after.is_none() {
            out.flush()?;
            return Ok(ExitCode::SUCCESS);
        }
    }
}

fn json_line(entry: &Entry) -> serde_json::Value {
    json!({
        "sequence": entry.sequence,
        "at": entry.at.as_millis(),
        "action": entry.action.name(),
        "actor": entry.actor,
        "reason": entry.reason,
        "kind": entry.kind.map(Kind::name),
        "target": entry.target,
        "before": entry.before.map(Timestamp::as_millis),
        "after": entry.after.map(Timestamp::as_millis),
        "detail": entry.detail,
        "mark": entry.mark().to_string(),
    })
}

async fn verify(args: AuditVerify) -> Result<ExitCode> {
    let backend = ebbtide::open(&args.place.store).await.context("the store cannot be opened")?;
    let audit = Stores::new(backend).audit(&args.place.scope);
    match audit.verify(args.mark.as_ref()).await.context("the log cannot be read")? {
        Verdict::Intact { entries, head } => {
            println!("the log of {} is whole: {entries} entries", args.place.scope);
            if let Some(head) = head {
                println!("head {head}");
            }
            Ok(ExitCode::SUCCESS)
        }
        Verdict::Broken { sequence, why } => {
            let why = match why {
                Break::Changed => "is not what was written",
                Break::Missing => "is missing",
                Break::Added => "was not written by the log",
            };
            println!("the log of {} is NOT whole: entry {sequence} {why}", args.place.scope);
            Ok(ExitCode::from(1))
        }
    }
}
