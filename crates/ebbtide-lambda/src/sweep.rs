//! The scheduled sweep.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::time::Duration;

use ebbtide::ops::sweeper::SweepOutcome;
use ebbtide::timekeeping::Now;
use ebbtide::{Budget, Clock as _, Ebbtide, Share, Stats, Stopwatch, SystemClock, Timestamp};
use lambda_runtime::Diagnostic;
use serde_json::{Map, Value, json};
use tokio::sync::OnceCell;

use crate::{failure, fault, store_url};

/// Time reserved for the answer, in addition to twice the time of the longest step: no further step begins in it.
const FOR_THE_ANSWER: Duration = Duration::from_secs(1);

/// Target duration of a step.
const STEP: Duration = Duration::from_millis(500);

/// The store that is swept. It is opened by the first event.
#[derive(Default)]
pub(crate) struct Swept(OnceCell<Ebbtide>);

/// Options of an event.
#[derive(Debug, PartialEq)]
struct SweepEvent {
    dry_run: bool,
    /// Do nothing unless a sweep was interrupted.
    only_continue: bool,
    budget: Option<Share>,
}

impl SweepEvent {
    const PLAIN: Self = Self { dry_run: false, only_continue: false, budget: None };
}

impl Swept {
    pub(crate) async fn handle(&self, event: &Value, deadline: u64) -> Result<Value, Diagnostic> {
        let asked = read(event).map_err(|message| failure("InvalidEvent", message))?;
        let deadline = Timestamp::from_millis(deadline).map_err(|error| fault(&error))?;
        let db = self.0.get_or_try_init(open).await?;
        sweep(db, &asked, deadline).await
    }
}

async fn open() -> Result<Ebbtide, Diagnostic> {
    let url = store_url()?;
    let tool = Ebbtide::builder(&url).without_keyring().without_stored_policies().without_metrics();
    tool.open().await.map_err(|error| fault(&error))
}

async fn sweep(db: &Ebbtide, asked: &SweepEvent, deadline: Timestamp) -> Result<Value, Diagnostic> {
    let store = db.engine();
    let now = || db.time().now().map(Now::earliest).map_err(|error| fault(&error));
    if asked.dry_run {
        let stats = store.stats(now()?).await.map_err(|error| fault(&error))?;
        let expired = stats.iter().filter(|(_, stats)| stats.expired > 0);
        return Ok(expired
            .map(|(kind, stats)| (kind.name().to_owned(), Value::from(stats.expired)))
            .collect());
    }
    let share = match asked.budget {
        Some(share) => share,
        None => configured_share()?,
    };
    // On DynamoDB, deleting what the engine's TTL deletes for free must be requested in the URL.
    let step = Budget { force: !store.info().reclaims_itself, ..Budget::default() };
    let sweeper = db.sweeper().share(share).step(step);
    let sweeper = sweeper.step_time(STEP);
    if asked.only_continue && !sweeper.is_unfinished().await.map_err(|error| fault(&error))? {
        return Ok(json!({}));
    }
    let turn = sweeper.sweep(until_near(deadline)).await.map_err(|error| fault(&error))?;
    let report = match turn {
        SweepOutcome::Swept(report) => report,
        SweepOutcome::Busy { until } => return Ok(json!({ "more": true, "busy_until": until.as_millis() })),
        _ => return Ok(json!({ "more": true })),
    };
    let stats = store.stats_at_hand(now()?).await.map_err(|error| fault(&error))?;
    // A resumed sweep has the time of its first part, and metrics of weeks ago are discarded.
    println!("{}", measures(&report.swept, stats.as_ref(), now()?));
    let removed = report.swept.removed.iter();
    let mut answer: Map<String, Value> =
        removed.map(|(kind, count)| (kind.name().to_owned(), (*count).into())).collect();
    if report.swept.more {
        answer.insert("more".to_owned(), true.into());
    }
    Ok(Value::Object(answer))
}

/// Rests, and stops the sweep while there is time for the answer.
fn until_near(
    deadline: Timestamp,
) -> impl Fn(Duration) -> std::pin::Pin<Box<dyn Future<Output = ControlFlow<()>>>> {
    let (step, longest) = (Cell::new(Stopwatch::start()), Cell::new(Duration::ZERO));
    let shared = std::rc::Rc::new((step, longest));
    move |rest| {
        let shared = std::rc::Rc::clone(&shared);
        Box::pin(async move {
            let (step, longest) = &*shared;
            longest.set(longest.get().max(step.get().elapsed()));
            let left = deadline.since(SystemClock.now());
            if left < rest + 2 * longest.get() + FOR_THE_ANSWER {
                return ControlFlow::Break(());
            }
            tokio::time::sleep(rest).await;
            step.set(Stopwatch::start());
            ControlFlow::Continue(())
        })
    }
}

fn configured_share() -> Result<Share, Diagnostic> {
    match std::env::var("EBBTIDE_SWEEP_BUDGET") {
        Ok(text) => text.parse().map_err(|error| fault(&error)),
        Err(_) => Ok(Share::WHOLE),
    }
}

/// Parses a scheduled event, whose detail may hold options, or the options alone.
fn read(event: &Value) -> Result<SweepEvent, String> {
    let not_one = "the event must be a scheduled event, or an object with dry_run, continue or budget";
    let fields = event.as_object().ok_or(not_one)?;
    let fields = match fields.get("detail-type") {
        Some(kind) if kind == "Scheduled Event" || kind == "Ebbtide Sweep" => match fields.get("detail") {
            None => return Ok(SweepEvent::PLAIN),
            Some(detail) => detail.as_object().ok_or("the detail of the event is not an object")?,
        },
        Some(_) => return Err(not_one.to_owned()),
        None => fields,
    };
    let mut asked = SweepEvent::PLAIN;
    for (name, value) in fields {
        match name.as_str() {
            "continue" => {
                asked.only_continue = value.as_bool().ok_or("continue must be true or false")?;
            }
            "dry_run" => asked.dry_run = value.as_bool().ok_or("dry_run must be true or false")?,
            "budget" => {
                let share = Share::new(value.as_f64().ok_or("budget must be a number")?);
                asked.budget = Some(share.map_err(|error| error.message().to_owned())?);
            }
            _ => return Err(not_one.to_owned()),
        }
    }
    Ok(asked)
}

/// Log line in the embedded metric format, from which the platform extracts metrics without a request.
fn measures(swept: &ebbtide::Swept, stats: Option<&Stats>, at: Timestamp) -> Value {
    let mut names =
        vec![json!({"Name": "Removed", "Unit": "Count"}), json!({"Name": "More", "Unit": "Count"})];
    let mut line = json!({"Removed": swept.total(), "More": u8::from(swept.more)});
    if let Some(progress) = swept.progress {
        line["WalkProgress"] = progress.into();
        names.push(json!({"Name": "WalkProgress", "Unit": "Percent"}));
    }
    if let Some(stats) = stats {
        let sum = |of: fn(&ebbtide::KindStats) -> u64| stats.values().map(of).sum::<u64>();
        let oldest = stats.values().filter_map(|stats| stats.oldest_overdue).max().unwrap_or_default();
        line["Records"] = sum(|stats| stats.live + stats.expired).into();
        line["Overdue"] = sum(|stats| stats.expired).into();
        line["OldestOverdue"] = oldest.as_secs().into();
        names.push(json!({"Name": "Records", "Unit": "Count"}));
        names.push(json!({"Name": "Overdue", "Unit": "Count"}));
        names.push(json!({"Name": "OldestOverdue", "Unit": "Seconds"}));
    }
    line["Function"] = std::env::var("AWS_LAMBDA_FUNCTION_NAME").unwrap_or_default().into();
    line["_aws"] = json!({
        "Timestamp": at.as_millis(),
        "CloudWatchMetrics": [{"Namespace": "Ebbtide", "Dimensions": [["Function"]], "Metrics": names}],
    });
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    use ebbtide::{Kind, KindStats};

    #[test]
    fn a_scheduled_event_and_its_detail_are_read() {
        let plain = SweepEvent::PLAIN;
        let scheduled =
            json!({"version": "0", "detail-type": "Scheduled Event", "source": "aws.events", "detail": {}});
        assert_eq!(read(&scheduled).as_ref(), Ok(&plain));
        assert_eq!(read(&json!({})).as_ref(), Ok(&plain));
        let asked = json!({"detail-type": "Scheduled Event", "detail": {"dry_run": true, "budget": 0.5}});
        assert_eq!(
            read(&asked),
            Ok(SweepEvent { dry_run: true, budget: Some(Share::new(0.5).unwrap()), ..plain })
        );
    }

    #[test]
    fn a_schedule_may_ask_for_the_rest_of_a_sweep_alone() {
        assert_eq!(
            read(&json!({"continue": true})),
            Ok(SweepEvent { only_continue: true, ..SweepEvent::PLAIN })
        );
    }

    /// `CloudWatch` discards what is older than two weeks, and puts the rest at its time.
    #[test]
    fn a_line_of_metrics_has_the_time_at_which_it_is_written() {
        let at = Timestamp::from_millis(1_800_000_000_000).unwrap();
        let swept = ebbtide::Swept { more: true, progress: Some(40), ..ebbtide::Swept::default() };
        let overdue = KindStats { live: 2, expired: 1, oldest_overdue: Some(Duration::from_secs(60)) };
        let line = measures(&swept, Some(&[(Kind::Grant, overdue)].into()), at);
        assert_eq!(line["_aws"]["Timestamp"], 1_800_000_000_000_u64);
        let metrics = line["_aws"]["CloudWatchMetrics"][0]["Metrics"].as_array().unwrap();
        for (name, value) in [
            ("Removed", 0),
            ("More", 1),
            ("WalkProgress", 40),
            ("Records", 3),
            ("Overdue", 1),
            ("OldestOverdue", 60),
        ] {
            assert_eq!(line[name], value, "{line}");
            assert!(metrics.iter().any(|metric| metric["Name"] == name), "{name} is no metric");
        }
    }

    #[test]
    fn any_other_event_is_refused() {
        for event in [
            json!(null),
            json!([]),
            json!("sweep"),
            json!({"Records": []}),
            json!({"detail-type": "Object Created", "detail": {}}),
            json!({"detail-type": "Scheduled Event", "detail": []}),
            json!({"dry_run": "yes"}),
            json!({"budget": 2}),
            json!({"continue": 1}),
        ] {
            assert!(read(&event).is_err(), "{event}");
        }
    }
}
