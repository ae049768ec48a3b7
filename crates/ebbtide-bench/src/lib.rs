//! Benchmarks of Ebbtide and its peers on one machine in one run, and reports of the results.
//!
//! `make bench` runs every row and writes `bench/results/latest.json`, a table and charts. This crate is not
//! published.

pub mod render;
pub mod results;
