//! `ebbtide audit`

use std::collections::BTreeSet;
use std::fmt::Display;
use std::io::{BufWriter, Write};
use std::process::ExitCode;

use anyhow::{Context, Result};
use ebbtide::stores::audit::AuditOutcome;
use ebbtide::{Kind, Reach, Scope, Stores};
use ebbtide_api::describe;

use crate::args::{Audit, AuditVerify, Where};
use crate::commands::remote;

pub(crate) async fn run(args: Audit) -> Result<ExitCode> {
    match args {
        Audit::List(place) => list(place).await,
        Audit::Verify(args) => verify(args).await,
    }
}

async fn list(place: Where) -> Result<ExitCode> {
    if let Some(server) = place.at.server()? {
        return remote::audit_list(&server, &place).await;
    }
    let backend = ebbtide::open(place.at.store()?).await.context("the store cannot be opened")?;
    let audit = Stores::new(backend).audit(&place.scope);
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut after = None;
    loop {
        let page = audit.list(after.as_ref(), 500).await.context("the log cannot be read")?;
        for entry in &page.items {
            writeln!(out, "{}", describe::entry(entry))?;
        }
        after = page.next;
        if after.is_none() {
            out.flush()?;
            return Ok(ExitCode::SUCCESS);
        }
    }
}

async fn verify(args: AuditVerify) -> Result<ExitCode> {
    if let Some(server) = args.place.at.server()? {
        return remote::audit_verify(&server, &args).await;
    }
    let backend = ebbtide::open(args.place.at.store()?).await.context("the store cannot be opened")?;
    let stores = Stores::new(backend);
    let scopes = if args.below {
        logs_below(&stores, args.place.scope).await.context("the logs cannot be found")?
    } else {
        BTreeSet::from([args.place.scope])
    };
    let mut whole = true;
    for scope in scopes {
        let verdict = stores.audit(&scope).verify(args.mark.as_ref()).await;
        match verdict.with_context(|| format!("the log of {scope} cannot be read"))? {
            AuditOutcome::Intact { entries, head } => {
                print_whole(&scope, entries, head.map(|head| head.to_string()).as_deref());
            }
            AuditOutcome::Broken { sequence, why } => {
                whole = false;
                println!("the log of {scope} is NOT whole: entry {sequence} {}", describe::broken(why));
            }
        }
    }
    Ok(if whole { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

pub(super) fn print_whole(scope: &impl Display, entries: u64, head: Option<&str>) {
    println!("the log of {scope} is whole: {entries} entries");
    if let Some(head) = head {
        println!("head {head}");
    }
}

/// The scopes below `scope` that have a log.
async fn logs_below(stores: &Stores, scope: Scope) -> Result<BTreeSet<Scope>> {
    let (scopes, reach) = (stores.scopes(&scope), Reach::Below(scope.clone()));
    let mut logs = BTreeSet::from([scope]);
    let mut after = None;
    loop {
        let page = scopes.list(Kind::Audit, &reach, after.as_ref(), 1_000).await?;
        logs.extend(page.items.iter().map(|(key, _)| key.scope()));
        after = page.next;
        if after.is_none() {
            return Ok(logs);
        }
    }
}
