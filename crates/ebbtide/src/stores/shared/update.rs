//! The retry loop of every conditional change: read, judge, commit, and judge again if another writer was faster.

use super::epochs::{Carried, Death, LiveCommit, Parties, Stamp};
use super::tombstones::{Outcome, Principal, owner_is_deleted, tombstones};
use crate::model::error::{Error, Result};
use crate::model::key::Key;
use crate::model::record::Record;
use crate::model::scope::Scope;
use crate::model::write::Write;
use crate::stores::Stores;
use crate::stores::audit::Note;
use crate::timekeeping::Now;

/// Attempts of a change. Each loss is another writer's gain. Writers that queue for one record lose to each other in turn,
/// so that the bound is well above the number of callers that change one record together.
const ATTEMPTS: usize = 128;

/// Verdict of one attempt: an answer, and the writes that must be committed before it is given.
#[must_use = "a step does nothing until it is returned to the retry loop"]
pub(crate) struct Step<T> {
    answer: T,
    writes: Vec<Write>,
    guard: Option<Guard<T>>,
    note: Option<(Scope, Note)>,
}

/// Principals that must be as they were when the writes are committed.
enum Guard<T> {
    /// None of them is being deleted.
    Tombstones { keys: Vec<Key>, deleted: Option<T> },
    /// Their epochs are those that the record carries.
    Epochs { carried: Vec<Carried>, dead: Box<dyn FnOnce(Death) -> T + Send> },
}

impl<T> Step<T> {
    /// Answers without a write.
    pub(crate) fn answer(answer: T) -> Self {
        Self::write(Vec::new(), answer)
    }

    /// Answers once `writes` are committed.
    pub(crate) fn write(writes: Vec<Write>, answer: T) -> Self {
        Self { answer, writes, guard: None, note: None }
    }

    /// Commits only if none of `whom` is being deleted. Otherwise the change fails with `Invalid`.
    pub(crate) fn unless_deleted(mut self, scope: &Scope, whom: &[Principal<'_>]) -> Result<Self> {
        self.guard = Some(Guard::Tombstones { keys: tombstones(scope, whom)?, deleted: None });
        Ok(self)
    }

    /// Commits only if none of `whom` is being deleted. Otherwise answers `deleted`.
    pub(crate) fn unless_deleted_or(
        mut self,
        scope: &Scope,
        whom: &[Principal<'_>],
        deleted: T,
    ) -> Result<Self> {
        self.guard = Some(Guard::Tombstones { keys: tombstones(scope, whom)?, deleted: Some(deleted) });
        Ok(self)
    }

    /// Commits only if the epochs of `parties` are those of `stamp`. Otherwise answers with `dead`.
    pub(crate) fn while_live(
        self,
        scope: &Scope,
        parties: Parties<'_>,
        stamp: Stamp,
        dead: impl FnOnce(Death) -> T + Send + 'static,
    ) -> Result<Self> {
        Ok(self.while_carried(Stores::carried(scope, parties, stamp)?, dead))
    }

    /// Commits only if the epochs are those that are carried. Otherwise answers with `dead`.
    pub(crate) fn while_carried(
        mut self,
        carried: Vec<Carried>,
        dead: impl FnOnce(Death) -> T + Send + 'static,
    ) -> Self {
        self.guard = Some(Guard::Epochs { carried, dead: Box::new(dead) });
        self
    }

    /// Appends `note` to the audit log of `scope` in the same commit.
    pub(crate) fn audited(mut self, scope: &Scope, note: Note) -> Self {
        self.note = Some((scope.clone(), note));
        self
    }

    /// Commits more writes, if it commits any.
    pub(crate) fn and(mut self, more: Vec<Write>) -> Self {
        if !self.writes.is_empty() {
            self.writes.extend(more);
        }
        self
    }

    /// Changes the answer, and leaves the writes as they are.
    pub(crate) fn map<U>(self, change: impl Fn(T) -> U + Send + 'static) -> Step<U>
    where
        T: 'static,
    {
        let answer = change(self.answer);
        let guard = self.guard.map(|guard| match guard {
            Guard::Tombstones { keys, deleted } => Guard::Tombstones { keys, deleted: deleted.map(change) },
            Guard::Epochs { carried, dead } => {
                Guard::Epochs { carried, dead: Box::new(move |death| change(dead(death))) }
            }
        });
        Step { answer, writes: self.writes, guard, note: self.note }
    }
}

impl Stores {
    /// Changes the record at `key`: `judge` sees the live record and the time of the attempt.
    pub(crate) async fn update<T>(
        &self,
        key: &Key,
        mut judge: impl FnMut(Option<Record>, Now) -> Result<Step<T>>,
    ) -> Result<T> {
        let mut attempts = Attempts { stores: self, made: 0 };
        loop {
            let now = attempts.begin()?;
            let step = judge(self.backend().get(key, now).await?, now)?;
            if let Some(answer) = attempts.commit(step, now).await? {
                return Ok(answer);
            }
        }
    }

    /// Changes records that `judge` reads itself. Every attempt has a new time.
    ///
    /// An `AsyncFnMut` would read better, but the compiler cannot show that its future is `Send`.
    pub(crate) async fn retry<T, F>(&self, mut judge: impl FnMut(Now) -> F) -> Result<T>
    where
        F: Future<Output = Result<Step<T>>>,
    {
        let mut attempts = Attempts { stores: self, made: 0 };
        loop {
            let now = attempts.begin()?;
            let step = judge(now).await?;
            if let Some(answer) = attempts.commit(step, now).await? {
                return Ok(answer);
            }
        }
    }
}

/// Attempts of one change.
struct Attempts<'a> {
    stores: &'a Stores,
    made: usize,
}

impl Attempts<'_> {
    /// Time of the next attempt; `Unavailable` after too many.
    fn begin(&mut self) -> Result<Now> {
        if self.made == ATTEMPTS {
            return Err(Error::unavailable(Error::CONTENDED));
        }
        self.made += 1;
        self.stores.now()
    }

    /// Commits a step, and returns its answer; none if it has to be judged anew.
    async fn commit<T>(&mut self, step: Step<T>, now: Now) -> Result<Option<T>> {
        let Step { answer, mut writes, guard, note } = step;
        let own = writes.len();
        let pending = match note {
            Some((scope, note)) => {
                let (pending, entry) = self.stores.audit(&scope).append_to(&note, now)?;
                writes.extend(entry);
                Some(pending)
            }
            None => None,
        };
        if writes.is_empty() {
            return Ok(Some(answer));
        }
        let (keys, deleted) = match guard {
            Some(Guard::Epochs { carried, dead }) => {
                let commit = self.stores.commit_live(carried, writes, now).await?;
                if let Some(pending) = pending {
                    match commit {
                        LiveCommit::Applied => pending.applied(self.stores),
                        LiveCommit::Refused { index } if index >= own => pending.lost(self.stores),
                        LiveCommit::Refused { .. } | LiveCommit::Dead(_) => pending.refused(self.stores),
                    }
                }
                return Ok(match commit {
                    LiveCommit::Applied => Some(answer),
                    LiveCommit::Dead(death) => {
                        death.note();
                        Some(dead(death))
                    }
                    LiveCommit::Refused { .. } => None,
                });
            }
            Some(Guard::Tombstones { keys, deleted }) => (keys, deleted),
            None => (Vec::new(), None),
        };
        let outcome = self.stores.commit_unless(keys, writes, now).await?;
        if let Some(pending) = pending {
            match outcome {
                Outcome::Applied => pending.applied(self.stores),
                Outcome::Refused { index } if index >= own => pending.lost(self.stores),
                Outcome::Refused { .. } | Outcome::OwnerDeleted => pending.refused(self.stores),
            }
        }
        match outcome {
            Outcome::Applied => Ok(Some(answer)),
            Outcome::OwnerDeleted => deleted.map(Some).ok_or_else(owner_is_deleted),
            Outcome::Refused { .. } => Ok(None),
        }
    }
}
