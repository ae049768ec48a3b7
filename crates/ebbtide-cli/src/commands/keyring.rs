//! `ebbtide keyring`

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Subcommand;
use ebbtide::keyring::KeyId;
use ebbtide::ops::reseal::{Resealer, uses};
use ebbtide::stores::audit::{Action as AuditAction, AuditContext, Note};
use ebbtide::{Clock, Ebbtide, Keyring, Scope, StoreUrl, SystemClock, SystemRng, Timestamp};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use crate::output::{errln, outln};
use crate::store::{self, Access};

/// Create and change the keyring that derives refresh tokens and seals payloads
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Create and change the keyring that derives refresh tokens and seals payloads.\n\n\
        `serve` creates the keyring of an embedded store: keyring.json in its folder. The nodes of a shared store need \
        copies of one keyring. Only the owner may read the file (mode 0600): it is enough to forge refresh tokens.",
    after_help = "Rotate keys on several nodes without refusing a valid token:\n  \
        1. ebbtide keyring add --standby                    then copy the file to every node\n  \
        2. ebbtide keyring activate ID --store URL          refuses until every node has the key; copy the file again\n  \
        3. ebbtide keyring reseal --store URL               moves every record to the new key\n  \
        4. ebbtide keyring retire OLD-ID --store URL        refuses while anything uses the old key\n\n\
        Servers read the file again within 5 s, or at once on SIGHUP.\n\n\
        Examples:\n  \
        ebbtide keyring --keyring /etc/ebbtide/keyring.json init\n  \
        ebbtide keyring --keyring data/keyring.json list"
)]
pub(crate) struct Args {
    /// File of the keyring [default: that of the embedded store in --store, otherwise keyring.json]
    #[arg(long = "keyring", env = "EBBTIDE_KEYRING", value_name = "FILE", global = true)]
    file: Option<PathBuf>,

    /// Store that uses the keyring: its nodes and records are checked before a change [default: the embedded store in
    /// whose folder the file is]
    #[arg(long, env = "EBBTIDE_STORE", value_name = "URL", hide_env_values = true, global = true)]
    store: Option<String>,

    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Create a keyring with one key; an existing file is never overwritten
    #[command(after_help = "Example:\n  ebbtide keyring --keyring /etc/ebbtide/keyring.json init")]
    Init,
    /// Add a key, and derive new tokens with it; tokens of the other keys stay valid
    #[command(
        long_about = "Add a key, and derive new tokens with it; tokens of the other keys stay valid.\n\n\
            With a store that nodes share, a key is added with --standby, and activated once every node has it: without \
            --standby the command refuses while a node uses the store. The change is in the audit log of the store.",
        after_help = "Example:\n  ebbtide keyring --keyring data/keyring.json add --standby"
    )]
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
    /// List the keys, and with --store the nodes and the keys that they have
    #[command(
        after_help = "Example:\n  ebbtide keyring --keyring keyring.json show --store postgres://localhost/ebbtide"
    )]
    Show,
    /// Move every sealed and authenticated record to the active key; an interrupted run is resumed
    #[command(
        after_help = "Example:\n  ebbtide keyring --keyring keyring.json reseal --store postgres://localhost/ebbtide"
    )]
    Reseal,
    /// Remove a key: its refresh tokens become unknown, and payloads sealed with it cannot be read again
    #[command(after_help = "Example:\n  ebbtide keyring --keyring data/keyring.json retire 1f2e3d4c")]
    Retire {
        /// Id of the key, from `list`
        id: KeyId,
    },
}

impl Args {
    pub(crate) fn has_json(&self) -> bool {
        matches!(self.action, Action::List | Action::Show)
    }

    /// File of the keyring. A new one is never made in the folder of a store, whose server makes its own.
    fn file(&self) -> Result<PathBuf> {
        if let Some(file) = &self.file {
            return Ok(file.clone());
        }
        if let (Some(url), false) = (&self.store, matches!(self.action, Action::Init)) {
            let url = url.parse::<StoreUrl>()?;
            url.must_exist()?;
            if let Some(folder) = url.folder() {
                return Ok(folder.join(Keyring::FILE_NAME));
            }
        }
        Ok(Keyring::FILE_NAME.into())
    }
}

pub(crate) async fn run(args: &Args, json: bool) -> Result<ExitCode> {
    let now = SystemClock.now();
    let file = args.file()?;
    let file = file.as_path();
    let store = args.store.clone().or_else(|| store_of(file));
    match args.action {
        Action::Init => {
            let keyring = Keyring::generate(&SystemRng, now);
            keyring.create(file, &SystemRng)?;
            outln!("created {} with the key {}", file.display(), keyring.active())?;
        }
        Action::Add { standby } => {
            let checked = match &store {
                Some(url) => open_for_change(url, file).await?,
                None => None,
            };
            if let (false, Some(db)) = (standby, &checked) {
                check_alone(db).await?;
            }
            let id = Keyring::edit(file, |keyring| {
                let id = keyring.add(&SystemRng, now)?;
                if !standby {
                    keyring.activate(id)?;
                }
                Ok(id)
            })?;
            let how = if standby { "on standby" } else { "now active" };
            if let Some(db) = checked {
                db.reload_keyring().await?;
                append(&db, "keyring add", format!("the key {id} is added, {how}")).await?;
            }
            outln!("added the key {id}, {how}")?;
        }
        Action::AddNamingKey => {
            let id = Keyring::edit(file, |keyring| keyring.add_naming_key(&SystemRng, now))?;
            outln!("added the naming key {id}")?;
        }
        Action::Activate { id } => {
            let checked = if let Some(url) = &store {
                open_for_change(url, file).await?
            } else {
                errln!("without --store it is not checked that every node has the key");
                None
            };
            if let Some(db) = checked.as_ref().filter(|db| db.engine().info().shared) {
                db.rings().check_everywhere(id).await?;
            }
            Keyring::edit(file, |keyring| keyring.activate(id))?;
            if let Some(db) = checked {
                append(&db, "keyring activate", format!("the key {id} is active")).await?;
            }
            outln!("the key {id} is active")?;
        }
        Action::List => list(file, json)?,
        Action::Show if json => show_json(file, args.store.as_deref()).await?,
        Action::Show => {
            list(file, false)?;
            if let Some(url) = &args.store {
                show_nodes(url).await?;
            }
        }
        Action::Reseal => {
            let url = args.store.as_deref().context("name the store with --store")?;
            reseal(url, file).await?;
        }
        Action::Retire { id } => {
            let checked = if let Some(url) = &store {
                Some(check_uses(url, file, id).await?)
            } else {
                errln!("without --store it is not checked that nothing uses the key");
                None
            };
            let ring = Keyring::load(file)?;
            let ring = if is_left(checked.as_ref(), &ring, id).await? {
                ring
            } else {
                Keyring::edit(file, |keyring| keyring.retire(id).map(|()| keyring.clone()))?
            };
            if let Some(db) = checked {
                db.rings().forget(id, &ring).await?;
                append(&db, "keyring retire", format!("the key {id} is retired")).await?;
            }
            outln!("retired the key {id}")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns whether the store alone knows the key: a run that was interrupted has removed it from the file.
async fn is_left(db: Option<&Ebbtide>, ring: &Keyring, id: KeyId) -> Result<bool> {
    let Some(db) = db else { return Ok(false) };
    let known = db.rings().known().await?.is_some_and(|known| known.keys.contains(&id));
    Ok(known && ring.keys().iter().all(|key| key.id != id))
}

/// Embedded store that has this file as its keyring.
fn store_of(file: &Path) -> Option<String> {
    let folder = file.parent().filter(|_| file.file_name() == Some(Keyring::FILE_NAME.as_ref()))?;
    StoreUrl::of_folder(folder)
}

/// Appends to the audit log of the whole store.
async fn append(db: &Ebbtide, reason: &str, detail: String) -> Result<()> {
    let note = Note::of(AuditAction::Keyring, &AuditContext::because(reason)?)?;
    db.at(&Scope::Global).audit().append(&note.with_detail(detail)).await?;
    db.stores().checkpoint_audit().await?;
    Ok(())
}

/// Keys of a ring, without the keys themselves.
fn ring_json(file: &Path) -> Result<Value> {
    let keyring = Keyring::load(file)?;
    let key = |id: String, created_at: Timestamp, state| json!({"id": id, "created_at": created_at.as_millis(), "state": state});
    let mut keys: Vec<_> = keyring
        .keys()
        .iter()
        .map(|info| {
            key(info.id.to_string(), info.created_at, if info.active { "active" } else { "accepted" })
        })
        .collect();
    keys.extend(
        keyring.naming_key().map(|naming| key(naming.id().to_string(), naming.created_at(), "naming")),
    );
    Ok(json!({"active": keyring.active().to_string(), "keys": keys}))
}

async fn show_json(file: &Path, url: Option<&str>) -> Result<()> {
    let mut shown = ring_json(file)?;
    if let Some(url) = url {
        let db = store::open(url, Access::Read).await?;
        let known = db.rings().known().await?;
        shown["authenticated"] = json!(known.is_some_and(|known| known.authenticated));
        let ids = |keys: &[KeyId]| keys.iter().map(ToString::to_string).collect::<Vec<_>>();
        let nodes = db.rings().nodes().await?;
        let nodes: Vec<_> = nodes
            .iter()
            .map(|node| {
                json!({"node": node.node, "active": node.active.to_string(), "keys": ids(&node.keys),
                    "at": node.at.as_millis()})
            })
            .collect();
        shown["nodes"] = json!(nodes);
    }
    outln!("{shown}")
}

fn list(file: &Path, json: bool) -> Result<()> {
    if json {
        return outln!("{}", ring_json(file)?);
    }
    let now = SystemClock.now();
    let keyring = Keyring::load(file)?;
    outln!("ID        AGE       STATE")?;
    for key in keyring.keys() {
        let days = now.since(key.created_at).as_secs() / (24 * 3600);
        let state = if key.active { "active" } else { "accepted" };
        outln!("{}  {:<8}  {state}", key.id, format!("{days} d"))?;
    }
    if let Some(naming) = keyring.naming_key() {
        let days = now.since(naming.created_at()).as_secs() / (24 * 3600);
        outln!("{}  {:<8}  naming", naming.id(), format!("{days} d"))?;
    }
    Ok(())
}

/// Opens the store for a change of its keyring. None if a server of this machine has it open: it is the only node, reads
/// the file that is changed, and notes the change.
async fn open_for_change(url: &str, file: &Path) -> Result<Option<Ebbtide>> {
    match open(url, file).await {
        Err(error) if store::is_held(url, &error) => Ok(None),
        db => db.map(Some),
    }
}

/// Refuses to activate a new key at once while nodes share the store: none of them has it. An embedded store has no node
/// while this process has it open.
async fn check_alone(db: &Ebbtide) -> Result<()> {
    let nodes = if db.engine().info().shared { db.rings().nodes().await?.len() } else { 0 };
    if nodes > 0 {
        bail!(
            "{nodes} nodes use the store, and none of them has the new key: add it with --standby, copy the file to \
             every node, and activate it then"
        );
    }
    Ok(())
}

async fn show_nodes(url: &str) -> Result<()> {
    let db = store::open(url, Access::Read).await?;
    let rings = db.rings();
    let known = rings.known().await?;
    let authenticated = known.as_ref().is_some_and(|known| known.authenticated);
    outln!(
        "\nrecords without a tag are {}",
        if authenticated { "refused" } else { "accepted; run `keyring reseal`" }
    )?;
    outln!("\nNODE              ACTIVE    KEYS")?;
    for node in rings.nodes().await? {
        let keys: Vec<_> = node.keys.iter().map(ToString::to_string).collect();
        outln!("{}  {}  {}", node.node, node.active, keys.join(" "))?;
    }
    Ok(())
}

async fn open(url: &str, file: &Path) -> Result<Ebbtide> {
    let builder = Ebbtide::builder(url).must_exist().keyring_file(file).looking_for_untagged();
    builder.without_stored_policies().without_metrics().open().await.context("cannot open the store")
}

async fn reseal(url: &str, file: &Path) -> Result<()> {
    let db = open(url, file).await?;
    let to = db.stores().keyring().active();
    let mut resealer =
        Resealer::start(db.stores(), db.engine(), Arc::new(SystemRng), db.time().date()).await?;
    if resealer.done().looked > 0 {
        errln!("resuming after {} records", resealer.done().looked);
    }
    let bar = ProgressBar::no_length();
    bar.set_style(ProgressStyle::with_template("resealing {human_pos} {per_sec}")?);
    while resealer.step(db.time().date()).await.context("interrupted; run it again to continue")? {
        bar.set_position(resealer.done().looked);
    }
    bar.finish_and_clear();
    let done = resealer.done();
    append(&db, "keyring reseal", format!("{} records moved to the key {to}", done.moved)).await?;
    outln!(
        "{} records looked at, {} moved to the key {to}, {} changed meanwhile",
        done.looked,
        done.moved,
        done.changed
    )?;
    Ok(())
}

/// Refuses while a node makes tokens with the key, or a record depends on it, and returns the store.
async fn check_uses(url: &str, file: &Path, id: KeyId) -> Result<Ebbtide> {
    let db = open(url, file).await?;
    db.rings().check_inactive(id).await?;
    let uses = uses(db.stores(), db.engine().as_ref(), id, db.time().date()).await?;
    if uses.is_empty() {
        return Ok(db);
    }
    let counts: Vec<_> = uses.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    bail!(
        "the key {id} is in use by {}: run `keyring reseal`, and wait for refresh tokens to be rotated",
        counts.join(", ")
    )
}
