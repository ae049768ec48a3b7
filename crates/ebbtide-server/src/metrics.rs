//! Metrics in Prometheus format.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use ebbtide::stores::attributes::{Attributes, Usage};
use ebbtide::timekeeping::{ClockState, ClockStatus};
use ebbtide::{Kind, Scope, Stopwatch};
use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::app::App;

/// Maximum age of the store statistics in a scrape.
const STATS_AGE: Duration = Duration::from_secs(5);

/// Maximum time that a scrape waits for the store statistics; after that, it shows the previous ones.
const STATS_PATIENCE: Duration = Duration::from_secs(5);

/// Recorder of the process's metrics, created and installed at the first call; earlier metrics are lost.
pub fn recorder() -> &'static PrometheusHandle {
    static RECORDER: OnceLock<PrometheusHandle> = OnceLock::new();
    RECORDER.get_or_init(|| {
        let builder = PrometheusBuilder::new();
        let seconds = [
            0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
            5.0, 10.0,
        ];
        let sizes = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1_024.0, 2_048.0];
        let recorder = builder
            .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &seconds)
            .and_then(|builder| {
                builder.set_buckets_for_metric(Matcher::Suffix("_group_size".to_owned()), &sizes)
            })
            .expect("there are buckets")
            .build_recorder();
        let handle = recorder.handle();
        if metrics::set_global_recorder(recorder).is_err() {
            tracing::warn!("another metrics recorder is installed; /metrics is empty");
        }
        describe();
        begin();
        handle
    })
}

fn describe() {
    describe_counter!("ebbtide_http_requests_total", "Requests, by method, route and outcome.");
    describe_histogram!("ebbtide_http_request_seconds", Unit::Seconds, "Time to answer a request.");
    describe_gauge!(
        "ebbtide_http_requests_in_flight",
        "Requests in flight, with those whose body has not arrived."
    );
    describe_gauge!("ebbtide_connections", "Open connections.");
    describe_gauge!(
        "ebbtide_bucket_records",
        "Attributes of owners that begin with an underscore, by scope, owner and bucket; counted every hour."
    );
    describe_counter!("ebbtide_connections_refused_total", "Connections beyond the limit.");
    describe_counter!("ebbtide_connections_evicted_total", "Idle connections closed for a new one.");
    describe_counter!("ebbtide_connections_cut_total", "Connections whose client did not read its answers.");
    describe_counter!(
        "ebbtide_resp_commands_total",
        "Commands of the Redis protocol, by command and outcome."
    );
    describe_histogram!(
        "ebbtide_resp_command_seconds",
        Unit::Seconds,
        "Time of a command of the Redis protocol."
    );
    describe_counter!("ebbtide_resp_protocol_errors_total", "Malformed requests of the Redis protocol.");
    describe_counter!("ebbtide_backend_calls_total", "Calls to the engine, by operation, kind and outcome.");
    describe_histogram!("ebbtide_backend_seconds", Unit::Seconds, "Time of a call to the engine.");
    describe_counter!("ebbtide_records_created_total", "Records written anew, by kind.");
    describe_counter!("ebbtide_records_taken_total", "Records taken, by kind.");
    describe_counter!("ebbtide_records_refused_total", "Conditions that did not hold, by kind.");
    describe_counter!("ebbtide_swept_total", "Expired records that were removed, by kind.");
    describe_counter!("ebbtide_sweeps_total", "Sweeps, by outcome.");
    describe_histogram!("ebbtide_sweep_seconds", Unit::Seconds, "Time of a sweep.");
    describe_gauge!(
        "ebbtide_last_sweep_timestamp_seconds",
        Unit::Seconds,
        "Time of the last complete sweep."
    );
    describe_gauge!("ebbtide_sweep_silent", "1 if the last sweep is too long ago.");
    describe_gauge!("ebbtide_sweep_stuck", "1 if sweeps remove nothing while overdue records grow older.");
    describe_gauge!("ebbtide_live_records", "Live records, by kind.");
    describe_gauge!("ebbtide_overdue_records", "Expired records that are still stored, by kind.");
    describe_gauge!(
        "ebbtide_oldest_overdue_seconds",
        Unit::Seconds,
        "Time since the earliest expiry of a stored record, by kind."
    );
    describe_histogram!("ebbtide_committer_group_size", "Commits that were written together.");
    describe_gauge!("ebbtide_pool_connections", "Connections to the engine, by state.");
    describe_gauge!(
        "ebbtide_clock_difference_seconds",
        Unit::Seconds,
        "Wall clock minus the store's own time."
    );
    describe_gauge!(
        "ebbtide_clock_engine_difference_seconds",
        Unit::Seconds,
        "Clock of a shared engine minus the store's own time."
    );
    describe_gauge!(
        "ebbtide_clock_width_seconds",
        Unit::Seconds,
        "Width of the interval that the time is in."
    );
    describe_gauge!(
        "ebbtide_clock_state",
        "1 for the state of the clock: normal, behind, held, doubt, not-ready."
    );
    describe_gauge!("ebbtide_gate_closed", "1 while every call is refused because the clock is wrong.");
}

/// Initializes counters to zero, so that the first event shows as an increase.
fn begin() {
    counter!("ebbtide_connections_refused_total").absolute(0);
    counter!("ebbtide_connections_cut_total").absolute(0);
    counter!("ebbtide_connections_evicted_total").absolute(0);
    for kind in Kind::ALL.iter().filter(|kind| !kind.is_probe()) {
        for name in [
            "ebbtide_records_created_total",
            "ebbtide_records_taken_total",
            "ebbtide_records_refused_total",
            "ebbtide_swept_total",
        ] {
            counter!(name, "kind" => kind.name()).absolute(0);
        }
    }
}

/// State between scrapes.
#[derive(Debug, Default)]
pub(crate) struct Scrapes(Mutex<Last>);

#[derive(Debug, Default)]
struct Last {
    /// Text of the last scrape, and the time at which it began.
    text: Option<(Stopwatch, Bytes)>,
    read: Option<Stopwatch>,
    shown: BTreeSet<Kind>,
}

/// All metrics, in Prometheus' text format.
///
/// Scrapes that wait for each other share a text: it needs no key, and costs more than most calls.
pub(crate) async fn scrape(app: &App) -> Bytes {
    let arrived = Stopwatch::start();
    let mut last = app.scrapes.0.lock().await;
    if let Some((begun, text)) = &last.text
        && begun.elapsed() < arrived.elapsed()
    {
        return text.clone();
    }
    let begun = Stopwatch::start();
    show_edge(app);
    if last.read.is_none_or(|read| read.elapsed() >= STATS_AGE) {
        // Failures too are retried only after a while.
        last.read = Some(Stopwatch::start());
        match timeout(STATS_PATIENCE, show_store(app, &mut last.shown)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "cannot read the store statistics for a scrape"),
            Err(_) => tracing::warn!("timed out reading the store statistics for a scrape"),
        }
    }
    let text = Bytes::from(recorder().render());
    last.text = Some((begun, text.clone()));
    text
}

#[expect(clippy::cast_precision_loss, reason = "counts of connections and records are no finer")]
fn show_edge(app: &App) {
    let edge = &app.edge;
    // Without the scrape itself.
    let in_flight = edge.in_flight.load(Ordering::Relaxed).saturating_sub(1);
    gauge!("ebbtide_http_requests_in_flight").set(in_flight as f64);
    gauge!("ebbtide_connections").set(edge.connections.load(Ordering::Relaxed) as f64);
    show_clock(&app.time().status());
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds of a difference are no finer")]
fn show_clock(clock: &ClockStatus) {
    let seconds = |millis: i64| millis as f64 / 1_000.0;
    gauge!("ebbtide_clock_difference_seconds").set(seconds(clock.difference_ms));
    if let Some(millis) = clock.engine_difference_ms {
        gauge!("ebbtide_clock_engine_difference_seconds").set(seconds(millis));
    }
    gauge!("ebbtide_clock_width_seconds").set(clock.width.as_secs_f64());
    for state in ClockState::ALL {
        let is_it = f64::from(u8::from(state == clock.state));
        gauge!("ebbtide_clock_state", "state" => state.name()).set(is_it);
    }
    let closed = clock.state == ClockState::NotReady;
    gauge!("ebbtide_gate_closed").set(f64::from(u8::from(closed)));
}

#[expect(clippy::cast_precision_loss, reason = "counts of connections and records are no finer")]
async fn show_store(app: &App, shown: &mut BTreeSet<Kind>) -> ebbtide::Result<()> {
    // If counting would read the whole store, show the counts of the last sweep.
    let Some(stats) = app.backend.0.stats_at_hand(app.now()?.earliest()).await? else { return Ok(()) };
    shown.extend(stats.keys());
    // A kind that was shown before and is empty now is shown as zero.
    for kind in shown.iter() {
        let of = stats.get(kind).copied().unwrap_or_default();
        let overdue = of.oldest_overdue.unwrap_or_default();
        gauge!("ebbtide_live_records", "kind" => kind.name()).set(of.live as f64);
        gauge!("ebbtide_overdue_records", "kind" => kind.name()).set(of.expired as f64);
        gauge!("ebbtide_oldest_overdue_seconds", "kind" => kind.name()).set(overdue.as_secs_f64());
    }
    Ok(())
}

/// Buckets of system owners that are shown. One that is empty now is shown as zero.
#[derive(Debug, Default)]
pub(crate) struct ShownBuckets(std::sync::Mutex<BTreeSet<(Scope, String, String)>>);

/// Most buckets of one scope that are shown: names are a caller's choice, and each one takes memory for good.
const MOST_SHOWN_OF_SCOPE: usize = 100;

/// Most buckets of all scopes that are shown.
const MOST_SHOWN: usize = 5_000;

impl ShownBuckets {
    /// Notes that a bucket is shown, if there is room for it.
    fn admit(&self, at: &(Scope, String, String)) -> bool {
        let mut shown = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if shown.contains(at) {
            return true;
        }
        let of_scope = shown.iter().filter(|(scope, ..)| *scope == at.0).count();
        let has_room = shown.len() < MOST_SHOWN && of_scope < MOST_SHOWN_OF_SCOPE;
        if has_room {
            shown.insert(at.clone());
        }
        has_room
    }

    fn show(&self, at: &(Scope, String, String), count: u64) {
        if !self.admit(at) {
            tracing::debug!(scope = %at.0, "too many buckets of system owners; one is not in the metrics");
            return;
        }
        let labels = [("scope", at.0.to_string()), ("owner", at.1.clone()), ("bucket", at.2.clone())];
        #[expect(clippy::cast_precision_loss, reason = "a gauge is a double")]
        gauge!("ebbtide_bucket_records", &labels).set(count as f64);
    }

    /// Zeroes the shown buckets that `is_gone` names.
    fn zero(&self, is_gone: impl Fn(&(Scope, String, String)) -> bool) {
        let shown = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        shown.iter().filter(|at| is_gone(at)).for_each(|at| self.show(at, 0));
    }
}

/// Sets the size of the buckets that the whole scope shares, whose owner begins with an underscore.
pub(crate) fn tell_usage(shown: &ShownBuckets, scope: &Scope, owner: &str, usage: &BTreeMap<String, Usage>) {
    if !Attributes::is_system_owner(owner) {
        return;
    }
    for (bucket, of) in usage {
        shown.show(&(scope.clone(), owner.to_owned(), bucket.clone()), of.count);
    }
    shown.zero(|(at, of, bucket)| at == scope && of == owner && !usage.contains_key(bucket));
}

/// Sets the size of every bucket of a system owner. It reads every attribute.
pub(crate) async fn tell_system_usage(app: &App) -> ebbtide::Result<()> {
    let usage = app.stores.usage_of_system_owners().await?;
    for (at, of) in &usage {
        app.buckets.show(at, of.count);
    }
    app.buckets.zero(|at| !usage.contains_key(at));
    Ok(())
}
