//! Timeout of request bodies.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::BoxError;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Sleep, sleep};

/// The body took too long to arrive.
#[derive(Debug)]
pub(crate) struct TooSlow;

impl fmt::Display for TooSlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the body took too long to arrive")
    }
}

impl std::error::Error for TooSlow {}

impl TooSlow {
    /// Returns true if `error` is caused by this one.
    pub(crate) fn caused(error: &(dyn std::error::Error + 'static)) -> bool {
        let mut next = Some(error);
        while let Some(error) = next {
            if error.is::<Self>() {
                return true;
            }
            next = error.source();
        }
        false
    }
}

/// Body that fails once its reader has waited too long in total.
pub(crate) struct Patient {
    body: Incoming,
    patience: Duration,
    /// Created at the first wait: most bodies arrive with the head.
    end: Option<Pin<Box<Sleep>>>,
}

impl Patient {
    pub(crate) fn new(body: Incoming, patience: Duration) -> Self {
        Self { body, patience, end: None }
    }
}

impl Body for Patient {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(context) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let patience = this.patience;
        let end = this.end.get_or_insert_with(|| Box::pin(sleep(patience)));
        end.as_mut().poll(context).map(|()| Some(Err(TooSlow.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
