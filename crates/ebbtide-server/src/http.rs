//! HTTP edge: connections, limits, authentication, request bodies and problems.

pub(crate) mod activity;
pub(crate) mod auth;
pub(crate) mod body;
pub mod catalogue;
mod connection;
pub mod cores;
pub(crate) mod edge;
mod fault;
pub(crate) mod hot;
mod incoming;
pub mod limits;
mod outgoing;
pub(crate) mod patience;
pub(crate) mod problem;
pub mod quota;
pub(crate) mod request_id;
pub(crate) mod route;
pub mod scoping;
pub(crate) mod serve;
pub(crate) mod share;
mod strict;
pub(crate) mod table;
pub mod tls;
pub(crate) mod trace;
pub(crate) mod why;
mod work;

pub use serve::{Serving, serve, serve_tls};
