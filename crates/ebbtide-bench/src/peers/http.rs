//! Keep-alive connection to the server with one request at a time.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ebbtide::Stopwatch;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use super::server::Server;
use crate::load::Caller;
use crate::records::next;

/// Replay checks of new proofs.
pub(crate) struct ReplayChecks {
    stream: BufReader<TcpStream>,
    address: String,
    /// Time since the last use.
    idle: Stopwatch,
    /// Lines of a request that do not change.
    head: String,
    line: String,
    body: Vec<u8>,
}

impl ReplayChecks {
    pub(crate) async fn connect(server: &Server) -> Result<Self> {
        let stream = stream(&server.address).await?;
        let head = format!(
            "POST /v1/replays/check HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\n",
            server.address, server.root_key
        );
        let (address, idle) = (server.address.clone(), Stopwatch::start());
        Ok(Self { stream, address, idle, head, line: String::new(), body: Vec::new() })
    }

    /// Reads the status of the answer, and discards its body.
    async fn answer(&mut self) -> Result<u16> {
        self.next_line().await?;
        let status = self.line.split(' ').nth(1).context("no status")?.parse()?;
        let mut length = 0;
        loop {
            self.next_line().await?;
            let Some((name, value)) = self.line.split_once(':') else { break };
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse()?;
            }
        }
        self.body.resize(length, 0);
        self.stream.read_exact(&mut self.body).await?;
        Ok(status)
    }

    async fn next_line(&mut self) -> Result<()> {
        self.line.clear();
        ensure!(self.stream.read_line(&mut self.line).await? > 0, "the server has hung up");
        Ok(())
    }
}

/// The server closes a connection after a minute without use, as happens on one side while the others are measured.
const LONG_IDLE: Duration = Duration::from_secs(20);

async fn stream(address: &str) -> Result<BufReader<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(BufReader::new(stream))
}

impl Caller for ReplayChecks {
    async fn call(&mut self) -> Result<()> {
        if self.idle.elapsed() > LONG_IDLE {
            self.stream = stream(&self.address).await?;
        }
        self.idle = Stopwatch::start();
        let body = format!(r#"{{"namespace":"bench","jti":"open-{}"}}"#, next());
        let request = format!("{}Content-Length: {}\r\n\r\n{body}", self.head, body.len());
        self.stream.write_all(request.as_bytes()).await?;
        let status = self.answer().await?;
        ensure!(status == 200, "a new proof is answered with {status}");
        Ok(())
    }
}
