//! `ebbtide explain`

use std::io::Read as _;
use std::process::ExitCode;

use anyhow::{Context, Result};
use ebbtide::ops::explain::{self, Explanation, Question, RecordState};
use ebbtide::stores::relationships::Edge;
use ebbtide::stores::replays::Proof;
use ebbtide::{Secret, Stores};
use ebbtide_api::describe;

use crate::args::{Explain, Record};
use crate::commands::remote;

pub(crate) async fn run(args: Explain) -> Result<ExitCode> {
    if let Some(server) = args.place.at.server()? {
        return remote::explain(&server, &args.place.scope, args.record, args.json).await;
    }
    let question = question(args.record)?;
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

fn question(record: Record) -> Result<Question> {
    Ok(match record {
        Record::Replay { namespace, jti, jkt } => {
            let mut proof = Proof::new(namespace, jti);
            proof.jkt = jkt;
            Question::Replay(proof)
        }
        Record::Nonce { audience } => Question::Nonce { audience, nonce: secret()? },
        Record::Code => Question::Code(secret()?),
        Record::AccessToken => Question::AccessToken(secret()?),
        Record::Grant { id } => Question::Grant(id),
        Record::Attribute { owner, bucket, name } => Question::Attribute { owner, bucket, name },
        Record::Approval { identity, resource, action } => Question::Approval { identity, resource, action },
        Record::Relationship { subject, relation, object, relation_type } => {
            Question::Relationship(Edge::new(subject, relation, object, relation_type))
        }
        Record::Session => Question::Session(secret()?),
        Record::PushedRequest => Question::PushedRequest(secret()?),
        Record::DeviceCode => Question::DeviceCode(secret()?),
        Record::Client { id } => Question::Client(id),
        Record::Key { id } => Question::ApiKey(id),
    })
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
