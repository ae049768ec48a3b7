//! `/v1/records`

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use ebbtide::stores::records::body::{
    AcquireBody, AddressBody, BatchBody, DeleteBody, GetManyBody, GroupBody, IncrementBody, ListBody,
    PutBody, ReleaseBody, TouchBody,
};
use ebbtide::stores::records::{
    Acquire, AcquireOutcome, BatchOutcome, ConsumeOutcome, DeleteOutcome, FoundRecord, GetOutcome, Increment,
    IncrementOutcome, PutOutcome, PutRecord, RecordAddress, RecordCondition, RecordWrite, Records, Refusal,
    TouchOutcome, TouchRecord, WriteAnswer,
};
use ebbtide_api::answers::{Listed, millis};
use ebbtide_api::records::{
    GroupRevoked, LeaseAcquired, LeaseReleased, RecordCounted, RecordDeleted, RecordListed, RecordRead,
    RecordStored, RecordTouched, RecordsRead, RecordsWritten,
};
use utoipa_axum::routes;

use crate::app::App;
use crate::http::auth::Caller;
use crate::http::body::{Json, listed, page};
use crate::http::problem::Problem;
use crate::http::quota::Added;
use crate::http::table::Table;

pub(super) fn routes() -> Table {
    Table::new()
        .creator(routes!(put))
        .reader(routes!(get))
        .reader(routes!(get_many))
        .may_walk()
        .writer(routes!(take))
        .writer(routes!(consume))
        .writer(routes!(touch))
        .writer(routes!(delete))
        .creator(routes!(increment))
        .creator(routes!(acquire))
        .writer(routes!(release))
        .creator(routes!(batch))
        .writer(routes!(revoke_group))
        .admin(routes!(list))
        .walks()
}

/// Records that are read at once without being heavy.
const FEW: usize = 16;

fn records(app: &App, caller: &Caller) -> Records {
    app.stores.records(&caller.scope)
}

/// Writes a record
#[utoipa::path(post, path = "/records/put", operation_id = "put_record", tag = "records",
    request_body = PutBody,
    responses(
        (status = 200, body = RecordStored),
        (status = 409, description = "conflict: the condition did not hold, or another record has a second key"),
        (status = 410, description = "revoked: its group; or expired: the end that was asked for has passed"),
    ))]
async fn put(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<PutBody>,
) -> Result<(Extension<Added>, Json<RecordStored>), Problem> {
    match records(&app, &caller).put(&PutRecord::try_from(body)?).await? {
        PutOutcome::Stored { version, expires_at, created, .. } => {
            let stored =
                RecordStored { version: version.to_string(), expires_at: millis(expires_at), created };
            Ok((Extension(Added(created.into())), Json(stored)))
        }
        PutOutcome::Revoked => Err(revoked()),
        PutOutcome::Expired => Err(past()),
        _ => Err(conflict()),
    }
}

/// Reads a record
#[utoipa::path(post, path = "/records/get", operation_id = "get_record", tag = "records",
    request_body = AddressBody,
    responses(
        (status = 200, body = RecordRead),
        (status = 404, description = "unknown"),
        (status = 410, description = "expired, with `value` while it is retained"),
    ))]
async fn get(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<AddressBody>,
) -> Result<Json<RecordRead>, Problem> {
    match records(&app, &caller).get(&RecordAddress::try_from(body)?).await? {
        GetOutcome::Found(record) => read(record),
        GetOutcome::Expired(record) => {
            let Json(record) = read(record)?;
            let mut problem = Problem::expired("the record has expired")
                .with("version", record.version)
                .with("expires_at", record.expires_at)
                .with("consumed_at", record.consumed_at);
            if let Some(value) = record.value {
                problem = problem.with("value", value);
            }
            if let Some(value) = record.value_base64 {
                problem = problem.with("value_base64", value);
            }
            Err(problem)
        }
        _ => Err(unknown()),
    }
}

/// Reads several records; they are no snapshot
#[utoipa::path(post, path = "/records/get-many", operation_id = "get_records", tag = "records",
    request_body = GetManyBody,
    responses((status = 200, body = RecordsRead)))]
async fn get_many(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<GetManyBody>,
) -> Result<Json<RecordsRead>, Problem> {
    let names = body.items.into_iter().map(RecordAddress::try_from).collect::<ebbtide::Result<Vec<_>>>()?;
    let records = records(&app, &caller);
    let found = if names.len() > FEW {
        app.walk(&caller, Box::pin(async move { records.get_many(&names).await })).await??
    } else {
        records.get_many(&names).await?
    };
    let read = |record: Option<FoundRecord>| record.map(RecordRead::try_from).transpose();
    Ok(Json(RecordsRead { items: found.into_iter().map(read).collect::<ebbtide::Result<_>>()? }))
}

/// Reads a record and removes it, once
#[utoipa::path(post, path = "/records/take", operation_id = "take_record", tag = "records",
    request_body = AddressBody,
    responses((status = 200, body = RecordRead), (status = 404, description = "unknown")))]
async fn take(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<AddressBody>,
) -> Result<Json<RecordRead>, Problem> {
    read(records(&app, &caller).take(&RecordAddress::try_from(body)?).await?.ok_or_else(unknown)?)
}

/// Marks a record as consumed, once
#[utoipa::path(post, path = "/records/consume", operation_id = "consume_record", tag = "records",
    request_body = AddressBody,
    responses(
        (status = 200, body = RecordRead),
        (status = 404, description = "unknown"),
        (status = 409, description = "used, with `consumed_at`, `version` and `group`"),
    ))]
async fn consume(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<AddressBody>,
) -> Result<Json<RecordRead>, Problem> {
    match records(&app, &caller).consume(&RecordAddress::try_from(body)?).await? {
        ConsumeOutcome::Consumed(record) => read(record),
        ConsumeOutcome::Used { consumed_at, version, group } => {
            Err(Problem::conflict("used", "the record was consumed before")
                .with("consumed_at", millis(consumed_at))
                .with("version", version.to_string())
                .with("group", group))
        }
        _ => Err(unknown()),
    }
}

/// Gives a record a new end; its second keys move along
#[utoipa::path(post, path = "/records/touch", operation_id = "touch_record", tag = "records",
    request_body = TouchBody,
    responses(
        (status = 200, body = RecordTouched),
        (status = 404, description = "unknown"),
        (status = 410, description = "expired: the end that was asked for has passed"),
    ))]
async fn touch(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<TouchBody>,
) -> Result<Json<RecordTouched>, Problem> {
    match records(&app, &caller).touch(&TouchRecord::try_from(body)?).await? {
        TouchOutcome::Touched(record) | TouchOutcome::Kept(record) => {
            Ok(Json(RecordTouched { expires_at: millis(record.expires_at) }))
        }
        TouchOutcome::Expired => Err(past()),
        _ => Err(unknown()),
    }
}

/// Deletes a record
#[utoipa::path(post, path = "/records/delete", operation_id = "delete_record", tag = "records",
    request_body = DeleteBody,
    responses(
        (status = 200, body = RecordDeleted),
        (status = 409, description = "conflict: the condition did not hold"),
    ))]
async fn delete(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<DeleteBody>,
) -> Result<Json<RecordDeleted>, Problem> {
    let (address, condition): (RecordAddress, RecordCondition) = body.try_into()?;
    match records(&app, &caller).delete(&address, condition).await? {
        DeleteOutcome::Deleted => Ok(Json(RecordDeleted { deleted: true })),
        DeleteOutcome::Absent => Ok(Json(RecordDeleted { deleted: false })),
        _ => Err(conflict()),
    }
}

/// Adds to a counter, which begins at zero
#[utoipa::path(post, path = "/records/increment", operation_id = "increment_counter", tag = "records",
    request_body = IncrementBody,
    responses(
        (status = 200, body = RecordCounted),
        (status = 410, description = "expired: the end that was asked for has passed"),
        (status = 429, description = "exceeded: the sum is beyond the limit, and nothing is added"),
    ))]
async fn increment(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<IncrementBody>,
) -> Result<(Extension<Added>, Json<RecordCounted>), Problem> {
    let by = body.by.unwrap_or(1);
    match records(&app, &caller).increment(&Increment::try_from(body)?).await? {
        IncrementOutcome::Counted { count, expires_at } => {
            // A counter begins with its first addition.
            let added = Added((count == by).into());
            Ok((Extension(added), Json(RecordCounted { count, expires_at: millis(expires_at) })))
        }
        IncrementOutcome::Exceeded { count, expires_at } => {
            let detail = "the sum is beyond the limit; nothing was added";
            Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, "exceeded", detail)
                .with("count", count)
                .with("expires_at", expires_at.and_then(millis)))
        }
        _ => Err(past()),
    }
}

/// Acquires a lease
#[utoipa::path(post, path = "/records/acquire", operation_id = "acquire_lease", tag = "records",
    request_body = AcquireBody,
    responses(
        (status = 200, body = LeaseAcquired),
        (status = 409, description = "conflict: another holds the lease"),
        (status = 410, description = "expired: the end that was asked for has passed"),
    ))]
async fn acquire(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<AcquireBody>,
) -> Result<Json<LeaseAcquired>, Problem> {
    match records(&app, &caller).acquire(&Acquire::try_from(body)?).await? {
        AcquireOutcome::Acquired { lease, expires_at } => {
            Ok(Json(LeaseAcquired { lease: lease.expose().to_owned(), expires_at: millis(expires_at) }))
        }
        AcquireOutcome::Held => Err(Problem::conflict("conflict", "another holds the lease")),
        _ => Err(past()),
    }
}

/// Releases a lease
#[utoipa::path(post, path = "/records/release", operation_id = "release_lease", tag = "records",
    request_body = ReleaseBody,
    responses(
        (status = 200, body = LeaseReleased),
        (status = 409, description = "conflict: the lease has ended, or is another's"),
    ))]
async fn release(
    State(app): State<App>,
    caller: Caller,
    Json(mut body): Json<ReleaseBody>,
) -> Result<Json<LeaseReleased>, Problem> {
    let id = body.record_id()?;
    if records(&app, &caller).release(&body.collection, id, &body.lease).await? {
        return Ok(Json(LeaseReleased { released: true }));
    }
    Err(Problem::conflict("conflict", "the lease has ended, or is another's"))
}

/// Commits several writes, all or none
#[utoipa::path(post, path = "/records/batch", operation_id = "batch_records", tag = "records",
    request_body = BatchBody,
    responses(
        (status = 200, body = RecordsWritten),
        (status = 409, description = "conflict: `index` names the first write that was refused"),
        (status = 410, description = "revoked or expired, as a single put; `index` names the write"),
    ))]
async fn batch(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<BatchBody>,
) -> Result<(Extension<Added>, Json<RecordsWritten>), Problem> {
    let writes = body.writes.into_iter().map(RecordWrite::try_from).collect::<ebbtide::Result<Vec<_>>>()?;
    match records(&app, &caller).batch(&writes).await? {
        BatchOutcome::Applied(answers) => {
            let is_new = |answer: &&WriteAnswer| matches!(answer, WriteAnswer::Stored { created: true, .. });
            let added = Added(answers.iter().filter(is_new).count() as u64);
            let items = answers.into_iter().map(Into::into).collect();
            Ok((Extension(added), Json(RecordsWritten { items })))
        }
        BatchOutcome::Refused { index, refusal } => {
            let problem = match refusal {
                Refusal::Revoked => revoked(),
                Refusal::Expired => past(),
                _ => conflict(),
            };
            Err(problem.with("index", index))
        }
        _ => Err(conflict()),
    }
}

/// Revokes a group: its records are gone, and writes to it are refused
#[utoipa::path(post, path = "/records/groups/revoke", operation_id = "revoke_record_group", tag = "records",
    request_body = GroupBody, responses((status = 200, body = GroupRevoked)))]
async fn revoke_group(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<GroupBody>,
) -> Result<Json<GroupRevoked>, Problem> {
    let context = caller.context(body.actor, body.reason)?;
    let end = records(&app, &caller).revoke_group(&body.collection, &body.group, Some(&context)).await?;
    Ok(Json(GroupRevoked { revoked: true, expires_at: millis(end) }))
}

/// Lists the records of a collection, without their values
#[utoipa::path(post, path = "/records/list", operation_id = "list_records", tag = "records",
    request_body = ListBody, responses((status = 200, body = Listed<RecordListed>)))]
async fn list(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<ListBody>,
) -> Result<Json<Listed<RecordListed>>, Problem> {
    let (after, limit) = page(body.limit, body.after.as_deref())?;
    Ok(Json(listed(&records(&app, &caller).list(&body.collection, after.as_ref(), limit).await?)))
}

fn read(record: FoundRecord) -> Result<Json<RecordRead>, Problem> {
    Ok(Json(record.try_into()?))
}

fn unknown() -> Problem {
    Problem::not_found("no such record in this scope")
}

fn conflict() -> Problem {
    Problem::conflict("conflict", "the condition did not hold, or another record has one of the second keys")
}

fn revoked() -> Problem {
    Problem::new(StatusCode::GONE, "revoked", "the group is revoked")
}

fn past() -> Problem {
    Problem::expired("the end that was asked for has passed")
}
