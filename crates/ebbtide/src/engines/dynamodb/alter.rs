//! Changes that answer with the record: one request each. A lost answer is an error and is not repeated: the change
//! may have happened, and others may have followed.

use std::collections::HashMap;

use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValue, ReturnValuesOnConditionCheckFailure};

use super::DynamoDb;
use super::attempt::{AttemptFault, fault};
use super::condition::same_version;
use super::item::{EXPIRES, Item, PK, TTL, VALUE, VERSION, binary, number, record_of, ttl_seconds};
use crate::model::alteration::{Add, Alteration, Altered, decode_count, encode_count};
use crate::model::error::{Error, Result};
use crate::model::key::Key;
use crate::model::kind::Kind;
use crate::model::record::{Record, Version};
use crate::model::time::Timestamp;

/// Attempts at an addition to a counter that has expired and is replaced by others.
const ADDITIONS: usize = 16;

/// Answer to a request: done, with an item, or refused, with the item in the way.
enum AlterAnswer {
    Done(Option<Item>),
    Refused(Option<Item>),
}

/// Update expression with its condition and their values.
struct Update {
    change: String,
    condition: String,
    values: HashMap<String, AttributeValue>,
}

impl DynamoDb {
    pub(super) async fn alter_one(
        &self,
        key: &Key,
        alteration: &Alteration,
        now: Timestamp,
    ) -> Result<Altered> {
        match alteration {
            Alteration::Add(add) => self.add(key, add, now).await,
            Alteration::Swap { record } => {
                let answer = self.certainly(|| self.send_swap(key, record, None)).await?;
                let (AlterAnswer::Done(before) | AlterAnswer::Refused(before)) = answer;
                Ok(Altered::applied(live(before, now)?))
            }
            Alteration::Touch { first, expires_at, version } => {
                let update = touch(*first, *expires_at, *version, now);
                match self.certainly(|| self.send_update(key, &update)).await? {
                    AlterAnswer::Done(item) => {
                        Ok(Altered::applied(item.map(|item| record_of(&item)).transpose()?))
                    }
                    AlterAnswer::Refused(item) => Ok(Altered::refused(live(item, now)?)),
                }
            }
            Alteration::Take { first } => {
                match self.certainly(|| self.send_take_if(key, *first, now)).await? {
                    AlterAnswer::Done(item) => {
                        Ok(Altered::applied(item.map(|item| record_of(&item)).transpose()?))
                    }
                    AlterAnswer::Refused(item) => Ok(Altered::refused(live(item, now)?)),
                }
            }
        }
    }

    async fn add(&self, key: &Key, add: &Add, now: Timestamp) -> Result<Altered> {
        let update = addition(add, now);
        for _ in 0..ADDITIONS {
            let standing = match self.certainly(|| self.send_update(key, &update)).await? {
                AlterAnswer::Done(item) => {
                    return Ok(Altered::applied(item.map(|item| record_of(&item)).transpose()?));
                }
                AlterAnswer::Refused(item) => item.map(|item| record_of(&item)).transpose()?,
            };
            let Some(standing) = standing else { return Ok(Altered::refused(None)) };
            if standing.is_live(now) {
                return Ok(Altered::refused(Some(standing)));
            }
            if !add.fits(0) {
                return Ok(Altered::refused(None));
            }
            // An expired counter that is still stored: its version pins its expiry.
            let new =
                Record { value: encode_count(add.by), version: add.version, expires_at: add.expires_if_new };
            let swap = self.certainly(|| self.send_swap(key, &new, Some(standing.version))).await?;
            if let AlterAnswer::Done(_) = swap {
                return Ok(Altered::applied(Some(new)));
            }
        }
        Err(Error::unavailable("the counter was changed by others at every attempt; try again"))
    }

    /// Sends a request again only if it certainly did nothing.
    async fn certainly<F>(&self, request: impl Fn() -> F) -> Result<AlterAnswer>
    where
        F: Future<Output = Result<AlterAnswer, AttemptFault>>,
    {
        let mut attempts = self.patience.begin();
        loop {
            match request().await {
                Ok(answer) => return Ok(answer),
                Err(AttemptFault::Lost(error)) => return Err(error),
                Err(fault) => attempts.pause(fault).await?,
            }
        }
    }

    async fn send_update(&self, key: &Key, update: &Update) -> Result<AlterAnswer, AttemptFault> {
        let request = self
            .client
            .update_item()
            .table_name(&self.table)
            .set_key(Some(self.space.key(key)))
            .update_expression(&update.change)
            .condition_expression(&update.condition)
            .expression_attribute_names("#ttl", TTL)
            .set_expression_attribute_values(Some(update.values.clone()))
            .return_values(ReturnValue::AllNew)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        match request.send().await {
            Ok(output) => Ok(AlterAnswer::Done(output.attributes)),
            Err(SdkError::ServiceError(error)) => match error.err() {
                UpdateItemError::ConditionalCheckFailedException(refused) => {
                    Ok(AlterAnswer::Refused(refused.item().cloned()))
                }
                _ => Err(fault(SdkError::ServiceError(error))),
            },
            Err(error) => Err(fault(error)),
        }
    }

    async fn send_swap(
        &self,
        key: &Key,
        new: &Record,
        expected: Option<Version>,
    ) -> Result<AlterAnswer, AttemptFault> {
        let mut item = self.space.item(key, new);
        if expected.is_some() {
            make_counter(&mut item, new);
        }
        let (expression, values) = expected.map(|version| same_version(version).into_parts()).unzip();
        let request = self
            .client
            .put_item()
            .table_name(&self.table)
            .set_item(Some(item))
            .set_condition_expression(expression)
            .set_expression_attribute_values(values)
            .return_values(ReturnValue::AllOld);
        match request.send().await {
            Ok(output) => Ok(AlterAnswer::Done(output.attributes)),
            Err(SdkError::ServiceError(error)) => match error.err() {
                PutItemError::ConditionalCheckFailedException(_) => Ok(AlterAnswer::Refused(None)),
                _ => Err(fault(SdkError::ServiceError(error))),
            },
            Err(error) => Err(fault(error)),
        }
    }

    async fn send_take_if(&self, key: &Key, first: u8, now: Timestamp) -> Result<AlterAnswer, AttemptFault> {
        let request = self
            .client
            .delete_item()
            .table_name(&self.table)
            .set_key(Some(self.space.key(key)))
            .condition_expression(format!("{EXPIRES} > :now AND begins_with({VALUE}, :first)"))
            .expression_attribute_values(":now", number(now.as_millis()))
            .expression_attribute_values(":first", binary(&[first]))
            .return_values(ReturnValue::AllOld)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        match request.send().await {
            Ok(output) => Ok(AlterAnswer::Done(output.attributes)),
            Err(SdkError::ServiceError(error)) => match error.err() {
                DeleteItemError::ConditionalCheckFailedException(refused) => {
                    Ok(AlterAnswer::Refused(refused.item().cloned()))
                }
                _ => Err(fault(SdkError::ServiceError(error))),
            },
            Err(error) => Err(fault(error)),
        }
    }
}

/// Addition to an absent or a live counter. One that has expired and is still stored refuses it.
fn addition(add: &Add, now: Timestamp) -> Update {
    let (least, most) = add.bounds();
    // Not `BETWEEN`, which DynamoDB rejects if the bounds admit no count.
    let mut condition = format!("{EXPIRES} > :now AND {VALUE} >= :least AND {VALUE} <= :most");
    if add.fits(0) {
        condition = format!("attribute_not_exists({PK}) OR ({condition})");
    }
    let mut change = format!(
        "SET {VALUE} = if_not_exists({VALUE}, :zero) + :by, {VERSION} = :ver, \
         {EXPIRES} = if_not_exists({EXPIRES}, :exp)"
    );
    let integer = |number: i64| AttributeValue::N(number.to_string());
    let mut values = HashMap::from([
        (":now".to_owned(), number(now.as_millis())),
        (":least".to_owned(), integer(least)),
        (":most".to_owned(), integer(most)),
        (":zero".to_owned(), integer(0)),
        (":by".to_owned(), integer(add.by)),
        (":ver".to_owned(), binary(add.version.as_bytes())),
        (":exp".to_owned(), number(add.expires_if_new.as_millis())),
    ]);
    change.push_str(", #ttl = if_not_exists(#ttl, :ttl)");
    // As of a counter, whatever the kind: a live one that does not expire has a TTL too, which is kept.
    let ttl = ttl_seconds(Kind::Counter, add.expires_if_new).unwrap_or(u64::MAX);
    values.insert(":ttl".to_owned(), number(ttl));
    Update { change, condition, values }
}

fn touch(first: u8, expires_at: Timestamp, version: Version, now: Timestamp) -> Update {
    let mut change = format!("SET {EXPIRES} = :exp, {VERSION} = :ver");
    let mut values = HashMap::from([
        (":now".to_owned(), number(now.as_millis())),
        (":first".to_owned(), binary(&[first])),
        (":exp".to_owned(), number(expires_at.as_millis())),
        (":ver".to_owned(), binary(version.as_bytes())),
    ]);
    match ttl_seconds(Kind::Record, expires_at) {
        Some(seconds) => {
            change.push_str(", #ttl = :ttl");
            values.insert(":ttl".to_owned(), number(seconds));
        }
        None => change.push_str(" REMOVE #ttl"),
    }
    let condition = format!("{EXPIRES} > :now AND begins_with({VALUE}, :first)");
    Update { change, condition, values }
}

/// Makes the item a counter, whatever its kind.
fn make_counter(item: &mut Item, record: &Record) {
    if let Ok(count) = decode_count(&record.value) {
        item.insert(VALUE.to_owned(), AttributeValue::N(count.to_string()));
    }
    if let Some(seconds) = ttl_seconds(Kind::Counter, record.expires_at) {
        item.insert(TTL.to_owned(), number(seconds));
    }
}

fn live(item: Option<Item>, now: Timestamp) -> Result<Option<Record>> {
    let record = item.map(|item| record_of(&item)).transpose()?;
    Ok(record.filter(|record| record.is_live(now)))
}
