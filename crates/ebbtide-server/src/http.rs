//! HTTP edge: connections, limits, authentication, request bodies and problems.

pub(crate) mod auth;
pub(crate) mod body;
pub mod catalogue;
pub(crate) mod edge;
mod fault;
pub mod limits;
pub(crate) mod patience;
pub(crate) mod problem;
pub mod quota;
pub(crate) mod request_id;
pub(crate) mod route;
mod serve;
mod strict;
pub(crate) mod table;
pub mod tls;
pub(crate) mod trace;
pub(crate) mod why;

pub use serve::{serve, serve_tls};
