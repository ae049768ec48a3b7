//! `/v1/access-tokens`, `/v1/introspect` (RFC 7662), `/v1/revoke` (RFC 7009)

use axum::extract::State;
use axum::http::StatusCode;
use ebbtide::Secret;
use ebbtide::stores::access_tokens::{AccessRequest, IntrospectOutcome, IssueOutcome};
use ebbtide::stores::clients::RevokeReach;
use ebbtide::stores::grants::{GrantState, Revoke};
use ebbtide_api::tokens::{AccessIssued, AccessRevoke, IntrospectionAnswer};
use serde::Deserialize;
use utoipa::ToSchema;
use utoipa_axum::routes;

use super::grants::revoked;
use crate::app::App;
use crate::http::auth::Caller;
use crate::http::body::{Form, FormOrJson, Json};
use crate::http::problem::Problem;
use crate::http::route::Verb;
use crate::http::table::Table;

pub(super) fn routes() -> Table {
    Table::new()
        .creator(routes!(issue))
        .writer(routes!(revoke_by_id))
        .reader(routes!(introspect))
        .hot(Verb::Post, introspect)
        .writer(routes!(revoke))
}

/// Issues an access token
#[utoipa::path(post, path = "/access-tokens", operation_id = "issue_access_token", tag = "tokens",
    request_body = AccessRequest,
    responses(
        (status = 201, body = AccessIssued),
        (status = 404, description = "unknown: no such grant in this scope"),
        (status = 410, description = "expired: the grant has ended, or was revoked"),
        (status = 422, description = "mismatch: `field` contradicts the grant"),
    ))]
async fn issue(
    State(app): State<App>,
    caller: Caller,
    Json(request): Json<AccessRequest>,
) -> Result<(StatusCode, Json<AccessIssued>), Problem> {
    match app.stores.access_tokens(&caller.scope).issue(request).await? {
        IssueOutcome::Issued(issued) => Ok((StatusCode::CREATED, Json(issued.into()))),
        IssueOutcome::Mismatch(field) => Err(Problem::mismatch(field)),
        IssueOutcome::Revoked { why, .. } => Err(revoked(why)),
        IssueOutcome::Expired => Err(Problem::expired("the grant has ended")),
        _ => Err(Problem::not_found("no such grant in this scope")),
    }
}

/// Revokes an access token by its id, and leaves its grant as it is
#[utoipa::path(post, path = "/access-tokens/revoke", operation_id = "revoke_access_token", tag = "tokens",
    request_body = AccessRevoke,
    responses(
        (status = 204, description = "the token is not valid any more"),
        (status = 404, description = "unknown: no live access token of this scope has the id"),
    ))]
async fn revoke_by_id(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<AccessRevoke>,
) -> Result<StatusCode, Problem> {
    let context = caller.context(body.on_behalf_of, body.reason)?;
    let revoked = app.stores.access_tokens(&caller.scope).revoke_by_id(body.jti.parse()?, &context).await?;
    let unknown = || Problem::not_found("no live access token of this scope has this id");
    revoked.then_some(StatusCode::NO_CONTENT).ok_or_else(unknown)
}

/// A token of either kind. Unknown members are ignored, as the RFCs require.
#[derive(Deserialize, ToSchema)]
struct Token {
    #[schema(value_type = String)]
    token: Secret,
}

/// A token to revoke. Unknown members are ignored, as the RFCs require.
#[derive(Deserialize, ToSchema)]
struct TokenRevoke {
    #[schema(value_type = String)]
    token: Secret,
    /// Revokes the token only if it is this client's.
    client_id: Option<String>,
    /// Reach of the revocation of an access token: the `token` alone, or its `grant` too. The setting of its client by
    /// default.
    revoke: Option<RevokeReach>,
}

/// Introspects a token (RFC 7662)
#[utoipa::path(post, path = "/introspect", operation_id = "introspect", tag = "tokens",
    request_body(content = Token, content_type = "application/x-www-form-urlencoded"),
    responses((status = 200, description = "`active` says whether it is good", body = IntrospectionAnswer)))]
async fn introspect(
    State(app): State<App>,
    caller: Caller,
    Form(body): Form<Token>,
) -> Result<Json<IntrospectionAnswer>, Problem> {
    if let IntrospectOutcome::Active(active) =
        app.stores.access_tokens(&caller.scope).introspect(&body.token).await?
    {
        return Ok(Json((*active).into()));
    }
    // RFC 7662 leaves the kinds of token to the server: refresh tokens are introspected too.
    let grant = app.stores.grants(&caller.scope).find(&body.token).await?;
    let grant = grant.filter(|grant| grant.state == GrantState::Active);
    Ok(Json(grant.map(IntrospectionAnswer::from).unwrap_or_default()))
}

/// Revokes a token, a refresh token with its family (RFC 7009)
///
/// An access token is revoked alone, or with its grant: by `revoke`, or by the setting of its client. An unknown token is
/// answered like one that was revoked (§2.2). A client that authenticates itself revokes its own tokens alone. The audit
/// log has every revocation.
#[utoipa::path(post, path = "/revoke", operation_id = "revoke", tag = "tokens",
    request_body(content((TokenRevoke = "application/x-www-form-urlencoded"), (TokenRevoke = "application/json"))),
    responses((status = 200, description = "the token is not valid any more")))]
async fn revoke(
    State(app): State<App>,
    caller: Caller,
    FormOrJson(body): FormOrJson<TokenRevoke>,
) -> Result<StatusCode, Problem> {
    let context = caller.context(None, None)?;
    let client_id = match (caller.client_id(), body.client_id.as_deref()) {
        (Some(own), Some(named)) if own != named => {
            return Err(Problem::invalid(
                "client_id is not that of the client that has authenticated itself",
            )
            .with("member", "client_id"));
        }
        (own, named) => own.or(named),
    };
    let what = Revoke::Token { token: &body.token, client_id, reach: body.revoke };
    app.stores.grants(&caller.scope).revoke(what, Some(&context)).await?;
    Ok(StatusCode::OK)
}
