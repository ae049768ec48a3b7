//! A proxy in front of a DynamoDB endpoint that counts requests by their operation.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

type Counts = Arc<Mutex<BTreeMap<String, usize>>>;

/// Proxy on loopback. Its threads end with the process.
pub(crate) struct Counting {
    pub(crate) endpoint: String,
    counts: Counts,
}

impl Counting {
    pub(crate) fn start(endpoint: &str) -> Self {
        let upstream = endpoint.strip_prefix("http://").unwrap().trim_end_matches('/').to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let counts = Counts::default();
        let counted = Arc::clone(&counts);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (upstream, counts) = (upstream.clone(), Arc::clone(&counted));
                // The end of a connection is for the client to notice.
                std::thread::spawn(move || drop(pass(client, &upstream, &counts)));
            }
        });
        Self { endpoint, counts }
    }

    /// Number of requests of each operation since the last call.
    pub(crate) fn take(&self) -> BTreeMap<String, usize> {
        std::mem::take(&mut *self.counts.lock().unwrap())
    }

    /// Number of requests of an operation since the last [`take`](Self::take).
    pub(crate) fn of(&self, operation: &str) -> usize {
        self.counts.lock().unwrap().get(operation).copied().unwrap_or_default()
    }
}

fn pass(client: TcpStream, upstream: &str, counts: &Counts) -> io::Result<()> {
    let mut client = BufReader::new(client);
    while let Some((head, body)) = message(&mut client)? {
        let target = header(&head, "x-amz-target").unwrap();
        let operation = target.rsplit('.').next().unwrap().to_owned();
        *counts.lock().unwrap().entry(operation).or_default() += 1;
        let mut server = BufReader::new(TcpStream::connect(upstream)?);
        server.get_mut().write_all(&[head.as_bytes(), &body].concat())?;
        let (head, body) = message(&mut server)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        client.get_mut().write_all(&[head.as_bytes(), &body].concat())?;
    }
    Ok(())
}

/// Head, with its empty line, and body of a message; none at the end of the connection.
fn message(stream: &mut BufReader<TcpStream>) -> io::Result<Option<(String, Vec<u8>)>> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head)? == 0 {
            return Ok(None);
        }
    }
    let length = header(&head, "content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok(Some((head, body)))
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}
