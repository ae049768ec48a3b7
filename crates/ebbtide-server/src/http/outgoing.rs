//! Bodies of answers: sent in small parts, and counted until they are sent.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::http::Extensions;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;

use crate::http::activity::Sending;
use crate::http::share::Taken;

/// Largest part that is handed to the connection at a time. HTTP/2 buffers a part whole, whatever the window of the
/// client is.
const MOST_PART_BYTES: usize = 16 * 1_024;

/// Answers of this size and less are sent without a guard over HTTP/1.1, which has one at a time for each connection.
pub(crate) const SMALL: u64 = 16 * 1_024;

/// Part of a bound that an answer holds until it is sent.
#[derive(Debug, Clone)]
#[expect(dead_code, reason = "held, and given back when it is dropped")]
pub(crate) enum Guard {
    /// Place of an open route.
    Place(Arc<OwnedSemaphorePermit>),
    /// Place and memory of a tenant.
    Share(Arc<(Taken, Taken)>),
}

/// Body of an answer.
pub(crate) struct Outgoing {
    body: Body,
    /// Rest of the last frame.
    rest: Bytes,
    sending: Sending,
    _guard: Option<Guard>,
}

impl Outgoing {
    /// Wraps a body; `extensions` may have its guard.
    pub(crate) fn new(body: Body, sending: Sending, extensions: &mut Extensions) -> Self {
        Self { body, rest: Bytes::new(), sending, _guard: extensions.remove::<Guard>() }
    }
}

impl http_body::Body for Outgoing {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        this.sending.progress();
        if this.rest.is_empty() {
            match Pin::new(&mut this.body).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => this.rest = data,
                    Err(frame) => return Poll::Ready(Some(Ok(frame))),
                },
                other => return other,
            }
        }
        let part = this.rest.split_to(this.rest.len().min(MOST_PART_BYTES));
        Poll::Ready(Some(Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (mut hint, rest) = (self.body.size_hint(), self.rest.len() as u64);
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(hint.lower() + rest);
        hint
    }
}
