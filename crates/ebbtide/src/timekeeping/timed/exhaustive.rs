//! Every call of the handle on a small model, with another writer between its steps, against the invariant: no answer
//! permits wrongly for any true time between the two ends.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;

use super::calls::writes_the_mark;
use super::*;
use crate::backend::{Backend, BackendExt as _};
use crate::model::error::ErrorKind;
use crate::model::kind::Kind;
use crate::model::record::Version;
use crate::model::scope::Scope;
use crate::timekeeping::{EngineClock, ManualClocks};
use crate::{Memory, delegate, provide};

const EARLIEST: u64 = 10;
const LATEST: u64 = 20;

fn at(millis: u64) -> Timestamp {
    if millis == u64::MAX { Timestamp::NEVER } else { Timestamp::from_millis(millis).unwrap() }
}

fn version(n: u8) -> Version {
    Version::from_bytes([n; 16])
}

fn record((n, end): (u8, u64)) -> Record {
    Record { value: vec![n].into(), version: version(n), expires_at: at(end) }
}

fn seen_as(record: &Record) -> (u8, u64) {
    let end = record.expires_at;
    (record.version.as_bytes()[0], if end.is_never() { u64::MAX } else { end.as_millis() })
}

fn key(n: usize) -> Key {
    Key::new(Kind::Probe, &Scope::Global, &[n.to_string().as_str().into()], &[]).unwrap()
}

/// Version and end of the record at each key.
type StoreState = [Option<(u8, u64)>; 2];

/// A change by another writer, before the handle's call with that number.
#[derive(Debug, Clone, Copy)]
struct Interference {
    before: usize,
    key: usize,
    becomes: Option<(u8, u64)>,
}

/// The memory engine with another writer, and what stood in it at each call of the handle.
struct Interfered {
    inner: Memory,
    interference: Option<Interference>,
    seen: Mutex<Vec<StoreState>>,
}

impl Interfered {
    async fn standing(&self) -> StoreState {
        let of = async |n| self.inner.get(&key(n), Timestamp::ZERO).await.unwrap().as_ref().map(seen_as);
        [of(0).await, of(1).await]
    }

    async fn set(&self, n: usize, becomes: Option<(u8, u64)>) {
        let applied = match becomes {
            Some(becomes) => self.inner.put(key(n), record(becomes), Timestamp::ZERO).await,
            None => self.inner.delete(key(n), Timestamp::ZERO).await,
        };
        assert!(applied.unwrap().is_applied());
    }

    async fn step(&self) {
        let call = self.seen.lock().unwrap().len();
        if let Some(other) = self.interference.filter(|other| other.before == call) {
            self.set(other.key, other.becomes).await;
        }
        let standing = self.standing().await;
        self.seen.lock().unwrap().push(standing);
    }
}

#[async_trait]
impl Backend for Interfered {
    async fn get(&self, key: &Key, now: Timestamp) -> Result<Option<Record>> {
        self.step().await;
        self.inner.get(key, now).await
    }

    async fn take(&self, key: &Key, now: Timestamp) -> Result<Option<Record>> {
        self.step().await;
        self.inner.take(key, now).await
    }

    async fn commit(&self, batch: Batch, now: Timestamp) -> Result<Commit> {
        // The clock mark is written after the batch has been decided, at a key of its own.
        if !writes_the_mark(&batch) {
            self.step().await;
        }
        self.inner.commit(batch, now).await
    }

    async fn scan(
        &self,
        prefix: &Prefix,
        after: Option<&Cursor>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Page> {
        self.step().await;
        self.inner.scan(prefix, after, limit, now).await
    }

    delegate!(self => self.inner; sweep info);
    provide!(get_many alter commit_each);
}

#[async_trait]
impl Admin for Interfered {
    delegate!(self => self.inner; stats stats_at_hand list count clear erase clock_mark set_clock_mark engine_clock
        warnings backup);
}

/// One call of the handle.
#[derive(Debug, Clone)]
enum TimedCall {
    Get,
    Take,
    Commit(Vec<Write>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TimedAnswer {
    Found(Option<(u8, u64)>),
    Commit(TimedCommit),
    Unavailable,
}

/// The handle under test, and the two that it must be better than.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Handle {
    Timed,
    /// Passes `earliest` to the engine and its answer on.
    AtEarliest,
    AtLatest,
}

/// The answer that is right in `standing` if the true time is `t`.
fn ideal(call: &TimedCall, standing: &StoreState, t: u64) -> TimedAnswer {
    let live = |n: usize| standing[n].filter(|&(_, end)| t < end);
    match call {
        TimedCall::Get | TimedCall::Take => TimedAnswer::Found(live(0)),
        TimedCall::Commit(writes) => {
            let expired = writes.iter().position(|write| match write.effect() {
                Effect::Store(record) => record.expires_at <= at(t),
                _ => false,
            });
            if let Some(index) = expired {
                return TimedAnswer::Commit(TimedCommit::Expired { index });
            }
            let refused = writes.iter().position(|write| {
                let n = usize::from(*write.key() == key(1));
                !write.condition().holds(standing[n].map(|(v, end)| (version(v), at(end))), at(t))
            });
            TimedAnswer::Commit(refused.map_or(TimedCommit::Applied, |index| TimedCommit::Refused { index }))
        }
    }
}

/// A new end, or a renewed one: not to be had while the time is not confirmed.
fn makes_an_end(call: &TimedCall, standing: &StoreState) -> bool {
    let TimedCall::Commit(writes) = call else { return false };
    writes.iter().any(|write| match (write.effect(), write) {
        (Effect::Store(record), _) if record.expires_at.is_never() => false,
        (Effect::Store(record), Write::Replace { expected, key: at_key, .. }) => {
            let standing = standing[usize::from(*at_key == key(1))];
            standing.is_none_or(|(v, end)| version(v) != *expected || at(end) != record.expires_at)
        }
        (Effect::Store(_), _) => true,
        _ => false,
    })
}

struct Case<'a> {
    handle: Handle,
    now: Now,
    start: StoreState,
    call: &'a TimedCall,
    interference: Option<Interference>,
}

/// Runs one case; the error says which part of the contract the answer breaks.
fn check(case: &Case<'_>) -> std::result::Result<(), &'static str> {
    pollster::block_on(async {
        let engine = Arc::new(Interfered {
            inner: Memory::default(),
            interference: case.interference,
            seen: Mutex::default(),
        });
        for (n, standing) in case.start.iter().enumerate() {
            engine.set(n, *standing).await;
        }
        let clocks = ManualClocks::at(at(EARLIEST));
        let time = Arc::new(TimeSource::new(Arc::new(clocks), EngineClock::None, None));
        let timed = Timed::new(Arc::clone(&engine) as Arc<dyn Admin>, time);
        let now = match case.handle {
            Handle::Timed => case.now,
            Handle::AtEarliest => Now::exact(at(EARLIEST)),
            Handle::AtLatest => Now::exact(at(LATEST)),
        };
        let found = |found: Result<Option<Record>>| {
            found.map(|found| TimedAnswer::Found(found.as_ref().map(seen_as)))
        };
        let answer = match case.call {
            TimedCall::Get => found(timed.get(&key(0), now).await),
            TimedCall::Take => found(timed.take(&key(0), now).await),
            TimedCall::Commit(writes) => {
                timed.commit_judged(Batch::new(writes.clone()).unwrap(), now).await.map(TimedAnswer::Commit)
            }
        };
        let answer = answer.unwrap_or_else(|error| {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            TimedAnswer::Unavailable
        });
        let after = engine.standing().await;
        let seen = engine.seen.lock().unwrap().clone();
        judge(case, answer, &seen, after)
    })
}

/// Judges an answer by what stood in the engine at each of the handle's calls. `Applied` must be right in the state that
/// the commit met, every other answer in one of the states.
fn judge(
    case: &Case<'_>,
    answer: TimedAnswer,
    seen: &[StoreState],
    after: StoreState,
) -> std::result::Result<(), &'static str> {
    let &Case { now, call, .. } = case;
    let (earliest, latest) = (now.earliest().as_millis(), now.latest().as_millis());
    let states: Vec<_> = [case.start].iter().chain(seen).copied().collect();
    let last = states[states.len() - 1];
    // Presence is judged at every time, and in a hold at the latest.
    let times = if now.is_confirmed() { latest..=latest } else { earliest..=latest };
    let expected = match (call, answer) {
        (TimedCall::Commit(writes), TimedAnswer::Commit(TimedCommit::Applied)) => {
            applied_rightly(writes, &last, now)?;
            if !now.is_confirmed() && makes_an_end(call, &last) {
                return Err("a new end in doubt");
            }
            effect(writes, last)
        }
        (_, TimedAnswer::Unavailable) => {
            let unanimous = (earliest..=latest).all(|t| ideal(call, &last, t) == ideal(call, &last, latest));
            let issues = !now.is_confirmed() && makes_an_end(call, &last);
            let alone = case.interference.is_none_or(|other| other.before >= seen.len());
            if unanimous && !issues && alone {
                return Err("unavailable without a reason");
            }
            last
        }
        _ => {
            let right = |standing: &StoreState| times.clone().all(|t| ideal(call, standing, t) == answer);
            if !states.iter().any(right) && !refused_in_parts(case, answer, &states, times) {
                return Err("an answer that is right at no moment");
            }
            let took = matches!((call, answer), (TimedCall::Take, TimedAnswer::Found(Some(_))));
            [if took { None } else { last[0] }, last[1]]
        }
    };
    // The engine's own take may remove what has expired.
    let swept = now.is_exact() && matches!(call, TimedCall::Take);
    if after == expected || swept { Ok(()) } else { Err("the store is not as the answer says") }
}

fn applied_rightly(
    writes: &[Write],
    standing: &StoreState,
    now: Now,
) -> std::result::Result<(), &'static str> {
    let (earliest, latest) = (now.earliest().as_millis(), now.latest().as_millis());
    for write in writes {
        if let Effect::Store(record) = write.effect()
            && record.expires_at <= now.latest()
        {
            return Err("wrote a record that had ended");
        }
        let standing = standing[usize::from(*write.key() == key(1))].map(|(v, end)| (version(v), at(end)));
        // Absence must hold at every time, also in a hold.
        let by_presence = matches!(write.condition(), Condition::Version(_));
        let from = if now.is_confirmed() && by_presence { latest } else { earliest };
        if !(from..=latest).all(|t| write.condition().holds(standing, at(t))) {
            return Err("applied wrongly");
        }
    }
    Ok(())
}

fn effect(writes: &[Write], mut standing: StoreState) -> StoreState {
    for write in writes {
        let place = &mut standing[usize::from(*write.key() == key(1))];
        match write.effect() {
            Effect::Store(record) => *place = Some(seen_as(record)),
            Effect::Erase => *place = None,
            Effect::Nothing => {}
        }
    }
    standing
}

/// A refusal of a batch may rest on a version that was read before the other conditions were asked.
fn refused_in_parts(
    case: &Case<'_>,
    answer: TimedAnswer,
    states: &[StoreState],
    times: std::ops::RangeInclusive<u64>,
) -> bool {
    let (TimedCall::Commit(writes), TimedAnswer::Commit(TimedCommit::Refused { index })) =
        (case.call, answer)
    else {
        return false;
    };
    let alone = TimedCall::Commit(vec![writes[index].clone()]);
    let refused = TimedAnswer::Commit(TimedCommit::Refused { index: 0 });
    let fails = |standing: &StoreState| times.clone().all(|t| ideal(&alone, standing, t) == refused);
    let before = TimedCall::Commit(writes[..index].to_vec());
    let applied = TimedAnswer::Commit(TimedCommit::Applied);
    let hold = |standing: &StoreState| times.clone().all(|t| ideal(&before, standing, t) == applied);
    states.iter().any(fails) && (index == 0 || states.iter().any(hold))
}

fn modes() -> [Now; 3] {
    let (earliest, latest) = (at(EARLIEST), at(LATEST));
    [Now::unconfirmed(earliest, latest), Now::held(earliest, latest), Now::exact(earliest)]
}

/// Runs every case and gives, for each call, how often the contract was broken; the first of them too.
fn violations(
    handle: Handle,
    calls: &[TimedCall],
    starts: &[StoreState],
    others: &[(usize, Option<(u8, u64)>)],
) -> Vec<String> {
    let mut broken = Vec::new();
    let mut interferences = vec![None];
    interferences.extend((0..4).flat_map(|before| {
        others.iter().map(move |&(key, becomes)| Some(Interference { before, key, becomes }))
    }));
    let modes = modes();
    let modes = if handle == Handle::Timed { &modes[..] } else { &modes[..2] };
    for &now in modes {
        for call in calls {
            for &start in starts {
                for &interference in interferences.iter().filter(|other| pins_expiry(other.as_ref(), &start))
                {
                    let case = Case { handle, now, start, call, interference };
                    if let Err(why) = check(&case) {
                        broken.push(format!("{why}: {now}, {call:?} on {start:?}, {interference:?}"));
                    }
                }
            }
        }
    }
    broken
}

/// A version names one writing of a record, so that it has one end.
fn pins_expiry(other: Option<&Interference>, start: &StoreState) -> bool {
    match other.map(|other| (other.becomes, start[other.key])) {
        Some((Some((new, end)), Some((old, was)))) => new != old || end == was,
        _ => true,
    }
}

const ENDS: [u64; 6] = [5, 10, 15, 20, 25, u64::MAX];

fn write(n: usize, end: Option<u64>, kind: usize) -> Write {
    let (key, expected, record) = (key(n), version(1), record((9, end.unwrap_or(25))));
    match kind {
        0 => Write::Put { key, record },
        1 => Write::Insert { key, record },
        2 => Write::Replace { key, expected, record },
        3 => Write::Delete { key },
        4 => Write::Remove { key, expected },
        5 => Write::Check { key, expected },
        _ => Write::Absent { key },
    }
}

fn single_calls() -> Vec<TimedCall> {
    let stores = (0..3).flat_map(|kind| ENDS.map(|end| write(0, Some(end), kind)));
    let others = (3..7).map(|kind| write(0, None, kind));
    let commits = stores.chain(others).map(|write| TimedCall::Commit(vec![write]));
    [TimedCall::Get, TimedCall::Take].into_iter().chain(commits).collect()
}

fn single_states() -> Vec<Option<(u8, u64)>> {
    let records = [1, 2].into_iter().flat_map(|v| ENDS.map(|end| Some((v, end))));
    [None].into_iter().chain(records).collect()
}

#[test]
fn no_answer_of_a_single_call_permits_wrongly() {
    let starts: Vec<StoreState> = single_states().into_iter().map(|state| [state, None]).collect();
    let others: Vec<_> = single_states().into_iter().map(|state| (0, state)).collect();
    let broken = violations(Handle::Timed, &single_calls(), &starts, &others);
    assert!(broken.is_empty(), "{} cases, such as {}", broken.len(), broken[0]);
}

#[test]
fn no_answer_of_a_batch_of_two_permits_wrongly() {
    let writes = |n: usize| {
        let stores =
            [1, 2].into_iter().flat_map(move |kind| [25, u64::MAX].map(|end| write(n, Some(end), kind)));
        stores.chain((3..7).map(move |kind| write(n, None, kind)))
    };
    let calls: Vec<_> = writes(0)
        .flat_map(|first| writes(1).map(move |second| TimedCall::Commit(vec![first.clone(), second])))
        .collect();
    let states = [None, Some((1, 10)), Some((1, 15)), Some((1, 25)), Some((2, 15))];
    let starts: Vec<StoreState> = states.iter().flat_map(|&a| states.map(|b| [a, b])).collect();
    let others: Vec<_> = [0, 1]
        .into_iter()
        .flat_map(|n| [None, Some((1, 15)), Some((1, 25)), Some((3, 15))].map(|b| (n, b)))
        .collect();
    let broken = violations(Handle::Timed, &calls, &starts, &others);
    assert!(broken.is_empty(), "{} cases, such as {}", broken.len(), broken[0]);
}

#[test]
fn a_handle_without_the_rules_is_caught_at_every_call_that_they_are_for() {
    let starts: Vec<StoreState> = single_states().into_iter().map(|state| [state, None]).collect();
    for handle in [Handle::AtEarliest, Handle::AtLatest] {
        let broken = violations(handle, &single_calls(), &starts, &[]);
        let caught: Vec<_> = ["Get", "Take", "Insert", "Replace", "Remove", "Check", "Absent"]
            .into_iter()
            .filter(|call| broken.iter().any(|case| case.contains(call)))
            .collect();
        assert_eq!(caught.len(), 7, "{handle:?}: {caught:?}");
    }
}
