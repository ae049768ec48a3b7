//! Opening of stores. Every command that works on a store of this machine opens it here.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};
use ebbtide::{Ebbtide, ErrorKind, Keyring, StoreUrl};

use crate::config::configured;

/// Purpose for which a command opens a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Read an existing store.
    Read,
    /// Change the records of an existing store.
    Write,
    /// Change records, and create the store if there is none.
    Create,
}

/// An engine that a URL can name.
struct Engine {
    name: &'static str,
    /// Compiled into this build.
    built: bool,
    /// Compiled by `make build`.
    shipped: bool,
}

const ENGINES: [Engine; 5] = [
    Engine { name: "memory", built: true, shipped: true },
    Engine { name: "fjall", built: cfg!(feature = "fjall"), shipped: true },
    Engine { name: "rocksdb", built: cfg!(feature = "rocksdb"), shipped: false },
    Engine { name: "postgres", built: cfg!(feature = "postgres"), shipped: true },
    Engine { name: "dynamodb", built: cfg!(feature = "dynamodb"), shipped: true },
];

impl Engine {
    /// Command that gives a build with this engine.
    fn install(&self) -> String {
        let install = format!("`cargo install --path crates/ebbtide-cli --features {}`", self.name);
        if self.shipped { format!("{install} or run `make build`") } else { install }
    }

    fn missing(&self) -> anyhow::Error {
        anyhow!("this build has no {} engine; install with {}", self.name, self.install())
    }
}

/// Error of a command that this build lacks, and that a feature of the package has.
#[cfg(not(all(feature = "redis", feature = "verify")))]
pub(crate) fn without(command: &str, feature: &str) -> anyhow::Error {
    anyhow!(
        "this build has no `{command}`; install with `cargo install --path crates/ebbtide-cli --features {feature}` \
         or run `make build`"
    )
}

/// Opens the store at `url`, for commands that read, and for sweeps: with its keyring where one is known, otherwise
/// without. Unless `access` is [`Access::Create`], a folder without a store is an error, and stays as it is.
pub(crate) async fn open(url: &str, access: Access) -> Result<Ebbtide> {
    require(url, access)?;
    let tool = Ebbtide::builder(url).without_stored_policies().without_metrics().looking_for_untagged();
    let tool = match keyring(url) {
        Some(path) => tool.keyring_file(path),
        None => tool.without_keyring(),
    };
    tool.open().await.context("cannot open the store")
}

/// Opens the store at `url` as a server does, for commands that write records: with its keyring and its stored
/// policies, and with the policies, lives of buckets and profiles of the server's configuration file, if one is named.
pub(crate) async fn open_with_policies(url: &str, access: Access, config: Option<&Path>) -> Result<Ebbtide> {
    let builder = Ebbtide::builder(url);
    let builder = match config {
        Some(file) => configured(builder, file)?,
        None => builder,
    };
    open_with_keyring(url, access, builder).await
}

/// Opens the store at `url` with its keyring, for commands that write what the keyring authenticates: API keys and
/// entries of the audit log.
pub(crate) async fn open_signing(url: &str, access: Access) -> Result<Ebbtide> {
    open_with_keyring(url, access, Ebbtide::builder(url).without_stored_policies()).await
}

async fn open_with_keyring(url: &str, access: Access, tool: ebbtide::Builder) -> Result<Ebbtide> {
    require(url, access)?;
    let tool = tool.without_metrics();
    let tool = match keyring(url) {
        Some(path) => tool.keyring_file(path),
        None if folder(url).is_some() || is_memory(url) => tool,
        None => bail!("this command needs the keyring of the store: name its file in EBBTIDE_KEYRING"),
    };
    tool.open().await.context("cannot open the store")
}

/// Keyring of the store at `url`: the file in `EBBTIDE_KEYRING`, else the one in the folder of an embedded store.
pub(crate) fn keyring(url: &str) -> Option<PathBuf> {
    let named = std::env::var_os("EBBTIDE_KEYRING").filter(|path| !path.is_empty()).map(PathBuf::from);
    let beside = || folder(url).map(|folder| folder.join(Keyring::FILE_NAME)).filter(|path| path.exists());
    named.or_else(beside)
}

/// Returns true if the keyring of the store at `url` is known, or is made with it.
pub(crate) fn has_keyring(url: &str) -> bool {
    keyring(url).is_some() || is_memory(url)
}

fn require(url: &str, access: Access) -> Result<()> {
    require_engine(url)?;
    if access == Access::Create {
        return Ok(());
    }
    Ok(url.parse::<StoreUrl>()?.must_exist()?)
}

/// Opens a DynamoDB store by its own type, to manage its table.
#[cfg(feature = "dynamodb")]
pub(crate) async fn open_dynamodb(url: &str) -> Result<ebbtide::engines::dynamodb::DynamoDb> {
    ebbtide::engines::dynamodb::DynamoDb::open(url, ebbtide::SystemRng).await.context("cannot open the store")
}

/// Returns true if opening the store failed since another process has it open.
pub(crate) fn is_held(url: &str, error: &anyhow::Error) -> bool {
    let unavailable = |error: &ebbtide::Error| error.kind() == ErrorKind::Unavailable;
    folder(url).is_some() && error.downcast_ref().is_some_and(unavailable)
}

/// Folder of an embedded store; none for other engines.
pub(crate) fn folder(url: &str) -> Option<PathBuf> {
    url.parse::<StoreUrl>().ok()?.folder().map(Path::to_owned)
}

/// Returns true if the store ends with the process.
fn is_memory(url: &str) -> bool {
    matches!(url.parse(), Ok(StoreUrl::Memory))
}

/// Returns true if the store has a schema that can be migrated.
pub(crate) fn has_schema(url: &str) -> bool {
    matches!(url.parse(), Ok(StoreUrl::Postgres(_)))
}

/// Fails if `url` names an engine that this build lacks. An unknown scheme is left to the library, which lists those
/// that it knows.
pub(crate) fn require_engine(url: &str) -> Result<()> {
    let Ok(url) = url.parse::<StoreUrl>() else { return Ok(()) };
    match ENGINES.iter().find(|engine| engine.name == url.engine()) {
        Some(engine) if !engine.built => Err(engine.missing()),
        _ => Ok(()),
    }
}

/// Engines of this build, and the way to get the others: a section of `ebbtide --help`.
pub(crate) fn engines_help() -> String {
    let (built, missing): (Vec<_>, Vec<_>) = ENGINES.iter().partition(|engine| engine.built);
    let names: Vec<_> = built.iter().map(|engine| engine.name).collect();
    let install = |engine: &&Engine| {
        format!("No {} engine in this build; install with {}.", engine.name, engine.install())
    };
    let lines = std::iter::once(format!("Engines in this build: {}.", names.join(", ")));
    lines.chain(missing.iter().map(install)).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_engine_that_the_build_lacks_is_named_with_the_way_to_get_it() {
        for engine in ENGINES.iter().filter(|engine| !engine.built) {
            let url = format!("{}:x", engine.name);
            let error = open(&url, Access::Create).await.err().unwrap().to_string();
            assert!(error.contains(&format!("no {} engine", engine.name)), "{error}");
            assert!(error.contains(&format!("--features {}", engine.name)), "{error}");
            assert_eq!(error.contains("make build"), engine.name != "rocksdb", "{error}");
        }
    }
}
