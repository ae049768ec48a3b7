//! Table of the routes that need a key, each with its role and its OpenAPI description: a route cannot be added
//! without them.

use axum::routing::MethodRouter;
use ebbtide::stores::api_keys::Role;
use utoipa::openapi::RefOr;
use utoipa::openapi::path::{Operation, Parameter, ParameterIn, PathItem};
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};

use crate::app::App;
use crate::http::body::Content;
use crate::http::hot::{Answers, Hot};
use crate::http::route::Verb;
use crate::http::work::Work;
use crate::openapi;

/// Needs of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Minimum role.
    pub(crate) role: Role,
    /// True if the route adds a record, and so is refused if a quota is reached.
    pub(crate) adds: bool,
}

/// Method of a route, and what it needs and takes.
#[derive(Debug)]
pub(crate) struct Guarded {
    pub(crate) template: String,
    pub(crate) verb: Verb,
    pub(crate) needs: Needs,
    /// Names of the query parameters.
    pub(crate) query: Vec<String>,
    pub(crate) work: Work,
    /// Handler, if the call is a frequent one.
    pub(crate) hot: Option<Hot>,
}

/// Routes and their needs. They become a router only together, for the edge that enforces the needs.
#[derive(Default)]
pub(crate) struct Table(Vec<TableRow>);

struct TableRow {
    needs: Needs,
    routes: UtoipaMethodRouter<App>,
    aliases: Vec<(Verb, Needs, Vec<String>)>,
    /// Cost of the route's own methods; by their parameters if it is not given.
    work: Option<Work>,
    hot: Option<(Verb, Hot)>,
}

impl Table {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Adds a route that only reads or checks.
    pub(crate) fn reader(self, routes: UtoipaMethodRouter<App>) -> Self {
        self.put(Role::Reader, false, routes)
    }

    /// Adds a route that changes or removes records but adds none: no quota applies.
    pub(crate) fn writer(self, routes: UtoipaMethodRouter<App>) -> Self {
        self.put(Role::Writer, false, routes)
    }

    /// Adds a route that adds a record.
    pub(crate) fn creator(self, routes: UtoipaMethodRouter<App>) -> Self {
        self.put(Role::Writer, true, routes)
    }

    /// Adds a route for administration.
    pub(crate) fn admin(self, routes: UtoipaMethodRouter<App>) -> Self {
        self.put(Role::Admin, false, routes)
    }

    fn put(mut self, role: Role, adds: bool, routes: UtoipaMethodRouter<App>) -> Self {
        self.0.push(TableRow {
            needs: Needs { role, adds },
            routes,
            aliases: Vec::new(),
            work: None,
            hot: None,
        });
        self
    }

    /// Adds a method to the last route that belongs to a more general one: a name in the path is also the name of a
    /// call. It is described with the general route.
    pub(crate) fn alias(
        mut self,
        (verb, role, adds): (Verb, Role, bool),
        query: &[&str],
        add: impl FnOnce(MethodRouter<App>) -> MethodRouter<App>,
    ) -> Self {
        if let Some(mut row) = self.0.pop() {
            let (schemas, paths, methods) = row.routes;
            row.routes = (schemas, paths, add(methods));
            row.aliases.push((
                verb,
                Needs { role, adds },
                query.iter().copied().map(str::to_owned).collect(),
            ));
            self.0.push(row);
        }
        self
    }

    /// Marks a method of the last route as a frequent call: the edge finds its handler by the path, and calls it without
    /// the layers and extractors of the router. It is the same handler behind the same edge, and reads its body by the
    /// same rules.
    pub(crate) fn hot<B: Content>(mut self, verb: Verb, handler: impl Answers<B>) -> Self {
        if let Some(row) = self.0.last_mut() {
            row.hot = Some((verb, Hot::new(handler)));
        }
        self
    }

    /// Marks the last route as one that reads any number of records. A route that takes a `limit` is one without it.
    pub(crate) fn walks(self) -> Self {
        self.costs(Work::Walk)
    }

    /// Marks the last route as one that reads any number of records for some requests: its handler decides.
    pub(crate) fn may_walk(self) -> Self {
        self.costs(Work::ByRequest)
    }

    fn costs(mut self, work: Work) -> Self {
        if let Some(row) = self.0.last_mut() {
            row.work = Some(work);
        }
        self
    }

    pub(crate) fn merge(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// Routes under `base` with their description, and the needs of each. A route without needs has no
    /// [`Caller`](crate::http::auth::Caller), and so refuses every request.
    pub(crate) fn under(self, base: &str) -> (OpenApiRouter<App>, Vec<Guarded>) {
        let mut all = Vec::new();
        let router = self.0.into_iter().fold(OpenApiRouter::new(), |router, row| {
            let TableRow { needs, routes, aliases, work, hot } = row;
            let (schemas, mut paths, routes) = routes;
            let below = |(path, item)| (format!("{base}{path}"), item);
            paths.paths = std::mem::take(&mut paths.paths).into_iter().map(below).collect();
            for (path, item) in &mut paths.paths {
                all.extend(verbs(item).map(|(verb, operation)| Guarded {
                    template: path.clone(),
                    verb,
                    needs,
                    work: work.unwrap_or_else(|| implied(&query(operation))),
                    query: query(operation),
                    hot: hot.as_ref().filter(|(of, _)| *of == verb).map(|(_, hot)| hot.clone()),
                }));
                all.extend(aliases.iter().map(|(verb, needs, query)| Guarded {
                    template: path.clone(),
                    verb: *verb,
                    needs: *needs,
                    work: implied(query),
                    query: query.clone(),
                    hot: None,
                }));
                openapi::guard(item, needs);
            }
            router.routes((schemas, paths, routes))
        });
        (router, all)
    }
}

/// Methods in the description of a path.
fn verbs(item: &PathItem) -> impl Iterator<Item = (Verb, &Operation)> {
    let methods = [
        (Verb::Get, &item.get),
        (Verb::Post, &item.post),
        (Verb::Put, &item.put),
        (Verb::Delete, &item.delete),
        (Verb::Patch, &item.patch),
    ];
    methods.into_iter().filter_map(|(verb, operation)| Some((verb, operation.as_ref()?)))
}

/// Cost of a call by its query parameters: those that list are walks.
fn implied(query: &[String]) -> Work {
    if query.iter().any(|name| name == "limit") { Work::Walk } else { Work::Plain }
}

/// Names of the query parameters of a call.
fn query(operation: &Operation) -> Vec<String> {
    let parameters = operation.parameters.iter().flatten();
    let name = |parameter: &RefOr<Parameter>| match parameter {
        RefOr::T(parameter) if parameter.parameter_in == ParameterIn::Query => Some(parameter.name.clone()),
        _ => None,
    };
    parameters.filter_map(name).collect()
}
