//! The root key: from the environment, or created at the first start in the folder of an embedded store.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use base64ct::{Base64UrlUnpadded, Encoding as _};
use ebbtide::{Rng, Secret, SystemRng};

use crate::output::errln;
use crate::store;

const FILE: &str = "root.key";

/// Minimum length of a key from the environment: shorter ones can be guessed.
const MIN_BYTES: usize = 16;

/// Returns the root keys of the store at `url`: several while the root key is rotated. There is no flag for a key:
/// other users of the machine can read flags.
pub(crate) fn find(url: &str, files: &[PathBuf]) -> Result<Vec<Secret>> {
    let mut keys = Vec::new();
    for path in files {
        keys.extend(read_lines(path).with_context(|| format!("root key {}", path.display()))?);
    }
    if let Ok(key) = std::env::var("EBBTIDE_ROOT_KEY").map(Secret::new) {
        check(&key).context("EBBTIDE_ROOT_KEY")?;
        keys.push(key);
    }
    if !keys.is_empty() {
        return Ok(keys);
    }
    made(url)
}

/// Refuses a key that is too short, or that an editor or a shell has added white space to.
fn check(key: &Secret) -> Result<()> {
    let text = key.expose();
    if text.len() < MIN_BYTES {
        bail!("the key is incomplete or too short: it needs at least {MIN_BYTES} bytes");
    }
    if text.chars().any(char::is_whitespace) {
        bail!("the key has white space in it or at its end: remove it");
    }
    Ok(())
}

/// Reads a file with one key on each line: two during a rotation.
fn read_lines(path: &Path) -> Result<Vec<Secret>> {
    let text = Secret::new(std::fs::read_to_string(path)?);
    if std::fs::metadata(path)?.permissions().mode() & 0o077 != 0 {
        bail!("only the owner may read it: set its mode to 0600");
    }
    let lines = text.expose().strip_suffix('\n').unwrap_or(text.expose());
    let keys: Vec<_> = lines.split('\n').map(Secret::new).collect();
    keys.iter().try_for_each(check)?;
    Ok(keys)
}

/// Root keys in the folder of an embedded store, one on each line; one is created where there is none.
fn made(url: &str) -> Result<Vec<Secret>> {
    let Some(folder) = store::folder(url) else {
        bail!(
            "missing root key: set EBBTIDE_ROOT_KEY, or name a file with --root-key-file (only an embedded store creates one, in its folder)"
        );
    };
    let path = folder.join(FILE);
    let keys = if path.exists() { read_lines(&path) } else { create(&path).map(|key| vec![key]) };
    keys.with_context(|| format!("root key {}", path.display()))
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
