//! Store URLs, parsed once.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use crate::model::error::{Error, Result};

/// The store that a URL names.
///
/// ```
/// use ebbtide::StoreUrl;
///
/// let url: StoreUrl = "fjall:./data".parse()?;
/// assert_eq!(url.folder(), Some("./data".as_ref()));
/// # Ok::<_, ebbtide::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreUrl {
    /// `memory:`
    Memory,
    /// `fjall:PATH?…`
    Fjall(FolderUrl),
    /// `rocksdb:PATH?…`
    RocksDb(FolderUrl),
    /// `postgres://…`, with its password.
    Postgres(String),
    /// `dynamodb:TABLE?…`
    DynamoDb(String),
}

/// Folder and options of an embedded store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderUrl(String);

impl FolderUrl {
    /// Path and options, as they were written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Path of the folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        Path::new(self.0.split('?').next().unwrap_or_default())
    }
}

impl StoreUrl {
    const FORMS: [&str; 6] = [
        "memory:",
        "fjall:PATH",
        "rocksdb:PATH",
        "postgres://…",
        "postgresql://…",
        "dynamodb:TABLE?region=…&endpoint=…",
    ];

    /// Name of the engine.
    #[must_use]
    pub const fn engine(&self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Fjall(_) => "fjall",
            Self::RocksDb(_) => "rocksdb",
            Self::Postgres(_) => "postgres",
            Self::DynamoDb(_) => "dynamodb",
        }
    }

    /// Folder of an embedded store; none for the other engines.
    #[must_use]
    pub fn folder(&self) -> Option<&Path> {
        match self {
            Self::Fjall(url) | Self::RocksDb(url) => Some(url.folder()),
            _ => None,
        }
    }

    /// Several nodes can share the store.
    #[must_use]
    pub const fn is_shared(&self) -> bool {
        matches!(self, Self::Postgres(_) | Self::DynamoDb(_))
    }

    /// URL of the embedded store in a folder, of whichever engine made it; none if there is no store.
    #[must_use]
    pub fn of_folder(folder: &Path) -> Option<String> {
        #[cfg(any(feature = "fjall", feature = "rocksdb"))]
        let engine = super::embedded::engine_of(folder);
        #[cfg(not(any(feature = "fjall", feature = "rocksdb")))]
        let engine: Option<String> = None;
        engine.map(|engine| format!("{engine}:{}", folder.display()))
    }

    /// Returns `Invalid` if the URL names the folder of an embedded store and there is none. Commands that read call
    /// this before they open, so that a mistyped path creates nothing.
    pub fn must_exist(&self) -> Result<()> {
        match self.folder() {
            #[cfg(any(feature = "fjall", feature = "rocksdb"))]
            Some(folder) if !super::embedded::is_store(folder) => Err(Error::invalid(format!(
                "no store at {}; check the path, or create one with `ebbtide serve --store {}:{}`",
                folder.display(),
                self.engine(),
                folder.display(),
            ))),
            _ => Ok(()),
        }
    }
}

impl FromStr for StoreUrl {
    type Err = Error;

    /// Reads a URL. An unknown scheme is answered with the known ones; the URL itself is not repeated, since it may
    /// hold a password.
    fn from_str(url: &str) -> Result<Self> {
        let unknown =
            || Error::invalid(format!("unknown store URL; the known forms are {}", Self::FORMS.join(", ")));
        let (scheme, rest) = url.split_once(':').ok_or_else(unknown)?;
        let folder = || match rest.split('?').next() {
            None | Some("") => Err(Error::invalid(format!("the URL of a {scheme} store is {scheme}:PATH"))),
            Some(_) => Ok(FolderUrl(rest.to_owned())),
        };
        match scheme {
            "memory" if rest.is_empty() => Ok(Self::Memory),
            "memory" => Err(Error::invalid("the URL of the memory engine is memory: and takes no path")),
            "fjall" => folder().map(Self::Fjall),
            "rocksdb" => folder().map(Self::RocksDb),
            "postgres" | "postgresql" => Ok(Self::Postgres(url.to_owned())),
            "dynamodb" => Ok(Self::DynamoDb(url.to_owned())),
            _ => Err(unknown()),
        }
    }
}

impl fmt::Debug for StoreUrl {
    /// Without what may be a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fjall(url) | Self::RocksDb(url) => {
                write!(f, "{}:{}", self.engine(), url.folder().display())
            }
            _ => write!(f, "{}:…", self.engine()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_scheme_is_answered_with_the_known_ones() {
        let error = "redis://user:hunter2@host".parse::<StoreUrl>().unwrap_err();
        for scheme in ["memory:", "fjall:", "rocksdb:", "postgres:", "dynamodb:"] {
            assert!(error.message().contains(scheme), "{error}");
        }
        assert!(!error.message().contains("hunter2"));
    }

    #[test]
    fn a_url_is_printed_without_its_password() {
        let url: StoreUrl = "postgres://user:hunter2@host/db".parse().unwrap();
        assert!(!format!("{url:?}").contains("hunter2"));
    }

    #[test]
    fn a_folder_is_told_from_its_options() {
        let url: StoreUrl = "fjall:./data?cache_mib=64".parse().unwrap();
        assert_eq!(url.folder(), Some(Path::new("./data")));
        assert!("fjall:".parse::<StoreUrl>().is_err());
        assert!("fjall:?cache_mib=64".parse::<StoreUrl>().is_err());
        assert!("memory:/tmp".parse::<StoreUrl>().is_err());
    }
}
