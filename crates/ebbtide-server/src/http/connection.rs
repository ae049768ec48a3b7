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
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::http::activity::{Activity, ConnectionState, Watched};
use crate::http::edge::{Edge, Front};
use crate::http::limits::Limits;
use crate::http::outgoing::Outgoing;
use crate::http::patience::Patient;
use crate::routes::BASE;

/// Slot for one of the open connections.
pub(crate) struct ConnectionSlot {
    edge: Arc<Edge>,
    number: u64,
    activity: Arc<Activity>,
}

impl ConnectionSlot {
    /// Takes a slot; another connection that asks nothing is closed for it if there is none. None if all are busy.
    pub(crate) fn take(edge: &Arc<Edge>) -> Option<Self> {
        let activity = Activity::new();
        let number = edge.open_connections.add(&activity, edge.limits.connections)?;
        edge.connections.fetch_add(1, Ordering::Relaxed);
        Some(Self { edge: Arc::clone(edge), number, activity })
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.edge.limits
    }

    pub(crate) fn activity(&self) -> &Arc<Activity> {
        &self.activity
    }

    /// Runs a part of the connection, unless it must make room for another one.
    pub(crate) async fn unless_evicted<T>(&self, part: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            done = part => Some(done),
            () = self.activity.evicted() => {
                tracing::debug!("connection closed to make room for another one");
                None
            }
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.edge.open_connections.remove(self.number);
        self.edge.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

pub(super) struct Connection {
    pub(super) place: ConnectionSlot,
    pub(super) front: Front,
    pub(super) builder: Builder<TokioExecutor>,
    /// Changes at shutdown.
    pub(super) stopped: watch::Receiver<()>,
    /// Time for a client to read its answer at shutdown.
    pub(super) stuck_patience: Duration,
}

/// Most time between two looks at a connection.
const LOOK: Duration = Duration::from_secs(5);

/// Time for the end of a connection that makes room for another one.
const FAREWELL: Duration = Duration::from_millis(100);

impl Connection {
    /// Serves the connection to its end.
    pub(super) async fn run(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let Self { place, front, builder, mut stopped, stuck_patience } = self;
        let limits = *place.limits();
        let activity = Arc::clone(&place.activity);
        let of_requests = Arc::clone(&activity);
        let front = Arc::new(front);
        let service = service_fn(move |request: hyper::Request<Incoming>| {
            let working = of_requests.begin();
            let activity = Arc::clone(&of_requests);
            let held_back = request.version() == Version::HTTP_2;
            let needs_key = request.uri().path().starts_with(BASE);
            let front = Arc::clone(&front);
            async move {
                let request = request.map(|body| Body::new(Patient::new(body, limits.body_timeout)));
                let response = front.answer(request).await;
                if needs_key && response.status().is_success() {
                    activity.trust();
                }
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
                () = activity.evicted() => {
                    metrics::counter!("ebbtide_connections_evicted_total").increment(1);
                    tracing::debug!("connection closed to make room for another one");
                    connection.as_mut().graceful_shutdown();
                    let _ = timeout(FAREWELL, connection.as_mut()).await;
                    return;
                }
                _ = looks.tick() => match activity.state(&limits, stopping.then_some(stuck_patience)) {
                    ConnectionState::Active => {}
                    ConnectionState::Stuck => {
                        metrics::counter!("ebbtide_connections_cut_total").increment(1);
                        tracing::debug!("the client does not read; connection closed");
                        return;
                    }
                    // The peer has until the next look to end it.
                    ConnectionState::Idle if closing => return,
                    ConnectionState::Idle => {
                        closing = true;
                        connection.as_mut().graceful_shutdown();
                    }
                },
            }
        }
    }
}
