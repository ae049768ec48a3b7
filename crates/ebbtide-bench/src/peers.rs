//! Peers of the benchmark, and Ebbtide's own server: processes on loopback that end with their handles.

pub(crate) mod http;
pub(crate) mod postgres;
pub(crate) mod redis;
pub(crate) mod resp;
pub(crate) mod server;
