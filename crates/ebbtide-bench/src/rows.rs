//! Parts of a run. Each measures some rows and their peers.

mod approvals;
mod backlog;
mod calls;
mod cold;
mod families;
mod http;
mod latency;
pub(crate) mod memory;
mod open;
mod postgres;
mod reclaim;
mod records;
mod replays;
mod resp;
mod steady;
mod sweep;
mod watch;

use std::pin::Pin;

use anyhow::Result;

use crate::context::Context;
use crate::measured::Measured;

type Running<'a> = Pin<Box<dyn Future<Output = Result<()>> + 'a>>;

/// Part of a run.
pub(crate) struct Part {
    /// Name, as in `make bench ROW=…`.
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) run: for<'a> fn(&'a Context, &'a mut Measured) -> Running<'a>,
}

macro_rules! parts {
    ($($name:ident: $about:literal;)+) => {
        &[$(Part {
            name: stringify!($name),
            about: $about,
            run: |context, measured| Box::pin($name::run(context, measured)),
        },)+]
    };
}

/// All parts, in the order of execution and display.
pub(crate) const PARTS: &[Part] = parts! {
    replays: "durable replay checks on the embedded engines, beside Redis";
    records: "the rate of replay checks as the store grows to twenty million records, half of them cold, beside Redis";
    http: "durable replay checks over HTTP, beside Redis";
    resp: "the Redis protocol by redis-benchmark, beside Redis";
    latency: "how long calls take that come by a schedule, beside Redis";
    calls: "redeem, rotate, introspect, attributes, sessions, beside what one does with Redis";
    approvals: "approval and relationship checks beside a raw read; what scope costs";
    postgres: "replay checks and introspections on PostgreSQL, gathered, beside one statement per call";
    sweep: "a million expired among a million live: how fast, beside PostgreSQL, and what callers feel of it";
    reclaim: "one expired among two million; how long expired records are present";
    steady: "ten minutes at full rate with lives of 300 s: stalls, latency, memory";
    backlog: "a backlog of five million (PostgreSQL: one million) swept beside live traffic";
    families: "what is stored of a family of refresh tokens, by how often it was rotated";
    open: "opening a store of ten million records, beside an empty one; starting a server";
    memory: "resident memory with ten million records, beside Redis";
};

/// Number with commas.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
