//! Conditions on the item at a key, as DynamoDB expressions.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;

use super::item::{EXPIRES, PK, VERSION, binary, number};
use crate::model::record::Version;
use crate::model::time::Timestamp;
use crate::model::write::Condition;

/// Expression and its values.
#[derive(Debug, Clone)]
pub(super) struct ConditionExpression {
    pub(super) expression: String,
    pub(super) values: HashMap<String, AttributeValue>,
}

impl ConditionExpression {
    fn new<const N: usize>(expression: String, values: [(&str, AttributeValue); N]) -> Self {
        let values = values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Self { expression, values }
    }

    pub(super) fn into_parts(self) -> (String, HashMap<String, AttributeValue>) {
        (self.expression, self.values)
    }

    /// Conjunction of two expressions, whose values have different names.
    #[must_use]
    pub(super) fn and(mut self, other: Self) -> Self {
        self.expression = format!("({}) AND ({})", self.expression, other.expression);
        self.values.extend(other.values);
        self
    }
}

/// Expression of a write's condition; `None` if it is unconditional.
pub(super) fn asked(condition: Condition, now: Timestamp) -> Option<ConditionExpression> {
    match condition {
        Condition::Always => None,
        Condition::Absent => Some(ConditionExpression::new(
            format!("attribute_not_exists({PK}) OR {EXPIRES} <= :now"),
            [(":now", number(now.as_millis()))],
        )),
        Condition::Version(expected) => Some(same_version(expected).and(live(now))),
    }
}

/// Holds if the record is live.
pub(super) fn live(now: Timestamp) -> ConditionExpression {
    ConditionExpression::new(format!("{EXPIRES} > :now"), [(":now", number(now.as_millis()))])
}

/// Holds if a sweep up to `until` removes the record. The comparison is strict.
pub(super) fn overdue(until: Timestamp) -> ConditionExpression {
    ConditionExpression::new(format!("{EXPIRES} < :until"), [(":until", number(until.as_millis()))])
}

/// Holds if the version is this one, whatever its expiry.
pub(super) fn same_version(version: Version) -> ConditionExpression {
    ConditionExpression::new(format!("{VERSION} = :ver"), [(":ver", binary(version.as_bytes()))])
}

/// Holds if the partition key begins with one of these.
pub(super) fn begins_with(beginnings: &[Vec<u8>]) -> ConditionExpression {
    let names: Vec<_> = (0..beginnings.len()).map(|index| format!(":p{index}")).collect();
    let terms: Vec<_> = names.iter().map(|name| format!("begins_with({PK}, {name})")).collect();
    let values = names.into_iter().zip(beginnings.iter().map(|bytes| binary(bytes))).collect();
    ConditionExpression { expression: terms.join(" OR "), values }
}
