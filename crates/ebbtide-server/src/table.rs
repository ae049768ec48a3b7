//! The routes that need a key, each with the role that it needs: a route cannot be put in without one.

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::MethodRouter;
use ebbtide::stores::api_keys::Role;

use crate::app::App;
use crate::auth::{Gate, admit};

/// What a route needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Needs {
    /// The least role.
    pub(crate) role: Role,
    /// Whether it adds a record, and so is refused where a quota is reached.
    pub(crate) adds: bool,
}

/// Routes and what they need. They become a router only behind the gate that asks for it.
#[derive(Debug, Default)]
pub(crate) struct Table(Vec<(Needs, &'static str, MethodRouter<App>)>);

impl Table {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Reads or checks, and changes nothing that anyone would miss.
    pub(crate) fn reader(self, path: &'static str, routes: MethodRouter<App>) -> Self {
        self.put(Role::Reader, false, path, routes)
    }

    /// Changes records, but adds none that was not there, or takes some away: a quota does not stand in its way.
    pub(crate) fn writer(self, path: &'static str, routes: MethodRouter<App>) -> Self {
        self.put(Role::Writer, false, path, routes)
    }

    /// Adds a record.
    pub(crate) fn creator(self, path: &'static str, routes: MethodRouter<App>) -> Self {
        self.put(Role::Writer, true, path, routes)
    }

    /// Manages.
    pub(crate) fn admin(self, path: &'static str, routes: MethodRouter<App>) -> Self {
        self.put(Role::Admin, false, path, routes)
    }

    fn put(mut self, role: Role, adds: bool, path: &'static str, routes: MethodRouter<App>) -> Self {
        self.0.push((Needs { role, adds }, path, routes));
        self
    }

    pub(crate) fn merge(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// The routes, each behind its gate.
    pub(crate) fn guarded(self, app: &App) -> Router<App> {
        self.0.into_iter().fold(Router::new(), |router, (needs, path, routes)| {
            let gate = Gate { app: app.clone(), needs };
            router.route(path, routes.route_layer(from_fn_with_state(gate, admit)))
        })
    }
}
