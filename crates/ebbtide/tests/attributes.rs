//! Attributes where the store fails, and with values of any shape.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use ebbtide::stores::attributes::{Bucket, Draft, SwapOutcome};
use ebbtide::stores::audit::AuditOutcome;
use ebbtide::stores::shared::extension::Extension;
use ebbtide::{
    Admin, Backend, ErrorKind, ManualClock, Memory, Result, Scope, Stores, Timestamp, Ttl, async_trait,
    delegate,
};
use ebbtide_conformance::faulty::{FaultPoint, Faulty};
use proptest::prelude::*;
use serde_json::{Value, json};

/// A backend that can be reached from outside the stores.
struct Shared(Arc<Faulty<Memory>>);

#[async_trait]
impl Backend for Shared {
    delegate!(self => self.0; get get_many take alter commit commit_each scan sweep info);
}

#[async_trait]
impl Admin for Shared {
    delegate!(self => self.0; stats stats_at_hand list count clear erase);
    delegate!(self => self.0; clock_mark set_clock_mark engine_clock warnings backup);
}

struct Rig {
    faulty: Arc<Faulty<Memory>>,
    clock: ManualClock,
    stores: Stores,
}

impl Rig {
    fn new() -> Self {
        let faulty = Arc::new(Faulty::new(Memory::default()));
        let clock = ManualClock::at(Timestamp::from_millis(1_800_000_000_000).unwrap());
        let stores =
            Stores::builder_for_tests(Arc::new(Shared(Arc::clone(&faulty)))).clock(clock.clone()).build();
        Self { faulty, clock, stores }
    }

    fn bucket(&self) -> Bucket {
        self.stores.attributes(&Scope::Global).bucket("alice", "b").unwrap()
    }
}

fn secs(seconds: i64) -> Ttl {
    Ttl::from_secs(seconds).unwrap()
}

fn unavailable<T>(answer: Result<T>) {
    assert_eq!(answer.err().map(|error| error.kind()), Some(ErrorKind::Unavailable));
}

#[tokio::test]
async fn absent_is_an_answer_and_unavailable_is_none() {
    let rig = Rig::new();
    let bucket = rig.bucket();
    bucket.set("a", json!(1)).await.unwrap();
    assert!(bucket.get("none").await.unwrap().is_none());
    rig.faulty.stay_down(0, FaultPoint::Before);
    unavailable(bucket.set("a", json!(2)).await);
    unavailable(bucket.get("a").await);
    unavailable(bucket.get("none").await);
    unavailable(bucket.delete("a").await);
    unavailable(bucket.list(None, 10).await);
    unavailable(bucket.compare_and_swap("a", &json!(1), json!(2)).await);
    unavailable(rig.stores.attributes(&Scope::Global).list_buckets("alice", None, 10).await);
    rig.faulty.mend();
    assert_eq!(bucket.get("a").await.unwrap().unwrap().data, json!(1), "nothing was kept from before");
}

#[tokio::test]
async fn a_fault_of_a_renewal_is_an_error() {
    let rig = Rig::new();
    let bucket = rig.bucket();
    bucket.set("a", Draft::new(json!(1)).sliding_ttl(secs(100), secs(1_000))).await.unwrap();
    rig.clock.advance(Duration::from_secs(50));
    rig.faulty.fail(0, FaultPoint::Before);
    unavailable(bucket.get("a").await);
    assert_eq!(bucket.get("a").await.unwrap().unwrap().data, json!(1));
}

#[tokio::test]
async fn an_extension_and_its_entry_are_never_one_without_the_other() {
    for (fault, happened) in [(FaultPoint::Before, false), (FaultPoint::After, true)] {
        let rig = Rig::new();
        let (bucket, audit) = (rig.bucket(), rig.stores.audit(&Scope::Global));
        let first = bucket.set("a", Draft::new(json!(1)).ttl(secs(100))).await.unwrap();
        rig.faulty.fail(0, fault);
        unavailable(bucket.extend("a", &Extension::by(secs(10), "root", "why").unwrap()).await);
        let longer = bucket.get("a").await.unwrap().unwrap().expires_at > first.expires_at;
        let told = !audit.list(None, 10).await.unwrap().items.is_empty();
        assert_eq!((longer, told), (happened, happened));
        assert!(matches!(audit.verify(None).await.unwrap(), AuditOutcome::Intact { .. }));
    }
}

#[tokio::test]
async fn what_holds_data_does_not_print_it() {
    let rig = Rig::new();
    let bucket = rig.bucket();
    bucket.set("hunter2", json!("hunter2")).await.unwrap();
    let read = bucket.get("hunter2").await.unwrap().unwrap();
    let conflict = bucket.compare_and_swap("hunter2", &json!(1), json!("hunter2")).await.unwrap();
    let extension = Extension::by(secs(10), "root", "hunter2").unwrap();
    assert!(!format!("{read:?} {conflict:?} {extension:?}").contains("hunter2"));
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 48, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            proptest::collection::btree_map(any::<String>(), inner, 0..6)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_value_is_read_as_it_was_set_and_equals_itself(value in values(), other in values()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let rig = Rig::new();
            let bucket = rig.bucket();
            bucket.set("a", value.clone()).await.unwrap();
            assert_eq!(bucket.get("a").await.unwrap().unwrap().data, value);
            let swap = bucket.compare_and_swap("a", &other, json!("other")).await.unwrap();
            assert_eq!(matches!(swap, SwapOutcome::Swapped(_)), value == other);
            let swap = bucket.compare_and_swap("a", &value, other.clone()).await.unwrap();
            assert_eq!(matches!(swap, SwapOutcome::Swapped(_)), value != other || value == json!("other"));
        });
    }
}
