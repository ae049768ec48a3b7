//! What the operator's commands take: keys, scopes, explanations.

use std::time::Duration;

use clap::{Args as ClapArgs, Subcommand};
use ebbtide::stores::api_keys::{KeyId, Role};
use ebbtide::stores::grants::GrantId;
use ebbtide::stores::relationships::RelationType;

use super::{At, Where, interval};

/// Who does what is audited, and why.
#[derive(Debug, ClapArgs)]
pub(crate) struct Why {
    /// Who does it, for the audit log
    #[arg(long, env = "USER", hide_env = true, default_value = "an operator")]
    pub(crate) actor: String,

    /// Why, for the audit log
    #[arg(long, default_value = "asked for on the command line")]
    pub(crate) reason: String,
}

/// Make, list and revoke API keys
#[derive(Debug, Subcommand)]
#[command(
    long_about = "Make, list and revoke API keys.\n\n\
        A key is good for a scope and what that covers, in a role: a reader reads and checks, a writer changes \
        records, an admin manages keys and scopes as well. Only a digest is kept: a key is shown once.",
    after_help = "Examples:\n  \
        ebbtide key create --store fjall:data --scope tenant:acme --role writer --ttl 90d --name billing\n  \
        ebbtide key list --store fjall:data --scope global --below\n  \
        ebbtide key revoke --store fjall:data --yes ID"
)]
pub(crate) enum Key {
    /// Make a key, and print it: this is the only time that it can be seen
    Create(KeyCreate),
    /// List the keys of a scope, never the keys themselves
    List(KeyList),
    /// Take a key back; exit status 1 if there is none
    Revoke(KeyRevoke),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct KeyCreate {
    #[command(flatten)]
    pub(crate) place: Where,

    /// What it may do: reader, writer or admin
    #[arg(long)]
    pub(crate) role: Role,

    /// How long it is good for, such as 12h or 90d; without it, until it is revoked
    #[arg(long, value_name = "TIME", value_parser = interval)]
    pub(crate) ttl: Option<Duration>,

    /// What it is for
    #[arg(long)]
    pub(crate) name: Option<String>,

    /// The most requests in a second, on each node
    #[arg(long, value_name = "NUMBER")]
    pub(crate) rate_limit: Option<u32>,

    #[command(flatten)]
    pub(crate) why: Why,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct KeyList {
    #[command(flatten)]
    pub(crate) place: Where,

    /// The keys of the scopes that it covers too
    #[arg(long)]
    pub(crate) below: bool,

    /// Print JSON lines
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct KeyRevoke {
    #[command(flatten)]
    pub(crate) at: At,

    /// The key's id, as it was shown with the key
    // One in 64 begins with a hyphen.
    #[arg(allow_hyphen_values = true)]
    pub(crate) id: KeyId,

    #[command(flatten)]
    pub(crate) why: Why,

    /// Do it: without this it is only said what would be done
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:\n  \
    ebbtide scope list --store fjall:data --scope global\n  \
    ebbtide scope stats --store fjall:data --scope tenant:acme --below\n  \
    ebbtide scope delete --store fjall:data --scope tenant:acme --below --yes")]
pub(crate) enum ScopeCommand {
    /// How much there is in a scope, by kind of record
    Stats {
        #[command(flatten)]
        place: Where,

        /// Those that it covers too
        #[arg(long)]
        below: bool,

        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// The scope and those that it covers, where they have records
    List {
        #[command(flatten)]
        place: Where,

        /// Print JSON lines
        #[arg(long)]
        json: bool,
    },
    /// Delete every record of a scope but its audit log
    Delete(ScopeDelete),
}

#[derive(Debug, ClapArgs)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct ScopeDelete {
    #[command(flatten)]
    pub(crate) place: Where,

    /// Those that it covers too
    #[arg(long)]
    pub(crate) below: bool,

    /// Go on where a deletion was stopped within the last day, instead of beginning anew: that reads less, and leaves
    /// what was written since it began
    #[arg(long)]
    pub(crate) resume: bool,

    #[command(flatten)]
    pub(crate) why: Why,

    /// Do it: without this it is only said what would be done
    #[arg(long)]
    pub(crate) yes: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Say why a record is live, expired, used or revoked, and who extended it
#[derive(Debug, ClapArgs)]
#[command(
    long_about = "Say why a record is live, expired, used or revoked, and who extended it.\n\n\
        Nothing is changed or renewed. What has expired is as absent here as everywhere, unless its kind remembers \
        what became of it, or the audit log does. Secrets are read from standard input, since others can read a \
        command line.",
    after_help = "Examples:\n  \
        ebbtide explain --store fjall:data --scope tenant:acme approval alice doc GET\n  \
        ebbtide explain --store fjall:data --scope tenant:acme code < code.txt\n\n\
        Exit status: 0 it is known what became of it, 1 it is not, 2 the store could not be read."
)]
pub(crate) struct Explain {
    #[command(flatten)]
    pub(crate) place: Where,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(subcommand)]
    pub(crate) record: Record,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Record {
    /// Whether a proof was seen
    Replay {
        namespace: String,
        #[arg(allow_hyphen_values = true)]
        jti: String,
        /// The thumbprint of the key that it was bound to
        #[arg(long)]
        jkt: Option<String>,
    },
    /// A nonce, which is read from standard input
    Nonce { audience: String },
    /// An authorization code, which is read from standard input
    Code,
    /// An access token, which is read from standard input
    AccessToken,
    /// A grant
    Grant { id: GrantId },
    /// An attribute
    Attribute { owner: String, bucket: String, name: String },
    /// An approval
    Approval { identity: String, resource: String, action: String },
    /// A relationship
    Relationship {
        subject: String,
        relation: String,
        object: String,
        /// role, trust, membership, ownership, delegation or custom:NAME
        #[arg(long = "type", value_name = "TYPE")]
        relation_type: RelationType,
    },
    /// A session, whose id is read from standard input
    Session,
    /// A pushed request, whose URI is read from standard input
    PushedRequest,
    /// A device code, which is read from standard input
    DeviceCode,
    /// A client, by its id
    Client {
        #[arg(allow_hyphen_values = true)]
        id: String,
    },
    /// An API key, by its id
    Key {
        #[arg(allow_hyphen_values = true)]
        id: KeyId,
    },
}
