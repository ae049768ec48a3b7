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
struct Asked {
    dry_run: bool,
    budget: Option<Share>,
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

async fn sweep(db: &Ebbtide, asked: &Asked, deadline: Timestamp) -> Result<Value, Diagnostic> {
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
    let turn = sweeper.sweep(until_near(deadline)).await.map_err(|error| fault(&error))?;
    let report = match turn {
        SweepOutcome::Swept(report) => report,
        SweepOutcome::Busy { until } => return Ok(json!({ "more": true, "busy_until": until.as_millis() })),
    };
    let stats = store.stats_at_hand(now()?).await.map_err(|error| fault(&error))?;
    println!("{}", measures(report.swept.total(), report.swept.more, stats.as_ref(), report.until));
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
fn read(event: &Value) -> Result<Asked, String> {
    let not_one = "the event must be a scheduled event, or an object with dry_run or budget";
    let fields = event.as_object().ok_or(not_one)?;
    let fields = match fields.get("detail-type") {
        Some(kind) if kind == "Scheduled Event" || kind == "Ebbtide Sweep" => match fields.get("detail") {
            None => return Ok(Asked { dry_run: false, budget: None }),
            Some(detail) => detail.as_object().ok_or("the detail of the event is not an object")?,
        },
        Some(_) => return Err(not_one.to_owned()),
        None => fields,
    };
    let mut asked = Asked { dry_run: false, budget: None };
    for (name, value) in fields {
        match name.as_str() {
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
fn measures(removed: u64, more: bool, stats: Option<&Stats>, at: Timestamp) -> Value {
    let mut names =
        vec![json!({"Name": "Removed", "Unit": "Count"}), json!({"Name": "More", "Unit": "Count"})];
    let mut line = json!({"Removed": removed, "More": u8::from(more)});
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

    #[test]
    fn a_scheduled_event_and_its_detail_are_read() {
        let plain = Asked { dry_run: false, budget: None };
        let scheduled =
            json!({"version": "0", "detail-type": "Scheduled Event", "source": "aws.events", "detail": {}});
        assert_eq!(read(&scheduled).as_ref(), Ok(&plain));
        assert_eq!(read(&json!({})).as_ref(), Ok(&plain));
        let asked = json!({"detail-type": "Scheduled Event", "detail": {"dry_run": true, "budget": 0.5}});
        assert_eq!(read(&asked), Ok(Asked { dry_run: true, budget: Some(Share::new(0.5).unwrap()) }));
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
        ] {
            assert!(read(&event).is_err(), "{event}");
        }
    }
}
