//! The Redis protocol, asked by `redis-benchmark` itself, compared with Redis.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use ebbtide_bench::results::Bar;

use crate::context::Context;
use crate::cpu::{Meter, Whose};
use crate::load::rounds::{Contender, Round, alternate};
use crate::load::whole;
use crate::measured::{Draft, Measured};
use crate::peers::redis::{Log, Redis, benchmark};
use crate::peers::server::Server;

const CONNECTIONS: usize = 64;
const PIPELINES: [usize; 2] = [1, 16];

/// First guess at the commands per second.
const FIRST_GUESS: u64 = 20_000;

const NOTE: &str = "The same load generator asks both, over 64 connections on loopback: SET NX EX of a new key. Both answer \
     when it is on the disk; ours also seals the value and keeps the key as a digest.";

pub(super) async fn run(context: &Context, measured: &mut Measured) -> Result<()> {
    let redis = Redis::start(context, Log::Always).await?;
    let server = Arc::new(Server::start_with(context, true).await?);
    let time = context.round();
    let mut sides: Vec<Contender> =
        PIPELINES.iter().map(|pipeline| redis.set_nx_piped(CONNECTIONS, *pipeline, time)).collect();
    sides.extend(PIPELINES.iter().map(|pipeline| ours(&server, *pipeline, time)));
    let figures = alternate(context.rounds(), &mut sides).await?;
    let (peers, ours) = figures.split_at(PIPELINES.len());
    for ((pipeline, peer), ours) in PIPELINES.iter().zip(peers).zip(ours) {
        let draft = Draft {
            id: format!("resp-{pipeline}"),
            what: format!("SET NX EX by redis-benchmark, pipeline of {pipeline}"),
            unit: "per second",
            bar: Some(Bar::AtLeast(1.0)),
            note: NOTE.to_owned(),
        };
        measured.row(draft, ours.clone(), Some(peer.clone()));
    }
    Ok(())
}

fn ours(server: &Arc<Server>, pipeline: usize, time: Duration) -> Contender {
    let server = Arc::clone(server);
    let pace = Arc::new(AtomicU64::new(FIRST_GUESS));
    Contender::new(format!("ebbtide serve --resp, pipeline of {pipeline}"), move || {
        let (server, pace) = (Arc::clone(&server), Arc::clone(&pace));
        Box::pin(async move {
            let port = server.resp_port.context("the server does not speak the Redis protocol")?;
            // It counts calls, not time: use the rate of the last round.
            let calls = whole(pace.load(Ordering::Relaxed) as f64 * time.as_secs_f64());
            let meter = Meter::start(&[("client", Whose::Children), ("server", Whose::Server(server.pid))])?;
            let figure = benchmark(port, Some(&server.root_key), CONNECTIONS, pipeline, calls).await?;
            pace.store(whole(figure), Ordering::Relaxed);
            Ok(Round { figure, operations: calls, cpu: meter.stop()? })
        })
    })
}
