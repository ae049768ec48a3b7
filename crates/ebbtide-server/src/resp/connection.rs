//! One connection: reads requests, runs them, writes the replies, within limits.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use ebbtide::Stopwatch;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::watch;
use tokio::time::timeout;

use super::codec::{Decoder, ProtocolError};
use super::reply::Reply;
use super::session::Session;
use crate::http::activity::Activity;
use crate::http::share::Taken;

/// Bytes that are read at a time.
const READ_BYTES: usize = 16 * 1_024;

/// Most requests that are taken from the buffer at once.
const MAX_AT_ONCE: usize = 512;

/// Capacity above which an empty buffer is given back.
const KEPT_CAPACITY: usize = 64 * 1_024;

/// Bytes that are read behind an error.
const MAX_DRAINED_BYTES: usize = 1 << 20;

/// Connection with its buffers.
pub(super) struct Connection<S> {
    pub(super) stream: S,
    pub(super) session: Session,
    /// Changes when the server shuts down.
    pub(super) stop: watch::Receiver<()>,
    pub(super) idle_timeout: Duration,
    /// Time since a request began to arrive that is not complete yet.
    pub(super) begun: Option<Stopwatch>,
    /// Memory of an unfinished request.
    pub(super) held: Option<Taken>,
    pub(super) activity: Arc<Activity>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Serves until the peer closes, breaks the protocol, is too slow, or the server shuts down.
    pub(super) async fn run(mut self) {
        let (mut input, mut output) = (BytesMut::new(), BytesMut::new());
        let mut decoder = Decoder::default();
        let mut requests = VecDeque::new();
        loop {
            let malformed = self.take(&mut decoder, &mut input, &mut requests);
            let some = !requests.is_empty();
            while !requests.is_empty() && !self.session.closing {
                self.begun = None;
                {
                    let _working = self.activity.begin();
                    self.session.process(&mut requests, &mut output).await;
                }
                if self.session.login.is_some() {
                    self.activity.trust();
                }
                if !self.write(&mut output).await {
                    return;
                }
            }
            let refused = match malformed {
                Some(ProtocolError(message)) => {
                    metrics::counter!("ebbtide_resp_protocol_errors_total").increment(1);
                    Some(Reply::error(message))
                }
                None => self.hold(&input).err(),
            };
            if let Some(refused) = refused {
                refused.encode(self.session.protocol, &mut output);
                self.write(&mut output).await;
                self.drain().await;
                return;
            }
            if self.session.closing || !some && !self.read(&mut input).await {
                break;
            }
        }
        // Best effort: the peer may be gone.
        let _ = timeout(Duration::from_secs(1), self.stream.shutdown()).await;
    }

    /// Counts the memory of an unfinished request against the caller. The error is the reply.
    fn hold(&mut self, input: &BytesMut) -> Result<(), Reply> {
        self.held = None;
        if input.len() > READ_BYTES
            && let Some(share) = self.session.share()
        {
            self.held = Some(share.bytes(input.capacity())?);
        }
        Ok(())
    }

    /// Ends the connection behind an error. What the peer still sends is read for a while: otherwise the system would
    /// answer it with a reset, which may overtake the error.
    async fn drain(&mut self) {
        let drained = timeout(Duration::from_secs(1), async {
            self.stream.shutdown().await?;
            let (mut left, mut bytes) = (MAX_DRAINED_BYTES, [0; 4_096]);
            loop {
                let read = self.stream.read(&mut bytes).await?;
                left = match left.checked_sub(read) {
                    Some(left) if read > 0 => left,
                    _ => return std::io::Result::Ok(()),
                };
            }
        });
        // Best effort: the peer may be gone.
        let _ = drained.await;
    }

    /// Takes the requests that are complete from the buffer. Returns what is wrong with the one behind them.
    fn take(
        &self,
        decoder: &mut Decoder,
        input: &mut BytesMut,
        requests: &mut VecDeque<Vec<Bytes>>,
    ) -> Option<ProtocolError> {
        while requests.len() < MAX_AT_ONCE {
            match decoder.next(input, self.session.bounds()) {
                Ok(Some(request)) if request.is_empty() => {}
                Ok(Some(request)) => {
                    requests.push_back(request);
                    // The bounds are wider behind the request that presents a key: it is run first.
                    if self.session.login.is_none() {
                        break;
                    }
                }
                Ok(None) => break,
                Err(error) => return Some(error),
            }
        }
        None
    }

    /// Writes the replies. Returns false if the peer does not read them, or is gone.
    async fn write(&mut self, output: &mut BytesMut) -> bool {
        if output.is_empty() {
            return true;
        }
        let patience = self.session.app.edge.limits.body_timeout;
        let sent = timeout(patience, async {
            self.stream.write_all(output).await?;
            self.stream.flush().await
        });
        let sent = matches!(sent.await, Ok(Ok(())));
        self.session.unsent.clear();
        if output.capacity() > KEPT_CAPACITY {
            *output = BytesMut::new();
        } else {
            output.clear();
        }
        sent
    }

    /// Reads more. Returns false if there is no more, or it took too long.
    async fn read(&mut self, input: &mut BytesMut) -> bool {
        if input.is_empty() && input.capacity() > KEPT_CAPACITY {
            *input = BytesMut::new();
        }
        let limits = &self.session.app.edge.limits;
        let patience = match (input.is_empty(), self.session.login.is_some()) {
            (true, true) => self.idle_timeout,
            (true, false) => limits.header_timeout,
            // A request that has begun has to arrive, however many packets it comes in.
            (false, _) => {
                let begun = self.begun.get_or_insert_with(Stopwatch::start);
                limits.body_timeout.saturating_sub(begun.elapsed())
            }
        };
        input.reserve(READ_BYTES);
        tokio::select! {
            biased;
            _ = self.stop.changed() => false,
            read = timeout(patience, self.stream.read_buf(input)) => matches!(read, Ok(Ok(1..))),
        }
    }
}
