//! `/v1/sweep`, `/v1/stats`, `/v1/clock`

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use axum::extract::State;
use ebbtide::ops::cleanup;
use ebbtide::ops::sweeper::{self, Share, SweepOutcome, SweepSettings};
use ebbtide::{Budget, Kind, Scope, Stopwatch, Sweeper, Swept, SystemRng};
use serde::Deserialize;
use utoipa::ToSchema;
use utoipa_axum::routes;

use crate::app::App;
use crate::http::auth::Caller;
use crate::http::body::Json;
use crate::http::problem::Problem;
use crate::http::table::Table;
use ebbtide_api::answers::by_name;
use ebbtide_api::clock::{ClockAccepted, ClockAnswer};
use ebbtide_api::stats::{StatsAnswer, SweepAnswer, SweepRequest};

pub(super) fn routes() -> Table {
    Table::new()
        .admin(routes!(sweep))
        .walks()
        .admin(routes!(stats))
        .walks()
        .admin(routes!(clock))
        .admin(routes!(accept_clock))
}

/// Refuses a caller of a narrower scope: the call concerns the whole store.
fn require_global(caller: &Caller) -> Result<(), Problem> {
    if caller.scope == Scope::Global {
        Ok(())
    } else {
        Err(Problem::forbidden("this concerns the whole store, and not one scope of it"))
    }
}

/// Sweeps every record that has expired by now, and answers when it is done
///
/// Without a body, or without `kinds`, all kinds. Kinds that are named are in the answer with zero too.
#[utoipa::path(post, path = "/sweep", operation_id = "sweep", tag = "operator",
    request_body = Option<SweepRequest>,
    responses((status = 200, description = "removed records by kind", body = SweepAnswer),
        (status = 409, description = "conflict: another sweep is running")))]
async fn sweep(
    State(app): State<App>,
    caller: Caller,
    body: Result<Option<Json<SweepRequest>>, Problem>,
) -> Result<Json<SweepAnswer>, Problem> {
    require_global(&caller)?;
    let request = body?.map(|Json(body)| body).unwrap_or_default();
    // An engine that reclaims by itself does so for free; the URL asks for paid deletes (sweep=delete).
    let step = Budget { force: !app.backend.0.info().reclaims_itself, ..Budget::default() };
    let settings = SweepSettings {
        turn: request.turn_ms.map_or(app.sweep.turn, Duration::from_millis),
        overdue: request.overdue_ms.map(Duration::from_millis).or(app.sweep.overdue),
        ..app.sweep
    };
    let mut sweeper = Sweeper::new(app.timed().clone(), SystemRng).settings(settings)?.step(step);
    let (mut removed, mut kinds) = (BTreeMap::new(), Kind::ALL.to_vec());
    if let Some(named) = request.kinds {
        kinds = named.iter().map(|kind| kind.parse()).collect::<ebbtide::Result<Vec<Kind>>>()?;
        if kinds.is_empty() {
            return Err(Problem::invalid("kinds must name at least one kind").with("member", "kinds"));
        }
        removed.extend(kinds.iter().map(|kind| (*kind, 0)));
        sweeper = sweeper.kinds(&kinds);
    }
    let expired = if request.by_profile {
        let until = app.timed().sweep_until().await?;
        Some((until, cleanup::expired_by_profile(&app.stores, &kinds, until).await?))
    } else {
        None
    };
    let swept = if request.exclusive || request.budget.is_some() || request.time_limit_ms.is_some() {
        let share = request.budget.map_or(Ok(Share::WHOLE), Share::new)?;
        let limit = request.time_limit_ms.map(Duration::from_millis);
        paced(&app, &sweeper.share(share), limit, request.exclusive).await?
    } else {
        sweeper.sweep_now().await?.swept
    };
    let by_profile = match expired {
        Some((until, before)) => {
            let left = cleanup::expired_by_profile(&app.stores, &kinds, until).await?;
            let gone = cleanup::less(before, &left);
            Some(gone.into_iter().map(|(profile, counts)| (profile, by_name(&counts))).collect())
        }
        None => None,
    };
    removed.extend(swept.removed);
    let more = swept.more.then_some(true);
    Ok(Json(SweepAnswer { removed: by_name(&removed), more, by_profile }))
}

/// Sweeps within a share and a limit. Another sweep that is running is a conflict for an exclusive one, and is waited for
/// by none.
async fn paced(
    app: &App,
    sweeper: &Sweeper,
    limit: Option<Duration>,
    exclusive: bool,
) -> Result<Swept, Problem> {
    let stopwatch = Stopwatch::start();
    let rest = |time: Duration| async move {
        match limit.map(|limit| limit.saturating_sub(stopwatch.elapsed())) {
            Some(left) if left <= time => return ControlFlow::Break(()),
            _ => tokio::time::sleep(time).await,
        }
        ControlFlow::Continue(())
    };
    match sweeper.sweep(rest).await? {
        SweepOutcome::Swept(report) => Ok(report.swept),
        SweepOutcome::Busy { .. } if !exclusive && limit.is_none() => Ok(sweeper.sweep_now().await?.swept),
        SweepOutcome::Busy { until } => {
            let left = until.since(app.now()?.latest()).as_secs();
            let detail = format!("another sweep is running; its lease ends in {left} s");
            Err(Problem::conflict("conflict", &detail))
        }
        _ => Err(Problem::conflict("conflict", "nothing was swept")),
    }
}

/// Counts live records, and expired ones that are not swept yet, by kind
#[utoipa::path(get, path = "/stats", operation_id = "stats", tag = "operator",
    responses((status = 200, body = StatsAnswer)))]
async fn stats(State(app): State<App>, caller: Caller) -> Result<Json<StatsAnswer>, Problem> {
    require_global(&caller)?;
    let now = app.now()?;
    let kinds = app.backend.0.stats(now.earliest()).await?;
    let warnings = sweeper::warnings(app.backend.0.as_ref(), now.latest(), app.sweep.silence).await?;
    Ok(Json(StatsAnswer::new(&kinds, warnings, app.backend.0.info().reclaims_itself)))
}

/// Describes the clock by which the store's answers are judged
#[utoipa::path(get, path = "/clock", operation_id = "clock", tag = "operator",
    responses((status = 200, body = ClockAnswer)))]
async fn clock(State(app): State<App>, caller: Caller) -> Result<Json<ClockAnswer>, Problem> {
    require_global(&caller)?;
    Ok(Json(ClockAnswer::from(&app.time().status())))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct AcceptClock {
    /// Name that the caller acts for, in the audit log.
    #[serde(rename = "on_behalf_of", alias = "actor")]
    actor: Option<String>,
    reason: Option<String>,
    /// Allows the store's time to go back.
    #[serde(default)]
    back: bool,
}

/// Makes the wall clock of the node the store's time; this is audited
#[utoipa::path(post, path = "/clock/accept", operation_id = "accept_clock", tag = "operator",
    request_body(content = AcceptClock, example = json!({"on_behalf_of": "bob", "reason": "the clock was corrected"})),
    responses((status = 200, body = ClockAccepted)))]
async fn accept_clock(
    State(app): State<App>,
    caller: Caller,
    Json(asked): Json<AcceptClock>,
) -> Result<Json<ClockAccepted>, Problem> {
    require_global(&caller)?;
    let context = caller.context(asked.actor, asked.reason)?;
    Ok(Json(ClockAccepted::from(&app.db.accept_clock(&context, asked.back).await?)))
}
