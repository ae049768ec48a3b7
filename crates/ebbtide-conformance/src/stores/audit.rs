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
use ebbtide::model::key::{Key, Prefix};
use ebbtide::model::kind::Kind;
use ebbtide::model::record::Record;
use ebbtide::model::rng::SystemRng;
use ebbtide::model::scope::{Reach, Scope};
use ebbtide::model::time::{Clock, Timestamp};
use ebbtide::model::ttl::{TtlPolicies, TtlPolicy};
use ebbtide::stores::Stores;
use ebbtide::stores::attributes::Draft;
use ebbtide::stores::audit::{Action, Audit, AuditEntry, AuditFilter, AuditOutcome, Author, Break, Note};
use ebbtide::stores::shared::extension::{ExtendOutcome, Extension};

async fn entries(audit: &Audit) -> Vec<AuditEntry> {
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

fn log(scope: &Scope) -> Prefix {
    Prefix::partition(Kind::Audit, scope, &["log".into()], &[]).expect("a good prefix")
}

/// Stored entries, oldest first, past the log.
async fn stored(rig: &StoreRig) -> Vec<(Key, Record)> {
    rig.backend.scan(&log(&rig.scope), None, 100, rig.clock.now()).await.expect("scan").items
}

/// Writes directly to the backend, bypassing the log.
async fn write(rig: &StoreRig, key: &Key, record: Record) {
    let put = rig.backend.put(key.clone(), record, rig.clock.now()).await.expect("put");
    assert!(put.is_applied());
}

async fn delete(rig: &StoreRig, key: &Key) {
    assert!(rig.backend.delete(key.clone(), rig.clock.now()).await.expect("delete").is_applied());
}

/// Stored checkpoints of the scope, in the order of their keys.
async fn checkpoints(rig: &StoreRig) -> Vec<(Key, Record)> {
    let place = ["audit-checkpoint".into()];
    let prefix = Prefix::partition(Kind::System, &rig.scope, &place, &[]).expect("a good prefix");
    rig.backend.scan(&prefix, None, 100, rig.clock.now()).await.expect("scan").items
}

async fn erase(rig: &StoreRig) {
    let everything = Prefix::reach(Kind::Audit, &Reach::Exact(rig.scope.clone())).expect("good");
    rig.backend.erase_all(&everything, rig.clock.now()).await.expect("erase");
}

/// Another process on the same store, with the same keyring.
fn process(rig: &StoreRig) -> Stores {
    rig.stores_on(Arc::clone(&rig.backend))
}

fn assert_broken(outcome: &AuditOutcome, sequence: u64, why: Break, case: &str) {
    let AuditOutcome::Broken { sequence: at, why: fault, .. } = outcome else {
        panic!("{case}: the log should be broken")
    };
    assert_eq!((*at, *fault), (sequence, why), "{case}");
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
    assert_eq!((entry.on_behalf_of.as_deref(), entry.reason.as_str()), (Some("root"), "a customer asked"));
    assert_eq!(entry.key_id.as_deref(), Some("local"), "what a caller claims is not its key");
    assert_eq!((entry.kind, entry.before, entry.after), (Some(Kind::Attribute), Some(was), Some(expires_at)));
    assert_eq!(entry.target, ["alice", "b", "a"]);
    let mark = audit.mark().await.expect("mark").expect("there is an entry");
    assert_eq!(mark.chains().iter().map(|mark| mark.hash).collect::<Vec<_>>(), [entry.hash]);
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
    // As many processes: each has a handle, and so chains, of its own.
    let processes: Vec<_> = (0..4).map(|_| process(&rig)).collect();
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
    let places: HashSet<_> = met.iter().map(|entry| (entry.chain, entry.sequence)).collect();
    assert_eq!((met.len(), places.len()), (72, 72), "each has a place of its own");
    assert!(met.is_sorted_by_key(|entry| entry.at), "the chains are merged by time");
    let shared: HashSet<_> = met.iter().filter(|e| e.target[2] == "shared").map(|e| e.after).collect();
    assert_eq!(shared.len(), 48, "each of them is logged, and none twice");
    let read = get(&bucket(&rig, "alice", "b"), "shared").await.expect("there");
    assert_eq!(read.expires_at.since(first.expires_at), Duration::from_secs(48));
    assert_intact(&audit, 72).await;
}

pub(super) async fn a_changed_entry_is_found(rig: StoreRig) {
    let audit = rig.stores.audit(&rig.scope);
    append(&audit, 5).await;
    let entries = stored(&rig).await;
    for sequence in [1, 3, 5] {
        let (key, original) = &entries[sequence - 1];
        let sequence = sequence as u64;
        for at in (0..original.value.len()).step_by(3) {
            let mut value = original.value.to_vec();
            value[at] ^= 1;
            write(&rig, key, Record { value: value.into(), ..original.clone() }).await;
            assert_broken(&verify(&audit).await, sequence, Break::Changed, &format!("byte {at}"));
        }
        write(&rig, key, Record { expires_at: Timestamp::NEVER, ..original.clone() }).await;
        assert_broken(&verify(&audit).await, sequence, Break::Changed, "its expiry");
        write(&rig, key, original.clone()).await;
        assert_intact(&audit, 5).await;
    }
    write(&rig, &entries[1].0, entries[2].1.clone()).await;
    write(&rig, &entries[2].0, entries[1].1.clone()).await;
    assert_broken(&verify(&audit).await, 2, Break::Changed, "changed places");
}

pub(super) async fn a_missing_entry_is_found(rig: StoreRig) {
    let audit = rig.stores.audit(&rig.scope);
    append(&audit, 5).await;
    let entries = stored(&rig).await;
    for (sequence, (key, original)) in (1..).zip(&entries) {
        delete(&rig, key).await;
        let outcome = verify(&audit).await;
        // The last one is known to the process that wrote it, and to the head.
        assert_broken(&outcome, sequence, Break::Missing, "one is missing");
        write(&rig, key, original.clone()).await;
    }
    assert_intact(&audit, 5).await;
    for (key, _) in &entries {
        delete(&rig, key).await;
    }
    assert!(matches!(verify(&audit).await, AuditOutcome::Broken { why: Break::Missing, .. }));
}

pub(super) async fn an_entry_of_another_hand_is_found(rig: StoreRig) {
    // A writer to the database has no keyring: its chain, whole and with a head, is not genuine.
    let audit = rig.stores.audit(&rig.scope);
    append(&audit, 2).await;
    let forger =
        Stores::builder_for_tests(Arc::clone(&rig.backend)).clock(rig.clock.clone()).rng(SystemRng).build();
    append(&forger.audit(&rig.scope), 1).await;
    assert!(matches!(
        verify(&audit).await,
        AuditOutcome::Broken { why: Break::Changed | Break::Checkpoint, .. }
    ));
}

pub(super) async fn a_log_that_is_cut_or_emptied_is_found(rig: StoreRig) {
    let audit = rig.stores.audit(&rig.scope);
    append(&audit, 5).await;
    // Another process verifies: it does not remember what this one wrote.
    let other = process(&rig).audit(&rig.scope);
    let entries = stored(&rig).await;
    let heads = Prefix::partition(Kind::Audit, &rig.scope, &["heads".into()], &[]).expect("a good prefix");
    let head = rig.backend.scan(&heads, None, 10, rig.clock.now()).await.expect("scan").items.remove(0);
    assert_intact(&other, 5).await;
    let written = rig.stores.checkpoint_audit().await.expect("checkpoint");
    assert_eq!(written.scopes.len(), 1);
    for (key, _) in &entries[3..] {
        delete(&rig, key).await;
    }
    assert_broken(&verify(&other).await, 5, Break::Missing, "the last two are cut off");
    // Cut with its head, so that only the checkpoint knows.
    delete(&rig, &head.0).await;
    assert!(matches!(verify(&other).await, AuditOutcome::Broken { .. }), "cut with its head");
    erase(&rig).await;
    assert_broken(&verify(&other).await, 1, Break::Missing, "emptied");
    assert_broken(&verify(&audit).await, 1, Break::Missing, "emptied, for the process that wrote it");
}

pub(super) async fn a_forged_checkpoint_breaks_the_log(rig: StoreRig) {
    let audit = rig.stores.audit(&rig.scope);
    append(&audit, 3).await;
    rig.stores.checkpoint_audit().await.expect("checkpoint");
    let other = process(&rig).audit(&rig.scope);
    let genuine = checkpoints(&rig).await;
    assert_eq!(genuine.len(), 2, "that of the first entry, and that of the process");
    for (key, record) in &genuine {
        let (mut flipped, mut forged) = (record.value.to_vec(), record.clone());
        let last = flipped.len() - 1;
        flipped[last] ^= 1;
        for (value, case) in [(flipped, "one bit is another"), (b"forged".to_vec(), "of another hand")] {
            forged.value = value.into();
            write(&rig, key, forged.clone()).await;
            assert_broken(&verify(&other).await, 0, Break::Checkpoint, case);
        }
        write(&rig, key, record.clone()).await;
    }
    let [(first, one), (second, two)] = genuine.as_slice() else { panic!("two checkpoints") };
    write(&rig, first, two.clone()).await;
    assert_broken(&verify(&other).await, 0, Break::Checkpoint, "in the place of another");
    write(&rig, first, one.clone()).await;
    delete(&rig, second).await;
    assert_intact(&other, 3).await;
}

pub(super) async fn a_log_from_a_copy_is_found_by_a_mark(rig: StoreRig) {
    let audit = rig.stores.audit(&rig.scope);
    append(&audit, 3).await;
    let mark = audit.mark().await.expect("mark").expect("there are entries");
    append(&audit, 2).await;
    let kept = audit.verify(Some(&mark)).await.expect("verify");
    assert!(matches!(kept, AuditOutcome::Intact { entries: 5, .. }));
    erase(&rig).await;
    let other = process(&rig).audit(&rig.scope);
    assert_broken(&verify(&other).await, 1, Break::Missing, "the commit of the first entry has a checkpoint");
    for (key, _) in checkpoints(&rig).await {
        delete(&rig, &key).await;
    }
    assert!(
        matches!(verify(&other).await, AuditOutcome::Intact { entries: 0, .. }),
        "the store does not remember what was removed with its heads and its checkpoints"
    );
    assert_broken(&other.verify(Some(&mark)).await.expect("verify"), 3, Break::Missing, "a mark was kept");
}

pub(super) async fn entries_end_and_the_rest_still_verifies(rig: StoreRig) {
    let mut policies = TtlPolicies::default();
    policies.set(Kind::Audit, Scope::Global, TtlPolicy::short_lived()).expect("a good policy");
    let builder = Stores::builder_for_tests(Arc::clone(&rig.backend)).clock(rig.clock.clone()).rng(SystemRng);
    let audit = builder.keyring(rig.keyring().clone()).policies(policies).build().audit(&rig.scope);
    append(&audit, 3).await;
    rig.pass(12 * 3600);
    append(&audit, 3).await;
    let (_, last) = stored(&rig).await.pop().expect("an entry");
    assert_eq!(last.expires_at.since(rig.clock.now()), Duration::from_secs(24 * 3600), "a day is kept");
    rig.pass(12 * 3600);
    assert_eq!(entries(&audit).await.len(), 3, "the first three have ended");
    assert_intact(&audit, 3).await;
    rig.pass(1);
    assert_eq!(rig.sweep().await.total(), 4, "three entries, and the checkpoint of the first");
    assert_intact(&audit, 3).await;
    let (key, fourth) = stored(&rig).await.remove(0);
    delete(&rig, &key).await;
    assert_broken(&verify(&audit).await, 4, Break::Missing, "a missing entry does not count as expired");
    write(&rig, &key, fourth).await;
    rig.pass(12 * 3600);
    assert_intact(&audit, 0).await;
    append(&audit, 1).await;
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
    let (key, record) = stored(&rig).await.remove(0);
    let moved = Key::new(Kind::Audit, &nested, &["log".into()], &key.sort()).expect("a good key");
    write(&rig, &moved, record).await;
    assert_broken(&verify(&theirs).await, 1, Break::Changed, "an entry of one scope does not fit another");
}

pub(super) async fn the_author_is_the_authenticated_key(rig: StoreRig) {
    let audit = rig.stores.audit(&rig.scope);
    Author::new("key-7").run(append(&audit, 1)).await;
    append(&audit, 1).await;
    let told: Vec<_> =
        entries(&audit).await.into_iter().map(|entry| (entry.key_id, entry.on_behalf_of)).collect();
    let claimed = || Some("root".to_owned());
    assert_eq!(told, [(Some("key-7".to_owned()), claimed()), (Some("local".to_owned()), claimed())]);
    let mut filter = AuditFilter::default();
    filter.key = Some("key-7".to_owned());
    assert_eq!(audit.search(&filter, None, 10).await.expect("search").items.len(), 1);
}
