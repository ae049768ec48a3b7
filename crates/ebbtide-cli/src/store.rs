//! Opening of stores. Every command that works on a store of this machine opens it here.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail};
use ebbtide::{Backend, ErrorKind, Stores};

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
    schemes: &'static [&'static str],
    /// Compiled into this build.
    built: bool,
    /// Keeps a store in a folder of this machine.
    embedded: bool,
    /// Compiled by `make build`.
    shipped: bool,
}

const ENGINES: [Engine; 5] = [
    Engine { name: "memory", schemes: &["memory:"], built: true, embedded: false, shipped: true },
    Engine {
        name: "fjall",
        schemes: &["fjall:"],
        built: cfg!(feature = "fjall"),
        embedded: true,
        shipped: true,
    },
    Engine {
        name: "rocksdb",
        schemes: &["rocksdb:"],
        built: cfg!(feature = "rocksdb"),
        embedded: true,
        shipped: false,
    },
    Engine {
        name: "postgres",
        schemes: &["postgres:", "postgresql:"],
        built: cfg!(feature = "postgres"),
        embedded: false,
        shipped: true,
    },
    Engine {
        name: "dynamodb",
        schemes: &["dynamodb:"],
        built: cfg!(feature = "dynamodb"),
        embedded: false,
        shipped: true,
    },
];

impl Engine {
    /// The engine of `url`, and the rest of the URL.
    fn of(url: &str) -> Option<(&'static Self, &str)> {
        let rest = |engine: &Self| engine.schemes.iter().find_map(|scheme| url.strip_prefix(scheme));
        ENGINES.iter().find_map(|engine| rest(engine).map(|rest| (engine, rest)))
    }

    /// Command that gives a build with this engine.
    fn install(&self) -> String {
        let install = format!("`cargo install --path crates/ebbtide-cli --features {}`", self.name);
        if self.shipped { format!("{install} or run `make build`") } else { install }
    }

    fn missing(&self) -> anyhow::Error {
        anyhow!("this build has no {} engine; install with {}", self.name, self.install())
    }
}

/// Opens the store at `url`. Unless `access` is [`Access::Create`], a folder without a store is an error, and stays as
/// it is.
pub(crate) async fn open(url: &str, access: Access) -> Result<Arc<dyn Backend>> {
    require_engine(url)?;
    if access != Access::Create {
        require_store(url)?;
    }
    ebbtide::open(url).await.context("cannot open the store")
}

/// Opens the typed stores at `url`, for commands that neither derive tokens nor read sealed payloads: they need no
/// keyring.
pub(crate) async fn open_stores(url: &str, access: Access) -> Result<Stores> {
    Ok(Stores::new(open(url, access).await?))
}

/// Opens a DynamoDB store by its own type, to manage its table.
#[cfg(feature = "dynamodb")]
pub(crate) async fn open_dynamodb(url: &str) -> Result<ebbtide::backend::dynamodb::DynamoDb> {
    ebbtide::backend::dynamodb::DynamoDb::open(url, ebbtide::SystemChance)
        .await
        .context("cannot open the store")
}

/// Returns true if opening the store failed since another process has it open.
pub(crate) fn is_held(url: &str, error: &anyhow::Error) -> bool {
    let unavailable = |error: &ebbtide::Error| error.kind() == ErrorKind::Unavailable;
    folder(url).is_some() && error.downcast_ref().is_some_and(unavailable)
}

/// Folder of an embedded store; none for other engines.
pub(crate) fn folder(url: &str) -> Option<&Path> {
    let (engine, rest) = Engine::of(url)?;
    engine.embedded.then(|| Path::new(rest.split('?').next().unwrap_or_default()))
}

/// Returns true if the store has a schema that can be migrated.
pub(crate) fn has_schema(url: &str) -> bool {
    Engine::of(url).is_some_and(|(engine, _)| engine.name == "postgres")
}

/// Fails if `url` names an engine that this build lacks. An unknown scheme is left to the library, which lists those
/// that it knows.
pub(crate) fn require_engine(url: &str) -> Result<()> {
    match Engine::of(url) {
        Some((engine, _)) if !engine.built => Err(engine.missing()),
        _ => Ok(()),
    }
}

/// Fails if `url` names a folder that holds no store.
fn require_store(url: &str) -> Result<()> {
    /// Written when a store is created, before anything else.
    const MARKER: &str = "FORMAT";
    let Some(path) = folder(url).filter(|path| !path.as_os_str().is_empty()) else { return Ok(()) };
    if path.join(MARKER).try_exists().with_context(|| format!("cannot read {}", path.display()))? {
        return Ok(());
    }
    let found = if path.exists() { "is a folder without a store" } else { "does not exist" };
    bail!(
        "no store to open: {} {found}; check the path, or create one with `ebbtide serve --store {url}`",
        path.display()
    )
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

    #[test]
    fn the_folder_of_a_url_ends_before_its_options() {
        assert_eq!(folder("fjall:./data?cache_mib=64"), Some(Path::new("./data")));
        assert_eq!(folder("rocksdb:/var/lib/ebbtide"), Some(Path::new("/var/lib/ebbtide")));
        assert_eq!(folder("postgres://db/auth"), None);
        assert_eq!(folder("nonsense"), None);
    }

    #[tokio::test]
    async fn an_engine_that_the_build_lacks_is_named_with_the_way_to_get_it() {
        for engine in ENGINES.iter().filter(|engine| !engine.built) {
            let url = format!("{}x", engine.schemes[0]);
            let error = open(&url, Access::Create).await.err().unwrap().to_string();
            assert!(error.contains(&format!("no {} engine", engine.name)), "{error}");
            assert!(error.contains(&format!("--features {}", engine.name)), "{error}");
            assert_eq!(error.contains("make build"), engine.name != "rocksdb", "{error}");
        }
    }
}
