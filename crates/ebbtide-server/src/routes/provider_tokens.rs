//! `/v1/provider-tokens`

use axum::extract::State;
use axum::http::StatusCode;
use ebbtide::Ttl;
use ebbtide::stores::provider_tokens::{AttachOutcome, RefreshLease};
use ebbtide_api::provider_tokens::{
    ProviderTokenAnswer, ProviderTokenName, ProviderTokenPut, ProviderTokenStored, RefreshLeaseAnswer, tie,
};
use utoipa_axum::routes;

use crate::app::App;
use crate::http::auth::Caller;
use crate::http::body::{Json, millis};
use crate::http::problem::Problem;
use crate::http::table::Table;

/// Default and maximum lifetime of a lease, in seconds.
const LEASE_SECONDS: (i64, u64) = (30, 300);

pub(super) fn routes() -> Table {
    Table::new()
        .creator(routes!(put))
        .reader(routes!(get))
        .writer(routes!(delete))
        .writer(routes!(acquire))
        .writer(routes!(release))
}

fn inactive() -> Problem {
    Problem::not_found("no such grant or access token, or it is not active")
}

/// Stores the tokens of an upstream provider, sealed; they are gone with the grant or the access token
#[utoipa::path(post, path = "/provider-tokens/put", operation_id = "put_provider_token", tag = "provider-tokens",
    request_body = ProviderTokenPut,
    responses(
        (status = 200, body = ProviderTokenStored),
        (status = 404, description = "unknown: the grant or the access token is not active"),
    ))]
async fn put(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<ProviderTokenPut>,
) -> Result<Json<ProviderTokenStored>, Problem> {
    let tie = tie(body.grant_id.as_deref(), body.access_token.as_ref())?;
    let tokens = app.stores.provider_tokens(&caller.scope);
    let outcome = match &body.belongs_to {
        Some(parent) => tokens.put_belonging(&tie, &body.provider, &body.data, body.ttl, parent).await?,
        None => tokens.put_for(&tie, &body.provider, &body.data, body.ttl).await?,
    };
    match outcome {
        AttachOutcome::Kept { expires_at } => {
            Ok(Json(ProviderTokenStored { expires_at: millis(expires_at) }))
        }
        _ => Err(inactive()),
    }
}

/// Reads the tokens of an upstream provider
#[utoipa::path(post, path = "/provider-tokens/get", operation_id = "get_provider_token", tag = "provider-tokens",
    request_body = ProviderTokenName,
    responses(
        (status = 200, body = ProviderTokenAnswer),
        (status = 404, description = "unknown: there are none, or the grant or the access token is not active"),
    ))]
async fn get(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<ProviderTokenName>,
) -> Result<Json<ProviderTokenAnswer>, Problem> {
    let tie = tie(body.grant_id.as_deref(), body.access_token.as_ref())?;
    let found = app.stores.provider_tokens(&caller.scope).get_for(&tie, &body.provider).await?;
    let found = found.ok_or_else(|| Problem::not_found("no such provider token"))?;
    let (data, expires_at) = (found.tokens.into_inner(), millis(found.expires_at));
    Ok(Json(ProviderTokenAnswer { provider: body.provider, data, expires_at }))
}

/// Deletes the tokens of an upstream provider
#[utoipa::path(post, path = "/provider-tokens/delete", operation_id = "delete_provider_token",
    tag = "provider-tokens",
    request_body = ProviderTokenName,
    responses((status = 204, description = "they are gone"), (status = 404, description = "unknown")))]
async fn delete(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<ProviderTokenName>,
) -> Result<StatusCode, Problem> {
    let tie = tie(body.grant_id.as_deref(), body.access_token.as_ref())?;
    let deleted = app.stores.provider_tokens(&caller.scope).delete_for(&tie, &body.provider).await?;
    deleted.then_some(StatusCode::NO_CONTENT).ok_or_else(|| Problem::not_found("no such provider token"))
}

/// Acquires the lease to refresh the tokens: of any number of callers, one has it at a time
#[utoipa::path(post, path = "/provider-tokens/acquire", operation_id = "acquire_refresh", tag = "provider-tokens",
    request_body = ProviderTokenName,
    responses(
        (status = 200, body = RefreshLeaseAnswer),
        (status = 404, description = "unknown: the grant or the access token is not active"),
        (status = 409, description = "conflict: another caller refreshes them until `expires_at`"),
    ))]
async fn acquire(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<ProviderTokenName>,
) -> Result<Json<RefreshLeaseAnswer>, Problem> {
    let tie = tie(body.grant_id.as_deref(), body.access_token.as_ref())?;
    let ttl = body.ttl.map_or_else(|| Ttl::from_secs(LEASE_SECONDS.0), Ok)?;
    if ttl.duration().as_secs() > LEASE_SECONDS.1 {
        return Err(Problem::invalid(format!("a lease has at most {} seconds", LEASE_SECONDS.1))
            .with("member", "ttl_seconds"));
    }
    match app.stores.provider_tokens(&caller.scope).acquire(&tie, &body.provider, ttl).await? {
        RefreshLease::Acquired { lease, expires_at } => {
            Ok(Json(RefreshLeaseAnswer { lease: lease.to_string(), expires_at: millis(expires_at) }))
        }
        RefreshLease::Held { expires_at } => {
            let problem = Problem::conflict("conflict", "another caller refreshes them");
            Err(problem.with("expires_at", millis(expires_at)))
        }
        _ => Err(inactive()),
    }
}

/// Releases the lease to refresh the tokens
#[utoipa::path(post, path = "/provider-tokens/release", operation_id = "release_refresh", tag = "provider-tokens",
    request_body = ProviderTokenName,
    responses(
        (status = 204, description = "it is released"),
        (status = 409, description = "conflict: the lease has ended, or is another caller's"),
    ))]
async fn release(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<ProviderTokenName>,
) -> Result<StatusCode, Problem> {
    let tie = tie(body.grant_id.as_deref(), body.access_token.as_ref())?;
    let lease = body.lease.ok_or_else(|| Problem::invalid("lease is required").with("member", "lease"))?;
    let lease = lease.parse()?;
    let released = app.stores.provider_tokens(&caller.scope).release(&tie, &body.provider, lease).await?;
    let ended = || Problem::conflict("conflict", "the lease has ended, or is another caller's");
    released.then_some(StatusCode::NO_CONTENT).ok_or_else(ended)
}
