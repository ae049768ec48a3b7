//! `ebbtide explain`

use std::io::Read as _;
use std::process::ExitCode;

use anyhow::{Context, Result};
use ebbtide::ops::explain::{self, Explanation, Question, RecordState};
use ebbtide::{Secret, Stores};
use ebbtide_api::describe;

use crate::args::Explain;
use crate::commands::remote;

pub(crate) async fn run(args: Explain) -> Result<ExitCode> {
    if let Some(server) = args.place.at.server()? {
        return remote::explain(&server, &args.place.scope, args.record, args.json).await;
    }
    let question: Question = serde_json::from_value(remote::question(args.record)?)?;
    let backend = ebbtide::open(args.place.at.store()?).await.context("the store cannot be opened")?;
    let explain = explain::Explain::new(Stores::new(backend), args.place.scope.clone());
    let explanation = explain.explain(&question).await.context("the store has no answer")?;
    if args.json {
        println!("{}", describe::explanation(&explanation));
    } else {
        print(&explanation);
    }
    Ok(if explanation.state == RecordState::Unknown { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

pub(super) fn secret() -> Result<Secret> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).context("the secret cannot be read from standard input")?;
    let text = Secret::new(text);
    Ok(Secret::new(text.expose().trim()))
}

fn print(explanation: &Explanation) {
    println!("{} in {}: {}", explanation.kind, explanation.scope, explanation.state.name());
    println!("  {}", explanation.why);
    for (what, time) in [
        ("created at", explanation.created_at),
        ("expires at", explanation.expires_at),
        ("never later than", explanation.cap_at),
    ] {
        if let Some(time) = time {
            println!("  {what} {time}");
        }
    }
    if let Some(id) = explanation.grant_id {
        println!("  grant {id}");
    }
    for entry in &explanation.history {
        let until = entry.after.map(|after| format!(" until {after}")).unwrap_or_default();
        println!("  {} {}{until} by {}: {}", entry.at, entry.action.name(), entry.actor, entry.reason);
    }
}
