//! HTTP edge: connections, limits, authentication, request bodies and problems.

pub(crate) mod auth;
pub(crate) mod body;
pub(crate) mod edge;
pub mod limits;
pub(crate) mod patience;
pub(crate) mod problem;
pub mod quota;
pub(crate) mod request_id;
pub(crate) mod route;
pub mod scoping;
mod serve;
pub(crate) mod table;
pub mod tls;
pub(crate) mod trace;

pub use serve::{serve, serve_tls};
