//! The operator's commands on a server, over HTTP: the same answers as on a store.

use std::collections::BTreeSet;
use std::process::ExitCode;

use anyhow::{Result, bail};
use ebbtide::Scope;
use ebbtide::stores::relationships::RelationType;
use serde_json::{Map, Value, json};

use crate::args::{AuditVerify, KeyCreate, KeyList, KeyRevoke, Record, ScopeDelete, Where};
use crate::client::{Client, encoded};

/// Prints what a sweep removed.
pub(crate) async fn sweep(server: &Client, as_json: bool) -> Result<ExitCode> {
    let removed = server.call("POST", "/v1/sweep", None, None).await?.success()?;
    let more = removed["more"] == true;
    if as_json {
        println!("{removed}");
    } else {
        let total = print_counts(removed.as_object());
        println!("{total} removed{}", if more { "; there is more, for the next run" } else { "" });
    }
    Ok(if more { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

/// Prints numbers by kind, and answers their sum.
fn print_counts(counts: Option<&Map<String, Value>>) -> u64 {
    let mut total = 0;
    for (kind, count) in counts.into_iter().flatten() {
        if let Some(count) = count.as_u64() {
            println!("{count:>12} {kind}");
            total += count;
        }
    }
    total
}

fn scope_path(scope: &Scope, below: bool) -> String {
    format!("/v1/scopes/{}?below={below}", encoded(&scope.to_string()))
}

pub(crate) async fn scope_stats(
    server: &Client,
    place: &Where,
    below: bool,
    as_json: bool,
) -> Result<ExitCode> {
    let path = scope_path(&place.scope, below);
    let counts = server.call("GET", &path, None, None).await?.success()?;
    if as_json {
        println!("{counts}");
    } else {
        let total = print_counts(counts["counts"].as_object());
        println!("{total} live");
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn scope_delete(server: &Client, args: &ScopeDelete) -> Result<ExitCode> {
    let path = scope_path(&args.place.scope, args.below);
    let extent = super::scope::extent(&args.place.reach(args.below));
    if !args.yes {
        let counts = server.call("GET", &path, None, None).await?.success()?;
        bail!("this would delete most of {} records {extent}: say --yes to do it", counts["total"]);
    }
    let resume = if args.resume { "&resume=true" } else { "" };
    let why = format!("{resume}&actor={}&reason={}", encoded(&args.why.actor), encoded(&args.why.reason));
    let deleted = server.call("DELETE", &format!("{path}{why}"), None, None).await?.success()?;
    if args.json {
        println!("{deleted}");
    } else {
        let total = print_counts(deleted["deleted"].as_object());
        println!("{total} records deleted {extent}");
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn key_create(server: &Client, args: &KeyCreate) -> Result<ExitCode> {
    let body = json!({
        "scope": args.place.scope.to_string(),
        "role": args.role.name(),
        "name": args.name,
        "ttl_seconds": args.ttl.map(|ttl| ttl.as_secs()),
        "rate_limit": args.rate_limit,
    });
    let created = server.call("POST", "/v1/keys", None, Some(body)).await?.success()?;
    if args.json {
        println!("{created}");
    } else {
        println!("{}", created["key"].as_str().unwrap_or_default());
        eprintln!("made a {} of {}; its id is {}", args.role, args.place.scope, created["id"]);
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn key_list(server: &Client, args: &KeyList) -> Result<ExitCode> {
    let scope = &args.place.scope;
    // A server lists what is below the request's scope, unless one is named.
    let exact = if args.below { String::new() } else { format!("&scope={}", encoded(&scope.to_string())) };
    if !args.json {
        println!("{}", super::key::HEAD);
    }
    each(server, "/v1/keys", &exact, Some(scope), |key| {
        if args.json {
            println!("{key}");
            return;
        }
        let word = |name: &str| key[name].as_str().unwrap_or("-").to_owned();
        let ends = key["expires_at"].as_u64().map_or("never".to_owned(), |at| at.to_string());
        println!("{}", super::key::row(&word("role"), &word("scope"), &ends, &word("name"), &word("id")));
    })
    .await
}

pub(crate) async fn key_revoke(server: &Client, args: &KeyRevoke) -> Result<ExitCode> {
    if !args.yes {
        bail!("this would revoke the key {}: say --yes to do it", args.id);
    }
    let path = format!("/v1/keys/{}", encoded(&args.id.to_string()));
    if server.call("DELETE", &path, None, None).await?.found()?.is_none() {
        println!("there is no such key");
        return Ok(ExitCode::from(1));
    }
    println!("revoked the key {}; servers refuse it within 5 s", args.id);
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn audit_list(server: &Client, place: &Where) -> Result<ExitCode> {
    let which = format!("&scope={}", encoded(&place.scope.to_string()));
    each(server, "/v1/audit", &which, None, |entry| println!("{entry}")).await
}

/// Says of each log whether it is whole.
pub(crate) async fn audit_verify(server: &Client, args: &AuditVerify) -> Result<ExitCode> {
    let mut scopes = BTreeSet::from([args.place.scope.to_string()]);
    if args.below {
        // A log is of records too, so that every scope that has one is listed.
        each_scope(server, &args.place.scope, |scope, _| {
            scopes.insert(scope.to_owned());
        })
        .await?;
    }
    let mark = args.mark.as_ref().map(|mark| format!("&mark={mark}")).unwrap_or_default();
    let mut whole = true;
    for scope in scopes {
        let path = format!("/v1/audit/verify?scope={}{mark}", encoded(&scope));
        match server.call("GET", &path, None, None).await?.or_conflict()? {
            Ok(log) => {
                let entries = log["entries"].as_u64().unwrap_or_default();
                super::audit::print_whole(&scope, entries, log["head"].as_str());
            }
            Err(detail) => {
                whole = false;
                println!("{}", detail.replace("is not whole", "is NOT whole"));
            }
        }
    }
    Ok(if whole { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Tells of the scope and each that it covers, where they have records.
pub(crate) async fn scope_list(server: &Client, scope: &Scope, as_json: bool) -> Result<ExitCode> {
    if !as_json {
        println!("{}", super::scope::LIST_HEAD);
    }
    each_scope(server, scope, |scope, records| super::scope::print_row(scope, records, as_json)).await
}

async fn each_scope(server: &Client, scope: &Scope, mut tell: impl FnMut(&str, u64)) -> Result<ExitCode> {
    let path = format!("/v1/scopes?scope={}", encoded(&scope.to_string()));
    let found = server.call("GET", &path, None, None).await?.success()?;
    for item in found["items"].as_array().into_iter().flatten() {
        tell(item["scope"].as_str().unwrap_or_default(), item["records"].as_u64().unwrap_or_default());
    }
    Ok(ExitCode::SUCCESS)
}

/// Every item of a listing, page by page.
async fn each(
    server: &Client,
    path: &str,
    query: &str,
    scope: Option<&Scope>,
    mut tell: impl FnMut(&Value),
) -> Result<ExitCode> {
    let mut after = String::new();
    loop {
        let page =
            server.call("GET", &format!("{path}?limit=500{query}{after}"), scope, None).await?.success()?;
        page["items"].as_array().into_iter().flatten().for_each(&mut tell);
        match page["next"].as_str() {
            Some(next) => after = format!("&after={}", encoded(next)),
            None => return Ok(ExitCode::SUCCESS),
        }
    }
}

pub(crate) async fn explain(
    server: &Client,
    scope: &Scope,
    record: Record,
    as_json: bool,
) -> Result<ExitCode> {
    let answer = server.call("POST", "/v1/explain", Some(scope), Some(question(record)?)).await?;
    let Some(explanation) = answer.found()? else {
        println!("nothing is known of it in {scope}");
        return Ok(ExitCode::from(1));
    };
    if as_json {
        println!("{explanation}");
        return Ok(ExitCode::SUCCESS);
    }
    let word = |name: &str| explanation[name].as_str().unwrap_or_default().to_owned();
    println!("{} in {}: {}\n  {}", word("kind"), word("scope"), word("state"), word("why"));
    for (what, name) in
        [("created at", "created_at"), ("expires at", "expires_at"), ("never later than", "cap_at")]
    {
        if let Some(time) = explanation[name].as_u64() {
            println!("  {what} {time}");
        }
    }
    for entry in explanation["history"].as_array().into_iter().flatten() {
        let word = |name: &str| entry[name].as_str().unwrap_or_default();
        println!("  {} {} by {}: {}", entry["at"], word("action"), word("actor"), word("reason"));
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn question(record: Record) -> Result<Value> {
    let secret = || super::explain::secret().map(|secret| secret.expose().to_owned());
    Ok(match record {
        Record::Replay { namespace, jti, jkt } => {
            json!({"kind": "replays", "namespace": namespace, "jti": jti, "jkt": jkt})
        }
        Record::Nonce { audience } => json!({"kind": "nonces", "audience": audience, "nonce": secret()?}),
        Record::Code => json!({"kind": "codes", "code": secret()?}),
        Record::AccessToken => json!({"kind": "access_tokens", "access_token": secret()?}),
        Record::Grant { id } => json!({"kind": "grants", "grant_id": id.to_string()}),
        Record::Attribute { owner, bucket, name } => {
            json!({"kind": "attributes", "owner": owner, "bucket": bucket, "name": name})
        }
        Record::Approval { identity, resource, action } => {
            json!({"kind": "approvals", "identity": identity, "resource": resource, "action": action})
        }
        Record::Relationship { subject, relation, object, relation_type } => {
            let relation_type = match &relation_type {
                RelationType::Custom(name) => json!({ "custom": name }),
                named => json!(named.to_string()),
            };
            json!({"kind": "relationships", "subject": subject, "relation": relation, "object": object,
                "relation_type": relation_type})
        }
        Record::Session => json!({"kind": "sessions", "session_id": secret()?}),
        Record::PushedRequest => json!({"kind": "pushed_requests", "request_uri": secret()?}),
        Record::DeviceCode => json!({"kind": "device_codes", "device_code": secret()?}),
        Record::Client { id } => json!({"kind": "clients", "client_id": id}),
        Record::Key { id } => json!({"kind": "api_keys", "id": id.to_string()}),
    })
}
