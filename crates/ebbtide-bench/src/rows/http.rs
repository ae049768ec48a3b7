//! Durable replay checks over HTTP, compared with Redis.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ebbtide_bench::results::Bar;
use tokio::process::Command;

use crate::context::Context;
use crate::cpu::{Meter, Whose};
use crate::load::rounds::{Contender, Round, alternate};
use crate::load::whole;
use crate::measured::{Draft, Measured};
use crate::peers::redis::{Log, Redis};
use crate::peers::server::Server;

const CONNECTIONS: usize = 64;
const BATCH: u64 = 32;

const NOTE: &str = "Both answer when it is on the disk, and are asked through TCP on loopback, one request at a time on \
     each of 64 connections. The server on fjall reads JSON, checks a key's digest, role and scope, and writes a metric \
     for each request; Redis does none of that. The clients are wrk, with a script that makes up the proofs, and \
     redis-benchmark: both share the processors with what they measure.";

pub(super) async fn run(context: &Context, measured: &mut Measured) -> Result<()> {
    let redis = Redis::start(context, Log::Always).await?;
    let server = Arc::new(Server::start(context).await?);
    let mut sides = [
        redis.set_nx(CONNECTIONS, context.round()),
        wrk(&server, 1, context.round()),
        wrk(&server, BATCH, context.round()),
    ];
    let figures = alternate(context.rounds(), &mut sides).await?;
    let [peer, one, batch] = figures.try_into().ok().context("a figure for each side")?;
    for (id, what, figure, bar) in [
        ("http-one", "replay checks over HTTP, one at a time", one, 0.9),
        ("http-batch", "replay checks over HTTP, in batches of 32", batch, 3.0),
    ] {
        let draft = Draft {
            id: id.to_owned(),
            what: what.to_owned(),
            unit: "per second",
            bar: Some(Bar::AtLeast(bar)),
            note: NOTE.to_owned(),
        };
        if id == "http-one" {
            measured.processor_time(id, "a replay check over HTTP, in the server", &figure, "server", 30.0);
        }
        measured.row(draft, figure, Some(peer.clone()));
    }
    Ok(())
}

fn wrk(server: &Arc<Server>, items: u64, time: Duration) -> Contender {
    let server = Arc::clone(server);
    let name = if items == 1 { "one at a time".to_owned() } else { format!("batches of {items}") };
    Contender::new(format!("HTTP, fjall, {name}"), move || {
        let server = Arc::clone(&server);
        Box::pin(async move {
            let meter = Meter::start(&[("client", Whose::Children), ("server", Whose::Server(server.pid))])?;
            let requests = requests_per_second(&server, items, time).await?;
            let figure = requests * items as f64;
            let operations = whole(figure * time.as_secs_f64());
            Ok(Round { figure, operations, cpu: meter.stop()? })
        })
    })
}

async fn requests_per_second(server: &Server, items: u64, time: Duration) -> Result<f64> {
    let output = Command::new("wrk")
        .args(["--threads", "2", "--connections", &CONNECTIONS.to_string()])
        .args(["--duration", &format!("{}s", time.as_secs()), "--script", "bench/replays.lua"])
        .args([&format!("http://{}", server.address), "--", &server.root_key, &items.to_string()])
        .stderr(Stdio::inherit())
        .kill_on_drop(true)
        .output()
        .await
        .context("wrk does not start; scripts/bench installs it")?;
    let text = String::from_utf8(output.stdout)?;
    let told = text.lines().find_map(|line| line.strip_prefix("rate "));
    let (rate, failed) = told.and_then(|told| told.split_once(" failed ")).context("wrk names no rate")?;
    ensure!(output.status.success() && failed == "0", "{failed} requests failed:\n{text}");
    Ok(rate.parse()?)
}
