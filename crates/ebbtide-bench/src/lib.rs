//! Measures Ebbtide beside its peers on one machine in one run, and shows what was measured.
//!
//! `make bench` runs every row and writes `bench/results/latest.json`, a table and charts. This crate is not published.

pub mod render;
pub mod results;
