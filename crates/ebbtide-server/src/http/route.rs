//! Metadata of routes: the needs of each method, and its metrics.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use axum::extract::{MatchedPath, Request};
use axum::http::Method;
use metrics::{Counter, Histogram, SharedString, counter, histogram};

use crate::http::auth::call_of;
use crate::http::fault;
use crate::http::hot::Hot;
use crate::http::problem::Problem;
use crate::http::table::{Guarded, Needs};
use crate::http::work::Work;

/// HTTP method for metrics. An unknown one is [`Verb::Other`], so that callers cannot create label values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    Post,
    Put,
    Delete,
    Head,
    Options,
    Patch,
    Other,
}

impl Verb {
    const COUNT: usize = Self::Other as usize + 1;

    pub(crate) fn of(method: &Method) -> Self {
        match *method {
            Method::GET => Self::Get,
            Method::POST => Self::Post,
            Method::PUT => Self::Put,
            Method::DELETE => Self::Delete,
            Method::HEAD => Self::Head,
            Method::OPTIONS => Self::Options,
            Method::PATCH => Self::Patch,
            _ => Self::Other,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
            Self::Head => "HEAD",
            Self::Options => "OPTIONS",
            Self::Patch => "PATCH",
            Self::Other => "OTHER",
        }
    }
}

/// Route by its template, such as `/v1/sessions/{handle}`.
#[derive(Debug)]
pub(crate) struct Route {
    template: Arc<str>,
    /// Path as the `allow` of a key names it.
    call: String,
    needs: [Option<Needs>; Verb::COUNT],
    /// Query parameters of each method that needs a key.
    query: [Vec<String>; Verb::COUNT],
    work: [Work; Verb::COUNT],
    meters: [Meter; Verb::COUNT],
    hot: [Option<Hot>; Verb::COUNT],
    unscoped: OnceLock<Counter>,
}

/// Metrics of one method, registered with its first answer.
#[derive(Default)]
struct Meter {
    seconds: OnceLock<Histogram>,
    good: OnceLock<Counter>,
}

impl std::fmt::Debug for Meter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Meter")
    }
}

/// Outcome label of a successful answer.
pub(crate) const GOOD: &str = "ok";

impl Route {
    pub(crate) fn new(template: &str) -> Self {
        Self {
            template: template.into(),
            call: call_of(template),
            needs: Default::default(),
            query: Default::default(),
            work: [Work::Plain; Verb::COUNT],
            meters: Default::default(),
            hot: Default::default(),
            unscoped: OnceLock::new(),
        }
    }

    pub(crate) fn call(&self) -> &str {
        &self.call
    }

    pub(crate) fn template(&self) -> &str {
        &self.template
    }

    /// Needs of a call; `None` if it needs no key, or if the route has no such method.
    pub(crate) fn needs(&self, verb: Verb) -> Option<Needs> {
        // HEAD needs the same role as GET.
        let verb = if verb == Verb::Head { Verb::Get } else { verb };
        self.needs[verb as usize]
    }

    /// Cost of a call.
    pub(crate) fn work(&self, verb: Verb) -> Work {
        let verb = if verb == Verb::Head { Verb::Get } else { verb };
        self.work[verb as usize]
    }

    /// Refuses a query parameter that the call does not take.
    pub(crate) fn check_query(&self, verb: Verb, query: Option<&str>) -> Result<(), Problem> {
        let Some(query) = query.filter(|query| !query.is_empty()) else { return Ok(()) };
        let verb = if verb == Verb::Head { Verb::Get } else { verb };
        let allowed = &self.query[verb as usize];
        let mut names = form_urlencoded::parse(query.as_bytes()).map(|(name, _)| name);
        match names.find(|name| !allowed.iter().any(|allowed| allowed == name)) {
            Some(unknown) => Err(fault::unknown_parameter(&unknown, allowed)),
            None => Ok(()),
        }
    }

    /// Counts a request that names no scope.
    pub(crate) fn count_unscoped(&self) {
        let counter = || counter!("ebbtide_unscoped_requests_total", "route" => SharedString::from(Arc::clone(&self.template)));
        self.unscoped.get_or_init(counter).increment(1);
    }

    /// Counts an answer.
    pub(crate) fn count(&self, verb: Verb, outcome: &'static str, seconds: f64) {
        let label = || SharedString::from(Arc::clone(&self.template));
        let meter = &self.meters[verb as usize];
        let histogram =
            || histogram!("ebbtide_http_request_seconds", "method" => verb.name(), "route" => label());
        meter.seconds.get_or_init(histogram).record(seconds);
        let counter = || {
            counter!("ebbtide_http_requests_total",
                "method" => verb.name(), "route" => label(), "outcome" => outcome)
        };
        if outcome == GOOD {
            meter.good.get_or_init(counter).increment(1);
        } else {
            counter().increment(1);
        }
    }
}

/// Routes by their templates.
#[derive(Debug)]
pub(crate) struct Routes {
    known: HashMap<String, Arc<Route>>,
    /// Route of requests that match none.
    none: Arc<Route>,
}

impl Routes {
    pub(crate) fn new(guarded: Vec<Guarded>, open: impl IntoIterator<Item = String>) -> Self {
        let mut routes = HashMap::<String, Route>::new();
        for template in open {
            routes.insert(template.clone(), Route::new(&template));
        }
        for Guarded { template, verb, needs, query, work, hot } in guarded {
            let route = routes.entry(template).or_insert_with_key(|template| Route::new(template));
            route.needs[verb as usize] = Some(needs);
            route.work[verb as usize] = work;
            route.query[verb as usize] = query;
            // A parameter is not part of the path, which must be found as it is.
            route.hot[verb as usize] = hot.filter(|_| !route.template.contains('{'));
        }
        let known = routes.into_iter().map(|(template, route)| (template, Arc::new(route))).collect();
        Self { known, none: Arc::new(Route::new("none")) }
    }

    #[cfg(test)]
    pub(crate) fn none(&self) -> Arc<Route> {
        Arc::clone(&self.none)
    }

    /// Route and handler of a frequent call.
    pub(crate) fn hot<B>(&self, request: &axum::http::Request<B>) -> Option<(&Arc<Route>, Verb, &Hot)> {
        let (route, verb) = (self.known.get(request.uri().path())?, Verb::of(request.method()));
        Some((route, verb, route.hot[verb as usize].as_ref()?))
    }

    /// Route and method of a request.
    pub(crate) fn of(&self, request: &Request) -> (Arc<Route>, Verb) {
        let template = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
        (Arc::clone(self.known.get(template).unwrap_or(&self.none)), Verb::of(request.method()))
    }
}
