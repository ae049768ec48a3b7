//! Backlog that the sweeper works off beside live traffic: its duration, and the latency of callers.

use std::sync::Arc;

use anyhow::{Result, ensure};
use ebbtide::ops::sweeper::Share;
use ebbtide::{Admin, Clock as _, SystemClock};
use ebbtide_bench::results::Figure;

use super::grouped;
use super::watch::{sweeper, watchers};
use crate::context::{Context, embedded};
use crate::cpu::{Meter, Whose};
use crate::measured::{Draft, Measured, plain};
use crate::peers::postgres::{fresh, pid};
use crate::records::{fill, in_seconds};

pub(super) async fn run(context: &Context, measured: &mut Measured) -> Result<()> {
    let folder = context.folder("backlog")?;
    let store = embedded("fjall", folder.path()).await?;
    backlog(context, measured, store, context.scaled(5_000_000), &[("both", Whose::Ours)]).await?;
    let (store, client) = fresh(context.postgres()?).await?;
    let who = [("client", Whose::Ours), ("server", Whose::Server(pid(&client).await?))];
    backlog(context, measured, store, context.scaled(1_000_000), &who).await
}

/// Writes `expired` expired records, and a tenth as many live ones.
async fn backlog(
    context: &Context,
    measured: &mut Measured,
    store: Arc<dyn Admin>,
    expired: u64,
    who: &[(&'static str, Whose)],
) -> Result<()> {
    let engine = store.info().engine;
    let late = in_seconds(SystemClock.now(), 86_400)?;
    fill(&store, expired / 10, |_| late).await?;
    let mut watchers = watchers(context, &store).await?;
    for (id, name, share) in
        [("quarter", "a quarter of the time", Share::QUARTER), ("whole", "all of the time", Share::WHOLE)]
    {
        eprintln!("  filling {engine} with {} records that expire", grouped(expired));
        let now = SystemClock.now();
        let soon = in_seconds(now, 60)?;
        fill(&store, expired, |_| soon).await?;
        let meter = Meter::start(who)?;
        let sweep = sweeper(Arc::clone(&store), share, in_seconds(now, 300)?);
        let watched = watchers.watch(context, who, sweep).await?;
        ensure!(watched.removed >= expired, "{} of {expired} were swept", watched.removed);
        let [before, during, after] = watched.p99()?;
        let millions = (watched.calls() + watched.removed) as f64 / 1e6;
        let cpu = meter.stop()?.into_iter().map(|(who, seconds)| (who, seconds / millions)).collect();
        let ours = |figure| plain(format!("{engine}, {name}"), vec![figure]);
        let note = format!(
            "One sweep by the server's sweeper, which takes {name}; it took {:.1} s with its rests. After filling, it is \
             waited until nothing is compacted any more and all is on the disk. Replay checks come by a schedule, at a \
             quarter of the most that 64 callers do; their p99 was {before:.2} ms before, {during:.2} ms \
             during and {after:.2} ms after. The processors' time is for a million calls and records removed together.",
            watched.seconds()
        );
        let draft = |id: String, what: String, unit| Draft { id, what, unit, bar: None, note: note.clone() };
        let what = format!("{} expired on {engine}, swept in {name}", grouped(expired));
        let rate = watched.removed as f64 / watched.seconds();
        let row = draft(format!("backlog-{engine}-{id}-rate"), what.clone(), "records per second");
        measured.row(row, Figure { cpu, ..ours(rate) }, None);
        let row =
            draft(format!("backlog-{engine}-{id}-p99"), format!("p99 of replay checks beside {what}"), "ms");
        let calm = plain("the same callers before it", vec![before]);
        measured.row(row, ours(during), Some(calm));
    }
    Ok(())
}
