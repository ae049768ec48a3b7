//! Middleware around every request: its id, its bounds, metrics, and the access log.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, Version, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use ebbtide::stores::api_keys::Role;
use ebbtide::stores::shared::refusal::RefusalCause;
use ebbtide::{Stopwatch, SystemRng};
use http_body::Body as _;
use tokio::sync::{Semaphore, watch};
use tokio::time::sleep;
use tower::{Layer, Service};
use tracing::Instrument as _;

use crate::app::App;
use crate::http::activity::Connections;
use crate::http::auth::Caller;
use crate::http::body::refuse_dots;
use crate::http::hot::Admitted;
use crate::http::incoming::{self, Read};
use crate::http::limits::{Limits, Places};
use crate::http::outgoing::{Guard, SMALL};
use crate::http::problem::Problem;
use crate::http::quota::Added;
use crate::http::request_id::{HEADER, RequestId};
use crate::http::route::{GOOD, Route, Routes, Verb};
use crate::http::scoping::{Scoping, WARNING};
use crate::http::share::{Share, Shares};
use crate::http::table::Needs;
use crate::http::trace::Trace;
use crate::http::why::{Cause, Refusal};
use crate::http::work::{Walker, Work};

/// Large answers of open routes that are sent at the same time.
const OPEN_PLACES: usize = 32;

/// Lookups of keys that this node has not seen lately, at the same time. A flood of invented keys takes no more.
const NEW_KEYS: usize = 64;

/// State of a server's edge, shared by its connections.
#[derive(Debug)]
pub(crate) struct Edge {
    pub(crate) limits: Limits,
    /// One for each request in a route that needs a key.
    pub(crate) places: Places,
    /// One permit for each large answer of an open route, until it is sent.
    open: Arc<Semaphore>,
    /// One permit for each lookup of a key that is not in the cache.
    pub(crate) new_keys: Semaphore,
    pub(crate) connections: AtomicUsize,
    pub(crate) open_connections: Connections,
    pub(crate) in_flight: AtomicUsize,
    /// Set at shutdown: not ready, and connections are not kept alive.
    pub(crate) draining: AtomicBool,
    /// Ends the drain delay.
    pub(crate) skip_drain_delay: watch::Sender<bool>,
    /// Share of the root key.
    pub(crate) root: Arc<Share>,
    pub(crate) shares: Shares,
    pub(crate) walker: Walker,
}

impl Edge {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            places: Places::new(limits.requests),
            open: Arc::new(Semaphore::new(OPEN_PLACES)),
            new_keys: Semaphore::new(NEW_KEYS),
            connections: AtomicUsize::new(0),
            open_connections: Connections::default(),
            in_flight: AtomicUsize::new(0),
            draining: AtomicBool::new(false),
            skip_drain_delay: watch::Sender::new(false),
            root: Share::new(limits),
            shares: Shares::default(),
            walker: Walker::default(),
        }
    }

    /// Waits until a listener that is to stop accepts no more connections.
    pub(crate) async fn drain_delay(&self) {
        let mut skip = self.skip_drain_delay.subscribe();
        tokio::select! {
            () = sleep(self.limits.drain_delay) => {}
            _ = skip.wait_for(|skip| *skip) => {}
        }
    }
}

/// Request in flight, for the metric.
struct InFlight<'a>(&'a Edge);

impl<'a> InFlight<'a> {
    fn begin(edge: &'a Edge) -> Self {
        edge.in_flight.fetch_add(1, Ordering::Relaxed);
        Self(edge)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Layer around the routes. It is inside of the routing, so that it knows the route.
#[derive(Debug, Clone)]
pub(crate) struct EdgeLayer {
    app: App,
    routes: Arc<Routes>,
}

impl EdgeLayer {
    pub(crate) fn new(app: App, routes: Arc<Routes>) -> Self {
        Self { app, routes }
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
        let (route, verb) = self.routes.of(&request);
        // Call the instance that was polled ready; keep a clone.
        let copy = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, copy);
        let call = move |admitted: Admitted| {
            let answer = inner.call(admitted.into_request());
            async move { answer.await.unwrap_or_else(|never| match never {}) }
        };
        let app = self.app.clone();
        Box::pin(async move { Ok(answer(&app, &route, verb, request, call).await) })
    }
}

/// Routes of a listener, and their edge.
#[derive(Debug, Clone)]
pub(crate) struct Front {
    pub(crate) app: App,
    pub(crate) routes: Arc<Routes>,
    /// All routes, within an [`EdgeLayer`].
    pub(crate) router: Router,
}

impl Front {
    /// Answers a request. Frequent calls are found by their path; the others are looked for by the router.
    pub(crate) async fn answer(&self, request: Request) -> Response {
        let Some((route, verb, hot)) = self.routes.hot(&request) else {
            let answer = Box::pin(self.router.clone().call(request));
            return answer.await.unwrap_or_else(|never| match never {});
        };
        let call = |admitted| hot.call(admitted, self.app.clone());
        answer(&self.app, route, verb, request, call).await
    }
}

/// Answers a request of a route with `call`, within the bounds of its caller.
async fn answer<F>(
    app: &App,
    route: &Arc<Route>,
    verb: Verb,
    request: Request,
    call: impl FnOnce(Admitted) -> F + Send,
) -> Response
where
    F: Future<Output = Response> + Send + 'static,
{
    let stopwatch = Stopwatch::start();
    let id = RequestId::of(request.headers(), &SystemRng);
    let may_keep_alive = request.version() <= Version::HTTP_11;
    let mut asked = LoggedRequest { route, verb, caller: None };
    let trace = Trace::of(request.headers());
    let _in_flight = InFlight::begin(&app.edge);
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
    let mut response = match asked.answer(app, request, call).instrument(span).await {
        Ok(response) => response,
        Err((problem, body)) => {
            let mut response = problem.into_response();
            // An unread body would be taken for the next request, or reset the connection.
            if may_keep_alive && !incoming::drain(body).await {
                close(&mut response);
            }
            response
        }
    };
    if may_keep_alive && app.edge.draining.load(Ordering::Relaxed) {
        close(&mut response);
    }
    asked.answered(app, response, id, trace.as_ref(), stopwatch)
}

fn close(response: &mut Response) {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
}

/// Loggable parts of a request: never its path, which may name an owner, and never its query.
struct LoggedRequest<'a> {
    route: &'a Arc<Route>,
    verb: Verb,
    /// Set once the caller is admitted.
    caller: Option<Caller>,
}

/// Refusal, with the body if it is not read.
type Refused = (Problem, Body);

impl LoggedRequest<'_> {
    /// Passes the request on to the route, within the bounds of its caller.
    async fn answer<F>(
        &mut self,
        app: &App,
        request: Request,
        call: impl FnOnce(Admitted) -> F + Send,
    ) -> Result<Response, Refused>
    where
        F: Future<Output = Response> + Send + 'static,
    {
        // A body whose declared size is too large is refused before it is sent.
        if request.body().size_hint().lower() > app.edge.limits.body_bytes as u64 {
            return Err((Problem::too_large(), request.into_body()));
        }
        match self.route.needs(self.verb) {
            Some(needs) => self.answer_caller(app, needs, request, call).await,
            None => self.answer_anyone(app, request, call).await,
        }
    }

    /// Answers a request that needs no key, or that no route takes.
    async fn answer_anyone<F>(
        &self,
        app: &App,
        request: Request,
        call: impl FnOnce(Admitted) -> F + Send,
    ) -> Result<Response, Refused>
    where
        F: Future<Output = Response> + Send + 'static,
    {
        let (parts, body) = request.into_parts();
        // Health and readiness are small, and always answered.
        let is_small = !["/metrics", "/openapi.json", "/docs"].contains(&self.route.template());
        let place = if is_small { None } else { Some(Arc::clone(&app.edge.open).try_acquire_owned()) };
        if let Some(Err(_)) = place {
            return Err((Problem::overloaded(), body));
        }
        if let Err(body) = incoming::skip(body).await {
            return Err((Problem::too_large(), body));
        }
        let mut response = call(Admitted { parts, bytes: Bytes::new(), caller: None }).await;
        if let Some(Ok(place)) = place {
            response.extensions_mut().insert(Guard::Place(Arc::new(place)));
        }
        Ok(response)
    }

    /// Authenticates the caller, reads the body, takes a place, and answers.
    async fn answer_caller<F>(
        &mut self,
        app: &App,
        needs: Needs,
        request: Request,
        call: impl FnOnce(Admitted) -> F + Send,
    ) -> Result<Response, Refused>
    where
        F: Future<Output = Response> + Send + 'static,
    {
        let (parts, body) = request.into_parts();
        let caller = match app.admit(needs, self.route, &parts.headers).await {
            // Owned by this request alone: a clone is cheap, and no other thread sees it.
            Ok(caller) => self.caller.insert(caller).clone(),
            Err(problem) => return Err((problem, body)),
        };
        let checked =
            refuse_dots(parts.uri.path()).and_then(|()| self.route.check_query(self.verb, parts.uri.query()));
        if let Err(problem) = checked {
            return Err((problem, body));
        }
        let share = &caller.share;
        // The body first: a client that is slow to send it holds no place.
        let Read { bytes, held: _held } = incoming::read(body, app.edge.limits.body_bytes, share).await?;
        let refused = |problem| (problem, Body::empty());
        // Answers that nobody reads count for the next request too, which may have no body.
        share.check_bytes().map_err(refused)?;
        let own = share.place().map_err(refused)?;
        let held_back = parts.version == Version::HTTP_2;
        let _place = app.edge.places.take().ok_or_else(|| refused(Problem::overloaded()))?;
        let admitted = Admitted { parts, bytes, caller: Some(caller.clone()) };
        let answer = caller.author().run(RefusalCause::watch(call(admitted)));
        let (mut response, noted) = match self.route.work(self.verb) {
            Work::Plain | Work::ByRequest => answer.await,
            Work::Walk => {
                let _turn = share.heavy().await.map_err(refused)?;
                app.edge.walker.run(answer).await.map_err(refused)?
            }
        };
        if let Some(noted) = noted
            && let Some(problem) = response.extensions_mut().get_mut::<Problem>()
        {
            problem.note(noted);
        }
        if caller.warned {
            response.headers_mut().insert(WARNING, Scoping::warning());
        }
        response.headers_mut().entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
        if needs.adds && response.status().is_success() {
            let added = response.extensions_mut().remove::<Added>().map_or(1, |Added(count)| count);
            app.quotas.added(&caller.scope, added);
        }
        let size = response.body().size_hint().lower();
        // Over HTTP/2 a client can hold back any number of answers.
        if size > SMALL || held_back {
            // An answer that changes nothing is left out if it is too much; any other has to be given.
            let may_refuse = needs.role == Role::Reader;
            let size = usize::try_from(size).unwrap_or(usize::MAX);
            let bytes = share.answer(size, may_refuse).map_err(refused)?;
            response.extensions_mut().insert(Guard::Share(Arc::new((own, bytes))));
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
                let is_of_engine = problem.kind() == "unavailable" && problem.cause() == Cause::Engine;
                if is_of_engine && app.now().is_err() {
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
        // Naming the key and the scope allocates.
        let caller = tracing::enabled!(target: "ebbtide::request", tracing::Level::DEBUG)
            .then(|| self.caller.as_ref().map(|caller| (caller.key_id(), caller.scope.to_string())))
            .flatten();
        tracing::debug!(
            target: "ebbtide::request",
            request_id = id.as_str(),
            trace_id = trace.map(Trace::id),
            method = self.verb.name(),
            route = self.route.template(),
            status = response.status().as_u16(),
            outcome,
            cause,
            key_id = caller.as_ref().map(|(key_id, _)| key_id),
            scope = caller.as_ref().map(|(_, scope)| scope),
            duration_us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX),
        );
        response.headers_mut().insert(HEADER, id.into_header());
        response
    }

    fn refusal(&self, app: &App, problem: &Problem, status: u16, request_id: &str) -> Refusal {
        Refusal {
            request_id: request_id.to_owned(),
            at: app.now().map_or(0, |now| now.latest().as_millis()),
            verb: self.verb,
            route: Arc::clone(self.route),
            status,
            kind: problem.kind(),
            cause: problem.cause(),
            detail: problem.detail().to_owned(),
            more: problem.members().clone(),
            caller: self.caller.as_ref().map(|caller| (caller.key_id(), caller.scope.clone())),
            grant: problem.grant(),
        }
    }
}
