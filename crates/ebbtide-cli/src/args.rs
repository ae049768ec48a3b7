//! Arguments that several commands share.

use std::io::{BufRead, IsTerminal as _, Read as _, Write, stderr, stdin};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use ebbtide::stores::relationships::RelationType;
use ebbtide::{Reach, Scope, Secret};
use serde_json::{Value, json};

use crate::client::{Client, encoded};
use crate::config::duration;
use crate::operator::{LocalOperator, Operator};
use crate::output::errln;
use crate::store::Access;

/// A store of this machine.
#[derive(Debug, Args)]
pub(crate) struct StoreArg {
    /// URL of the store: fjall:PATH, rocksdb:PATH, postgres://…, dynamodb:TABLE?region=…&endpoint=… or memory:
    #[arg(id = "store", long, env = "EBBTIDE_STORE", value_name = "URL", hide_env_values = true)]
    pub(crate) url: String,
}

/// A scope.
#[derive(Debug, Args)]
pub(crate) struct ScopeArg {
    /// Scope: global, tenant:T, env:E, tenant:T/env:E or custom:A/B/C
    #[arg(id = "scope", long, value_name = "SCOPE")]
    pub(crate) name: Scope,
}

/// A store of this machine, or a server. The server takes precedence: an embedded store is open in one process at a
/// time, and that is the server.
#[derive(Debug, Args)]
pub(crate) struct StoreTarget {
    /// URL of the store: fjall:PATH, rocksdb:PATH, postgres://…, dynamodb:TABLE?region=…&endpoint=… or memory:
    #[arg(long, env = "EBBTIDE_STORE", value_name = "URL", hide_env_values = true)]
    store: Option<String>,

    /// URL of a server to ask instead, http:// or https://; the API key comes from `EBBTIDE_API_KEY` or --key-file
    #[arg(long, env = "EBBTIDE_SERVER", value_name = "URL", hide_env_values = true)]
    server: Option<String>,

    /// File that holds the API key for the server
    #[arg(long, env = "EBBTIDE_KEY_FILE", value_name = "FILE", hide_env_values = true)]
    key_file: Option<PathBuf>,

    /// PEM file with the certificate authorities to trust for the server [default: those of the system]
    #[arg(long, env = "EBBTIDE_CA_FILE", value_name = "FILE", hide_env_values = true)]
    ca_file: Option<PathBuf>,

    /// Configuration file of the server, for the policies, lives of buckets and profiles of --store
    #[arg(long, env = "EBBTIDE_CONFIG", value_name = "FILE", hide_env_values = true)]
    config: Option<PathBuf>,
}

impl StoreTarget {
    /// The server, if one is named.
    pub(crate) fn server(&self) -> Result<Option<Client>> {
        let Some(url) = &self.server else { return Ok(None) };
        Client::new(url, self.key_file.as_deref(), self.ca_file.as_deref()).map(Some)
    }

    /// The server, if one is named; otherwise the store of this machine.
    pub(crate) async fn operator(&self, access: Access) -> Result<Box<dyn Operator>> {
        if let Some(server) = self.server()? {
            return Ok(Box::new(server));
        }
        Ok(Box::new(LocalOperator::open(self.store()?, access, self.config.as_deref()).await?))
    }

    /// The server, if one is named; otherwise the store of this machine, without its keyring if none is known.
    pub(crate) async fn reader(&self) -> Result<Box<dyn Operator>> {
        if let Some(server) = self.server()? {
            return Ok(Box::new(server));
        }
        Ok(Box::new(LocalOperator::open_to_read(self.store()?, self.config.as_deref()).await?))
    }

    /// The server, if one is named; otherwise the store of this machine as its engine has it: without its stored policies,
    /// and without its keyring if none is known. For commands about the whole store.
    pub(crate) async fn tool(&self, access: Access) -> Result<Box<dyn Operator>> {
        if let Some(server) = self.server()? {
            return Ok(Box::new(server));
        }
        Ok(Box::new(LocalOperator::open_tool(self.store()?, access).await?))
    }

    /// The server, if one is named; otherwise the store of this machine with its keyring, without its stored policies.
    pub(crate) async fn signer(&self, access: Access) -> Result<Box<dyn Operator>> {
        if let Some(server) = self.server()? {
            return Ok(Box::new(server));
        }
        Ok(Box::new(LocalOperator::open_signing(self.store()?, access).await?))
    }

    /// URL of the store.
    pub(crate) fn store(&self) -> Result<&str> {
        match &self.store {
            Some(url) => Ok(url),
            None => bail!("no store: name one with --store, or a server with --server"),
        }
    }
}

/// A scope in a store or on a server.
#[derive(Debug, Args)]
pub(crate) struct ScopeTarget {
    #[command(flatten)]
    pub(crate) target: StoreTarget,

    #[command(flatten)]
    pub(crate) scope: ScopeArg,
}

/// Lifetime of a record that is written.
#[derive(Debug, Args)]
pub(crate) struct TtlArgs {
    /// Lifetime, such as 1h [default: that of the policy, or no end]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) ttl: Option<Duration>,

    /// Longest lifetime: neither use nor extensions reach further
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) max_ttl: Option<Duration>,

    /// Let each use renew the lifetime, up to --max-ttl
    #[arg(long, requires = "ttl", requires = "max_ttl")]
    pub(crate) sliding: bool,
}

impl TtlArgs {
    /// Adds the lifetime to a body.
    pub(crate) fn add_to(&self, body: &mut Value) {
        if let Some(ttl) = self.ttl {
            body["ttl_ms"] = millis(ttl).into();
        }
        if let Some(max) = self.max_ttl {
            body["max_ttl_ms"] = millis(max).into();
        }
        if self.sliding {
            body["sliding"] = true.into();
        }
    }
}

/// Record that another one belongs to.
#[derive(Debug, Args)]
pub(crate) struct BelongsArgs {
    /// Record that it belongs to, and is removed with: owner:NAME, client:ID, grant:ID or
    /// relationship:SUBJECT,RELATION,OBJECT,TYPE
    #[arg(long, value_name = "PARENT", value_parser = parent)]
    belongs_to: Option<Value>,
}

impl BelongsArgs {
    /// Adds what it belongs to to a body.
    pub(crate) fn add_to(&self, body: &mut Value) {
        if let Some(parent) = &self.belongs_to {
            body["belongs_to"] = parent.clone();
        }
    }
}

/// Reads what a record belongs to.
fn parent(text: &str) -> std::result::Result<Value, String> {
    let wrong = "expected owner:NAME, client:ID, grant:ID or relationship:SUBJECT,RELATION,OBJECT,TYPE";
    let (form, name) = text.split_once(':').filter(|(_, name)| !name.is_empty()).ok_or(wrong)?;
    match form {
        "owner" | "client" | "grant" => Ok(json!({form: name})),
        "relationship" => {
            let parts: Vec<_> = name.split(',').collect();
            let [subject, relation, object, kind] = parts.as_slice() else { return Err(wrong.to_owned()) };
            let kind: RelationType = kind.parse().map_err(|error: ebbtide::Error| error.to_string())?;
            Ok(json!({"relationship": {"subject": subject, "relation": relation, "object": object,
                "relation_type": kind}}))
        }
        _ => Err(wrong.to_owned()),
    }
}

/// Whole milliseconds of a lifetime.
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Reads a name and a value.
pub(crate) fn pair(text: &str) -> std::result::Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

impl ScopeTarget {
    /// The scope.
    pub(crate) fn scope(&self) -> &Scope {
        &self.scope.name
    }

    /// The scope alone, or with all scopes below it.
    pub(crate) fn reach(&self, below: bool) -> Reach {
        let scope = self.scope.name.clone();
        if below { Reach::Below(scope) } else { Reach::Exact(scope) }
    }
}

/// Entry for the audit log.
#[derive(Debug, Args)]
pub(crate) struct AuditArgs {
    /// Name of the person or program, for the audit log
    #[arg(long, env = "USER", hide_env = true, default_value = "an operator")]
    pub(crate) actor: String,

    /// Reason, for the audit log
    #[arg(long, default_value = "asked for on the command line")]
    pub(crate) reason: String,
}

/// Confirmation of a change that cannot be undone.
#[derive(Debug, Args)]
pub(crate) struct Confirmation {
    /// Carry out the change without asking; without this flag and without a terminal the command only reports it
    #[arg(long)]
    pub(crate) yes: bool,
}

impl Confirmation {
    /// Asks on a terminal, unless there is `--yes`. Without a terminal the change is refused.
    pub(crate) fn ask(&self, change: &str) -> Result<()> {
        confirmed(self.yes, change)
    }
}

/// Asks on a terminal, unless `yes`. Without a terminal the change is refused.
pub(crate) fn confirmed(yes: bool, change: &str) -> Result<()> {
    if yes {
        return Ok(());
    }
    let (mut input, mut output) = (stdin().lock(), stderr().lock());
    if !input.is_terminal() || !output.is_terminal() {
        bail!("this would {change}: add --yes to do it");
    }
    ask(change, &mut input, &mut output)
}

fn ask(change: &str, input: &mut impl BufRead, output: &mut impl Write) -> Result<()> {
    write!(output, "this will {change}. Continue? [y/N] ")?;
    output.flush()?;
    let mut answer = String::new();
    input.read_line(&mut answer)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => bail!("not confirmed; nothing was changed"),
    }
}

/// Reads standard input to its end. On a terminal it says how to end it.
pub(crate) fn input(what: &str) -> Result<String> {
    if stdin().is_terminal() {
        errln!("enter {what}, and Ctrl-D on a line of its own:");
    }
    let mut text = String::new();
    stdin().lock().read_to_string(&mut text).context("cannot read standard input")?;
    Ok(text)
}

/// Reads a secret from standard input. On a terminal it is asked for, and not shown.
pub(crate) fn secret(what: &str) -> Result<Secret> {
    let terminal = console::Term::stderr();
    let text = if stdin().is_terminal() && terminal.is_term() {
        terminal.write_str(&format!("{what} (not shown): "))?;
        Secret::new(terminal.read_secure_line().context("cannot read the terminal")?)
    } else {
        Secret::new(input(what)?)
    };
    Ok(Secret::new(text.expose().trim()))
}

impl AuditArgs {
    /// Parameters of a query.
    pub(crate) fn query(&self) -> String {
        format!("on_behalf_of={}&reason={}", encoded(&self.actor), encoded(&self.reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_made_only_after_a_yes() {
        for (answer, done) in [("y\n", true), ("yes\n", true), ("n\n", false), ("\n", false), ("", false)] {
            let mut output = Vec::new();
            let asked = ask("delete 3 records", &mut answer.as_bytes(), &mut output);
            assert_eq!(asked.is_ok(), done, "{answer:?}");
            assert_eq!(output, b"this will delete 3 records. Continue? [y/N] ");
        }
    }
}
