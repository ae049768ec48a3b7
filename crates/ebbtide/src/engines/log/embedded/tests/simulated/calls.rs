//! Calls of a seeded run, and the answers that a model expects of them.

use std::collections::BTreeMap;

use super::super::*;
use crate::ErrorKind;
use crate::model::alteration::{Alteration, Altered, Outcome};

/// Records by the number in their key.
pub(super) type Model = BTreeMap<u64, Record>;

/// Changes of which all are there after a crash, or none, if nobody was told.
pub(super) type Changes = Vec<(u64, Option<Record>)>;

/// A call of the store.
#[derive(Debug, Clone)]
pub(super) enum Plan {
    Commit(Vec<Write>),
    /// Each write is a commit by itself.
    CommitEach(Vec<Write>),
    Take(u64),
    Alter(u64, Alteration),
    Get(u64),
    GetMany(Vec<u64>),
}

/// Answer to a call.
#[derive(Debug, PartialEq)]
enum SimulatedAnswer {
    Commits(Vec<Commit>),
    Records(Vec<Option<Record>>),
    Altered(Altered),
}

pub(super) fn number_of(key: &Key) -> u64 {
    let crate::model::key::Part::Int(number) = key.sort()[0] else { panic!("the tests use numbers") };
    number
}

pub(super) fn live(model: &Model, number: u64, now: u64) -> Option<&Record> {
    model.get(&number).filter(|record| record.is_live(at(now)))
}

pub(super) fn apply(model: &mut Model, changes: Changes) {
    for (number, record) in changes {
        match record {
            Some(record) => model.insert(number, record),
            None => model.remove(&number),
        };
    }
}

/// Answer to a commit, and its changes.
fn commit(writes: &[Write], model: &Model, now: u64) -> (Commit, Changes) {
    let refused = writes.iter().position(|write| {
        let standing = model.get(&number_of(write.key())).map(|record| (record.version, record.expires_at));
        !write.condition().holds(standing, at(now))
    });
    if let Some(index) = refused {
        return (Commit::Refused { index }, Changes::new());
    }
    let effect = |write: &Write| match write.effect() {
        crate::model::write::Effect::Store(record) => Some((number_of(write.key()), Some(record.clone()))),
        crate::model::write::Effect::Erase => Some((number_of(write.key()), None)),
        crate::model::write::Effect::Nothing => None,
    };
    (Commit::Applied, writes.iter().filter_map(effect).collect())
}

impl Plan {
    /// Answer that the model expects, and the changes that go with it.
    fn expected(&self, model: &Model, now: u64) -> (SimulatedAnswer, Vec<Changes>) {
        let found = |number: &u64| live(model, *number, now).cloned();
        match self {
            Self::Commit(writes) => {
                let (answer, changes) = commit(writes, model, now);
                (SimulatedAnswer::Commits(vec![answer]), vec![changes])
            }
            Self::CommitEach(writes) => {
                let each = writes.iter().map(|write| commit(std::slice::from_ref(write), model, now));
                let (answers, changes) = each.unzip();
                (SimulatedAnswer::Commits(answers), changes)
            }
            Self::Take(number) => {
                let record = found(number);
                let changes = record.iter().map(|_| (*number, None)).collect();
                (SimulatedAnswer::Records(vec![record]), vec![changes])
            }
            Self::Alter(number, alteration) => {
                let (outcome, altered) = alteration.judge(found(number)).expect("the tests add to counters");
                let changes = match outcome {
                    Outcome::Store(record) => vec![(*number, Some(record))],
                    Outcome::Erase => vec![(*number, None)],
                    Outcome::Nothing => Vec::new(),
                };
                (SimulatedAnswer::Altered(altered), vec![changes])
            }
            Self::Get(number) => (SimulatedAnswer::Records(vec![found(number)]), Vec::new()),
            Self::GetMany(numbers) => {
                (SimulatedAnswer::Records(numbers.iter().map(found).collect()), Vec::new())
            }
        }
    }

    async fn run(&self, store: &Embedded<TestStore>, now: Timestamp) -> Result<SimulatedAnswer> {
        let batch = |writes: &[Write]| Batch::new(writes.to_vec());
        Ok(match self {
            Self::Commit(writes) => SimulatedAnswer::Commits(vec![store.commit(batch(writes)?, now).await?]),
            Self::CommitEach(writes) => {
                let batches = writes.iter().map(|write| batch(std::slice::from_ref(write)));
                SimulatedAnswer::Commits(store.commit_each(batches.collect::<Result<_>>()?, now).await?)
            }
            Self::Take(number) => SimulatedAnswer::Records(vec![store.take(&key(*number), now).await?]),
            Self::Alter(number, alteration) => {
                SimulatedAnswer::Altered(store.alter(&key(*number), alteration, now).await?)
            }
            Self::Get(number) => SimulatedAnswer::Records(vec![store.get(&key(*number), now).await?]),
            Self::GetMany(numbers) => {
                let keys: Vec<_> = numbers.iter().map(|number| key(*number)).collect();
                SimulatedAnswer::Records(store.get_many(&keys, now).await?)
            }
        })
    }
}

/// A call that has not been answered.
pub(super) struct SimulatedCall<'a> {
    /// None if it ended with an error: it may have happened.
    running: Option<Pin<Box<dyn Future<Output = Result<SimulatedAnswer>> + 'a>>>,
    plan: Plan,
    now: u64,
}

impl<'a> SimulatedCall<'a> {
    pub(super) fn begin(plan: Plan, store: &'a Embedded<TestStore>, now: u64) -> Self {
        let planned = plan.clone();
        let running = Box::pin(async move { planned.run(store, at(now)).await });
        Self { running: Some(running), plan, now }
    }

    pub(super) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Changes that may be there although nobody was told.
    pub(super) fn changes(&self, model: &Model) -> Vec<Changes> {
        self.plan.expected(model, self.now).1
    }

    /// Polls the call, and compares its answer with the model. Returns the call if it was not answered.
    pub(super) fn advance(mut self, model: &mut Model) -> std::result::Result<Option<Self>, String> {
        let Some(running) = &mut self.running else { return Ok(Some(self)) };
        match poll(running) {
            Poll::Pending => Ok(Some(self)),
            Poll::Ready(Ok(answer)) => {
                let (expected, changes) = self.plan.expected(model, self.now);
                if answer != expected {
                    return Err(format!("{answer:?} instead of {expected:?} for {:?}", self.plan));
                }
                for changes in changes {
                    apply(model, changes);
                }
                Ok(None)
            }
            Poll::Ready(Err(error)) if error.kind() == ErrorKind::Unavailable => {
                self.running = None;
                Ok(Some(self))
            }
            Poll::Ready(Err(error)) => Err(error.to_string()),
        }
    }
}
