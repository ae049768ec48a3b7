//! Frequent calls, which the edge hands to their handlers without the extractors of the router.

use std::pin::Pin;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;

use crate::app::App;
use crate::http::auth::Caller;
use crate::http::body::Content;
use crate::http::problem::Problem;

/// Request that the edge has admitted, with its whole body.
pub(crate) struct Admitted {
    pub(crate) parts: Parts,
    pub(crate) bytes: Bytes,
    /// None for a route that needs no key.
    pub(crate) caller: Option<Caller>,
}

impl Admitted {
    /// Request for the router.
    pub(crate) fn into_request(self) -> Request {
        let Self { parts, bytes, caller } = self;
        let mut request = Request::from_parts(parts, Body::from(bytes));
        if let Some(caller) = caller {
            // It is bounded already.
            DefaultBodyLimit::disable().apply(&mut request);
            request.extensions_mut().insert(caller);
        }
        request
    }
}

/// Handler of a frequent call.
#[derive(Clone)]
pub(crate) struct Hot(Arc<HotHandler>);

/// Answer of a [`Hot`] handler.
pub(crate) type Answering = Pin<Box<dyn Future<Output = Response> + Send>>;

type HotHandler = dyn Fn(Admitted, App) -> Answering + Send + Sync;

/// Function that answers a body in one form. It is also a handler of the router.
pub(crate) trait Answers<B>: Clone + Send + Sync + 'static {
    fn answer(&self, app: App, caller: Caller, body: B) -> impl Future<Output = Response> + Send + 'static;
}

impl<H, F, R, B> Answers<B> for H
where
    H: Fn(State<App>, Caller, B) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = R> + Send + 'static,
    R: IntoResponse,
{
    fn answer(&self, app: App, caller: Caller, body: B) -> impl Future<Output = Response> + Send + 'static {
        let answer = self(State(app), caller, body);
        async move { answer.await.into_response() }
    }
}

impl Hot {
    pub(crate) fn new<B: Content>(handler: impl Answers<B>) -> Self {
        Self(Arc::new(move |Admitted { parts, bytes, caller }, app| {
            let body = B::check(&parts.headers).and_then(|()| B::read(&bytes));
            match (body, caller) {
                (Ok(body), Some(caller)) => Box::pin(handler.answer(app, caller, body)),
                (Err(problem), _) => Box::pin(std::future::ready(problem.into_response())),
                (Ok(_), None) => Box::pin(std::future::ready(Problem::unauthorized().into_response())),
            }
        }))
    }

    pub(crate) fn call(&self, admitted: Admitted, app: App) -> Answering {
        (self.0)(admitted, app)
    }
}

impl std::fmt::Debug for Hot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hot")
    }
}
