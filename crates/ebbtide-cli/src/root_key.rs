//! The root key: from the environment, or created at the first start in the folder of an embedded store.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use anyhow::{Context, Result, bail};
use base64ct::{Base64UrlUnpadded, Encoding as _};
use ebbtide::{Rng, Secret, SystemRng};

use crate::output::errln;
use crate::store;

const FILE: &str = "root.key";

/// Minimum length of a key from the environment: shorter ones can be guessed.
const MIN_BYTES: usize = 16;

/// Returns the root key of the store at `url`. There is no flag for it: other users of the machine can read flags.
pub(crate) fn find(url: &str) -> Result<Secret> {
    if let Ok(key) = std::env::var("EBBTIDE_ROOT_KEY").map(Secret::new) {
        if key.expose().contains(|c: char| c.is_whitespace() || c.is_control()) {
            bail!(
                "EBBTIDE_ROOT_KEY has white space in it, or a trailing newline: no request could present that key; remove it"
            );
        }
        if key.expose().len() < MIN_BYTES {
            bail!("EBBTIDE_ROOT_KEY is too short: it needs at least {MIN_BYTES} bytes");
        }
        return Ok(key);
    }
    let Some(folder) = store::folder(url) else {
        bail!("missing root key: set EBBTIDE_ROOT_KEY (only an embedded store creates one, in its folder)");
    };
    let path = folder.join(FILE);
    read(&path)
        .transpose()
        .unwrap_or_else(|| create(&path))
        .with_context(|| format!("root key {}", path.display()))
}

fn read(path: &Path) -> Result<Option<Secret>> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => Secret::new(text),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let mode = std::fs::metadata(path)?.permissions().mode();
    if mode & 0o077 != 0 {
        bail!("only the owner may read it: set its mode to 0600");
    }
    let key = text.expose().trim();
    if key.len() < MIN_BYTES {
        bail!("the file is incomplete: remove it to have a new key created");
    }
    Ok(Some(Secret::new(key)))
}

fn create(path: &Path) -> Result<Secret> {
    let mut bytes = [0; 32];
    SystemRng.fill(&mut bytes);
    let key = Secret::new(format!("ebk_{}", Base64UrlUnpadded::encode_string(&bytes)));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    writeln!(file, "{}", key.expose())?;
    file.sync_all()?;
    errln!("created a root key: {}", path.display());
    Ok(key)
}
