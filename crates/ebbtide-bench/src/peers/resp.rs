//! Connection to Redis with one request at a time.

use anyhow::{Context as _, Result, bail};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufStream};
use tokio::net::TcpStream;

/// Reply of Redis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    /// `+OK`
    Status(String),
    /// `:1`
    Integer(i64),
    /// `$3 abc`
    Bulk(Vec<u8>),
    /// Null reply.
    Nil,
}

pub(crate) struct Connection {
    stream: BufStream<TcpStream>,
    line: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(port: u16) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufStream::new(stream), line: Vec::new() })
    }

    /// Sends a command and waits for its reply. A refusal by Redis is an error.
    pub(crate) async fn ask(&mut self, command: &[&[u8]]) -> Result<Reply> {
        self.send(command).await?;
        self.flush().await?;
        self.reply().await
    }

    /// Sends a command without waiting; read its reply later with [`Connection::reply`].
    pub(crate) async fn send(&mut self, command: &[&[u8]]) -> Result<()> {
        self.stream.write_all(format!("*{}\r\n", command.len()).as_bytes()).await?;
        for argument in command {
            self.stream.write_all(format!("${}\r\n", argument.len()).as_bytes()).await?;
            self.stream.write_all(argument).await?;
            self.stream.write_all(b"\r\n").await?;
        }
        Ok(())
    }

    pub(crate) async fn flush(&mut self) -> Result<()> {
        Ok(self.stream.flush().await?)
    }

    pub(crate) async fn reply(&mut self) -> Result<Reply> {
        self.line.clear();
        self.stream.read_until(b'\n', &mut self.line).await?;
        let line = std::str::from_utf8(&self.line)?.strip_suffix("\r\n").context("Redis has hung up")?;
        let (kind, rest) = line.split_at_checked(1).context("an empty answer")?;
        match kind {
            "+" => Ok(Reply::Status(rest.to_owned())),
            ":" => Ok(Reply::Integer(rest.parse()?)),
            "$" if rest == "-1" => Ok(Reply::Nil),
            "$" => {
                let mut bytes = vec![0; rest.parse::<usize>()? + 2];
                self.stream.read_exact(&mut bytes).await?;
                bytes.truncate(bytes.len() - 2);
                Ok(Reply::Bulk(bytes))
            }
            "-" => bail!("Redis refuses: {rest}"),
            _ => bail!("an answer of a kind that nothing here asks for: {line}"),
        }
    }
}
