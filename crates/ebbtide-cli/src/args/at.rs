//! What a command works on: a store, or the server that serves it.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args as ClapArgs;
use ebbtide::{Reach, Scope};

use crate::client::Client;

/// A store that is opened here, or a server that is asked over HTTP. A server goes before a store, since a store in a
/// folder can be opened by one process only.
#[derive(Debug, ClapArgs)]
pub(crate) struct At {
    /// The store
    #[arg(long, env = "EBBTIDE_STORE", value_name = "URL", hide_env_values = true)]
    store: Option<String>,

    /// The server to ask instead, by its http:// or https:// URL; its key is in `EBBTIDE_API_KEY`, or in --key-file
    #[arg(long, env = "EBBTIDE_SERVER", value_name = "URL", hide_env_values = true)]
    server: Option<String>,

    /// The file that holds the key for the server
    #[arg(long, env = "EBBTIDE_KEY_FILE", value_name = "FILE", hide_env_values = true)]
    key_file: Option<PathBuf>,

    /// The authorities that may vouch for the server, in PEM form; without it, the system's
    #[arg(long, env = "EBBTIDE_CA_FILE", value_name = "FILE", hide_env_values = true)]
    ca_file: Option<PathBuf>,
}

impl At {
    /// The server, if one is named.
    pub(crate) fn server(&self) -> Result<Option<Client>> {
        let Some(url) = &self.server else { return Ok(None) };
        Client::new(url, self.key_file.as_deref(), self.ca_file.as_deref()).map(Some)
    }

    /// The store's URL.
    pub(crate) fn store(&self) -> Result<&str> {
        match &self.store {
            Some(url) => Ok(url),
            None => bail!("name the store with --store, or a server with --server"),
        }
    }
}

/// A scope, and where it is.
#[derive(Debug, ClapArgs)]
pub(crate) struct Where {
    #[command(flatten)]
    pub(crate) at: At,

    /// The scope: global, tenant:T, env:E, tenant:T/env:E or custom:A/B/C
    #[arg(long, value_name = "SCOPE")]
    pub(crate) scope: Scope,
}

impl Where {
    /// Where, and how far.
    pub(crate) fn reach(&self, below: bool) -> Reach {
        let scope = self.scope.clone();
        if below { Reach::Below(scope) } else { Reach::Exact(scope) }
    }
}
