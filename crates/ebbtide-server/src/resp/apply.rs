//! Commands in memory, on keys that were read: what `EXEC` commits in one step.

use std::collections::BTreeMap;

use bytes::Bytes;
use ebbtide::stores::records::{FoundRecord, RecordValue, Records, TouchCondition};
use ebbtide::stores::shared::life::RecordTtl;
use ebbtide::timekeeping::Now;
use ebbtide::{Timestamp, Version};

use super::data::{Data, End, Set, SetAnswer, When};
use super::decimal;
use super::parse::{NOT_A_FLOAT, NOT_AN_INTEGER, float, integer};
use super::reply::Reply;

/// Keys that a transaction has read.
#[derive(Debug)]
pub(super) struct View<'a> {
    pub(super) slots: BTreeMap<Bytes, Slot>,
    records: &'a Records,
    now: Now,
}

/// Key that was read, and its state within the transaction.
#[derive(Debug)]
pub(super) struct Slot {
    /// Version that was read; none if there was no record.
    pub(super) read: Option<Version>,
    pub(super) value: Option<Value>,
    pub(super) changed: bool,
}

/// Value within a transaction.
#[derive(Debug, Clone)]
pub(super) struct Value {
    pub(super) bytes: Bytes,
    end: Timestamp,
    /// Lifetime to write.
    pub(super) life: RecordTtl,
    /// True if it is the record that was read, whose group and second keys stay.
    pub(super) inherits: bool,
}

impl<'a> View<'a> {
    pub(super) fn new(
        found: impl IntoIterator<Item = (Bytes, Option<FoundRecord>)>,
        records: &'a Records,
        now: Now,
    ) -> Self {
        let slot = |(key, found): (Bytes, Option<FoundRecord>)| {
            let read = found.as_ref().map(|found| found.version);
            let value = found.map(|found| Value {
                bytes: found.value.as_bytes().clone(),
                end: found.expires_at,
                life: RecordTtl::Keep,
                inherits: true,
            });
            (key, Slot { read, value, changed: false })
        };
        Self { slots: found.into_iter().map(slot).collect(), records, now }
    }

    fn slot(&mut self, key: &Bytes) -> &mut Slot {
        self.slots.entry(key.clone()).or_insert(Slot { read: None, value: None, changed: false })
    }

    fn value(&self, key: &Bytes) -> Option<&Value> {
        self.slots.get(key).and_then(|slot| slot.value.as_ref())
    }

    fn bytes(&self, key: &Bytes) -> Option<Bytes> {
        self.value(key).map(|value| value.bytes.clone())
    }

    fn remove(&mut self, key: &Bytes) -> bool {
        let slot = self.slot(key);
        let there = slot.value.take().is_some();
        slot.changed |= there;
        there
    }

    /// Writes a key anew. Without an end it gets the policy's; `Keep` leaves the end, the group and the second keys as
    /// they are.
    fn overwrite(&mut self, key: &Bytes, bytes: Bytes, end: Option<End>) -> ebbtide::Result<()> {
        self.write(key, bytes, end, end == Some(End::Keep))
    }

    /// Changes the value or the end of a key. Its group and its second keys stay.
    fn update(&mut self, key: &Bytes, bytes: Bytes, end: End) -> ebbtide::Result<()> {
        self.write(key, bytes, Some(end), true)
    }

    /// Writes a value. An end that has passed removes the key.
    fn write(&mut self, key: &Bytes, bytes: Bytes, end: Option<End>, inherits: bool) -> ebbtide::Result<()> {
        let before = self.value(key).cloned();
        let reached = match (end, &before) {
            (Some(End::Keep), Some(before)) => Some((before.life, before.end)),
            (None | Some(End::Keep), _) => self.reach_life(RecordTtl::Default)?,
            (Some(end), _) => self.reach(end)?,
        };
        let Some((life, ends_at)) = reached else {
            self.remove(key);
            return Ok(());
        };
        let inherits = inherits && before.is_some_and(|before| before.inherits);
        let slot = self.slot(key);
        slot.value = Some(Value { bytes, end: ends_at, life, inherits });
        slot.changed = true;
        Ok(())
    }

    /// Lifetime and instant of an end; none if it has passed.
    fn reach(&self, end: End) -> ebbtide::Result<Option<(RecordTtl, Timestamp)>> {
        end.life()?.map_or(Ok(None), |life| self.reach_life(life))
    }

    fn reach_life(&self, life: RecordTtl) -> ebbtide::Result<Option<(RecordTtl, Timestamp)>> {
        let ends_at = self.records.end_of(Records::REDIS, life, None, self.now)?;
        Ok(ends_at.map(|ends_at| (life, ends_at)))
    }

    /// Runs one command. A refusal is a reply, and changes nothing.
    pub(super) fn run(&mut self, data: &Data) -> ebbtide::Result<Reply> {
        Ok(match data {
            Data::Get { key } => Reply::optional(self.bytes(key)),
            Data::MGet { keys } => {
                Reply::Array(keys.iter().map(|key| Reply::optional(self.bytes(key))).collect())
            }
            Data::Exists { keys } => {
                let there = keys.iter().filter(|key| self.value(key).is_some()).count();
                Reply::Integer(i64::try_from(there).unwrap_or(i64::MAX))
            }
            Data::Strlen { key } => {
                let length = self.value(key).map_or(0, |value| value.bytes.len());
                Reply::Integer(i64::try_from(length).unwrap_or(i64::MAX))
            }
            Data::Type { key } => Reply::Simple(if self.value(key).is_some() { "string" } else { "none" }),
            Data::Ttl { key, form } => form.reply(self.value(key).map(|value| value.end), self.now.latest()),
            Data::Set(set) => self.set(set)?,
            Data::GetDel { key } => {
                let value = self.bytes(key);
                self.remove(key);
                Reply::optional(value)
            }
            Data::GetEx { key, end } => {
                let value = self.bytes(key);
                if let (Some(bytes), Some(end)) = (value.clone(), end) {
                    self.update(key, bytes, *end)?;
                }
                Reply::optional(value)
            }
            Data::MSet { pairs, only_new } => {
                if *only_new && pairs.iter().any(|(key, _)| self.value(key).is_some()) {
                    return Ok(Reply::boolean(false));
                }
                for (key, value) in pairs {
                    self.overwrite(key, value.clone(), None)?;
                }
                if *only_new { Reply::boolean(true) } else { Reply::OK }
            }
            Data::Del { keys } => {
                let removed = keys.iter().filter(|key| self.remove(key)).count();
                Reply::Integer(i64::try_from(removed).unwrap_or(i64::MAX))
            }
            Data::DelEx { key, test } => {
                let holds = |value: &Value| test.as_ref().is_none_or(|test| test.holds(&value.bytes));
                let removes = self.value(key).is_some_and(holds);
                Reply::boolean(removes && self.remove(key))
            }
            Data::Expire { key, end, only_if } => self.expire(key, *end, *only_if)?,
            Data::Persist { key } => match self.value(key).cloned() {
                Some(value) if !value.end.is_never() => {
                    self.update(key, value.bytes, End::Never)?;
                    Reply::boolean(true)
                }
                _ => Reply::boolean(false),
            },
            Data::IncrBy { key, by } => {
                let number = self.value(key).map_or(Ok(0), |value| integer(&value.bytes));
                match number.map(|number| number.checked_add(*by)) {
                    Err(refused) => refused,
                    Ok(None) => overflow(),
                    Ok(Some(sum)) => {
                        self.update(key, sum.to_string().into(), End::Keep)?;
                        Reply::Integer(sum)
                    }
                }
            }
            Data::IncrByFloat { key, by } => match add_float(self.value(key).map(|value| &value.bytes), by) {
                Err(refused) => refused,
                Ok(sum) => {
                    self.update(key, sum.clone(), End::Keep)?;
                    Reply::Bulk(sum)
                }
            },
            Data::Append { key, value } => {
                let joined = joined(self.value(key).map(|value| &value.bytes), value);
                let length = joined.len();
                self.update(key, joined, End::Keep)?;
                Reply::Integer(i64::try_from(length).unwrap_or(i64::MAX))
            }
        })
    }

    fn set(&mut self, set: &Set) -> ebbtide::Result<Reply> {
        let previous = self.bytes(&set.key);
        let writes = match set.when {
            When::Always => true,
            When::Absent => previous.is_none(),
            When::Present => previous.is_some(),
        };
        if writes {
            self.overwrite(&set.key, set.value.clone(), set.end)?;
        }
        Ok(match set.answer {
            SetAnswer::Ok if writes => Reply::OK,
            SetAnswer::Ok => Reply::Nil,
            SetAnswer::Number => Reply::boolean(writes),
            SetAnswer::Previous => Reply::optional(previous),
        })
    }

    fn expire(&mut self, key: &Bytes, end: End, only_if: Option<TouchCondition>) -> ebbtide::Result<Reply> {
        let Some(value) = self.value(key).cloned() else { return Ok(Reply::boolean(false)) };
        // An end that has passed is sooner than any other.
        let ends_at = self.reach(end)?.map_or(self.now.latest(), |(_, ends_at)| ends_at);
        let holds = match only_if {
            None => true,
            Some(TouchCondition::Endless) => value.end.is_never(),
            Some(TouchCondition::Ends) => !value.end.is_never(),
            Some(TouchCondition::Later) => ends_at > value.end,
            Some(TouchCondition::Sooner) => ends_at < value.end,
            Some(TouchCondition::Shortens) => !value.end.is_never() && ends_at < value.end,
            Some(_) => false,
        };
        if holds {
            self.update(key, value.bytes, end)?;
        }
        Ok(Reply::boolean(holds))
    }
}

pub(super) fn overflow() -> Reply {
    Reply::error("ERR increment or decrement would overflow")
}

/// Sum of a value and a number with a fraction, as text.
pub(super) fn add_float(value: Option<&Bytes>, by: &Bytes) -> Result<Bytes, Reply> {
    let before = value.map_or(Ok(0.0), |value| float(value)).map_err(|_| NOT_A_FLOAT)?;
    let text = value.map_or(&b"0"[..], |value| value);
    if let Some(sum) = decimal::sum(text, by) {
        return Ok(sum.into());
    }
    let sum = before + float(by)?;
    if !sum.is_finite() {
        return Err(Reply::error("ERR increment would produce NaN or Infinity"));
    }
    Ok(sum.to_string().into())
}

/// Value with more bytes behind it.
pub(super) fn joined(value: Option<&Bytes>, more: &Bytes) -> Bytes {
    match value {
        Some(value) => [value.as_ref(), more].concat().into(),
        None => more.clone(),
    }
}

/// Value of a record that this protocol writes.
pub(super) fn record_value(bytes: &Bytes) -> RecordValue {
    RecordValue::from_bytes(bytes.clone())
}

/// Reply for a value that is not a number.
pub(super) fn not_an_integer() -> Reply {
    NOT_AN_INTEGER
}
