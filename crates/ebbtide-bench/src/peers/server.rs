//! `ebbtide serve` in a process of its own.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ebbtide::Stopwatch;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::context::Context;

/// Server on an empty store. Dropping it kills the process.
pub(crate) struct Server {
    _process: Child,
    _folder: TempDir,
    pub(crate) pid: u32,
    /// `127.0.0.1:PORT`
    pub(crate) address: String,
    /// Port of the Redis protocol, if that was asked for.
    pub(crate) resp_port: Option<u16>,
    pub(crate) root_key: String,
    /// Time from the start of the process until it listens.
    pub(crate) ready_after: Duration,
}

impl Server {
    pub(crate) async fn start(context: &Context) -> Result<Self> {
        Self::start_with(context, false).await
    }

    /// Starts a server that also speaks the Redis protocol, if `resp` is set.
    pub(crate) async fn start_with(context: &Context, resp: bool) -> Result<Self> {
        let folder = context.folder("server")?;
        let data = folder.path().join("data");
        let program = std::env::current_exe()?.with_file_name("ebbtide");
        let stopwatch = Stopwatch::start();
        let mut process = Command::new(&program)
            .args(["serve", "--listen", "127.0.0.1:0", "--store", &format!("fjall:{}", data.display())])
            .args(if resp { &["--resp", "127.0.0.1:0"][..] } else { &[] })
            .current_dir(folder.path())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(folder.path().join("log"))?)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("{} does not start; scripts/bench builds it", program.display()))?;
        let stdout = process.stdout.take().context("it is piped")?;
        let mut lines = BufReader::new(stdout).lines();
        let line = lines.next_line().await?.unwrap_or_default();
        let ready_after = stopwatch.elapsed();
        let second = if resp { lines.next_line().await? } else { None };
        let resp_port = second.and_then(|line| line.rsplit_once(':')?.1.parse().ok());
        let address = line.strip_prefix("listening on http://").map(str::to_owned);
        let log = || std::fs::read_to_string(folder.path().join("log")).unwrap_or_default();
        let address = address.with_context(|| format!("the server does not listen: {line}\n{}", log()))?;
        let pid = process.id().context("it has just been started")?;
        let root_key = root_key(&data)?;
        Ok(Self { _process: process, _folder: folder, pid, address, resp_port, root_key, ready_after })
    }
}

fn root_key(data: &Path) -> Result<String> {
    let key = std::fs::read_to_string(data.join("root.key"))?.trim().to_owned();
    ensure!(key.starts_with("ebk_"), "the file root.key holds no key");
    Ok(key)
}
