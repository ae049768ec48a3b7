//! Many callers of one process that change the same records at once.

use std::sync::Arc;

use ebbtide::stores::records::{
    BatchOutcome, Modification, PutOutcome, PutRecord, RecordAddress, RecordId, RecordValue, RecordWrite,
    Records, TouchOutcome, TouchRecord,
};
use ebbtide::stores::shared::life::RecordTtl;
use ebbtide::{Admin, Backend, Memory, Result, Scope, Stores, async_trait, delegate, open_engine};
use serde_json::json;

use super::seconds;

/// Engine that lets every other task go first, so that calls that begin together all read before one writes.
struct Yielding {
    inner: Arc<dyn Admin>,
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
    delegate!(self => self.inner; stats stats_at_hand list count clear erase clock_mark set_clock_mark engine_clock);
    delegate!(self => self.inner; warnings backup);
}

/// Records in memory and, if it is compiled, in the embedded engine, whose folder is in `dir`.
async fn contended(dir: &tempfile::TempDir) -> Vec<Records> {
    let mut engines: Vec<Arc<dyn Admin>> = vec![Arc::new(Memory::default())];
    if cfg!(feature = "fjall") {
        engines.push(open_engine(&format!("fjall:{}", dir.path().display())).await.unwrap());
    }
    let records = |inner| Stores::for_tests(Arc::new(Yielding { inner, yields: 1 })).records(&Scope::Global);
    engines.into_iter().map(records).collect()
}

/// Callers at once.
const CALLERS: usize = 96;

/// Makes so many calls at once, and returns their answers.
async fn at_once<T, F>(call: impl Fn(usize) -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let tasks: Vec<_> = (0..CALLERS).map(|number| tokio::spawn(call(number))).collect();
    let mut answers = Vec::with_capacity(CALLERS);
    for task in tasks {
        answers.push(task.await.unwrap());
    }
    answers
}

#[tokio::test]
async fn of_many_changes_of_one_record_each_is_made() {
    let dir = tempfile::tempdir().unwrap();
    for records in contended(&dir).await {
        let sums = at_once(|_| {
            let records = records.clone();
            async move {
                let mut sum = 0;
                let id = RecordId::from("n");
                let changed = records.modify("c", &id, |found| {
                    let before = found.map(|found| found.value.to_json().unwrap().unwrap());
                    sum = before.and_then(|before| before.as_u64()).unwrap_or(0) + 1;
                    let value = RecordValue::from_json(&json!(sum));
                    Ok(Modification::Put { value, life: RecordTtl::Keep })
                });
                changed.await.unwrap();
                sum
            }
        });
        let mut sums = sums.await;
        sums.sort_unstable();
        assert_eq!(sums, (1..=CALLERS as u64).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn of_many_puts_of_one_record_with_keys_and_a_group_each_succeeds() {
    let dir = tempfile::tempdir().unwrap();
    for records in contended(&dir).await {
        let outcomes = at_once(|number| {
            let records = records.clone();
            async move {
                let put = PutRecord::new("c", "a", json!(number)).keys(["one", "two"]).group("g");
                records.put(&put.life(seconds(60))).await.unwrap()
            }
        });
        let created = outcomes.await.into_iter().map(|outcome| match outcome {
            PutOutcome::Stored { created, .. } => usize::from(created),
            other => panic!("{other:?}"),
        });
        assert_eq!(created.sum::<usize>(), 1, "the others replaced it");
        let by_key = records.get(&RecordAddress::key("c", "two")).await.unwrap();
        assert!(by_key.found().is_some());
    }
}

#[tokio::test]
async fn of_many_batches_of_the_same_records_each_is_applied() {
    let dir = tempfile::tempdir().unwrap();
    for records in contended(&dir).await {
        let outcomes = at_once(|number| {
            let records = records.clone();
            async move {
                let put = |id: &str| RecordWrite::Put(PutRecord::new("c", id, json!(number)));
                // In either order, which gives the same turn.
                let writes = if number % 2 == 0 { [put("a"), put("b")] } else { [put("b"), put("a")] };
                records.batch(&writes).await.unwrap()
            }
        });
        for outcome in outcomes.await {
            assert!(matches!(outcome, BatchOutcome::Applied(_)), "{outcome:?}");
        }
        let addresses = ["a", "b"].map(|id| RecordAddress::id("c", id));
        let found = records.get_many(&addresses).await.unwrap();
        let value = |place: usize| found[place].as_ref().unwrap().value.to_json().unwrap();
        assert_eq!(value(0), value(1), "of one batch");
    }
}

#[tokio::test]
async fn of_many_touches_of_one_record_with_a_group_each_is_made() {
    let dir = tempfile::tempdir().unwrap();
    for records in contended(&dir).await {
        let put = PutRecord::new("c", "a", json!(1)).group("g").life(seconds(60));
        assert!(matches!(records.put(&put).await.unwrap(), PutOutcome::Stored { created: true, .. }));
        let touched = at_once(|_| {
            let records = records.clone();
            async move {
                let touch = TouchRecord::new(RecordAddress::id("c", "a"), seconds(90));
                records.touch(&touch).await.unwrap()
            }
        });
        for outcome in touched.await {
            assert!(matches!(outcome, TouchOutcome::Touched(_)), "{outcome:?}");
        }
    }
}
