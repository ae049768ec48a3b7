//! The root key: from the environment, or made on first start beside an embedded store's data.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use anyhow::{Context, Result, bail};
use base64ct::{Base64UrlUnpadded, Encoding as _};
use ebbtide::{Rng, Secret, SystemRng};

const FILE: &str = "root.key";

/// The shortest key that is taken from the environment: anything shorter can be guessed.
const LEAST_BYTES: usize = 16;

/// The key for the store behind `url`. It is no flag: those can be read by other users of the machine.
pub(crate) fn find(url: &str) -> Result<Secret> {
    if let Ok(key) = std::env::var("EBBTIDE_ROOT_KEY").map(Secret::new) {
        if key.expose().len() < LEAST_BYTES {
            bail!("EBBTIDE_ROOT_KEY has at least {LEAST_BYTES} bytes");
        }
        return Ok(key);
    }
    let embedded = ["fjall:", "rocksdb:"].iter().find_map(|scheme| url.strip_prefix(scheme));
    let Some(rest) = embedded else {
        bail!("this store has no folder for a root key: set EBBTIDE_ROOT_KEY");
    };
    let path = Path::new(rest.split('?').next().unwrap_or_default()).join(FILE);
    read(&path)
        .transpose()
        .unwrap_or_else(|| make(&path))
        .with_context(|| format!("the root key in {}", path.display()))
}

fn read(path: &Path) -> Result<Option<Secret>> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => Secret::new(text),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let mode = std::fs::metadata(path)?.permissions().mode();
    if mode & 0o077 != 0 {
        bail!("others than its owner may use it: its mode must be 0600");
    }
    let key = text.expose().trim();
    if key.len() < LEAST_BYTES {
        bail!("it is not whole: remove it, and a new one is made");
    }
    Ok(Some(Secret::new(key)))
}

fn make(path: &Path) -> Result<Secret> {
    let mut bytes = [0; 32];
    SystemRng.fill(&mut bytes);
    let key = Secret::new(format!("ebk_{}", Base64UrlUnpadded::encode_string(&bytes)));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    writeln!(file, "{}", key.expose())?;
    file.sync_all()?;
    eprintln!("made a root key: {}", path.display());
    Ok(key)
}
