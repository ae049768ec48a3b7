//! What happens around every request: its name, its place among those that are worked on, its metrics, and its line in
//! the log.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::{Context, Poll};

use axum::extract::{MatchedPath, Request};
use axum::http::Method;
use axum::response::{IntoResponse as _, Response};
use ebbtide::backend::gated::Gate;
use ebbtide::{Stopwatch, SystemChance};
use http_body::Body as _;
use metrics::{SharedString, counter, histogram};
use tokio::sync::Semaphore;
use tower::{Layer, Service};
use tracing::Instrument as _;

use crate::limits::Limits;
use crate::problem::Problem;
use crate::request_id::{HEADER, RequestId};
use crate::trace::Trace;

/// What the edge of a server knows, shared by its connections.
#[derive(Debug)]
pub(crate) struct Edge {
    pub(crate) limits: Limits,
    /// Closed while the node must not serve.
    pub(crate) gate: Gate,
    /// A permit for each request that may be worked on.
    pub(crate) places: Semaphore,
    pub(crate) connections: AtomicUsize,
}

impl Edge {
    pub(crate) fn new(limits: Limits, gate: Gate) -> Self {
        let places = Semaphore::new(limits.requests.min(Semaphore::MAX_PERMITS));
        Self { limits, gate, places, connections: AtomicUsize::new(0) }
    }
}

/// Puts the edge around the routes. It stands inside of the routing, so that it knows the route's template.
#[derive(Debug, Clone)]
pub(crate) struct EdgeLayer(pub(crate) Arc<Edge>);

impl<S> Layer<S> for EdgeLayer {
    type Service = EdgeService<S>;

    fn layer(&self, inner: S) -> EdgeService<S> {
        EdgeService { edge: Arc::clone(&self.0), inner }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct EdgeService<S> {
    edge: Arc<Edge>,
    inner: S,
}

impl<S> Service<Request> for EdgeService<S>
where
    S: Service<Request, Response = Response, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let stopwatch = Stopwatch::start();
        let edge = Arc::clone(&self.edge);
        let id = RequestId::of(request.headers(), &SystemChance);
        let asked = Asked::of(&request);
        let trace = Trace::of(request.headers());
        // Said in advance, a body that is too large is refused before it is sent.
        let too_large = request.body().size_hint().lower() > edge.limits.body_bytes as u64;
        let answer = self.inner.call(request);
        Box::pin(async move {
            let span = tracing::debug_span!(
                "request",
                method = asked.method,
                route = asked.route(),
                request_id = id.as_str(),
                trace_id = trace.as_ref().map(Trace::id)
            );
            #[cfg(feature = "otel")]
            if let Some(trace) = &trace {
                trace.adopt(&span);
            }
            let place = edge.places.try_acquire();
            let response = if too_large {
                Problem::too_large().into_response()
            } else if place.is_ok() || asked.is_of_the_operator() {
                answer.instrument(span).await?
            } else {
                Problem::overloaded().into_response()
            };
            Ok(asked.answered(response, id, trace.as_ref(), stopwatch))
        })
    }
}

/// What is told of a request: never its path, which may name an owner, and never what stands behind the question mark.
struct Asked {
    method: &'static str,
    route: Option<MatchedPath>,
}

impl Asked {
    fn of(request: &Request) -> Self {
        // A method of the caller's invention would be a label of the caller's invention.
        let method = match *request.method() {
            Method::GET => "GET",
            Method::POST => "POST",
            Method::PUT => "PUT",
            Method::DELETE => "DELETE",
            Method::HEAD => "HEAD",
            Method::OPTIONS => "OPTIONS",
            Method::PATCH => "PATCH",
            _ => "OTHER",
        };
        Self { method, route: request.extensions().get().cloned() }
    }

    fn route(&self) -> &str {
        self.route.as_ref().map_or("none", MatchedPath::as_str)
    }

    /// Whether an operator asks it of a server that is too busy for anyone else.
    fn is_of_the_operator(&self) -> bool {
        ["/healthz", "/readyz", "/metrics"].contains(&self.route())
    }

    fn answered(
        self,
        mut response: Response,
        id: RequestId,
        trace: Option<&Trace>,
        stopwatch: Stopwatch,
    ) -> Response {
        let outcome = match response.extensions_mut().remove::<Problem>() {
            Some(problem) => {
                let outcome = problem.kind();
                *response.body_mut() = problem.body(id.as_str());
                outcome
            }
            None if response.status().is_success() => "ok",
            None => "other",
        };
        let elapsed = stopwatch.elapsed();
        let route: SharedString = Arc::<str>::from(self.route()).into();
        histogram!("ebbtide_http_request_seconds", "method" => self.method, "route" => route.clone())
            .record(elapsed);
        counter!("ebbtide_http_requests_total",
            "method" => self.method, "route" => route, "outcome" => outcome)
        .increment(1);
        tracing::info!(
            target: "ebbtide::request",
            request_id = id.as_str(),
            trace_id = trace.map(Trace::id),
            method = self.method,
            route = self.route(),
            status = response.status().as_u16(),
            outcome,
            duration_us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX),
        );
        response.headers_mut().insert(HEADER, id.into_header());
        response
    }
}
