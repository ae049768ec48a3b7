//! The routes that need a key, each with the role that it needs and what it says of itself: a route cannot be put in
//! without them.

use axum::middleware::from_fn_with_state;
use ebbtide::stores::api_keys::Role;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};

use crate::app::App;
use crate::auth::{Gate, admit};
use crate::openapi;

/// What a route needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Needs {
    /// The least role.
    pub(crate) role: Role,
    /// Whether it adds a record, and so is refused where a quota is reached.
    pub(crate) adds: bool,
}

/// Routes and what they need. They become a router only behind the gate that asks for it.
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

    /// The routes, each behind its gate, and their description.
    pub(crate) fn guarded(self, app: &App) -> OpenApiRouter<App> {
        self.0.into_iter().fold(OpenApiRouter::new(), |router, (needs, (schemas, mut paths, routes))| {
            paths.paths.values_mut().for_each(|item| openapi::guard(item, needs));
            let gate = Gate { app: app.clone(), needs };
            router.routes((schemas, paths, routes.route_layer(from_fn_with_state(gate, admit))))
        })
    }

    /// The description alone.
    pub(crate) fn described(self) -> utoipa::openapi::OpenApi {
        self.0
            .into_iter()
            .fold(OpenApiRouter::new(), |router, (needs, (schemas, mut paths, routes))| {
                paths.paths.values_mut().for_each(|item| openapi::guard(item, needs));
                router.routes((schemas, paths, routes))
            })
            .into_openapi()
    }
}
