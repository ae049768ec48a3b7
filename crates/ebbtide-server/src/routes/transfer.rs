//! `/v1/export`, `/v1/import`

use std::collections::BTreeMap;

use axum::extract::State;
use base64ct::{Base64UrlUnpadded, Encoding as _};
use ebbtide::ops::transfer::{Exporter, Importer};
use ebbtide::{Kind, Reach, Scope};
use ebbtide_api::answers::Listed;
use ebbtide_api::transfer::{ImportAnswer, ImportRequest, ImportedItem, MAX_IMPORT_ITEMS};
use serde::Deserialize;
use serde_json::Value;
use utoipa_axum::routes;

use crate::app::App;
use crate::http::auth::Caller;
use crate::http::body::{Json, Query, page};
use crate::http::problem::Problem;
use crate::http::table::Table;

pub(super) fn routes() -> Table {
    Table::new().admin(routes!(export)).walks().admin(routes!(import)).walks()
}

/// Bytes of items after which a page ends.
const MOST_PAGE_BYTES: usize = 2 << 20;

/// Records to export.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WhichRecords {
    /// Includes the scopes below that of the request; each item then names its scope.
    #[serde(default)]
    below: bool,
    /// Kinds to export, separated by commas; all that can be exported by default.
    #[param(example = "approvals,relationships")]
    kinds: Option<String>,
    /// 1 to 1,000 items; 100 by default. A page has about 2 MiB at most.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// `next` of the previous page.
    after: Option<String>,
}

/// Exports the records of a scope, as items that an import reads
///
/// Approvals, relationships and attributes are for people; items of other kinds have the stored value, sealed and
/// authenticated by the keyring, which the import needs too. Codes, grants, tokens and sessions are not exported.
#[utoipa::path(get, path = "/export", operation_id = "export_records", tag = "operator", params(WhichRecords),
    responses((status = 200, body = Listed<Value>)))]
async fn export(
    State(app): State<App>,
    caller: Caller,
    Query(which): Query<WhichRecords>,
) -> Result<Json<Listed<Value>>, Problem> {
    let (after, limit) = page(which.limit, which.after.as_deref())?;
    let kinds = match &which.kinds {
        Some(kinds) => kinds.split(',').map(str::parse).collect::<ebbtide::Result<Vec<Kind>>>()?,
        None => Exporter::KINDS.to_vec(),
    };
    let scope = caller.scope.clone();
    let reach = if which.below { Reach::Below(scope) } else { Reach::Exact(scope) };
    let mut exporter = Exporter::of(app.stores.clone(), &reach, &kinds)?;
    if let Some(after) = &after {
        exporter = exporter.resume(after)?;
    }
    let (mut items, mut bytes) = (Vec::new(), 0);
    // A kind may have few records or none: a page goes on with the next one.
    while items.len() < limit
        && bytes < MOST_PAGE_BYTES
        && let Some(more) = exporter.items(limit - items.len()).await?
    {
        bytes += more.iter().map(|item| item.to_string().len()).sum::<usize>();
        items.extend(more);
    }
    let next = exporter.place().map(|place| Base64UrlUnpadded::encode_string(place.as_bytes()));
    Ok(Json(Listed { items, next }))
}

/// Imports a batch of records
///
/// The items are those of an export, or lines of another system. Existing records are never overwritten, so a batch can
/// be sent again; an invalid item, and one in conflict with a record, is skipped with the reason. Sealed items need the
/// keyring of the export, and must come from a scope that the request's scope covers. API keys are imported with the root
/// key alone.
#[utoipa::path(post, path = "/import", operation_id = "import_records", tag = "operator",
    request_body = ImportRequest, responses((status = 200, body = ImportAnswer)))]
async fn import(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<ImportRequest>,
) -> Result<Json<ImportAnswer>, Problem> {
    if !(1..=MAX_IMPORT_ITEMS).contains(&body.items.len()) {
        return Err(
            Problem::invalid(format!("items must be 1 to {MAX_IMPORT_ITEMS}")).with("member", "items")
        );
    }
    if body.own_scopes && body.scope.is_some() {
        return Err(
            Problem::invalid("scope and own_scopes are not given together").with("member", "own_scopes")
        );
    }
    let (stores, dry_run) = (app.stores.clone(), body.dry_run);
    let mut importer = if body.own_scopes {
        Importer::by_line(stores, dry_run)
    } else {
        Importer::new(stores, caller.named(body.scope)?, dry_run)
    };
    for (from, to) in &body.scope_map {
        importer = importer.map_scope(from.parse()?, caller.named(Some(to.clone()))?);
    }
    let reason = body.reason.unwrap_or_else(|| "records were imported".to_owned());
    importer =
        importer.within(caller.scope.clone()).because(caller.context(body.on_behalf_of, Some(reason))?);
    if !caller.is_root() {
        importer = importer.without_keys();
    }
    let mut written: BTreeMap<Scope, u64> =
        importer.targets(body.items.iter()).into_iter().map(|scope| (scope, 0)).collect();
    for scope in written.keys() {
        importer.note(scope, "begins").await?;
    }
    let mut outcomes = Vec::with_capacity(body.items.len());
    for item in &body.items {
        let (target, outcome) = import_item(&app, &importer, item, dry_run).await?;
        if let (Some(target), ImportedItem::Written(_)) = (target, &outcome) {
            *written.entry(target).or_default() += 1;
        }
        outcomes.push(outcome);
    }
    for (scope, written) in &written {
        importer.note(scope, &format!("ended, {written} records written")).await?;
    }
    Ok(Json(ImportAnswer::from(outcomes)))
}

/// Imports an item, unless its scope has reached a quota, and returns its scope too.
async fn import_item(
    app: &App,
    importer: &Importer,
    item: &Value,
    dry_run: bool,
) -> Result<(Option<Scope>, ImportedItem), Problem> {
    let target: Option<Scope> = item.as_object().and_then(|fields| importer.target(fields).ok());
    if let Some(target) = &target {
        match app.quotas.check(&app.stores, target, app.time()).await {
            Err(full) if full.kind() == "quota" => {
                return Ok((None, ImportedItem::Skipped(full.detail().to_owned())));
            }
            checked => checked?,
        }
    }
    let outcome = importer.item(item).await?.into();
    if let (Some(target), ImportedItem::Written(_), false) = (&target, &outcome, dry_run) {
        app.quotas.added(target, 1);
    }
    Ok((target, outcome))
}
