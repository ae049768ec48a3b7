//! Commands that read or write keys.

use std::time::Duration;

use bytes::Bytes;
use ebbtide::stores::records::TouchCondition;
use ebbtide::stores::shared::life::RecordTtl;
use ebbtide::{Timestamp, Ttl};

use super::reply::Reply;

/// Command on keys, with its arguments checked.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Data {
    Get { key: Bytes },
    Set(Box<Set>),
    GetDel { key: Bytes },
    GetEx { key: Bytes, end: Option<End> },
    MGet { keys: Vec<Bytes> },
    MSet { pairs: Vec<(Bytes, Bytes)>, only_new: bool },
    Del { keys: Vec<Bytes> },
    DelEx { key: Bytes, test: Option<Test> },
    Exists { keys: Vec<Bytes> },
    Expire { key: Bytes, end: End, only_if: Option<TouchCondition> },
    Persist { key: Bytes },
    Ttl { key: Bytes, form: TtlForm },
    IncrBy { key: Bytes, by: i64 },
    IncrByFloat { key: Bytes, by: Bytes },
    Append { key: Bytes, value: Bytes },
    Strlen { key: Bytes },
    Type { key: Bytes },
}

/// `SET` and its relatives.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Set {
    pub(super) key: Bytes,
    pub(super) value: Bytes,
    pub(super) end: Option<End>,
    pub(super) when: When,
    pub(super) answer: SetAnswer,
}

/// Condition of a `SET`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    Always,
    Absent,
    Present,
}

/// Form of the reply to a `SET`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SetAnswer {
    /// `OK`, or nil.
    Ok,
    /// 1 or 0.
    Number,
    /// The value before.
    Previous,
}

/// End of a key that a command asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Milliseconds from now on.
    In(i64),
    /// Milliseconds since 1970.
    At(i64),
    /// The end that the key has.
    Keep,
    /// None.
    Never,
}

impl End {
    /// Lifetime for the records store; none if it has passed already.
    pub(super) fn life(self) -> ebbtide::Result<Option<RecordTtl>> {
        Ok(Some(match self {
            Self::In(millis) if millis <= 0 => return Ok(None),
            Self::In(millis) => RecordTtl::For(Ttl::new(Duration::from_millis(millis.unsigned_abs()))?),
            Self::At(millis) if millis <= 0 => return Ok(None),
            Self::At(millis) => RecordTtl::Until(Timestamp::from_millis(millis.unsigned_abs())?),
            Self::Keep => RecordTtl::Keep,
            Self::Never => RecordTtl::Never,
        }))
    }
}

/// Comparison of a value: `IFEQ` or `IFNE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Test {
    pub(super) equal: bool,
    pub(super) value: Bytes,
}

impl Test {
    pub(super) fn holds(&self, value: &[u8]) -> bool {
        (self.value == value) == self.equal
    }
}

/// Form in which the end of a key is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TtlForm {
    pub(super) millis: bool,
    /// Time since 1970, and not from now on.
    pub(super) absolute: bool,
}

impl TtlForm {
    /// Reply for a key with this end; none for a key that is not there.
    pub(super) fn reply(self, end: Option<Timestamp>, now: Timestamp) -> Reply {
        let Some(end) = end else { return Reply::Integer(-2) };
        if end.is_never() {
            return Reply::Integer(-1);
        }
        let millis = if self.absolute { u128::from(end.as_millis()) } else { end.since(now).as_millis() };
        // The nearest second, as Redis has it.
        let shown = if self.millis { millis } else { (millis + 500) / 1_000 };
        Reply::Integer(i64::try_from(shown).unwrap_or(i64::MAX))
    }
}

impl Data {
    /// Keys of the command.
    pub(super) fn keys(&self) -> impl Iterator<Item = &Bytes> {
        let (one, many, pairs): (_, &[Bytes], &[(Bytes, Bytes)]) = match self {
            Self::Get { key }
            | Self::GetDel { key }
            | Self::GetEx { key, .. }
            | Self::DelEx { key, .. }
            | Self::Expire { key, .. }
            | Self::Persist { key }
            | Self::Ttl { key, .. }
            | Self::IncrBy { key, .. }
            | Self::IncrByFloat { key, .. }
            | Self::Append { key, .. }
            | Self::Strlen { key }
            | Self::Type { key } => (Some(key), &[], &[]),
            Self::Set(set) => (Some(&set.key), &[], &[]),
            Self::MSet { pairs, .. } => (None, &[], pairs),
            Self::MGet { keys } | Self::Del { keys } | Self::Exists { keys } => (None, keys, &[]),
        };
        one.into_iter().chain(many).chain(pairs.iter().map(|(key, _)| key))
    }

    /// Number of keys that a command which writes may have added, as far as its reply tells.
    pub(super) fn added(&self, reply: &Reply) -> u64 {
        let is_new = match (self, reply) {
            (_, Reply::Error(_)) => false,
            (Self::MSet { only_new: true, .. }, Reply::Integer(written)) => *written == 1,
            (Self::Set(set), _) if set.when == When::Present => false,
            (Self::Set(set), reply) => match set.answer {
                SetAnswer::Ok => *reply == Reply::OK,
                SetAnswer::Number => *reply == Reply::boolean(true),
                SetAnswer::Previous => *reply == Reply::Nil,
            },
            // An absent key is zero, or empty.
            (Self::IncrBy { by, .. }, Reply::Integer(sum)) => sum == by,
            (Self::Append { value, .. }, Reply::Integer(length)) => {
                usize::try_from(*length) == Ok(value.len())
            }
            _ => true,
        };
        if is_new { self.keys().count() as u64 } else { 0 }
    }

    /// Returns true if the command has so many keys that it is run by itself: they share their steps already, to compare
    /// them with those of others takes longer than a group saves, and the replies of two are not held at the same time.
    pub(super) fn has_many_keys(&self) -> bool {
        const MANY: usize = 16;
        match self {
            Self::MSet { pairs, .. } => pairs.len() > MANY,
            Self::MGet { keys } | Self::Del { keys } | Self::Exists { keys } => keys.len() > MANY,
            _ => false,
        }
    }

    /// Effect on its keys, which decides whether two commands may run together.
    pub(super) fn effect(&self) -> Effect {
        match self {
            Self::Get { .. }
            | Self::MGet { .. }
            | Self::Exists { .. }
            | Self::Ttl { .. }
            | Self::Strlen { .. }
            | Self::Type { .. } => Effect::Read,
            Self::IncrBy { .. } => Effect::Add,
            Self::Set(set) if set.is_plain() => Effect::Overwrite,
            _ => Effect::Write,
        }
    }
}

impl Set {
    /// Returns true if nothing depends on what was there before.
    pub(super) fn is_plain(&self) -> bool {
        self.when == When::Always && self.answer == SetAnswer::Ok && self.end != Some(End::Keep)
    }
}

/// Effect of a command on its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    Read,
    /// An addition: several commute, and are gathered into one write in their order.
    Add,
    /// A write that depends on nothing: of several in a row only the last one has to be written.
    Overwrite,
    Write,
}
