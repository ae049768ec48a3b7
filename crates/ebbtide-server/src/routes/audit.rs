//! `/v1/audit`

use axum::extract::State;
use ebbtide::Timestamp;
use ebbtide::stores::audit::{Action, AuditFilter, AuditOutcome, Break, Mark};
use serde::Deserialize;
use utoipa_axum::routes;

use crate::app::App;
use crate::http::auth::Caller;
use crate::http::body::{Json, Query, listed, page};
use crate::http::problem::Problem;
use crate::http::table::Table;
use ebbtide_api::answers::Listed;
use ebbtide_api::audit::{EntryAnswer, WholeLog};
use ebbtide_api::describe::broken;

pub(super) fn routes() -> Table {
    Table::new().admin(routes!(list)).admin(routes!(verify)).walks()
}

/// Log to read.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WhichLog {
    /// Scope of the log; that of the request by default.
    #[param(example = "tenant:acme")]
    scope: Option<String>,
    /// Only entries about this subject, identity or client.
    #[param(example = "alice")]
    subject: Option<String>,
    /// Only entries of this authenticated key.
    #[param(example = "root")]
    key: Option<String>,
    /// Only entries of this action.
    #[param(example = "revoke")]
    action: Option<String>,
    /// Only entries from this time on, in milliseconds.
    from: Option<u64>,
    /// Only entries before this time, in milliseconds.
    to: Option<u64>,
    /// 1 to 1,000 items; 100 by default. A page of selected entries may have fewer, and still a next one.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// The `next` of the page before.
    after: Option<String>,
}

/// Reads the audit log of a scope, oldest first
#[utoipa::path(get, path = "/audit", operation_id = "read_audit", tag = "operator", params(WhichLog),
    responses((status = 200, body = Listed<EntryAnswer>)))]
async fn list(
    State(app): State<App>,
    caller: Caller,
    Query(which): Query<WhichLog>,
) -> Result<Json<Listed<EntryAnswer>>, Problem> {
    let scope = caller.named(which.scope)?;
    let (after, limit) = page(which.limit, which.after.as_deref())?;
    let mut filter = AuditFilter::default();
    (filter.subject, filter.key) = (which.subject, which.key);
    filter.action = which.action.as_deref().map(action).transpose()?;
    filter.from = which.from.map(Timestamp::from_millis).transpose()?;
    filter.to = which.to.map(Timestamp::from_millis).transpose()?;
    Ok(Json(listed(&app.stores.audit(&scope).search(&filter, after.as_ref(), limit).await?)))
}

fn action(name: &str) -> Result<Action, Problem> {
    Action::from_name(name).ok_or_else(|| {
        Problem::invalid("`action` is not an action of the audit log").with("member", "action")
    })
}

/// Log to verify.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WhichChain {
    /// Scope of the log; that of the request by default.
    #[param(example = "tenant:acme")]
    scope: Option<String>,
    /// Head of an earlier answer, kept elsewhere. With it, a log that was rewritten as a whole is detected too.
    mark: Option<String>,
}

/// Verifies the audit log of a scope: no entry was changed, removed or added
///
/// It reads the whole log.
#[utoipa::path(get, path = "/audit/verify", operation_id = "verify_audit", tag = "operator", params(WhichChain),
    responses((status = 200, body = WholeLog),
        (status = 409, description = "conflict: it is not whole; `sequence` is the first entry that is wrong")))]
async fn verify(
    State(app): State<App>,
    caller: Caller,
    Query(which): Query<WhichChain>,
) -> Result<Json<WholeLog>, Problem> {
    let scope = caller.named(which.scope)?;
    let mark: Option<Mark> = which.mark.map(|mark| mark.parse()).transpose()?;
    match app.stores.audit(&scope).verify(mark.as_ref()).await? {
        AuditOutcome::Intact { entries, head } => {
            let head = head.map(|head| head.to_string());
            Ok(Json(WholeLog { scope: scope.to_string(), entries, head }))
        }
        AuditOutcome::Broken { chain, sequence, why } => {
            let of = chain.map(|chain| format!(" of chain {chain}")).unwrap_or_default();
            let entry = match why {
                Break::Checkpoint => format!("the process{of}"),
                _ => format!("entry {sequence}{of}"),
            };
            let detail = format!("the log of {scope} is not whole: {entry} {}", broken(why));
            let chain = chain.map(|chain| chain.to_string());
            Err(Problem::conflict("conflict", &detail).with("sequence", sequence).with("chain", chain))
        }
        _ => Err(Problem::conflict("conflict", "the log is not whole")),
    }
}
