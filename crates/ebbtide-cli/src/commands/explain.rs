//! `ebbtide explain`

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use ebbtide::ops::explain::RecordState;
use ebbtide::stores::api_keys::KeyId;
use ebbtide::stores::grants::GrantId;
use ebbtide::stores::relationships::RelationType;
use serde_json::{Value, json};

use crate::args::{ScopeTarget, secret};
use crate::output::{local_time, outln, state, when};
use crate::store::Access;

/// Explain the state of a record: live, expired, used or revoked, and its history
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Explain the state of a record: live, expired, used or revoked, and its history.\n\n\
        Reads only: nothing is changed, and no lifetime is extended. An expired record is unknown, unless its kind \
        leaves a tombstone or the audit log mentions it. Secrets are read from standard input, since other users of \
        the machine can read a command line.",
    after_help = "Examples:\n  \
        ebbtide explain --store fjall:data --scope tenant:acme approval alice doc GET\n  \
        ebbtide explain --store fjall:data --scope tenant:acme code < code.txt\n\n\
        Exit status: 0 the state is known, 1 it is unknown, 2 the store could not be read."
)]
pub(crate) struct Args {
    #[command(flatten)]
    place: ScopeTarget,

    #[command(subcommand)]
    record: Record,
}

#[derive(Debug, Subcommand)]
#[expect(clippy::enum_variant_names, reason = "variants are named as the command line names records")]
enum Record {
    /// A proof, by its namespace and jti
    #[command(
        after_help = "Example:\n  ebbtide explain --store fjall:data --scope tenant:acme replay dpop JTI"
    )]
    Replay {
        /// Namespace of the proof, such as dpop
        namespace: String,
        /// Id of the proof (`jti`)
        #[arg(allow_hyphen_values = true)]
        jti: String,
        /// Thumbprint of the key that the proof is bound to
        #[arg(long)]
        jkt: Option<String>,
    },
    /// A nonce, read from standard input
    #[command(
        after_help = "Example:\n  ebbtide explain --store fjall:data --scope tenant:acme nonce https://api.example < nonce.txt"
    )]
    Nonce {
        /// Audience of the nonce
        audience: String,
    },
    /// An authorization code, read from standard input
    #[command(
        after_help = "Example:\n  ebbtide explain --store fjall:data --scope tenant:acme code < code.txt"
    )]
    Code,
    /// An access token, read from standard input
    #[command(
        after_help = "Example:\n  ebbtide explain --store fjall:data --scope tenant:acme access-token < token.txt"
    )]
    AccessToken,
    /// A grant, by its id
    #[command(after_help = "Example:\n  ebbtide explain --store fjall:data --scope tenant:acme grant ID")]
    Grant {
        /// Id of the grant
        id: GrantId,
    },
    /// An attribute
    #[command(
        after_help = "Example:\n  ebbtide explain --store fjall:data --scope tenant:acme attribute alice settings theme"
    )]
    Attribute {
        /// Owner of the bucket
        owner: String,
        /// Name of the bucket
        bucket: String,
        /// Name of the attribute
        name: String,
    },
    /// An approval
    #[command(
        after_help = "Example:\n  ebbtide explain --store fjall:data --scope tenant:acme approval alice doc GET"
    )]
    Approval {
        /// Identity that was approved
        identity: String,
        /// Resource of the approval
        resource: String,
        /// Action of the approval
        action: String,
    },
    /// A relationship
    #[command(
        after_help = "Example:\n  ebbtide explain --store fjall:data --scope tenant:acme relationship alice member team --type membership"
    )]
    Relationship {
        /// Subject of the relationship
        subject: String,
        /// Name of the relation
        relation: String,
        /// Object of the relationship
        object: String,
        /// Type: role, trust, membership, ownership, delegation or custom:NAME
        #[arg(long = "type", value_name = "TYPE")]
        relation_type: RelationType,
    },
    /// A record of a framework, its id read from standard input
    #[command(
        after_help = "Example:\n  ebbtide explain --store fjall:data --scope tenant:acme record sessions < id.txt"
    )]
    Record {
        /// Collection of the record
        collection: String,
    },
    /// A session, its id read from standard input
    #[command(
        after_help = "Example:\n  ebbtide explain --store fjall:data --scope tenant:acme session < id.txt"
    )]
    Session,
    /// A pushed authorization request, its URI read from standard input
    #[command(
        after_help = "Example:\n  ebbtide explain --store fjall:data --scope tenant:acme pushed-request < uri.txt"
    )]
    PushedRequest,
    /// A device code, read from standard input
    #[command(
        after_help = "Example:\n  ebbtide explain --store fjall:data --scope tenant:acme device-code < code.txt"
    )]
    DeviceCode,
    /// A challenge, by its id
    #[command(after_help = "Example:\n  ebbtide explain --store fjall:data --scope tenant:acme challenge ID")]
    Challenge {
        /// Id of the challenge
        #[arg(allow_hyphen_values = true)]
        id: String,
    },
    /// A client, by its id
    #[command(after_help = "Example:\n  ebbtide explain --store fjall:data --scope tenant:acme client app")]
    Client {
        /// Id of the client
        #[arg(allow_hyphen_values = true)]
        id: String,
    },
    /// An API key, by its id
    #[command(after_help = "Example:\n  ebbtide explain --store fjall:data --scope tenant:acme key ID")]
    Key {
        /// Id of the key, from `key list`
        #[arg(allow_hyphen_values = true)]
        id: KeyId,
    },
}

pub(crate) async fn run(args: Args, json: bool) -> Result<ExitCode> {
    let scope = args.place.scope();
    let operator = args.place.target.operator(Access::Read).await?;
    let question = request(args.record)?;
    let kind = question["kind"].clone();
    let answer = operator.call("POST", "/v1/explain", Some(scope), Some(question)).await?;
    let why = answer.body["detail"].clone();
    let found = answer.found()?;
    let known = found.is_some();
    let explanation = found.unwrap_or_else(|| {
        json!({"kind": kind, "scope": scope.to_string(), "state": RecordState::Unknown.name(), "why": why,
            "history": []})
    });
    if json {
        outln!("{explanation}")?;
    } else {
        print(&explanation)?;
    }
    Ok(if known { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Question as JSON, which a server takes as its request.
fn request(record: Record) -> Result<Value> {
    let secret = |what| secret(what).map(|secret| secret.expose().to_owned());
    Ok(match record {
        Record::Replay { namespace, jti, jkt } => {
            json!({"kind": "replays", "namespace": namespace, "jti": jti, "jkt": jkt})
        }
        Record::Nonce { audience } => {
            json!({"kind": "nonces", "audience": audience, "nonce": secret("nonce")?})
        }
        Record::Code => json!({"kind": "codes", "code": secret("code")?}),
        Record::AccessToken => json!({"kind": "access_tokens", "access_token": secret("access token")?}),
        Record::Grant { id } => json!({"kind": "grants", "grant_id": id.to_string()}),
        Record::Attribute { owner, bucket, name } => {
            json!({"kind": "attributes", "owner": owner, "bucket": bucket, "name": name})
        }
        Record::Approval { identity, resource, action } => {
            json!({"kind": "approvals", "identity": identity, "resource": resource, "action": action})
        }
        Record::Relationship { subject, relation, object, relation_type } => {
            json!({"kind": "relationships", "subject": subject, "relation": relation, "object": object,
                "relation_type": relation_type})
        }
        Record::Record { collection } => {
            json!({"kind": "records", "collection": collection, "id": secret("id of the record")?})
        }
        Record::Session => json!({"kind": "sessions", "session_id": secret("id of the session")?}),
        Record::PushedRequest => json!({"kind": "pushed_requests", "request_uri": secret("request URI")?}),
        Record::DeviceCode => json!({"kind": "device_codes", "device_code": secret("device code")?}),
        Record::Challenge { id } => json!({"kind": "challenges", "id": id}),
        Record::Client { id } => json!({"kind": "clients", "client_id": id}),
        Record::Key { id } => json!({"kind": "api_keys", "id": id.to_string()}),
    })
}

fn print(explanation: &Value) -> Result<()> {
    let text = |name: &str| explanation[name].as_str().unwrap_or_default();
    outln!("{} in {}: {}\n  {}", text("kind"), text("scope"), state(text("state")), text("why"))?;
    for (label, name) in [("created", "created_at"), ("ends", "expires_at"), ("never later than", "cap_at")] {
        if let Some(time) = explanation[name].as_u64() {
            outln!("  {label} {}", when(Some(time)))?;
        } else if name == "expires_at" && text("state") == RecordState::Live.name() {
            outln!("  {label} never")?;
        }
    }
    if let Some(id) = explanation["grant_id"].as_str() {
        outln!("  grant {id}")?;
    }
    for entry in explanation["history"].as_array().into_iter().flatten() {
        let text = |name: &str| entry[name].as_str().unwrap_or_default();
        let until = entry["after"].as_u64().map(|after| format!(" until {}", local_time(after)));
        let (at, until) = (when(entry["at"].as_u64()), until.unwrap_or_default());
        outln!("  {at}: {}{until} by {}: {}", text("action"), text("actor"), text("reason"))?;
    }
    Ok(())
}
