//! Keyring files: created atomically, readable by their owner only.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use base64ct::{Base64UrlUnpadded, Encoding as _};
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, Zeroizing};

use super::{KeyId, Keyring, NamingKey, RingKey};
use crate::model::error::{Error, Result};
use crate::model::rng::Rng;
use crate::model::time::Timestamp;

/// Layout version of the file. Any other version is corrupt.
const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Layout {
    format: u32,
    active: String,
    keys: Vec<LayoutKey>,
    /// Missing in files of earlier builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    naming_key: Option<LayoutKey>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LayoutKey {
    id: String,
    created_at: u64,
    secret: String,
}

impl Drop for LayoutKey {
    fn drop(&mut self) {
        self.secret.zeroize();
    }
}

impl Keyring {
    /// Name of the keyring file in an embedded store's directory.
    pub const FILE_NAME: &str = "keyring.json";

    /// Reads the keyring in `path`. A file that others than its owner may read or write is refused.
    pub fn load(path: &Path) -> Result<Self> {
        let text = read_private(path)?.ok_or_else(|| {
            Error::invalid(format!(
                "no keyring at {}; create one with `ebbtide keyring init`",
                path.display()
            ))
        })?;
        parse(&text).map_err(|error| {
            Error::corrupt(format!("cannot read the keyring at {}", path.display())).caused_by(error)
        })
    }

    /// Reads a keyring from the text of its file, for platforms that hand out secrets without files.
    pub fn from_text(text: &str) -> Result<Self> {
        parse(text).map_err(|error| Error::corrupt("cannot read the keyring").caused_by(error))
    }

    /// Reads the keyring at `path`, or creates one if there is none. If several processes race, one creates it and
    /// the others read it.
    pub fn load_or_create(path: &Path, rng: &dyn Rng, now: Timestamp) -> Result<Self> {
        if fs::symlink_metadata(path).is_ok() {
            return Self::load(path);
        }
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder).map_err(|error| failed("create the directory of", path, error))?;
        }
        match Self::generate(rng, now).create(path, rng) {
            Err(_) if path.exists() => Self::load(path),
            made => made.map(|()| Self::load(path))?,
        }
    }

    /// Writes the keyring to a new file at `path`, mode 0600. Fails if a file exists there.
    pub fn create(&self, path: &Path, rng: &dyn Rng) -> Result<()> {
        let suffix: [u8; 8] = rng.bytes();
        let part = with_suffix(path, &format!(".{:016x}", u64::from_be_bytes(suffix)));
        let text = self.to_text();
        // The complete file appears under its name in one step; a hard link, unlike a rename, never replaces another
        // file.
        let made = write_private(&part, &text).and_then(|()| fs::hard_link(&part, path));
        let _ = fs::remove_file(&part);
        match made {
            Ok(()) => sync_folder(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(Error::invalid(format!("a file exists at {} already", path.display())))
            }
            Err(error) => Err(failed("create", path, error)),
        }
    }

    /// Changes the keyring at `path`: read, modified and replaced in one step, one change at a time.
    pub fn edit<T>(path: &Path, change: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let part = with_suffix(path, ".new");
        // The new file is created first and serves as the lock.
        write_private(&part, "").map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => Error::invalid(format!(
                "another process is changing the keyring; if none is, remove {} and retry",
                part.display()
            )),
            _ => failed("change", path, error),
        })?;
        let outcome = (|| {
            let mut keyring = Self::load(path)?;
            let answer = change(&mut keyring)?;
            let rewritten = File::create(&part).and_then(|mut file| {
                file.write_all(keyring.to_text().as_bytes())?;
                file.sync_all()?;
                fs::rename(&part, path)
            });
            rewritten.map_err(|error| failed("change", path, error))?;
            sync_folder(path)?;
            Ok(answer)
        })();
        if outcome.is_err() {
            let _ = fs::remove_file(&part);
        }
        outcome
    }

    fn to_text(&self) -> Zeroizing<String> {
        let key = |(id, entry): (&KeyId, &RingKey)| LayoutKey {
            id: id.to_string(),
            created_at: entry.created_at.as_millis(),
            secret: Base64UrlUnpadded::encode_string(&entry.secret),
        };
        let naming_key = self.naming_key().map(|naming| key((&naming.id, &naming.entry)));
        let keys = self.keys.iter().map(key).collect();
        let layout = Layout { format: FORMAT, active: self.active.to_string(), keys, naming_key };
        let mut text = serde_json::to_string_pretty(&layout).expect("text and numbers are always JSON");
        text.push('\n');
        Zeroizing::new(text)
    }
}

fn parse(text: &str) -> Result<Keyring> {
    // The parser's error may quote the file, which holds secrets: report only the position.
    let layout: Layout = serde_json::from_str(text).map_err(|error| {
        Error::corrupt(format!("invalid keyring file at line {}, column {}", error.line(), error.column()))
    })?;
    if layout.format != FORMAT {
        return Err(Error::corrupt(format!(
            "keyring file has format {}; this build reads {FORMAT}",
            layout.format
        )));
    }
    let active: KeyId = layout.active.parse()?;
    let mut keys = BTreeMap::new();
    for key in &layout.keys {
        let (id, entry) = read_key(key)?;
        if keys.insert(id, entry).is_some() {
            return Err(Error::corrupt("two keys have the same id"));
        }
    }
    if keys.len() > Keyring::MAX_KEYS || !keys.contains_key(&active) {
        return Err(Error::corrupt("the active key is not among the keys, or there are too many"));
    }
    let naming = layout.naming_key.as_ref().map(read_key).transpose()?;
    Ok(Keyring { keys, active, naming: naming.map(|(id, entry)| NamingKey::of(id, entry)) })
}

fn read_key(key: &LayoutKey) -> Result<(KeyId, RingKey)> {
    let mut secret = [0; 32];
    let length = Base64UrlUnpadded::decode(&key.secret, &mut secret).map_or(0, <[u8]>::len);
    let entry = RingKey::new(secret, Timestamp::from_millis(key.created_at)?);
    if length != 32 {
        return Err(Error::corrupt("a key is not 32 bytes in base64url"));
    }
    Ok((key.id.parse()?, entry))
}

fn read_private(path: &Path) -> Result<Option<Zeroizing<String>>> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed("open", path, error)),
    };
    let metadata = file.metadata().map_err(|error| failed("open", path, error))?;
    check_private(path, &metadata)?;
    let mut text = Zeroizing::new(String::new());
    io::Read::read_to_string(&mut file, &mut text).map_err(|error| failed("read", path, error))?;
    Ok(Some(text))
}

#[cfg(unix)]
fn check_private(path: &Path, metadata: &fs::Metadata) -> Result<()> {
    let mode = std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o7777;
    if mode & 0o077 != 0 {
        return Err(Error::invalid(format!(
            "the keyring at {} is accessible to other users (mode {mode:04o}); run `chmod 600` on it",
            path.display()
        )));
    }
    Ok(())
}

#[cfg(not(unix))]
fn check_private(_: &Path, _: &fs::Metadata) -> Result<()> {
    Ok(())
}

fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// A new name is durable only after its directory is synced.
fn sync_folder(path: &Path) -> Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if cfg!(unix) {
        let synced = File::open(folder).and_then(|folder| folder.sync_all());
        synced.map_err(|error| failed("save", path, error))?;
    }
    Ok(())
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn failed(what: &str, path: &Path, error: io::Error) -> Error {
    Error::unavailable(format!("cannot {what} the keyring at {}", path.display())).caused_by(error)
}
