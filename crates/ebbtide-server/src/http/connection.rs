//! One connection: its requests, and the end of a connection that is idle or not read.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::body::Body;
use axum::http::Version;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use crate::http::activity::{Activity, State, Watched};
use crate::http::edge::{Edge, Front};
use crate::http::limits::Limits;
use crate::http::outgoing::Outgoing;
use crate::http::patience::Patient;

/// Slot for one of the open connections.
pub(crate) struct Place(Arc<Edge>);

impl Place {
    pub(crate) fn take(edge: &Arc<Edge>) -> Option<Self> {
        let below = |open: usize| (open < edge.limits.connections).then_some(open + 1);
        let taken = edge.connections.fetch_update(Ordering::Relaxed, Ordering::Relaxed, below);
        taken.is_ok().then(|| Self(Arc::clone(edge)))
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.0.limits
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

pub(super) struct Connection {
    pub(super) place: Place,
    pub(super) front: Front,
    pub(super) builder: Builder<TokioExecutor>,
    /// Changes at shutdown.
    pub(super) stopped: watch::Receiver<()>,
    /// Time for a client to read its answer at shutdown.
    pub(super) stuck_patience: Duration,
}

/// Most time between two looks at a connection.
const LOOK: Duration = Duration::from_secs(5);

impl Connection {
    /// Serves the connection to its end.
    pub(super) async fn run(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let Self { place, front, builder, mut stopped, stuck_patience } = self;
        let limits = *place.limits();
        let activity = Activity::new();
        let of_requests = Arc::clone(&activity);
        let front = Arc::new(front);
        let service = service_fn(move |request: hyper::Request<Incoming>| {
            let working = of_requests.begin();
            let held_back = request.version() == Version::HTTP_2;
            let front = Arc::clone(&front);
            async move {
                let request = request.map(|body| Body::new(Patient::new(body, limits.body_timeout)));
                let response = front.answer(request).await;
                let (mut parts, body) = response.into_parts();
                let body = Outgoing::new(body, working.answered(held_back), &mut parts.extensions);
                Ok::<_, std::convert::Infallible>(axum::http::Response::from_parts(parts, body))
            }
        });
        let io = TokioIo::new(Watched::new(stream, Arc::clone(&activity)));
        let mut connection = pin!(builder.serve_connection(io, service).into_owned());
        let look = limits.header_timeout.min(limits.send_timeout).min(LOOK) / 2;
        let mut looks = interval(look.max(Duration::from_millis(10)));
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut stopping, mut closing) = (false, false);
        loop {
            tokio::select! {
                biased;
                outcome = connection.as_mut() => {
                    if let Err(error) = outcome {
                        tracing::debug!(error, "connection closed early");
                    }
                    return;
                }
                _ = stopped.changed(), if !stopping => {
                    stopping = true;
                    connection.as_mut().graceful_shutdown();
                }
                _ = looks.tick() => match activity.state(&limits, stopping.then_some(stuck_patience)) {
                    State::Active => {}
                    State::Stuck => {
                        metrics::counter!("ebbtide_connections_cut_total").increment(1);
                        tracing::debug!("the client does not read; connection closed");
                        return;
                    }
                    // The peer has until the next look to end it.
                    State::Idle if closing => return,
                    State::Idle => {
                        closing = true;
                        connection.as_mut().graceful_shutdown();
                    }
                },
            }
        }
    }
}
