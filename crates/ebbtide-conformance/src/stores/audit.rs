//! The audit log loses nothing, and tampering is detected.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::attribute_lives::{by, extend};
use super::attributes::{bucket, get, set};
use super::rig::{StoreRig, secs};
use ebbtide::AdminExt as _;
use ebbtide::backend::{BackendExt, Cursor};
use ebbtide::model::key::Key;
use ebbtide::model::kind::Kind;
use ebbtide::model::record::Record;
use ebbtide::model::rng::SystemRng;
use ebbtide::model::scope::Scope;
use ebbtide::model::time::{Clock, Timestamp};
use ebbtide::model::ttl::{TtlPolicies, TtlPolicy};
use ebbtide::stores::Stores;
use ebbtide::stores::attributes::Draft;
use ebbtide::stores::audit::{Action, Audit, AuditOutcome, Break, Entry, Note};
use ebbtide::stores::shared::extension::{ExtendOutcome, Extension};

async fn entries(audit: &Audit) -> Vec<Entry> {
    let mut met = Vec::new();
    let mut after: Option<Cursor> = None;
    loop {
        let page = audit.list(after.as_ref(), 7).await.expect("list");
        met.extend(page.items);
        after = page.next;
        if after.is_none() {
            return met;
        }
    }
}

async fn append(audit: &Audit, count: usize) {
    for number in 0..count {
        let note = Note::new(Action::Operate, "root", format!("number {number}")).expect("good words");
        audit.append(&note).await.expect("append");
    }
}

async fn verify(audit: &Audit) -> AuditOutcome {
    audit.verify(None).await.expect("verify")
}

async fn assert_intact(audit: &Audit, count: u64) {
    let AuditOutcome::Intact { entries, .. } = verify(audit).await else {
        panic!("the log should be intact")
    };
    assert_eq!(entries, count);
}

fn key(rig: &StoreRig, sequence: u64) -> Key {
    Key::new(Kind::Audit, &rig.scope, &["log".into()], &[sequence.into()]).expect("a good key")
}

async fn read(rig: &StoreRig, sequence: u64) -> Record {
    let record = rig.backend.get(&key(rig, sequence), rig.clock.now()).await.expect("get");
    record.expect("the entry is there")
}

/// Writes directly to the backend, bypassing the log.
async fn write(rig: &StoreRig, sequence: u64, record: Record) {
    let put = rig.backend.put(key(rig, sequence), record, rig.clock.now()).await.expect("put");
    assert!(put.is_applied());
}

pub(super) async fn an_extension_is_in_the_log(rig: StoreRig) {
    let (bucket, audit) = (bucket(&rig, "alice", "b"), rig.stores.audit(&rig.scope));
    assert_eq!(verify(&audit).await, AuditOutcome::Intact { entries: 0, head: None });
    set(&bucket, "a", Draft::new(json!(1)).ttl(secs(100))).await;
    rig.pass(5);
    let extension = Extension::by(secs(60), "root", "a customer asked").expect("good words");
    let ExtendOutcome::Extended { expires_at, was, .. } = extend(&bucket, "a", &extension).await else {
        panic!("it can be extended");
    };
    let met = entries(&audit).await;
    let [entry] = met.as_slice() else { panic!("one entry, not {}", met.len()) };
    assert_eq!((entry.sequence, entry.at, entry.action), (1, rig.clock.now(), Action::Extend));
    assert_eq!((entry.actor.as_str(), entry.reason.as_str()), ("root", "a customer asked"));
    assert_eq!((entry.kind, entry.before, entry.after), (Some(Kind::Attribute), Some(was), Some(expires_at)));
    assert_eq!(entry.target, ["alice", "b", "a"]);
    assert_eq!(audit.mark().await.expect("mark").map(|mark| mark.hash), Some(entry.hash));
    assert_intact(&audit, 1).await;
}

pub(super) async fn a_refused_extension_is_not(rig: StoreRig) {
    let (bucket, audit) = (bucket(&rig, "alice", "b"), rig.stores.audit(&rig.scope));
    set(&bucket, "a", Draft::new(json!(1)).ttl(secs(100)).cap(secs(150))).await;
    assert!(!extend(&bucket, "a", &by(51)).await.is_extended());
    assert!(!extend(&bucket, "none", &by(1)).await.is_extended());
    assert_eq!(entries(&audit).await, Vec::new());
}

pub(super) async fn a_burst_of_extensions_loses_no_entry(rig: StoreRig) {
    let first = set(&bucket(&rig, "alice", "b"), "shared", Draft::new(json!(1)).ttl(secs(100))).await;
    // As many processes: each has a handle, and so a queue, of its own.
    let processes: Vec<_> = (0..4)
        .map(|_| {
            let builder = Stores::builder(Arc::clone(&rig.backend)).clock(rig.clock.clone());
            builder.rng(SystemRng).build()
        })
        .collect();
    let answers = rig.together(24, |rig, index| {
        let stores = processes[index % processes.len()].clone();
        async move {
            let bucket = stores.attributes(&rig.scope).bucket("alice", "b").expect("good names");
            let own = format!("own{index}");
            set(&bucket, &own, Draft::new(json!(1)).ttl(secs(100))).await;
            let mut extended = 0;
            for name in ["shared", own.as_str(), "shared"] {
                extended += u64::from(extend(&bucket, name, &by(1)).await.is_extended());
            }
            extended
        }
    });
    assert_eq!(answers.await.into_iter().sum::<u64>(), 72, "each is extended");
    let audit = rig.stores.audit(&rig.scope);
    let met = entries(&audit).await;
    assert_eq!(met.iter().map(|entry| entry.sequence).collect::<Vec<_>>(), (1..=72).collect::<Vec<_>>());
    let shared: HashSet<_> = met.iter().filter(|e| e.target[2] == "shared").map(|e| e.after).collect();
    assert_eq!(shared.len(), 48, "each of them is logged, and none twice");
    let read = get(&bucket(&rig, "alice", "b"), "shared").await.expect("there");
    assert_eq!(read.expires_at.since(first.expires_at), Duration::from_secs(48));
    assert_intact(&audit, 72).await;
}

pub(super) async fn a_changed_entry_is_found(rig: StoreRig) {
    let audit = rig.stores.audit(&rig.scope);
    append(&audit, 5).await;
    for sequence in [1, 3, 5] {
        let original = read(&rig, sequence).await;
        let broken = AuditOutcome::Broken { sequence, why: Break::Changed };
        for at in (0..original.value.len()).step_by(3) {
            let mut value = original.value.to_vec();
            value[at] ^= 1;
            write(&rig, sequence, Record { value: value.into(), ..original.clone() }).await;
            assert_eq!(verify(&audit).await, broken, "byte {at} of entry {sequence}");
        }
        let longer = Record { expires_at: Timestamp::NEVER, ..original.clone() };
        write(&rig, sequence, longer).await;
        assert_eq!(verify(&audit).await, broken, "the expiry of entry {sequence}");
        write(&rig, sequence, original).await;
        assert_intact(&audit, 5).await;
    }
    let (second, third) = (read(&rig, 2).await, read(&rig, 3).await);
    write(&rig, 2, third).await;
    write(&rig, 3, second).await;
    assert_eq!(
        verify(&audit).await,
        AuditOutcome::Broken { sequence: 2, why: Break::Changed },
        "changed places"
    );
}

pub(super) async fn a_missing_entry_is_found(rig: StoreRig) {
    let audit = rig.stores.audit(&rig.scope);
    append(&audit, 5).await;
    for sequence in 1..=5 {
        let original = read(&rig, sequence).await;
        let deleted = rig.backend.delete(key(&rig, sequence), rig.clock.now()).await.expect("delete");
        assert!(deleted.is_applied());
        assert_eq!(verify(&audit).await, AuditOutcome::Broken { sequence, why: Break::Missing });
        write(&rig, sequence, original).await;
    }
    assert_intact(&audit, 5).await;
    for sequence in 1..=5 {
        let _ = rig.backend.delete(key(&rig, sequence), rig.clock.now()).await.expect("delete");
    }
    assert!(matches!(verify(&audit).await, AuditOutcome::Broken { why: Break::Missing, .. }));
}

pub(super) async fn an_entry_of_another_hand_is_found(rig: StoreRig) {
    let (audit, head) = (rig.stores.audit(&rig.scope), "head".into());
    let head = Key::new(Kind::Audit, &rig.scope, &[head], &[]).expect("a good key");
    append(&audit, 3).await;
    let earlier = rig.backend.get(&head, rig.clock.now()).await.expect("get").expect("there is a head");
    append(&audit, 2).await;
    assert!(rig.backend.put(head.clone(), earlier, rig.clock.now()).await.expect("put").is_applied());
    assert_eq!(verify(&audit).await, AuditOutcome::Broken { sequence: 4, why: Break::Added });
    assert!(rig.backend.delete(head, rig.clock.now()).await.expect("delete").is_applied());
    assert_eq!(verify(&audit).await, AuditOutcome::Broken { sequence: 1, why: Break::Added });
}

pub(super) async fn a_forged_chain_is_found_by_a_mark(rig: StoreRig) {
    let audit = rig.stores.audit(&rig.scope);
    append(&audit, 3).await;
    let mark = audit.mark().await.expect("mark").expect("there are entries");
    append(&audit, 2).await;
    let kept = audit.verify(Some(&mark)).await.expect("verify");
    assert!(matches!(kept, AuditOutcome::Intact { entries: 5, .. }));
    let everything =
        ebbtide::Prefix::reach(Kind::Audit, &ebbtide::Reach::Exact(rig.scope.clone())).expect("good");
    rig.backend.erase_all(&everything, rig.clock.now()).await.expect("erase");
    let missing = AuditOutcome::Broken { sequence: 3, why: Break::Missing };
    assert_eq!(audit.verify(Some(&mark)).await.expect("verify"), missing);
    append(&audit, 2).await;
    assert_eq!(audit.verify(Some(&mark)).await.expect("verify"), missing);
    append(&audit, 2).await;
    assert_intact(&audit, 4).await;
    // The same entries at the same time make the same chain; these differ.
    rig.pass(1);
    rig.backend.erase_all(&everything, rig.clock.now()).await.expect("erase");
    append(&audit, 5).await;
    let forged = audit.verify(Some(&mark)).await.expect("verify");
    assert_eq!(forged, AuditOutcome::Broken { sequence: 3, why: Break::Changed });
}

pub(super) async fn entries_end_and_the_rest_still_verifies(rig: StoreRig) {
    let mut policies = TtlPolicies::default();
    policies.set(Kind::Audit, Scope::Global, TtlPolicy::short_lived()).expect("a good policy");
    let builder = Stores::builder(Arc::clone(&rig.backend)).clock(rig.clock.clone()).rng(SystemRng);
    let audit = builder.policies(policies).build().audit(&rig.scope);
    append(&audit, 3).await;
    rig.pass(12 * 3600);
    append(&audit, 3).await;
    let last = read(&rig, 6).await;
    assert_eq!(last.expires_at.since(rig.clock.now()), Duration::from_secs(24 * 3600), "a day is kept");
    rig.pass(12 * 3600);
    assert_eq!(entries(&audit).await.len(), 3, "the first three have ended");
    assert_intact(&audit, 3).await;
    rig.pass(1);
    assert_eq!(rig.sweep().await.total(), 3);
    assert_intact(&audit, 3).await;
    let fourth = read(&rig, 4).await;
    let _ = rig.backend.delete(key(&rig, 4), rig.clock.now()).await.expect("delete");
    let missing = AuditOutcome::Broken { sequence: 4, why: Break::Missing };
    assert_eq!(verify(&audit).await, missing, "a missing entry does not count as expired");
    write(&rig, 4, fourth).await;
    rig.pass(12 * 3600);
    assert_intact(&audit, 0).await;
    append(&audit, 1).await;
    assert_eq!(entries(&audit).await[0].sequence, 7, "the numbers go on");
    assert_intact(&audit, 1).await;
}

pub(super) async fn scopes_have_logs_of_their_own(rig: StoreRig) {
    let nested = Scope::tenant_env("acme", "prod").expect("good names");
    let (ours, theirs) = (rig.stores.audit(&rig.scope), rig.stores.audit(&nested));
    append(&ours, 3).await;
    append(&theirs, 2).await;
    assert_eq!((entries(&ours).await.len(), entries(&theirs).await.len()), (3, 2));
    assert_intact(&ours, 3).await;
    assert_intact(&theirs, 2).await;
    let moved = Key::new(Kind::Audit, &nested, &["log".into()], &[1_u64.into()]).expect("a good key");
    let put = rig.backend.put(moved, read(&rig, 1).await, rig.clock.now()).await.expect("put");
    assert!(put.is_applied());
    let changed = AuditOutcome::Broken { sequence: 1, why: Break::Changed };
    assert_eq!(verify(&theirs).await, changed, "an entry of one scope does not fit another");
}
