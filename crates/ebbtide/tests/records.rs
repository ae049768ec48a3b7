//! Records on the engines of one process.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "records/contention.rs"]
mod contention;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ebbtide::model::key::Key;
use ebbtide::model::kind::Kind;
use ebbtide::ops::reseal::{Resealer, uses};
use ebbtide::stores::challenges::{ChallengeRequest, Form, Peek, Verify, VerifyOutcome};
use ebbtide::stores::records::{
    Acquire, AcquireOutcome, Increment, IncrementTextOutcome, PutOutcome, PutRecord, RecordAddress,
    RecordCondition, RecordId, RecordValue, Records, TouchCondition, TouchOutcome, TouchRecord,
};
use ebbtide::stores::shared::life::RecordTtl;
use ebbtide::stores::shared::payload::Payload;
use ebbtide::{
    Admin, Backend, BackendExt as _, Clock as _, Ebbtide, ErrorKind, Keyring, ManualClock, Memory, Result,
    Scope, Stores, SystemRng, Timestamp, Ttl, async_trait, delegate,
};
use serde_json::{Value, json};

fn memory() -> (Records, ManualClock) {
    let clock = ManualClock::at(Timestamp::from_millis(1_000_000).unwrap());
    let stores = Stores::builder_for_tests(Arc::new(Memory::default())).clock(clock.clone()).build();
    (stores.records(&Scope::Global), clock)
}

fn seconds(seconds: i64) -> Ttl {
    Ttl::from_secs(seconds).unwrap()
}

#[tokio::test]
async fn a_text_that_is_a_number_is_counted_and_keeps_its_end() {
    let (records, clock) = memory();
    let id = RecordId::from("hits");
    let add = |by| records.increment_text(Records::REDIS, &id, by);
    assert_eq!(add(1).await.unwrap(), IncrementTextOutcome::Counted(1));
    let put = PutRecord::new(Records::REDIS, "hits", RecordValue::from_bytes("41")).life(seconds(10));
    assert!(matches!(records.put(&put).await.unwrap(), PutOutcome::Stored { created: false, .. }));
    assert_eq!(add(1).await.unwrap(), IncrementTextOutcome::Counted(42));
    let found = records.get(&RecordAddress::id(Records::REDIS, "hits")).await.unwrap().found().unwrap();
    assert_eq!(found.expires_at.since(clock.now()), Duration::from_secs(10));
    assert_eq!(found.value.as_bytes().as_ref(), b"42");
    assert_eq!(add(i64::MAX).await.unwrap(), IncrementTextOutcome::Overflow);
    let put = PutRecord::new(Records::REDIS, "hits", RecordValue::from_bytes("07"));
    assert!(matches!(records.put(&put).await.unwrap(), PutOutcome::Stored { .. }));
    assert_eq!(add(1).await.unwrap(), IncrementTextOutcome::NotANumber);
}

#[tokio::test]
async fn additions_of_many_callers_to_a_text_add_up() {
    let (records, _) = memory();
    let tasks = (0..64).map(|_| {
        let records = records.clone();
        tokio::spawn(async move { records.increment_text("redis", &RecordId::from("n"), 1).await.unwrap() })
    });
    let mut counts = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        let IncrementTextOutcome::Counted(count) = task.await.unwrap() else { panic!("it is a number") };
        counts.push(count);
    }
    counts.sort_unstable();
    assert_eq!(counts, (1..=64).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_scan_gives_every_record_once() {
    let (records, _) = memory();
    for n in 0..100 {
        let put = PutRecord::new("redis", format!("key-{n}"), json!(n));
        assert!(matches!(records.put(&put).await.unwrap(), PutOutcome::Stored { created: true, .. }));
        let put = PutRecord::new("other", format!("key-{n}"), json!(n));
        assert!(matches!(records.put(&put).await.unwrap(), PutOutcome::Stored { created: true, .. }));
    }
    let (mut ids, mut cursor) = (Vec::new(), 0);
    loop {
        let page = records.scan("redis", cursor, 7).await.unwrap();
        ids.extend(page.items.into_iter().map(|item| item.id.as_str().unwrap().to_owned()));
        cursor = page.next;
        if cursor == 0 {
            break;
        }
    }
    ids.sort_unstable();
    let mut all: Vec<_> = (0..100).map(|n| format!("key-{n}")).collect();
    all.sort_unstable();
    assert_eq!(ids, all);
}

#[tokio::test]
async fn a_touch_may_depend_on_the_present_end() {
    let (records, _) = memory();
    let address = RecordAddress::id("redis", "a");
    let touch = |life: RecordTtl, only: TouchCondition| {
        let touch = TouchRecord::new(address.clone(), life).only_if(only);
        let records = &records;
        async move { matches!(records.touch(&touch).await.unwrap(), TouchOutcome::Touched(_)) }
    };
    assert!(!touch(seconds(1).into(), TouchCondition::Endless).await, "there is none");
    let _ = records.put(&PutRecord::new("redis", "a", json!(1))).await.unwrap();
    assert!(!touch(seconds(10).into(), TouchCondition::Ends).await);
    assert!(!touch(seconds(10).into(), TouchCondition::Later).await, "no end is later than any");
    assert!(touch(seconds(10).into(), TouchCondition::Endless).await);
    assert!(!touch(seconds(10).into(), TouchCondition::Later).await);
    assert!(touch(seconds(11).into(), TouchCondition::Later).await);
    assert!(touch(seconds(5).into(), TouchCondition::Sooner).await);
    let persist = records.touch(&TouchRecord::new(address.clone(), RecordTtl::Never)).await.unwrap();
    assert!(matches!(persist, TouchOutcome::Touched(record) if record.expires_at.is_never()));
}

/// Engine that counts its calls.
struct Counted {
    inner: Memory,
    calls: AtomicUsize,
}

impl Counted {
    async fn count<T>(&self, _: &str, call: impl Future<Output = Result<T>> + Send) -> Result<T> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        call.await
    }

    /// Number of calls since this was asked last.
    fn made(&self) -> usize {
        self.calls.swap(0, Ordering::SeqCst)
    }
}

#[async_trait]
impl Backend for Counted {
    delegate!(self => self.inner, through self.count; get get_many take alter commit commit_each scan sweep);
    delegate!(self => self.inner; info);
}

#[async_trait]
impl Admin for Counted {
    delegate!(self => self.inner; stats stats_at_hand list count clear erase clock_mark set_clock_mark engine_clock);
    delegate!(self => self.inner; warnings backup);
}

#[tokio::test]
async fn law_9_the_round_trips_of_a_record_are_known() {
    let engine = Arc::new(Counted { inner: Memory::default(), calls: AtomicUsize::new(0) });
    let records =
        Stores::builder_for_tests(Arc::clone(&engine) as Arc<dyn Admin>).build().records(&Scope::Global);
    let plain = |id: &str| PutRecord::new("c", id, json!(1)).life(seconds(60));
    let linked = |id: &str| plain(id).group("g").keys([format!("key-{id}")]);
    let at = |id: &str| RecordAddress::id("c", id);
    let version = async |id: &str| records.get(&at(id)).await.unwrap().found().unwrap().version;
    // The first call of a process looks at the store's naming key.
    let _ = records.get(&at("none")).await.unwrap();
    engine.made();
    let _ = records.put(&plain("a")).await.unwrap();
    assert_eq!(engine.made(), 1, "put of a new record");
    let _ = records.put(&plain("a")).await.unwrap();
    assert_eq!(engine.made(), 1, "put over a record");
    let _ = records.put(&plain("b").only_if(RecordCondition::Absent)).await.unwrap();
    assert_eq!(engine.made(), 1, "put if absent");
    let refused = records.put(&plain("b").only_if(RecordCondition::Absent)).await.unwrap();
    assert_eq!((refused, engine.made()), (PutOutcome::Conflict, 2), "put if absent, refused: one look more");
    let _ = records.put(&plain("b").only_if(RecordCondition::Present)).await.unwrap();
    assert_eq!(engine.made(), 2, "put if present");
    let _ = records.put(&plain("b").life(RecordTtl::Keep)).await.unwrap();
    assert_eq!(engine.made(), 2, "put that keeps the end");
    let same = RecordCondition::Version(version("a").await);
    engine.made();
    let _ = records.put(&plain("a").only_if(same)).await.unwrap();
    assert_eq!(engine.made(), 1, "put of a version");
    let _ = records.get(&at("a")).await.unwrap();
    assert_eq!(engine.made(), 1, "get");
    let _ = records.touch(&TouchRecord::new(at("a"), seconds(90))).await.unwrap();
    assert_eq!(engine.made(), 1, "touch");
    let _ = records.take(&at("a")).await.unwrap();
    assert_eq!(engine.made(), 1, "take");
    let _ = records.delete(&at("b"), RecordCondition::Any).await.unwrap();
    assert_eq!(engine.made(), 1, "delete");
    let _ = records.increment(&Increment::new("c", "n").life(seconds(9))).await.unwrap();
    let _ = records.increment(&Increment::new("c", "n").limit(1)).await.unwrap();
    assert_eq!(engine.made(), 2, "two increments");
    let acquired = records.acquire(&Acquire::new("c", "l", seconds(9))).await.unwrap();
    let AcquireOutcome::Acquired { lease, .. } = acquired else { panic!("it is free") };
    assert!(records.release("c", "l", &lease).await.unwrap());
    assert_eq!(engine.made(), 2, "acquire and release");

    let _ = records.put(&linked("x")).await.unwrap();
    assert_eq!(engine.made(), 2, "put with a group and a key");
    let _ = records.get(&at("x")).await.unwrap();
    assert_eq!(engine.made(), 2, "get with a group");
    let _ = records.touch(&TouchRecord::new(at("x"), seconds(90))).await.unwrap();
    assert_eq!(engine.made(), 2, "touch with a group and a key");
    let _ = records.consume(&at("x")).await.unwrap();
    assert_eq!(engine.made(), 2, "consume");
    let _ = records.consume(&RecordAddress::key("c", "key-x")).await.unwrap();
    assert!(engine.made() <= 3, "by a second key one more");
    assert!(records.take(&at("x")).await.unwrap().is_some());
    assert_eq!(engine.made(), 2, "take with a group and a key");
}

#[tokio::test]
async fn a_key_is_used_by_challenges_until_they_are_resealed_or_over() {
    let clock = ManualClock::at(Timestamp::from_millis(1_000_000).unwrap());
    let engine: Arc<dyn Admin> = Arc::new(Memory::default());
    let mut ring = Keyring::generate(&SystemRng, clock.now());
    let old = ring.active();
    let stores = |ring: &Keyring| {
        Stores::builder_for_tests(Arc::clone(&engine)).keyring(ring.clone()).clock(clock.clone()).build()
    };
    let issue = |stores: Stores, form| async move {
        let data = Payload::new(json!({"n": 1}));
        let request = ChallengeRequest::new("login", "alice", form).data(data);
        stores.challenges(&Scope::Global).issue(request).await.unwrap()
    };
    let token = issue(stores(&ring), Form::Token).await;
    issue(stores(&ring), Form::Digits6).await;
    let new = ring.add(&SystemRng, clock.now()).unwrap();
    ring.activate(new).unwrap();
    let rotated = stores(&ring);
    let used = async || uses(&rotated, engine.as_ref(), old, clock.now()).await.unwrap();
    assert_eq!(used().await.get(&Kind::Challenge), Some(&2));
    let mut resealer = Resealer::start(&rotated, &engine, Arc::new(SystemRng), clock.now()).await.unwrap();
    while resealer.step(clock.now()).await.unwrap() {}
    assert_eq!(used().await.get(&Kind::Challenge), Some(&1), "six digits cannot be moved");
    clock.advance(Duration::from_secs(600));
    assert_eq!(used().await.get(&Kind::Challenge), None);
    ring.retire(old).unwrap();
    let verify = Verify::new("login", token.secret);
    let outcome =
        stores(&ring).challenges(&Scope::Global).peek(&Peek::new("login").id(token.id.to_string())).await;
    assert_eq!(outcome.unwrap(), VerifyOutcome::Expired);
    assert_eq!(
        stores(&ring).challenges(&Scope::Global).verify(&verify).await.unwrap(),
        VerifyOutcome::Expired
    );
}

#[tokio::test]
async fn a_ring_of_an_earlier_version_needs_a_naming_key_for_records() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keyring.json");
    Keyring::generate(&SystemRng, Timestamp::ZERO).create(&path, &SystemRng).unwrap();
    let mut file: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert!(file.as_object_mut().unwrap().remove("naming_key").is_some(), "a new ring has one");
    std::fs::write(&path, file.to_string()).unwrap();
    let backend: Arc<dyn Admin> = Arc::new(Memory::default());
    let records = || {
        let keyring = Keyring::load(&path).unwrap();
        Stores::builder_for_tests(Arc::clone(&backend)).keyring(keyring).build().records(&Scope::Global)
    };
    let put = PutRecord::new("c", "a", json!(1));
    let error = records().put(&put).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.message().contains("ebbtide keyring add-naming-key"), "{error}");
    Keyring::edit(&path, |keyring| keyring.add_naming_key(&SystemRng, Timestamp::ZERO)).unwrap();
    assert!(matches!(records().put(&put).await.unwrap(), PutOutcome::Stored { created: true, .. }));
    assert!(records().get(&RecordAddress::id("c", "a")).await.unwrap().found().is_some(), "read anew");
    assert!(Keyring::edit(&path, |keyring| keyring.add_naming_key(&SystemRng, Timestamp::ZERO)).is_err());
}

/// The ring of a file, and the same with one character of the naming key's secret changed.
fn ring_and_flipped() -> [Keyring; 2] {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keyring.json");
    Keyring::generate(&SystemRng, Timestamp::ZERO).create(&path, &SystemRng).unwrap();
    let ring = Keyring::load(&path).unwrap();
    let mut file: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let secret = file["naming_key"]["secret"].as_str().unwrap();
    let first = if secret.starts_with('A') { "B" } else { "A" };
    file["naming_key"]["secret"] = format!("{first}{}", &secret[1..]).into();
    [ring, Keyring::from_text(&file.to_string()).unwrap()]
}

#[tokio::test]
async fn a_naming_key_with_another_secret_is_refused_before_any_record_seems_unknown() {
    let [ring, flipped] = ring_and_flipped();
    assert_eq!(ring.naming_key().unwrap().id(), flipped.naming_key().unwrap().id());
    let engine: Arc<dyn Admin> = Arc::new(Memory::default());
    let open = |ring: &Keyring| Ebbtide::over(Arc::clone(&engine)).keyring(ring.clone()).open();
    let put = PutRecord::new("c", "a", json!(1)).only_if(RecordCondition::Absent);
    let db = open(&ring).await.unwrap();
    let stored = db.stores().records(&Scope::Global).put(&put).await.unwrap();
    assert!(matches!(stored, PutOutcome::Stored { created: true, .. }), "{stored:?}");
    let error = open(&flipped).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Invalid, "the store does not open: {error}");
    assert!(error.message().contains("the secret of the naming key"), "{error}");
    // A ring that is changed under an open store.
    let stores = Stores::builder_for_tests(Arc::clone(&engine)).keyring(flipped).build();
    let records = stores.records(&Scope::Global);
    for _ in 0..2 {
        let errors = [
            records.get(&RecordAddress::id("c", "a")).await.unwrap_err(),
            records.put(&put).await.unwrap_err(),
            records.increment_text("c", &RecordId::from("n"), 1).await.unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            assert!(error.message().contains("the secret of the naming key"), "{error}");
        }
    }
    let again = open(&ring).await.unwrap().stores().records(&Scope::Global).put(&put).await.unwrap();
    assert!(!matches!(again, PutOutcome::Stored { .. }), "{again:?}");
}

#[tokio::test]
async fn an_entry_of_the_naming_keys_id_alone_gains_its_proof() {
    let proof = Key::new(Kind::System, &Scope::Global, &["naming-key".into()], &["proof".into()]).unwrap();
    let now = Timestamp::ZERO;
    for opens in [true, false] {
        let [ring, flipped] = ring_and_flipped();
        let engine: Arc<dyn Admin> = Arc::new(Memory::default());
        let records = |ring: &Keyring| {
            let stores = Stores::builder_for_tests(Arc::clone(&engine)).keyring(ring.clone()).build();
            stores.records(&Scope::Global)
        };
        let put = PutRecord::new("c", "a", json!(1));
        assert!(matches!(records(&ring).put(&put).await.unwrap(), PutOutcome::Stored { .. }));
        // An earlier version entered the id alone.
        assert!(engine.delete(proof.clone(), now).await.unwrap().is_applied());
        if opens {
            let db = Ebbtide::over(Arc::clone(&engine)).keyring(ring.clone()).open().await.unwrap();
            db.close().await;
        } else {
            let tasks = (0..16).map(|_| {
                let records = records(&ring);
                tokio::spawn(async move { records.get(&RecordAddress::id("c", "a")).await.unwrap() })
            });
            for task in tasks.collect::<Vec<_>>() {
                assert!(task.await.unwrap().found().is_some());
            }
        }
        assert!(engine.get(&proof, now).await.unwrap().is_some());
        assert!(records(&ring).get(&RecordAddress::id("c", "a")).await.unwrap().found().is_some());
        let error = records(&flipped).get(&RecordAddress::id("c", "a")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }
}
