//! Transactions: the keys are read, the commands run in memory, and one batch is committed on every version that was
//! read. If another writer was faster, all of it is repeated.

use std::collections::BTreeSet;

use bytes::Bytes;
use ebbtide::stores::records::{
    BatchOutcome, PutRecord, RecordAddress, RecordCondition, RecordWrite, Records, Refusal,
};
use ebbtide::timekeeping::TimeSource;
use ebbtide::{Batch, Error, ErrorKind, Version};

use super::apply::{Slot, View, record_value};
use super::data::Data;
use super::reply::Reply;

/// Attempts of a transaction.
const ATTEMPTS: usize = 16;

/// Key that is watched, and the version that it had; none if it was absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Watched {
    pub(super) key: Bytes,
    pub(super) version: Option<Version>,
}

pub(super) fn address(key: &Bytes) -> RecordAddress {
    RecordAddress::id(Records::REDIS, key.clone())
}

/// Reads the versions of the keys that are to be watched.
pub(super) async fn watch(records: &Records, keys: &[Bytes]) -> ebbtide::Result<Vec<Watched>> {
    let addresses: Vec<_> = keys.iter().map(address).collect();
    let found = records.get_many(&addresses).await?;
    let watched = |(key, found): (&Bytes, Option<ebbtide::stores::records::FoundRecord>)| Watched {
        key: key.clone(),
        version: found.map(|found| found.version),
    };
    Ok(keys.iter().zip(found).map(watched).collect())
}

/// Runs the commands as one step. None if a watched key has changed.
pub(super) async fn execute(
    records: &Records,
    commands: &[&Data],
    watched: &[Watched],
    time: &TimeSource,
) -> ebbtide::Result<Option<Vec<Reply>>> {
    let mut keys: BTreeSet<&Bytes> = commands.iter().flat_map(|data| data.keys()).collect();
    keys.extend(watched.iter().map(|watched| &watched.key));
    if keys.len() > Batch::MAX_WRITES {
        return Err(Error::invalid(format!(
            "a transaction has at most {} keys; this one has {}",
            Batch::MAX_WRITES,
            keys.len()
        )));
    }
    let addresses: Vec<_> = keys.iter().map(|key| address(key)).collect();
    for _ in 0..ATTEMPTS {
        let found = if addresses.is_empty() { Vec::new() } else { records.get_many(&addresses).await? };
        let found = keys.iter().map(|key| (*key).clone()).zip(found);
        let mut view = View::new(found, records, time.now()?);
        let is_broken =
            |watched: &Watched| view.slots.get(&watched.key).is_some_and(|slot| slot.read != watched.version);
        if watched.iter().any(is_broken) {
            return Ok(None);
        }
        let mut run = |data: &&Data| match view.run(data) {
            // A command that is refused has an error for its reply, as in Redis; the others take effect.
            Err(error) if error.kind() == ErrorKind::Invalid => Ok(Reply::from(error)),
            answer => answer,
        };
        let replies = commands.iter().map(&mut run).collect::<ebbtide::Result<Vec<_>>>()?;
        // One key that is only read needs no second look: the read is the step.
        if view.slots.values().all(|slot| !slot.changed) && view.slots.len() <= 1 {
            return Ok(Some(replies));
        }
        let writes: Vec<_> = view.slots.iter().map(|(key, slot)| write(key, slot)).collect();
        match records.batch(&writes).await? {
            BatchOutcome::Applied(_) => return Ok(Some(replies)),
            // An end that passes between the run and the commit is judged anew.
            BatchOutcome::Refused { refusal: Refusal::Conflict | Refusal::Expired, .. } => {}
            refused => return Err(Error::unavailable(format!("transaction was refused: {refused:?}"))),
        }
    }
    Err(Error::unavailable("the keys were changed by others at every attempt; try again"))
}

/// Write of one key, on the version that was read.
fn write(key: &Bytes, slot: &Slot) -> RecordWrite {
    let condition = slot.read.map_or(RecordCondition::Absent, RecordCondition::Version);
    let (collection, id) = (Records::REDIS.to_owned(), key.clone().into());
    match &slot.value {
        Some(value) if slot.changed => {
            let put = PutRecord::new(Records::REDIS, key.clone(), record_value(&value.bytes));
            let put = put.life(value.life).only_if(condition);
            RecordWrite::Put(if value.inherits { put.inheriting() } else { put })
        }
        // A key that was made and removed within the transaction was absent, and stays so.
        None if slot.changed && slot.read.is_some() => RecordWrite::Delete { collection, id, condition },
        _ => RecordWrite::Check { collection, id, condition },
    }
}
