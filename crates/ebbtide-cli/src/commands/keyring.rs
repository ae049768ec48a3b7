//! `ebbtide keyring`

use std::process::ExitCode;

use anyhow::Result;
use ebbtide::{Clock, Keyring, SystemClock, SystemRng};

use crate::args::{Keyring as Args, KeyringChange};

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let now = SystemClock.now();
    let file = args.file.as_path();
    match args.change {
        KeyringChange::Init => {
            let keyring = Keyring::generate(&SystemRng, now);
            keyring.create(file, &SystemRng)?;
            println!("made {} with the key {}", file.display(), keyring.active());
        }
        KeyringChange::Add { standby } => {
            let id = Keyring::edit(file, |keyring| {
                let id = keyring.add(&SystemRng, now)?;
                if !standby {
                    keyring.activate(id)?;
                }
                Ok(id)
            })?;
            println!("added the key {id}{}", if standby { ", not active yet" } else { ", now active" });
        }
        KeyringChange::Activate { id } => {
            Keyring::edit(file, |keyring| keyring.activate(id))?;
            println!("the key {id} is active");
        }
        KeyringChange::List => {
            let keys = Keyring::load(file)?.keys();
            println!("ID        AGE       STATE");
            for key in keys {
                let days = now.since(key.created_at).as_secs() / (24 * 3600);
                let state = if key.active { "active" } else { "accepted" };
                println!("{}  {:<8}  {state}", key.id, format!("{days} d"));
            }
        }
        KeyringChange::Retire { id } => {
            Keyring::edit(file, |keyring| keyring.retire(id))?;
            println!("retired the key {id}");
        }
    }
    Ok(ExitCode::SUCCESS)
}
