//! Conditional writes: one request each, and the outcome of those whose answers are lost.
//!
//! A write that names the version it supersedes can happen only once, so it is safe to retry. Any other write could
//! happen a second time, after another caller has consumed the first; it is retried only if it certainly did not
//! happen. A transaction carries a token by which the engine recognises a repetition.

use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{
    ConditionCheck, Delete, Put, ReturnValue, ReturnValuesOnConditionCheckFailure, TransactWriteItem,
};

use super::DynamoDb;
use super::attempt::{AttemptFault, busy, fault, is_busy};
use super::condition::{ConditionExpression, asked, live};
use super::item::{Item, record_of, version_of};
use crate::model::error::{Error, Result};
use crate::model::key::Key;
use crate::model::record::{Record, Version};
use crate::model::time::Timestamp;
use crate::model::write::{Batch, Commit, Condition, Effect, Write};

/// Engine's answer to one write.
enum WriteOutcome {
    Done,
    /// The condition did not hold. The version at the key is known if it was requested.
    Refused(Option<Version>),
}

impl DynamoDb {
    /// Takes a record in one request, and in a second only if the first certainly did nothing. A lost answer is an
    /// error: the caller must not get the record, for this request or another one may have removed it.
    pub(super) async fn take_one(&self, key: &Key, now: Timestamp) -> Result<Option<Record>> {
        let mut attempts = self.patience.begin();
        loop {
            match self.send_take(key, now).await {
                Ok(item) => return item.map(|item| record_of(&item)).transpose(),
                Err(AttemptFault::Lost(error)) => return Err(error),
                Err(fault) => attempts.pause(fault).await?,
            }
        }
    }

    async fn send_take(&self, key: &Key, now: Timestamp) -> Result<Option<Item>, AttemptFault> {
        let ConditionExpression { expression, values } = live(now);
        let request = self.client.delete_item().table_name(&self.table).set_key(Some(self.space.key(key)));
        let answer = request
            .condition_expression(expression)
            .set_expression_attribute_values(Some(values))
            .return_values(ReturnValue::AllOld)
            .send()
            .await;
        match answer {
            Ok(output) => Ok(output.attributes),
            Err(SdkError::ServiceError(error)) if error.err().is_conditional_check_failed_exception() => {
                Ok(None)
            }
            Err(error) => Err(fault(error)),
        }
    }

    /// Commits one write in one request.
    pub(super) async fn commit_one(&self, write: &Write, now: Timestamp) -> Result<Commit> {
        if write.effect() == Effect::Nothing {
            return self.judge(write, now).await;
        }
        let mut attempts = self.patience.begin();
        let mut lost = None;
        loop {
            let fault = match self.send(write, now, lost.is_some()).await {
                Ok(WriteOutcome::Done) => return Ok(Commit::Applied),
                Ok(WriteOutcome::Refused(standing)) => {
                    let ours = standing.is_some() && standing == written(write);
                    return match lost {
                        None => Ok(Commit::Refused { index: 0 }),
                        Some(_) if ours => Ok(Commit::Applied),
                        // This write may have happened and been superseded by another.
                        Some(error) => Err(error),
                    };
                }
                Err(AttemptFault::Lost(error)) if !happens_once(write) => {
                    return self.settle(write, error).await;
                }
                Err(fault) => fault,
            };
            if let AttemptFault::Lost(_) = fault {
                lost = Some(unknown());
            }
            let paused = attempts.pause(fault).await;
            // A later attempt that did nothing says nothing about the lost one.
            paused.map_err(|error| if lost.is_some() { unknown().caused_by(error) } else { error })?;
        }
    }

    /// Evaluates a condition that writes nothing, by a read.
    async fn judge(&self, write: &Write, now: Timestamp) -> Result<Commit> {
        let standing = self.read(write.key()).await?;
        let standing = standing.map(|record| (record.version, record.expires_at));
        let holds = write.condition().holds(standing, now);
        Ok(if holds { Commit::Applied } else { Commit::Refused { index: 0 } })
    }

    /// Checks by a read whether a write whose answer was lost happened. If it is not visible, the outcome is unknown.
    async fn settle(&self, write: &Write, lost: Error) -> Result<Commit> {
        let Some(written) = written(write) else { return Err(lost) };
        match self.read(write.key()).await? {
            Some(record) if record.version == written => Ok(Commit::Applied),
            _ => Err(lost),
        }
    }

    async fn send(&self, write: &Write, now: Timestamp, again: bool) -> Result<WriteOutcome, AttemptFault> {
        let (expression, values) = asked(write.condition(), now).map(ConditionExpression::into_parts).unzip();
        // The item at the key is needed only to recognise our own write.
        let standing = again.then_some(ReturnValuesOnConditionCheckFailure::AllOld);
        if let Effect::Store(record) = write.effect() {
            let request = self
                .client
                .put_item()
                .table_name(&self.table)
                .set_item(Some(self.space.item(write.key(), record)))
                .set_condition_expression(expression)
                .set_expression_attribute_values(values)
                .set_return_values_on_condition_check_failure(standing);
            match request.send().await {
                Ok(_) => Ok(WriteOutcome::Done),
                Err(SdkError::ServiceError(error)) => match error.err() {
                    PutItemError::ConditionalCheckFailedException(refused) => {
                        Ok(WriteOutcome::Refused(refused.item().and_then(|item| version_of(item).ok())))
                    }
                    _ => Err(fault(SdkError::ServiceError(error))),
                },
                Err(error) => Err(fault(error)),
            }
        } else {
            let request = self
                .client
                .delete_item()
                .table_name(&self.table)
                .set_key(Some(self.space.key(write.key())))
                .set_condition_expression(expression)
                .set_expression_attribute_values(values);
            match request.send().await {
                Ok(_) => Ok(WriteOutcome::Done),
                Err(SdkError::ServiceError(error)) => match error.err() {
                    DeleteItemError::ConditionalCheckFailedException(_) => Ok(WriteOutcome::Refused(None)),
                    _ => Err(fault(SdkError::ServiceError(error))),
                },
                Err(error) => Err(fault(error)),
            }
        }
    }

    /// Commits several writes in one transaction.
    pub(super) async fn commit_all(&self, batch: &Batch, now: Timestamp) -> Result<Commit> {
        let items = batch.writes().iter().map(|write| self.transact_item(write, now));
        let items = items.collect::<Result<Vec<_>>>()?;
        // For ten minutes, the engine answers a repeated transaction as it did the first time.
        let token = Version::mint(self.rng.as_ref()).to_string();
        let mut attempts = self.patience.begin();
        let mut lost = false;
        loop {
            let fault = match self.send_all(&items, &token).await {
                Ok(None) => return Ok(Commit::Applied),
                Ok(Some(reasons)) => match judged(batch, &reasons, lost) {
                    Ok(commit) => return Ok(commit),
                    Err(fault) => fault,
                },
                Err(fault) => fault,
            };
            lost |= matches!(fault, AttemptFault::Lost(_));
            let paused = attempts.pause(fault).await;
            paused.map_err(|error| if lost { unknown().caused_by(error) } else { error })?;
        }
    }

    fn transact_item(&self, write: &Write, now: Timestamp) -> Result<TransactWriteItem> {
        let (expression, values) = asked(write.condition(), now).map(ConditionExpression::into_parts).unzip();
        let standing = ReturnValuesOnConditionCheckFailure::AllOld;
        let (table, key) = (&self.table, || Some(self.space.key(write.key())));
        let item = TransactWriteItem::builder();
        let unfinished = |error| Error::invalid("cannot build a write request").caused_by(error);
        let item = match write.effect() {
            Effect::Store(record) => item.put(
                Put::builder()
                    .table_name(table)
                    .set_item(Some(self.space.item(write.key(), record)))
                    .set_condition_expression(expression)
                    .set_expression_attribute_values(values)
                    .return_values_on_condition_check_failure(standing)
                    .build()
                    .map_err(unfinished)?,
            ),
            Effect::Erase => item.delete(
                Delete::builder()
                    .table_name(table)
                    .set_key(key())
                    .set_condition_expression(expression)
                    .set_expression_attribute_values(values)
                    .build()
                    .map_err(unfinished)?,
            ),
            Effect::Nothing => item.condition_check(
                ConditionCheck::builder()
                    .table_name(table)
                    .set_key(key())
                    .set_condition_expression(expression)
                    .set_expression_attribute_values(values)
                    .build()
                    .map_err(unfinished)?,
            ),
        };
        Ok(item.build())
    }

    /// Returns `None` if the transaction was committed, and the cancellation reasons otherwise.
    async fn send_all(
        &self,
        items: &[TransactWriteItem],
        token: &str,
    ) -> Result<Option<Vec<Reason>>, AttemptFault> {
        let request = self.client.transact_write_items().set_transact_items(Some(items.to_vec()));
        match request.client_request_token(token).send().await {
            Ok(_) => Ok(None),
            Err(SdkError::ServiceError(error)) => match error.err() {
                TransactWriteItemsError::TransactionCanceledException(cancelled) => {
                    Ok(Some(cancelled.cancellation_reasons().iter().map(Reason::from).collect()))
                }
                _ => Err(fault(SdkError::ServiceError(error))),
            },
            Err(error) => Err(fault(error)),
        }
    }
}

/// Cancellation reason of one write, in the order of the writes.
struct Reason {
    code: String,
    standing: Option<Version>,
}

impl From<&aws_sdk_dynamodb::types::CancellationReason> for Reason {
    fn from(reason: &aws_sdk_dynamodb::types::CancellationReason) -> Self {
        Self {
            code: reason.code().unwrap_or("None").to_owned(),
            standing: reason.item().and_then(|item| version_of(item).ok()),
        }
    }
}

/// Outcome of a cancelled transaction: the first write whose condition did not hold, unless an earlier write was not
/// evaluated at all.
fn judged(batch: &Batch, reasons: &[Reason], lost: bool) -> Result<Commit, AttemptFault> {
    // A batch is atomic: if one of our records is there, a lost attempt was committed.
    let ours =
        |(write, reason): (&Write, &Reason)| reason.standing.is_some() && reason.standing == written(write);
    if lost && batch.writes().iter().zip(reasons).any(ours) {
        return Ok(Commit::Applied);
    }
    let first = reasons.iter().position(|reason| reason.code != "None");
    match first.map(|index| (index, reasons[index].code.as_str())) {
        Some((index, "ConditionalCheckFailed")) if index < batch.writes().len() => {
            Ok(Commit::Refused { index })
        }
        Some((_, code)) if is_busy(code) => Err(AttemptFault::Busy(busy(code))),
        Some((_, code)) => Err(AttemptFault::Failed(
            Error::invalid("the endpoint refused a write of the batch").caused_by(code.to_owned()),
        )),
        None => {
            Err(AttemptFault::Failed(Error::unavailable("the transaction was cancelled without a reason")))
        }
    }
}

fn unknown() -> Error {
    Error::unavailable("the answer to a write was lost; the write may have happened")
}

/// Version that a write stores.
fn written(write: &Write) -> Option<Version> {
    match write.effect() {
        Effect::Store(record) => Some(record.version),
        Effect::Erase | Effect::Nothing => None,
    }
}

/// Returns true if the write invalidates its own condition, so that it cannot happen twice.
fn happens_once(write: &Write) -> bool {
    matches!(write.condition(), Condition::Version(_))
}
