//! Middleware around every request: its id, the limit on concurrent requests, metrics, and the access log.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::{Context, Poll};

use axum::extract::{DefaultBodyLimit, Request};
use axum::response::{IntoResponse as _, Response};
use ebbtide::layers::gated::Gate;
use ebbtide::{Clock as _, Stopwatch, SystemRng};
use http_body::Body as _;
use tokio::sync::Semaphore;
use tower::{Layer, Service};
use tracing::Instrument as _;

use crate::app::App;
use crate::http::auth::Caller;
use crate::http::limits::Limits;
use crate::http::problem::Problem;
use crate::http::request_id::{HEADER, RequestId};
use crate::http::route::{GOOD, Route, Routes, Verb};
use crate::http::trace::Trace;
use crate::http::why::{Cause, Refusal};

/// State of a server's edge, shared by its connections.
#[derive(Debug)]
pub(crate) struct Edge {
    pub(crate) limits: Limits,
    /// Closed while the node must not serve.
    pub(crate) gate: Gate,
    /// One permit for each request in flight; operators' requests need none.
    pub(crate) places: Semaphore,
    pub(crate) connections: AtomicUsize,
}

impl Edge {
    pub(crate) fn new(limits: Limits, gate: Gate) -> Self {
        let places = Semaphore::new(limits.requests.min(Semaphore::MAX_PERMITS));
        Self { limits, gate, places, connections: AtomicUsize::new(0) }
    }
}

/// Layer around the routes. It is inside of the routing, so that it knows the route.
#[derive(Debug, Clone)]
pub(crate) struct EdgeLayer {
    app: App,
    routes: Arc<Routes>,
}

impl EdgeLayer {
    pub(crate) fn new(app: App, routes: Routes) -> Self {
        Self { app, routes: Arc::new(routes) }
    }
}

impl<S> Layer<S> for EdgeLayer {
    type Service = EdgeService<S>;

    fn layer(&self, inner: S) -> EdgeService<S> {
        EdgeService { app: self.app.clone(), routes: Arc::clone(&self.routes), inner }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct EdgeService<S> {
    app: App,
    routes: Arc<Routes>,
    inner: S,
}

impl<S> Service<Request> for EdgeService<S>
where
    S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + 'static,
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
        let app = self.app.clone();
        let id = RequestId::of(request.headers(), &SystemRng);
        let (route, verb) = self.routes.of(&request);
        let mut asked = Asked { route, verb, caller: None };
        let trace = Trace::of(request.headers());
        // Call the instance that was polled ready; keep a clone.
        let copy = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, copy);
        Box::pin(async move {
            let span = tracing::debug_span!(
                "request",
                method = asked.verb.name(),
                route = asked.route.template(),
                request_id = id.as_str(),
                trace_id = trace.as_ref().map(Trace::id)
            );
            #[cfg(feature = "otel")]
            if let Some(trace) = &trace {
                trace.adopt(&span);
            }
            let place = (!asked.is_of_the_operator()).then(|| app.edge.places.try_acquire());
            let response = if matches!(place, Some(Err(_))) {
                Problem::overloaded().into_response()
            } else {
                asked.answer(&app, request, inner).instrument(span).await?
            };
            Ok(asked.answered(&app, response, id, trace.as_ref(), stopwatch))
        })
    }
}

/// Loggable parts of a request: never its path, which may name an owner, and never its query.
struct Asked {
    route: Arc<Route>,
    verb: Verb,
    /// Set once the caller is admitted.
    caller: Option<Caller>,
}

impl Asked {
    /// Returns true for an operator's request, which is answered even if the server is overloaded.
    fn is_of_the_operator(&self) -> bool {
        ["/healthz", "/readyz", "/metrics"].contains(&self.route.template())
    }

    /// Authenticates the caller and passes the request on to the route.
    async fn answer<S>(
        &mut self,
        app: &App,
        mut request: Request,
        mut inner: S,
    ) -> Result<Response, Infallible>
    where
        S: Service<Request, Response = Response, Error = Infallible>,
    {
        let body_bytes = app.edge.limits.body_bytes;
        // A body whose declared size is too large is refused before it is sent.
        if request.body().size_hint().lower() > body_bytes as u64 {
            return Ok(Problem::too_large().into_response());
        }
        DefaultBodyLimit::max(body_bytes).apply(&mut request);
        let Some(needs) = self.route.needs(self.verb) else { return inner.call(request).await };
        let caller = match app.admit(needs, request.headers()).await {
            Ok(caller) => caller,
            Err(problem) => return Ok(problem.into_response()),
        };
        let caller = self.caller.insert(caller);
        if let Err(problem) = self.route.check_query(self.verb, request.uri().query()) {
            return Ok(problem.into_response());
        }
        request.extensions_mut().insert(caller.clone());
        let response = inner.call(request).await?;
        if needs.adds && response.status().is_success() {
            app.quotas.added(&caller.scope);
        }
        Ok(response)
    }

    fn answered(
        self,
        app: &App,
        mut response: Response,
        id: RequestId,
        trace: Option<&Trace>,
        stopwatch: Stopwatch,
    ) -> Response {
        let (outcome, cause) = match response.extensions_mut().remove::<Problem>() {
            Some(mut problem) => {
                if problem.kind() == "unavailable" && app.edge.gate.is_closed() {
                    problem = problem.because(Cause::Clock);
                }
                let (outcome, cause) = (problem.kind(), problem.cause());
                app.refusals.keep(self.refusal(app, &problem, response.status().as_u16(), id.as_str()));
                *response.body_mut() = problem.body(id.as_str());
                (outcome, Some(cause.name()))
            }
            None if response.status().is_success() => (GOOD, None),
            None => ("other", None),
        };
        let elapsed = stopwatch.elapsed();
        self.route.count(self.verb, outcome, elapsed.as_secs_f64());
        tracing::info!(
            target: "ebbtide::request",
            request_id = id.as_str(),
            trace_id = trace.map(Trace::id),
            method = self.verb.name(),
            route = self.route.template(),
            status = response.status().as_u16(),
            outcome,
            cause,
            duration_us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX),
        );
        response.headers_mut().insert(HEADER, id.into_header());
        response
    }

    fn refusal(&self, app: &App, problem: &Problem, status: u16, request_id: &str) -> Refusal {
        Refusal {
            request_id: request_id.to_owned(),
            at: app.guard.now().as_millis(),
            verb: self.verb,
            route: Arc::clone(&self.route),
            status,
            kind: problem.kind(),
            cause: problem.cause(),
            detail: problem.detail().to_owned(),
            more: problem.members().clone(),
            caller: self.caller.as_ref().map(|caller| (caller.key_id(), caller.scope.clone())),
        }
    }
}
