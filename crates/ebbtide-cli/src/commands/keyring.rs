//! `ebbtide keyring`

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use ebbtide::keyring::KeyId;
use ebbtide::{Clock, Keyring, SystemClock, SystemRng};

use crate::output::outln;

/// Create and change the keyring that derives refresh tokens and seals payloads
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Create and change the keyring that derives refresh tokens and seals payloads.\n\n\
        `serve` creates the keyring of an embedded store: keyring.json in its folder. The nodes of a shared store need \
        copies of one keyring. Only the owner may read the file (mode 0600): it is enough to forge refresh tokens.",
    after_help = "Rotate keys on several nodes without refusing a valid token:\n  \
        1. ebbtide keyring add --standby    then copy the file to every node\n  \
        2. ebbtide keyring activate ID      then copy the file to every node\n  \
        3. ebbtide keyring retire OLD-ID    once everything made with the old key has expired\n\n\
        Examples:\n  \
        ebbtide keyring --keyring /etc/ebbtide/keyring.json init\n  \
        ebbtide keyring --keyring data/keyring.json list"
)]
pub(crate) struct Args {
    /// File of the keyring
    #[arg(
        long = "keyring",
        env = "EBBTIDE_KEYRING",
        value_name = "FILE",
        default_value = "keyring.json",
        global = true
    )]
    file: PathBuf,

    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Create a keyring with one key; an existing file is never overwritten
    #[command(after_help = "Example:\n  ebbtide keyring --keyring /etc/ebbtide/keyring.json init")]
    Init,
    /// Add a key, and derive new tokens with it; tokens of the other keys stay valid
    #[command(after_help = "Example:\n  ebbtide keyring --keyring data/keyring.json add --standby")]
    Add {
        /// Keep the active key until the new one is activated
        #[arg(long)]
        standby: bool,
    },
    /// Add the naming key, under which the ids of records are digested, to a keyring that was made without one
    #[command(
        long_about = "Add the naming key, under which the ids of records are digested, to a keyring that was made \
            without one. A keyring has one naming key, which is never rotated or retired. Copy the file to every node \
            before the first record is written.",
        after_help = "Example:\n  ebbtide keyring --keyring data/keyring.json add-naming-key"
    )]
    AddNamingKey,
    /// Derive new tokens with this key; tokens of the other keys stay valid
    #[command(after_help = "Example:\n  ebbtide keyring --keyring data/keyring.json activate 1f2e3d4c")]
    Activate {
        /// Id of the key, from `list`
        id: KeyId,
    },
    /// List the ids of the keys; the keys themselves are never shown
    #[command(after_help = "Example:\n  ebbtide keyring --keyring data/keyring.json list")]
    List,
    /// Remove a key: its refresh tokens become unknown, and payloads sealed with it cannot be read again
    #[command(after_help = "Example:\n  ebbtide keyring --keyring data/keyring.json retire 1f2e3d4c")]
    Retire {
        /// Id of the key, from `list`
        id: KeyId,
    },
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let now = SystemClock.now();
    let file = args.file.as_path();
    match args.action {
        Action::Init => {
            let keyring = Keyring::generate(&SystemRng, now);
            keyring.create(file, &SystemRng)?;
            outln!("created {} with the key {}", file.display(), keyring.active())?;
        }
        Action::Add { standby } => {
            let id = Keyring::edit(file, |keyring| {
                let id = keyring.add(&SystemRng, now)?;
                if !standby {
                    keyring.activate(id)?;
                }
                Ok(id)
            })?;
            outln!("added the key {id}, {}", if standby { "on standby" } else { "now active" })?;
        }
        Action::AddNamingKey => {
            let id = Keyring::edit(file, |keyring| keyring.add_naming_key(&SystemRng, now))?;
            outln!("added the naming key {id}")?;
        }
        Action::Activate { id } => {
            Keyring::edit(file, |keyring| keyring.activate(id))?;
            outln!("the key {id} is active")?;
        }
        Action::List => {
            let keyring = Keyring::load(file)?;
            let days = |created_at| now.since(created_at).as_secs() / (24 * 3600);
            outln!("ID        AGE       STATE")?;
            for key in keyring.keys() {
                let state = if key.active { "active" } else { "accepted" };
                outln!("{}  {:<8}  {state}", key.id, format!("{} d", days(key.created_at)))?;
            }
            if let Some(naming) = keyring.naming_key() {
                let age = format!("{} d", days(naming.created_at()));
                outln!("{}  {age:<8}  naming", naming.id())?;
            }
        }
        Action::Retire { id } => {
            Keyring::edit(file, |keyring| keyring.retire(id))?;
            outln!("retired the key {id}")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
