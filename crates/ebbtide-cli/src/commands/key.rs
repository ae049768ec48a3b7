//! `ebbtide key`

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use ebbtide::stores::api_keys::{ApiKey, KeyRequest};
use ebbtide::stores::audit::AuditContext;
use ebbtide::{Scope, Stores, Ttl};
use ebbtide_api::describe;

use crate::args::{At, Key, KeyCreate, KeyList, KeyRevoke};
use crate::commands::remote;

pub(crate) async fn run(args: Key) -> Result<ExitCode> {
    match args {
        Key::Create(args) => create(args).await,
        Key::List(args) => list(args).await,
        Key::Revoke(args) => revoke(args).await,
    }
}

/// Above a list of keys.
pub(super) const HEAD: &str = "ROLE    SCOPE                     EXPIRES AT     NAME              ID";

async fn open(at: &At) -> Result<Stores> {
    Ok(Stores::new(ebbtide::open(at.store()?).await.context("the store cannot be opened")?))
}

async fn create(args: KeyCreate) -> Result<ExitCode> {
    if let Some(server) = args.place.at.server()? {
        return remote::key_create(&server, &args).await;
    }
    let stores = open(&args.place.at).await?;
    let mut request = KeyRequest::new(args.place.scope, args.role);
    if let Some(ttl) = args.ttl {
        request = request.ttl(Ttl::new(ttl)?);
    }
    if let Some(name) = args.name {
        request = request.name(name);
    }
    if let Some(limit) = args.rate_limit {
        request = request.rate_limit(limit);
    }
    let context = AuditContext::new(args.why.actor, args.why.reason)?;
    let created = stores.api_keys(&Scope::Global).create(&request, &context).await?;
    if args.json {
        let mut answer = describe::api_key(&created.about);
        answer["key"] = created.key.expose().into();
        println!("{answer}");
    } else {
        println!("{}", created.key.expose());
        eprintln!("made a {} of {}; its id is {}", created.about.role, created.about.scope, created.about.id);
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(args: KeyList) -> Result<ExitCode> {
    if let Some(server) = args.place.at.server()? {
        return remote::key_list(&server, &args).await;
    }
    let keys = open(&args.place.at).await?.api_keys(&Scope::Global);
    let (reach, mut after) = (args.place.reach(args.below), None);
    if !args.json {
        println!("{HEAD}");
    }
    loop {
        let page = keys.list(&reach, after.as_ref(), 500).await.context("the keys cannot be read")?;
        for key in &page.items {
            if args.json { println!("{}", describe::api_key(key)) } else { println!("{}", row_of(key)) }
        }
        after = page.next;
        if after.is_none() {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

fn row_of(key: &ApiKey) -> String {
    let (scope, ends, id) = (key.scope.to_string(), key.expires_at.to_string(), key.id.to_string());
    row(key.role.name(), &scope, &ends, key.name.as_deref().unwrap_or("-"), &id)
}

/// A line of a list of keys.
pub(super) fn row(role: &str, scope: &str, ends: &str, name: &str, id: &str) -> String {
    format!("{role:<6}  {scope:<24}  {ends:<13}  {name:<16}  {id}")
}

async fn revoke(args: KeyRevoke) -> Result<ExitCode> {
    if let Some(server) = args.at.server()? {
        return remote::key_revoke(&server, &args).await;
    }
    let keys = open(&args.at).await?.api_keys(&Scope::Global);
    let Some(key) = keys.get(&args.id).await? else {
        println!("there is no such key");
        return Ok(ExitCode::from(1));
    };
    let name = key.name.map(|name| format!(" named {name}")).unwrap_or_default();
    let what = format!("the {} of {}{name}", key.role, key.scope);
    if !args.yes {
        bail!("this would revoke {what}: say --yes to do it");
    }
    let context = AuditContext::new(args.why.actor, args.why.reason)?;
    if keys.revoke(&args.id, &context).await? {
        println!("revoked {what}; servers refuse it within 5 s");
        Ok(ExitCode::SUCCESS)
    } else {
        println!("there is no such key any more");
        Ok(ExitCode::from(1))
    }
}
