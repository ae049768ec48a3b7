//! Commands on keys, each by the shortest way: a single round trip to the engine where the command allows it.

use std::collections::BTreeSet;

use bytes::Bytes;
use ebbtide::stores::records::{
    BatchOutcome, DeleteOutcome, FoundRecord, IncrementTextOutcome, Modification, PutOutcome, PutRecord,
    RecordCondition, RecordWrite, Records, TouchCondition, TouchOutcome, TouchRecord, WriteAnswer,
};
use ebbtide::stores::shared::life::RecordTtl;
use ebbtide::timekeeping::TimeSource;
use ebbtide::{Batch, Error};
use futures_util::future::{join, join_all};

use super::apply::{add_float, joined, not_an_integer, overflow, record_value};
use super::data::{Data, End, Set, SetAnswer, Test, When};
use super::reply::Reply;
use super::transaction::{address, execute};

/// Most bytes of the values in one reply.
const MAX_REPLY_BYTES: usize = 32 << 20;

/// Keys that are read at a time, so that a long `MGET` does not hold more than its reply.
const READ_AT_ONCE: usize = 64;

type ReplyResult = ebbtide::Result<Reply>;

/// Runs one command.
pub(super) async fn run(records: &Records, data: &Data, time: &TimeSource) -> ReplyResult {
    match data {
        Data::Get { key } => Ok(Reply::optional(value(records, key).await?)),
        Data::Set(set) => run_set(records, set, time).await,
        Data::GetDel { key } => {
            let taken = records.take(&address(key)).await?;
            Ok(Reply::optional(taken.map(|found| found.value.as_bytes().clone())))
        }
        Data::GetEx { key, end } => get_ex(records, key, *end).await,
        Data::MGet { keys } => read_many(records, keys).await,
        Data::Del { keys } => delete(records, keys).await,
        Data::DelEx { key, test } => delete_if(records, key, test.as_ref()).await,
        Data::Exists { keys } => exists(records, keys).await,
        Data::Expire { key, end, only_if } => expire(records, key, *end, *only_if, data, time).await,
        Data::Persist { key } => {
            let touch = TouchRecord::new(address(key), RecordTtl::Never).only_if(TouchCondition::Ends);
            let touched = records.touch(&touch).await?;
            Ok(Reply::boolean(matches!(touched, TouchOutcome::Touched(_))))
        }
        Data::Ttl { key, form } => {
            let found = look(records, key).await?;
            Ok(form.reply(found.map(|found| found.expires_at), time.now()?.latest()))
        }
        Data::Strlen { key } => {
            let length = look(records, key).await?.map_or(0, |found| found.value.as_bytes().len());
            Ok(Reply::Integer(i64::try_from(length).unwrap_or(i64::MAX)))
        }
        Data::Type { key } => {
            let there = look(records, key).await?.is_some();
            Ok(Reply::Simple(if there { "string" } else { "none" }))
        }
        Data::IncrBy { key, by } => {
            let id = key.clone().into();
            Ok(match records.increment_text(Records::REDIS, &id, *by).await? {
                IncrementTextOutcome::Counted(sum) => Reply::Integer(sum),
                IncrementTextOutcome::Overflow => overflow(),
                _ => not_an_integer(),
            })
        }
        Data::IncrByFloat { key, by } => {
            modify(records, key, |value| add_float(value, by), Reply::Bulk).await
        }
        Data::Append { key, value } => {
            let length = |bytes: Bytes| Reply::Integer(i64::try_from(bytes.len()).unwrap_or(i64::MAX));
            modify(records, key, |before| Ok(joined(before, value)), length).await
        }
        Data::MSet { .. } => alone(records, data, time).await,
    }
}

/// Runs a command as a transaction of its own.
async fn alone(records: &Records, data: &Data, time: &TimeSource) -> ReplyResult {
    let replies = execute(records, &[data], &[], time).await?;
    let reply = replies.and_then(|mut replies| replies.pop());
    reply.ok_or_else(|| Error::unavailable("the command has no reply"))
}

async fn value(records: &Records, key: &Bytes) -> ebbtide::Result<Option<Bytes>> {
    let found = records.get(&address(key)).await?.found();
    Ok(found.map(|found| found.value.as_bytes().clone()))
}

/// Looks at a record without renewing it.
async fn look(records: &Records, key: &Bytes) -> ebbtide::Result<Option<FoundRecord>> {
    Ok(records.get_many(&[address(key)]).await?.pop().flatten())
}

async fn run_set(records: &Records, set: &Set, time: &TimeSource) -> ReplyResult {
    let Some(put) = put_of(set)? else {
        return alone(records, &Data::Set(Box::new(set.clone())), time).await;
    };
    let outcome = records.put(&put).await?;
    set_reply(records, set, outcome, time).await
}

/// Write of a `SET`; none if its end has passed already.
pub(super) fn put_of(set: &Set) -> ebbtide::Result<Option<PutRecord>> {
    let life = match set.end.map(End::life).transpose()? {
        None => RecordTtl::Default,
        Some(Some(life)) => life,
        Some(None) => return Ok(None),
    };
    let condition = match set.when {
        When::Always => RecordCondition::Any,
        When::Absent => RecordCondition::Absent,
        When::Present => RecordCondition::Present,
    };
    let mut put = PutRecord::new(Records::REDIS, set.key.clone(), record_value(&set.value));
    if life == RecordTtl::Keep {
        put = put.inheriting();
    }
    Ok(Some(put.life(life).only_if(condition)))
}

/// Reply to a `SET` whose write was answered so.
pub(super) async fn set_reply(
    records: &Records,
    set: &Set,
    outcome: PutOutcome,
    time: &TimeSource,
) -> ReplyResult {
    match (settled(set, &outcome), outcome) {
        (Some(reply), _) => Ok(reply),
        // The value that was in the way has to be read with the same step that finds it there. An end that has passed
        // removes the key, if the condition holds.
        (None, PutOutcome::Conflict | PutOutcome::Expired) => {
            alone(records, &Data::Set(Box::new(set.clone())), time).await
        }
        (None, other) => Err(Error::unavailable(format!("put was refused: {other:?}"))),
    }
}

/// Reply to a `SET` that needs no further step.
fn settled(set: &Set, outcome: &PutOutcome) -> Option<Reply> {
    Some(match (outcome, set.answer) {
        (PutOutcome::Stored { .. }, SetAnswer::Ok) => Reply::OK,
        (PutOutcome::Stored { .. }, SetAnswer::Number) => Reply::boolean(true),
        (PutOutcome::Stored { previous, .. }, SetAnswer::Previous) => {
            Reply::optional(previous.as_ref().map(|found| found.value.as_bytes().clone()))
        }
        (PutOutcome::Conflict, SetAnswer::Ok) => Reply::Nil,
        (PutOutcome::Conflict, SetAnswer::Number) => Reply::boolean(false),
        (PutOutcome::Conflict, SetAnswer::Previous) if set.when == When::Present => Reply::Nil,
        _ => return None,
    })
}

/// Returns true if a plain `SET` has replaced a key, which its reply does not tell.
fn replaces(set: &Set, outcome: &PutOutcome) -> bool {
    let is_plain = set.when == When::Always && set.answer == SetAnswer::Ok;
    is_plain && matches!(outcome, PutOutcome::Stored { created: false, .. })
}

/// Runs one command by itself, and answers with the number of plain `SET`s that replaced a key, as [`run_each`] does.
pub(super) async fn run_alone(records: &Records, data: &Data, time: &TimeSource) -> (Reply, u64) {
    let put = match data {
        Data::Set(set) => put_of(set).map(|put| put.map(|put| (set, put))),
        _ => Ok(None),
    };
    let stored = match put {
        Ok(Some((set, put))) => records.put(&put).await.map(|outcome| Some((set, outcome))),
        Ok(None) => Ok(None),
        Err(error) => Err(error),
    };
    let (replaced, settled) = match &stored {
        Ok(Some((set, outcome))) => (u64::from(replaces(set, outcome)), settled(set, outcome)),
        _ => (0, None),
    };
    if let Some(reply) = settled {
        return (reply, replaced);
    }
    // Rarer, and larger: apart from the future of a connection.
    let reply = match stored {
        Ok(Some((set, outcome))) => Box::pin(set_reply(records, set, outcome, time)).await,
        Ok(None) => Box::pin(run(records, data, time)).await,
        Err(error) => Err(error),
    };
    (reply.unwrap_or_else(Reply::from), replaced)
}

/// Runs commands that touch different keys, and answers in their order, with the number of plain `SET`s that replaced a
/// key. The writes of several `SET` go to the engine together.
pub(super) async fn run_each<'a>(
    records: &Records,
    commands: impl ExactSizeIterator<Item = &'a Data>,
    time: &TimeSource,
) -> (Vec<Reply>, u64) {
    let mut replies = vec![Reply::Nil; commands.len()];
    let mut replaced = 0;
    let (mut sets, mut puts, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for (place, data) in commands.enumerate() {
        match data {
            Data::Set(set) => match put_of(set) {
                Ok(Some(put)) => {
                    sets.push((place, set));
                    puts.push(put);
                }
                Ok(None) => others.push((place, data)),
                Err(error) => replies[place] = error.into(),
            },
            _ => others.push((place, data)),
        }
    }
    let others =
        others.into_iter().map(|(place, data)| async move { (place, run(records, data, time).await) });
    let (outcomes, answers) = join(records.put_each(&puts), join_all(others)).await;
    let mut further = Vec::new();
    for ((place, set), outcome) in sets.into_iter().zip(outcomes) {
        replaced += u64::from(outcome.as_ref().is_ok_and(|outcome| replaces(set, outcome)));
        match outcome.map(|outcome| (settled(set, &outcome), outcome)) {
            Ok((Some(reply), _)) => replies[place] = reply,
            Ok((None, outcome)) => further.push((place, set, outcome)),
            Err(error) => replies[place] = error.into(),
        }
    }
    let further = further
        .into_iter()
        .map(|(place, set, outcome)| async move { (place, set_reply(records, set, outcome, time).await) });
    for (place, answer) in join_all(further).await.into_iter().chain(answers) {
        replies[place] = answer.unwrap_or_else(Reply::from);
    }
    (replies, replaced)
}

async fn get_ex(records: &Records, key: &Bytes, end: Option<End>) -> ReplyResult {
    let Some(end) = end else { return Ok(Reply::optional(value(records, key).await?)) };
    let touched = match end.life()? {
        Some(life) => records.touch(&TouchRecord::new(address(key), life)).await?,
        None => TouchOutcome::Expired,
    };
    let found = match touched {
        TouchOutcome::Touched(found) | TouchOutcome::Kept(found) => Some(found),
        TouchOutcome::Expired => records.take(&address(key)).await?,
        _ => None,
    };
    Ok(Reply::optional(found.map(|found| found.value.as_bytes().clone())))
}

async fn read_many(records: &Records, keys: &[Bytes]) -> ReplyResult {
    let (mut replies, mut size) = (Vec::with_capacity(keys.len()), 0);
    for part in keys.chunks(READ_AT_ONCE) {
        let addresses: Vec<_> = part.iter().map(address).collect();
        for found in records.get_many(&addresses).await? {
            let reply = Reply::optional(found.map(|found| found.value.as_bytes().clone()));
            size += reply.size();
            if size > MAX_REPLY_BYTES {
                return Err(Error::invalid(format!(
                    "the values have more than {MAX_REPLY_BYTES} bytes together"
                )));
            }
            replies.push(reply);
        }
        let_others(part).await;
    }
    Ok(Reply::Array(replies))
}

/// Lets the other connections of the thread go on behind a whole part of many keys, which may all be at hand.
async fn let_others(part: &[Bytes]) {
    if part.len() == READ_AT_ONCE {
        tokio::task::yield_now().await;
    }
}

async fn exists(records: &Records, keys: &[Bytes]) -> ReplyResult {
    let mut there = 0;
    for part in keys.chunks(READ_AT_ONCE) {
        let addresses: Vec<_> = part.iter().map(address).collect();
        there += records.get_many(&addresses).await?.iter().flatten().count();
        let_others(part).await;
    }
    Ok(Reply::Integer(i64::try_from(there).unwrap_or(i64::MAX)))
}

/// Deletes keys: up to a hundred in one step, more in several.
async fn delete(records: &Records, keys: &[Bytes]) -> ReplyResult {
    if let [key] = keys {
        let deleted = records.delete(&address(key), RecordCondition::Any).await?;
        return Ok(Reply::boolean(deleted == DeleteOutcome::Deleted));
    }
    let distinct: BTreeSet<&Bytes> = keys.iter().collect();
    let writes: Vec<_> = distinct
        .into_iter()
        .map(|key| RecordWrite::Delete {
            collection: Records::REDIS.to_owned(),
            id: key.clone().into(),
            condition: RecordCondition::Any,
        })
        .collect();
    let mut deleted = 0;
    for part in writes.chunks(Batch::MAX_WRITES) {
        let BatchOutcome::Applied(answers) = records.batch(part).await? else {
            return Err(Error::unavailable("the keys were not deleted"));
        };
        deleted += answers.iter().filter(|answer| **answer == WriteAnswer::Deleted(true)).count();
    }
    Ok(Reply::Integer(i64::try_from(deleted).unwrap_or(i64::MAX)))
}

async fn delete_if(records: &Records, key: &Bytes, test: Option<&Test>) -> ReplyResult {
    let mut deletes = false;
    let id = key.clone().into();
    let change = records.modify(Records::REDIS, &id, |found| {
        deletes = found.is_some_and(|found| test.is_none_or(|test| test.holds(found.value.as_bytes())));
        Ok(if deletes { Modification::Delete } else { Modification::Keep })
    });
    change.await?;
    Ok(Reply::boolean(deletes))
}

async fn expire(
    records: &Records,
    key: &Bytes,
    end: End,
    only_if: Option<TouchCondition>,
    data: &Data,
    time: &TimeSource,
) -> ReplyResult {
    let Some(life) = end.life()? else {
        return if only_if.is_some() {
            alone(records, data, time).await
        } else {
            delete(records, std::slice::from_ref(key)).await
        };
    };
    let mut touch = TouchRecord::new(address(key), life);
    if let Some(condition) = only_if {
        touch = touch.only_if(condition);
    }
    match records.touch(&touch).await? {
        TouchOutcome::Touched(_) => Ok(Reply::boolean(true)),
        TouchOutcome::Expired => alone(records, data, time).await,
        _ => Ok(Reply::boolean(false)),
    }
}

/// Changes a value by a function of it, and keeps its end.
async fn modify(
    records: &Records,
    key: &Bytes,
    mut change: impl FnMut(Option<&Bytes>) -> Result<Bytes, Reply> + Send,
    answer: impl Fn(Bytes) -> Reply,
) -> ReplyResult {
    let mut outcome = Err(Reply::Nil);
    let id = key.clone().into();
    let modified = records.modify(Records::REDIS, &id, |found| {
        outcome = change(found.map(|found| found.value.as_bytes()));
        Ok(match &outcome {
            Ok(bytes) => Modification::Put { value: record_value(bytes), life: RecordTtl::Keep },
            Err(_) => Modification::Keep,
        })
    });
    modified.await?;
    Ok(outcome.map_or_else(|refused| refused, answer))
}
