//! Bodies of requests: read whole before a request takes a place, within the bounds of its caller.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::http::StatusCode;
use bytes::{Bytes, BytesMut};
use http_body::Body as _;
use tokio::time::timeout;

use crate::http::patience::TooSlow;
use crate::http::problem::Problem;
use crate::http::share::{Share, Taken};

/// Most bytes of an unwanted body that are read, so that the connection can be kept.
const DRAINED_BYTES: usize = 64 * 1_024;

/// Longest wait for an unwanted body.
const DRAINED_WITHIN: Duration = Duration::from_millis(500);

/// Body that has arrived.
pub(crate) struct Read {
    pub(crate) bytes: Bytes,
    /// Memory that it counts for.
    pub(crate) held: Option<Taken>,
}

/// Part of a body; none at its end.
type Part = Option<Result<Bytes, axum::Error>>;

fn poll_next(body: &mut Body, context: &mut Context<'_>) -> Poll<Part> {
    loop {
        match Pin::new(&mut *body).poll_frame(context) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
            // Trailers are ignored.
            Poll::Ready(Some(Ok(frame))) => {
                if let Ok(data) = frame.into_data() {
                    return Poll::Ready(Some(Ok(data)));
                }
            }
        }
    }
}

async fn next(body: &mut Body) -> Part {
    poll_fn(|context| poll_next(body, context)).await
}

/// Next part of a body, if it has arrived.
async fn at_hand(body: &mut Body) -> Poll<Part> {
    poll_fn(|context| Poll::Ready(poll_next(body, context))).await
}

/// Reads a body of at most `most` bytes. The error has the body, if it is not read to its end.
pub(crate) async fn read(mut body: Body, most: usize, share: &Arc<Share>) -> Result<Read, (Problem, Body)> {
    let mut read = Read { bytes: Bytes::new(), held: None };
    if body.is_end_stream() {
        return Ok(read);
    }
    if let Err(problem) = share.check_bodies() {
        return Err((problem, body));
    }
    let (mut more, mut unfinished) = (BytesMut::new(), None);
    while !body.is_end_stream() {
        let part = match at_hand(&mut body).await {
            Poll::Ready(part) => part,
            // Most bodies arrive with the head. One that is waited for counts as unfinished.
            Poll::Pending => {
                if unfinished.is_none() {
                    match share.body() {
                        Ok(taken) => unfinished = Some(taken),
                        Err(problem) => return Err((problem, body)),
                    }
                }
                next(&mut body).await
            }
        };
        let Some(part) = part else { break };
        let part = match part {
            Ok(part) => part,
            Err(error) if TooSlow::caused(&error) => {
                let problem = Problem::new(StatusCode::REQUEST_TIMEOUT, "invalid", TooSlow.to_string());
                return Err((problem, body));
            }
            Err(_) => return Err((Problem::invalid("the body could not be read"), body)),
        };
        let length = read.bytes.len() + more.len() + part.len();
        if length > most {
            return Err((Problem::too_large(), body));
        }
        if let Err(problem) = share.more_bytes(&mut read.held, part.len()) {
            return Err((problem, body));
        }
        // Most bodies have one part, which is taken as it is.
        if read.bytes.is_empty() && more.is_empty() {
            read.bytes = part;
        } else {
            if more.is_empty() {
                more.extend_from_slice(&std::mem::take(&mut read.bytes));
            }
            more.extend_from_slice(&part);
        }
    }
    if !more.is_empty() {
        read.bytes = more.freeze();
    }
    Ok(read)
}

/// Reads the rest of an unwanted body. Returns false if there is more than a little: the connection must be closed.
pub(crate) async fn drain(body: Body) -> bool {
    skip(body).await.is_ok()
}

/// Reads an unwanted body to its end, or returns it if there is more than a little.
pub(crate) async fn skip(mut body: Body) -> Result<(), Body> {
    if body.is_end_stream() {
        return Ok(());
    }
    if body.size_hint().lower() > DRAINED_BYTES as u64 {
        return Err(body);
    }
    let mut drained = 0;
    let rest = async {
        while let Some(part) = next(&mut body).await {
            drained += part.map_err(|_| ())?.len();
            if drained > DRAINED_BYTES {
                return Err(());
            }
        }
        Ok(())
    };
    if matches!(timeout(DRAINED_WITHIN, rest).await, Ok(Ok(()))) { Ok(()) } else { Err(body) }
}
