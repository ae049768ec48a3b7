//! The routes that need a key, each with the role that it needs and what it says of itself: a route cannot be put in
//! without them.

use ebbtide::stores::api_keys::Role;
use utoipa::openapi::path::PathItem;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};

use crate::app::App;
use crate::http::route::Verb;
use crate::openapi;

/// What a route needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Needs {
    /// The least role.
    pub(crate) role: Role,
    /// Whether it adds a record, and so is refused where a quota is reached.
    pub(crate) adds: bool,
}

/// Routes and what they need. They become a router only together with that, for the edge that asks for it.
#[derive(Default)]
pub(crate) struct Table(Vec<(Needs, UtoipaMethodRouter<App>)>);

impl Table {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Reads or checks, and changes nothing that anyone would miss.
    pub(crate) fn reader(self, routes: UtoipaMethodRouter<App>) -> Self {
        self.put(Role::Reader, false, routes)
    }

    /// Changes records, but adds none that was not there, or takes some away: a quota does not stand in its way.
    pub(crate) fn writer(self, routes: UtoipaMethodRouter<App>) -> Self {
        self.put(Role::Writer, false, routes)
    }

    /// Adds a record.
    pub(crate) fn creator(self, routes: UtoipaMethodRouter<App>) -> Self {
        self.put(Role::Writer, true, routes)
    }

    /// Manages.
    pub(crate) fn admin(self, routes: UtoipaMethodRouter<App>) -> Self {
        self.put(Role::Admin, false, routes)
    }

    fn put(mut self, role: Role, adds: bool, routes: UtoipaMethodRouter<App>) -> Self {
        self.0.push((Needs { role, adds }, routes));
        self
    }

    pub(crate) fn merge(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// The routes under `base` with their description, and what each of them needs. What is not among the needs has no
    /// [`Caller`](crate::http::auth::Caller), and so refuses everyone.
    pub(crate) fn under(self, base: &str) -> (OpenApiRouter<App>, Vec<(String, Verb, Needs)>) {
        let mut all = Vec::new();
        let router =
            self.0.into_iter().fold(OpenApiRouter::new(), |router, (needs, (schemas, mut paths, routes))| {
                let below = |(path, item)| (format!("{base}{path}"), item);
                paths.paths = std::mem::take(&mut paths.paths).into_iter().map(below).collect();
                for (path, item) in &mut paths.paths {
                    all.extend(verbs(item).map(|verb| (path.clone(), verb, needs)));
                    openapi::guard(item, needs);
                }
                router.routes((schemas, paths, routes))
            });
        (router, all)
    }
}

/// The methods that a path is described with.
fn verbs(item: &PathItem) -> impl Iterator<Item = Verb> + use<> {
    let methods = [
        (Verb::Get, item.get.is_some()),
        (Verb::Post, item.post.is_some()),
        (Verb::Put, item.put.is_some()),
        (Verb::Delete, item.delete.is_some()),
        (Verb::Patch, item.patch.is_some()),
    ];
    methods.into_iter().filter_map(|(verb, there)| there.then_some(verb))
}
