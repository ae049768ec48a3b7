//! The way into a store that another process has open: a socket in its folder, for its owner alone.
//!
//! Only that process can make a consistent copy of what it serves, so `ebbtide backup` asks it to.

use std::fs::Permissions;
use std::io::{BufRead, BufReader, ErrorKind, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::model::error::{Error, Result};

pub(super) const SOCKET: &str = "control.sock";

/// Time limit for a connection to send its request.
const PATIENCE: Duration = Duration::from_secs(5);

/// Listens until it is dropped.
pub(crate) struct Control {
    path: PathBuf,
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Control {
    /// Listens in `folder`, and has `backup` copy the store into the folder that is asked for. A folder whose path is
    /// too long for a socket goes without: the store itself needs none.
    pub(crate) fn listen(
        folder: &Path,
        backup: impl Fn(&Path) -> Result<()> + Send + 'static,
    ) -> Result<Option<Self>> {
        let path = folder.join(SOCKET);
        let unusable = |error| {
            Error::unavailable("cannot create the control socket in the directory of the store")
                .caused_by(error)
        };
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(unusable(error)),
            _ => {}
        }
        let listener = match UnixListener::bind(&path) {
            Ok(listener) => listener,
            Err(error) if error.kind() == ErrorKind::InvalidInput => {
                tracing::warn!(
                    "the path of the directory is too long for a control socket; \
                     `ebbtide backup` does not work while this process serves"
                );
                return Ok(None);
            }
            Err(error) => return Err(unusable(error)),
        };
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).map_err(unusable)?;
        let stopping = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&stopping);
        let thread = std::thread::Builder::new()
            .name("ebbtide-control".to_owned())
            .spawn(move || {
                for stream in listener.incoming().filter_map(std::io::Result::ok) {
                    if stop.load(Ordering::Acquire) {
                        return;
                    }
                    // A caller that has disconnected needs no answer.
                    let _ = answer(&stream, &backup);
                }
            })
            .map_err(unusable)?;
        Ok(Some(Self { path, stopping, thread: Some(thread) }))
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Release);
        // Wakes the thread from its wait. Where someone has removed the folder meanwhile nobody can, and it is left.
        let woken = UnixStream::connect(&self.path).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ = thread.join();
        }
        let _ = std::fs::remove_file(&self.path);
    }
}

fn answer(stream: &UnixStream, backup: &impl Fn(&Path) -> Result<()>) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    let outcome = match line.strip_suffix('\n').and_then(|line| line.strip_prefix("backup ")) {
        Some(dir) => backup(Path::new(dir)),
        None => Err(Error::invalid("unknown request; the control socket accepts only backup")),
    };
    let mut stream = stream;
    match outcome {
        Ok(()) => writeln!(stream, "ok"),
        Err(error) => writeln!(stream, "{error}"),
    }
}

/// Asks the process that has the store in `folder` open to copy it into `dir`, and waits until it has.
pub(super) fn ask_backup(folder: &Path, dir: &Path) -> Result<()> {
    let lost =
        |error| Error::unavailable("the process that has the store open does not answer").caused_by(error);
    let dir = std::path::absolute(dir).map_err(lost)?;
    let Some(text) = dir.to_str().filter(|text| !text.contains('\n')) else {
        return Err(Error::invalid("the path of the backup must be one line of UTF-8"));
    };
    let mut stream = UnixStream::connect(folder.join(SOCKET)).map_err(lost)?;
    writeln!(stream, "backup {text}").map_err(lost)?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).map_err(lost)?;
    match line.trim_end() {
        "ok" => Ok(()),
        "" => Err(Error::unavailable(
            "the process that has the store open ended before the backup was complete",
        )),
        message => Err(Error::unavailable(message)),
    }
}
