//! Transactions: the keys are read, the commands run in memory, and one batch is committed on every version that was
//! read. If another writer was faster, all of it is repeated, in turn with the others that were too slow.

use std::collections::BTreeSet;

use bytes::Bytes;
use ebbtide::stores::records::{
    BatchOutcome, PutRecord, RecordAddress, RecordCondition, RecordWrite, Records, Refusal, Turn,
};
use ebbtide::timekeeping::TimeSource;
use ebbtide::{Batch, Error, ErrorKind, Version};

use super::apply::{Slot, View, record_value};
use super::data::Data;
use super::reply::Reply;

/// Attempts of a transaction. Each loss is another writer's gain: of a newcomer, or of another process.
const ATTEMPTS: usize = 256;

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
    let mut turn = Turn::default();
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
        match records.batch_in_turn(&writes, &mut turn).await? {
            BatchOutcome::Applied(_) => return Ok(Some(replies)),
            // An end that passes between the run and the commit is judged anew.
            BatchOutcome::Refused { refusal: Refusal::Conflict | Refusal::Expired, .. } => {}
            refused => return Err(Error::unavailable(format!("transaction was refused: {refused:?}"))),
        }
        if let Some(first) = addresses.first() {
            records.wait_turn(first, &mut turn).await;
        }
    }
    Err(Error::unavailable(Error::CONTENDED))
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ebbtide::{
        Admin, Backend, ManualClock, Memory, Result, Scope, Stores, Timestamp, async_trait, delegate,
    };

    use super::*;
    use crate::resp::data::{Set, SetAnswer, When};

    /// Engine that lets every other task go first, so that transactions that begin together all read before one writes.
    struct Yielding {
        inner: Memory,
        yields: usize,
    }

    impl Yielding {
        async fn late<T>(&self, _: &str, call: impl Future<Output = Result<T>> + Send) -> Result<T> {
            for _ in 0..self.yields {
                tokio::task::yield_now().await;
            }
            call.await
        }
    }

    #[async_trait]
    impl Backend for Yielding {
        delegate!(self => self.inner, through self.late; get get_many take alter commit commit_each scan sweep);
        delegate!(self => self.inner; info);
    }

    #[async_trait]
    impl Admin for Yielding {
        delegate!(self => self.inner; stats stats_at_hand list count clear erase clock_mark set_clock_mark);
        delegate!(self => self.inner; engine_clock warnings backup);
    }

    fn records() -> (Records, Arc<TimeSource>) {
        let clock = ManualClock::at(Timestamp::from_millis(1_800_000_000_000).unwrap());
        let engine = Arc::new(Yielding { inner: Memory::default(), yields: 1 });
        let stores = Stores::builder_for_tests(engine).clock(clock.clone()).build();
        (stores.records(&Scope::Global), Arc::new(TimeSource::of_clock(clock)))
    }

    /// Runs the same command in so many transactions at once, each of them a few times. Returns the replies.
    async fn at_once(records: &Records, time: &Arc<TimeSource>, tasks: usize, data: &Data) -> Vec<Reply> {
        let transactions = (0..tasks).map(|_| {
            let (records, time, data) = (records.clone(), Arc::clone(time), data.clone());
            tokio::spawn(async move {
                let mut replies = Vec::new();
                for _ in 0..3 {
                    let more = execute(&records, &[&data], &[], &time).await.unwrap();
                    replies.extend(more.expect("nothing is watched"));
                }
                replies
            })
        });
        let mut replies = Vec::new();
        for transaction in transactions.collect::<Vec<_>>() {
            replies.extend(transaction.await.unwrap());
        }
        replies
    }

    #[tokio::test]
    async fn of_many_transactions_on_one_key_each_succeeds_once() {
        let (records, time) = records();
        let key = Bytes::from_static(b"n");
        let replies = at_once(&records, &time, 64, &Data::IncrBy { key: key.clone(), by: 1 }).await;
        let mut sums: Vec<_> = replies
            .into_iter()
            .map(|reply| match reply {
                Reply::Integer(sum) => sum,
                other => panic!("{other:?}"),
            })
            .collect();
        sums.sort_unstable();
        assert_eq!(sums, (1..=192).collect::<Vec<_>>());
        let found = records.get(&address(&key)).await.unwrap().found().expect("the sum");
        assert_eq!(found.value.as_bytes().as_ref(), b"192");
    }

    #[tokio::test]
    async fn of_many_writes_of_the_same_keys_each_succeeds() {
        let (records, time) = records();
        let (a, b) = (Bytes::from_static(b"a"), Bytes::from_static(b"b"));
        let pairs = vec![(b.clone(), a.clone()), (a.clone(), b.clone())];
        let replies = at_once(&records, &time, 64, &Data::MSet { pairs, only_new: false }).await;
        assert_eq!(replies, vec![Reply::OK; 192]);
        let set = Set { key: a, value: b, end: None, when: When::Present, answer: SetAnswer::Previous };
        let replies = at_once(&records, &time, 64, &Data::Set(Box::new(set))).await;
        assert_eq!(replies, vec![Reply::bulk("b"); 192]);
    }
}
