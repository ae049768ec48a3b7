//! Copies between stores, and JSON lines in and out.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ebbtide::ops::transfer::{Copied, Copier, Exporter, ImportOutcome, Importer};
use ebbtide::stores::api_keys::{KeyRequest, Role};
use ebbtide::stores::approvals::Approval;
use ebbtide::stores::attributes::Draft;
use ebbtide::stores::audit::{Action, AuditContext};
use ebbtide::stores::challenges::{self, ChallengeRequest, Form, Peek};
use ebbtide::stores::clients::{ClientRequest, RegisterOutcome, VerifyOutcome};
use ebbtide::stores::nonces::NonceRequest;
use ebbtide::stores::records::{
    Acquire, GetOutcome, Increment, PutOutcome, PutRecord, RecordAddress, RecordValue,
};
use ebbtide::stores::relationships::{Edge, RelationType, Relationship};
use ebbtide::stores::replays::{Proof, ReplayOutcome};
use ebbtide::stores::shared::belongings::Parent;
use ebbtide::stores::shared::extension::Extension;
use ebbtide::{
    Admin, BackendExt, ErrorKind, Key, Kind, ManualClock, Memory, Prefix, Reach, Record, Scope, Stores,
    SystemRng, Timestamp, Ttl, TtlPolicy,
};
use ebbtide_conformance::faulty::{FaultPoint, Faulty};
use serde_json::json;

fn now() -> Timestamp {
    Timestamp::from_millis(1_800_000_000_000).unwrap()
}

fn stores(backend: &Arc<dyn Admin>) -> Stores {
    Stores::builder_for_tests(Arc::clone(backend)).clock(ManualClock::at(now())).keyring(keyring()).build()
}

/// One keyring for every store of a test: what is copied is authenticated with it.
fn keyring() -> ebbtide::Keyring {
    ebbtide::Keyring::generate(&ebbtide::SeededRng::new(7), now())
}

fn memory() -> Arc<dyn Admin> {
    Arc::new(Memory::default())
}

fn scope(text: &str) -> Scope {
    text.parse().unwrap()
}

fn secs(seconds: i64) -> Ttl {
    Ttl::from_secs(seconds).unwrap()
}

/// Records of several kinds in several scopes, some without an end, some large, one that has expired.
async fn filled() -> Arc<dyn Admin> {
    let backend = memory();
    let stores = stores(&backend);
    for text in ["global", "tenant:acme", "tenant:acme/env:prod", "tenant:other"] {
        let scope = scope(text);
        let bucket = stores.attributes(&scope).bucket("alice", "b").unwrap();
        // In one of them more than a batch takes.
        let size = if text == "tenant:acme" { 200_000 } else { 10 };
        for number in 0..25 {
            bucket.set(&format!("n{number}"), json!("x".repeat(size))).await.unwrap();
        }
        for number in 0..150 {
            let approval = Approval::new(format!("user{number}"), "doc", "GET", "admin").ttl(secs(60));
            stores.approvals(&scope).grant(&approval).await.unwrap();
        }
        stores.relationships(&scope).add(&Relationship::trust("a", "t", "b", "admin")).await.unwrap();
        let longer = Extension::by(secs(5), "root", "why").unwrap();
        let _ = stores.approvals(&scope).extend("user1", "doc", "GET", &longer).await.unwrap();
    }
    let key = Key::new(Kind::Replay, &Scope::Global, &["over".into()], &[]).unwrap();
    let _ = backend.put(key, Record::new("", now(), &SystemRng), now()).await.unwrap();
    backend
}

async fn everything(backend: &Arc<dyn Admin>) -> Vec<(Key, Record)> {
    let mut all = Vec::new();
    for &kind in Kind::ALL {
        all.extend(backend.scan_all(&Prefix::kind_wide(kind), now()).await.unwrap());
    }
    all
}

async fn copy(from: &Arc<dyn Admin>, to: &Arc<dyn Admin>, reach: Reach) -> ebbtide::Result<Copied> {
    let mut copier = Copier::new(Arc::clone(from), Arc::clone(to), &reach, now())?;
    while copier.step().await?.is_some() {}
    Ok(copier.copied().clone())
}

fn all() -> Reach {
    Reach::Below(Scope::Global)
}

#[tokio::test]
async fn a_copy_holds_every_live_record_as_it_was() {
    let (from, to, back) = (filled().await, memory(), memory());
    let copied = copy(&from, &to, all()).await.unwrap();
    let total = everything(&from).await.len() as u64;
    assert_eq!(copied.written.values().sum::<u64>(), total);
    assert_eq!((copied.verified, copied.different, copied.conflicts), (total, 0, 0));
    assert!(copy(&to, &back, all()).await.unwrap().is_whole());
    assert_eq!(everything(&back).await, everything(&from).await, "values, versions and expiries");
    let intact = stores(&back).audit(&scope("tenant:acme")).verify(None).await.unwrap();
    assert!(matches!(intact, ebbtide::stores::audit::AuditOutcome::Intact { entries: 152, .. }));
}

#[tokio::test]
async fn a_copy_that_was_stopped_is_gone_on_with() {
    let from = filled().await;
    let faulty = Arc::new(Faulty::new(Memory::default()));
    let to: Arc<dyn Admin> = faulty.clone();
    faulty.fail(3, FaultPoint::After);
    assert_eq!(copy(&from, &to, all()).await.unwrap_err().kind(), ErrorKind::Unavailable);
    let there = everything(&to).await.len() as u64;
    assert!(there > 0);
    let copied = copy(&from, &to, all()).await.unwrap();
    assert_eq!(copied.already, there);
    assert!(copied.is_whole());
    assert_eq!(everything(&to).await, everything(&from).await);
    let again = copy(&from, &to, all()).await.unwrap();
    assert!(again.written.is_empty() && again.is_whole());
}

#[tokio::test]
async fn a_copy_below_a_scope_holds_no_other() {
    let (from, to) = (filled().await, memory());
    copy(&from, &to, Reach::Below(scope("tenant:acme"))).await.unwrap();
    let expected: Vec<_> = everything(&from)
        .await
        .into_iter()
        .filter(|(key, _)| scope("tenant:acme").covers(&key.scope()))
        .collect();
    assert_eq!(everything(&to).await, expected);
}

#[tokio::test]
async fn a_copy_writes_over_nothing() {
    let (from, to) = (filled().await, memory());
    let other = Approval::new("user7", "doc", "GET", "someone else");
    stores(&to).approvals(&Scope::Global).grant(&other).await.unwrap();
    let copied = copy(&from, &to, all()).await.unwrap();
    assert_eq!((copied.conflicts, copied.different, copied.is_whole()), (1, 1, false));
    let stands = stores(&to).approvals(&Scope::Global).get("user7", "doc", "GET").await.unwrap().unwrap();
    assert_eq!(stands.granted_by, "someone else");
}

async fn export(backend: &Arc<dyn Admin>, scope: &Scope) -> Vec<String> {
    let mut exporter = Exporter::new(stores(backend), scope).unwrap();
    let mut lines = Vec::new();
    while let Some(page) = exporter.page().await.unwrap() {
        lines.extend(page);
    }
    lines.sort();
    lines
}

#[tokio::test]
async fn what_is_exported_is_imported_once() {
    let (from, to) = (memory(), memory());
    let acme = scope("tenant:acme");
    let source = stores(&from);
    for number in 0..600 {
        let approval = Approval::new(format!("user{number}"), "a:b/c", "GET", "admin");
        let approval = approval.metadata("number", number.to_string());
        let approval = match number % 3 {
            0 => approval,
            1 => approval.ttl(secs(60)),
            _ => approval.sliding_ttl(secs(60), secs(600)),
        };
        source.approvals(&acme).grant(&approval).await.unwrap();
    }
    let custom = Edge::new("a", "r", "b", RelationType::Custom("Own:é".into()));
    source.relationships(&acme).add(&Relationship::new(custom.clone(), "admin")).await.unwrap();
    source.relationships(&acme).add(&Relationship::trust("a", "t", "b", "admin")).await.unwrap();
    source.approvals(&Scope::Global).grant(&Approval::new("else", "doc", "GET", "admin")).await.unwrap();
    let lines = export(&from, &acme).await;
    assert_eq!(lines.len(), 602);
    let target = scope("tenant:other/env:x");
    let dry = Importer::new(stores(&to), target.clone(), true);
    for line in &lines {
        assert!(matches!(dry.line(line).await.unwrap(), ImportOutcome::Written(_)));
    }
    assert!(everything(&to).await.is_empty(), "a dry run writes nothing");
    let importer = Importer::new(stores(&to), target.clone(), false);
    for line in &lines {
        assert!(matches!(importer.line(line).await.unwrap(), ImportOutcome::Written(_)));
    }
    for line in &lines {
        let again = importer.line(line).await.unwrap();
        assert_eq!(again, ImportOutcome::Skipped("it is there already".into()));
    }
    assert_eq!(export(&to, &target).await, lines, "one is the inverse of the other");
    assert!(stores(&to).relationships(&target).check(&custom).await.unwrap());
    let reverse = stores(&to).relationships(&target).list_reverse("b", None, None, 10).await.unwrap();
    assert_eq!(reverse.items.len(), 2);
}

#[tokio::test]
async fn lines_of_other_systems_are_read() {
    let backend = memory();
    let importer = Importer::new(stores(&backend), scope("tenant:acme"), false);
    let later = now().as_millis() / 1_000 + 60;
    let good = [
        json!({"identity": "alice", "resource": "doc", "action": "GET", "granted_by": "admin",
               "granted_at": 1_700_000_000, "expires_at": later, "metadata": {"a": "b"}}),
        json!({"identity": "bob", "resource": "doc", "action": "GET", "granted_by": "admin", "expires_at": null}),
        json!({"subject": "alice", "relation": "editor", "object": "doc", "relation_type": "Role",
               "created_by": "admin", "created_at": 1_700_000_000, "metadata": {}}),
        json!({"subject": "alice", "relation": "r", "object": "doc", "relation_type": {"Custom": "Own"},
               "created_by": "admin", "ttl_seconds": 60}),
    ];
    for line in &good {
        let answer = importer.line(&line.to_string()).await.unwrap();
        assert!(matches!(answer, ImportOutcome::Written(_)), "{answer:?}");
    }
    let clock = ManualClock::at(now().checked_add(Duration::from_secs(9)).unwrap());
    let later_on = Stores::builder_for_tests(Arc::clone(&backend)).clock(clock).keyring(keyring()).build();
    let again = Importer::new(later_on, scope("tenant:acme"), false);
    for line in &good {
        let answer = again.line(&line.to_string()).await.unwrap();
        assert_eq!(answer, ImportOutcome::Skipped("it is there already".into()), "dated or not");
    }
    let alice =
        stores(&backend).approvals(&scope("tenant:acme")).get("alice", "doc", "GET").await.unwrap().unwrap();
    assert_eq!(alice.granted_at.as_millis(), 1_700_000_000_000);
    assert_eq!(alice.expires_at.since(now()), Duration::from_secs(60));
    let skipped = [
        ("nonsense", "not a JSON object"),
        ("[1]", "not a JSON object"),
        (r#"{"identity": "alice", "resource": "doc", "action": "GET"}"#, "granted_by"),
        (r#"{"identity": "alice", "resource": "", "action": "GET", "granted_by": "x"}"#, "must not be empty"),
        (
            r#"{"identity": "a", "resource": "d", "action": "G", "granted_by": "x", "expires_at": 1700000000}"#,
            "expired",
        ),
        (
            r#"{"identity": "a", "resource": "d", "action": "G", "granted_by": "x", "expires_at": "soon"}"#,
            "expires_at",
        ),
        (
            r#"{"identity": "alice", "resource": "doc", "action": "GET", "granted_by": "other"}"#,
            "conflicts with an existing record",
        ),
        (r#"{"subject": "a", "relation": "r", "object": "b", "created_by": "x"}"#, "relation_type"),
        (
            r#"{"subject": "a", "relation": "r", "object": "b", "created_by": "x", "relation_type": "friend"}"#,
            "membership",
        ),
        (
            r#"{"subject": "a", "relation": "r", "object": "b", "created_by": "x", "relation_type": "role", "metadata": [1]}"#,
            "metadata",
        ),
    ];
    for (line, why) in skipped {
        match importer.line(line).await.unwrap() {
            ImportOutcome::Skipped(reason) => assert!(reason.contains(why), "{line}: {reason}"),
            other => panic!("{line}: {other:?}"),
        }
    }
    let faulty = Arc::new(Faulty::new(Memory::default()));
    faulty.fail(0, FaultPoint::Before);
    let broken: Arc<dyn Admin> = faulty;
    let importer = Importer::new(stores(&broken), Scope::Global, false);
    assert_eq!(importer.line(&good[1].to_string()).await.unwrap_err().kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn records_are_imported_with_what_they_belong_to_and_not_without() {
    let (from, to, acme) = (memory(), memory(), scope("tenant:acme"));
    let source = stores(&from);
    let trust = |peer: &str| Edge::new("alice", "peer", peer, RelationType::Trust);
    let relationships = source.relationships(&acme);
    relationships.add(&Relationship::new(trust("bob"), "admin")).await.unwrap();
    relationships.add(&Relationship::new(trust("eve"), "admin").ttl(secs(60))).await.unwrap();
    let client = ClientRequest::public().client_id("app");
    assert!(matches!(source.clients(&acme).register(client).await.unwrap(), RegisterOutcome::Registered(_)));
    let role = Edge::new("app", "reads", "files", RelationType::Custom("of an app".to_owned()));
    let of_client = Relationship::new(role.clone(), "admin").belongs_to(Parent::Client("app".to_owned()));
    relationships.add(&of_client).await.unwrap();
    let carol = Parent::Owner("carol".to_owned());
    let bucket = source.attributes(&acme).bucket("alice", "permissions").unwrap();
    for (name, parent) in [
        ("bob", Parent::Relationship(trust("bob"))),
        ("eve", Parent::Relationship(trust("eve"))),
        ("app", Parent::Relationship(role.clone())),
        ("carol", carol.clone()),
    ] {
        bucket.set(name, Draft::new(json!("rw")).belongs_to(parent)).await.unwrap();
    }
    let put = PutRecord::new("c", "r", json!(1)).belongs_to(carol);
    assert!(matches!(source.records(&acme).put(&put).await.unwrap(), PutOutcome::Stored { .. }));

    let clock = ManualClock::at(now().checked_add(Duration::from_secs(60)).unwrap());
    let later = |backend: &Arc<dyn Admin>| {
        Stores::builder_for_tests(Arc::clone(backend)).clock(clock.clone()).keyring(keyring()).build()
    };
    let lines = {
        let (mut exporter, mut lines) = (Exporter::new(later(&from), &acme).unwrap(), Vec::new());
        while let Some(page) = exporter.page().await.unwrap() {
            lines.extend(page);
        }
        lines
    };
    assert_eq!(lines.len(), 7, "{lines:#?}");
    assert!(
        !lines.iter().any(|line| line.contains("eve")),
        "what has ended with its trust stays: {lines:#?}"
    );
    let target = later(&to);
    for dry_run in [true, false] {
        let importer = Importer::new(target.clone(), acme.clone(), dry_run);
        for line in &lines {
            let answer = importer.line(line).await.unwrap();
            assert!(matches!(answer, ImportOutcome::Written(_)), "{line}: {answer:?}");
        }
    }
    let importer = Importer::new(target.clone(), acme.clone(), false);
    for (parent, why) in [
        (
            json!({"relationship": {"subject": "x", "relation": "y", "object": "z", "relation_type": "trust"}}),
            "does not exist",
        ),
        (json!({"friend": "x"}), "belongs_to is not one of"),
    ] {
        let line = json!({"owner": "alice", "bucket": "b", "name": "n", "data": 1, "belongs_to": parent});
        let ImportOutcome::Skipped(told) = importer.item(&line).await.unwrap() else { panic!("{line}") };
        assert!(told.contains(why), "{told}");
    }
    let there = target.attributes(&acme).bucket("alice", "permissions").unwrap();
    let names = async || {
        let listed = there.list(None, 10).await.unwrap().items;
        listed.into_iter().map(|attribute| attribute.name).collect::<Vec<_>>()
    };
    assert_eq!(names().await, ["app", "bob", "carol"]);
    let context = AuditContext::because("a test").unwrap();
    assert!(target.relationships(&acme).remove(&trust("bob"), &context).await.unwrap());
    assert_eq!(names().await, ["app", "carol"]);
    target.clients(&acme).delete("app", &context).await.unwrap().unwrap().finish().await.unwrap();
    assert!(!target.relationships(&acme).check(&role).await.unwrap());
    assert_eq!(names().await, ["carol"]);
    target.owners(&acme).delete("carol", &context).await.unwrap().finish().await.unwrap();
    assert_eq!(names().await, [""; 0]);
    let found = target.records(&acme).get(&RecordAddress::id("c", "r")).await.unwrap();
    assert!(!matches!(found, GetOutcome::Found(_)), "it went with its owner: {found:?}");
}

#[tokio::test]
async fn every_exported_kind_moves_to_another_scope() {
    let (from, to) = (memory(), memory());
    let (acme, beta) = (scope("tenant:acme"), scope("tenant:beta"));
    let source = stores(&from);
    let bucket = source.attributes(&acme).bucket("alice", "profile").unwrap();
    bucket.set("name", json!({"given": "Alice"})).await.unwrap();
    let sliding = Draft::new(json!(false)).sliding_ttl(secs(60), secs(600));
    bucket.set("falsy", sliding).await.unwrap();
    let client = ClientRequest::confidential().client_id("app").owner("alice");
    let client = client.redirect_uris(["https://app.example/cb"]);
    let RegisterOutcome::Registered(registered) = source.clients(&acme).register(client).await.unwrap()
    else {
        panic!("not registered")
    };
    let secret = registered.client_secret.unwrap();
    let record = PutRecord::new("sessions", "id1", json!({"cart": [1, 2]})).keys(["second"]);
    assert!(matches!(source.records(&acme).put(&record).await.unwrap(), PutOutcome::Stored { .. }));
    let proof = Proof::new("dpop", "j");
    let _ = source.replays(&acme).check(&proof).await.unwrap();
    let key = KeyRequest::new(acme.clone(), Role::Writer);
    let context = AuditContext::because("a test").unwrap();
    let key = source.api_keys(&acme).create(&key, &context).await.unwrap();
    source.approvals(&acme).grant(&Approval::new("alice", "doc", "GET", "admin")).await.unwrap();
    source.relationships(&acme).add(&Relationship::trust("a", "t", "b", "admin")).await.unwrap();
    source.policies(&acme).set(Kind::Session, &acme, TtlPolicy::short_lived(), &context).await.unwrap();
    source.records(&acme).revoke_group("sessions", "gone", None).await.unwrap();
    let _ = source.records(&acme).increment(&Increment::new("sessions", "hits")).await.unwrap();
    let _ = source.records(&acme).acquire(&Acquire::new("sessions", "lease", secs(60))).await.unwrap();
    source.nonces(&acme).issue(NonceRequest::new("as")).await.unwrap();
    let link = ChallengeRequest::new("reset", "alice", Form::Token);
    let link = source.challenges(&acme).issue(link).await.unwrap().secret;

    let mut exporter = Exporter::of(source, &Reach::Below(acme.clone()), &Exporter::KINDS).unwrap();
    let mut lines = Vec::new();
    while let Some(page) = exporter.page().await.unwrap() {
        lines.extend(page);
    }
    let text = lines.join("\n");
    assert!(!text.contains("cart") && !text.contains(secret.expose()), "sealed: {text}");
    let target = stores(&to);
    let foreign = Importer::new(target.clone(), beta.clone(), false);
    for line in &lines {
        let ImportOutcome::Skipped(why) = foreign.line(line).await.unwrap() else { panic!("{line}") };
        assert!(why.contains("tenant:acme"), "a foreign scope is refused: {why}");
    }
    let importer = Importer::new(target.clone(), beta.clone(), false).map_scope(acme.clone(), beta.clone());
    let mut met = BTreeSet::new();
    for line in &lines {
        match importer.line(line).await.unwrap() {
            ImportOutcome::Written(kind) => met.insert(kind),
            ImportOutcome::Skipped(why) => {
                let bound = [Kind::ApiKey, Kind::Policy]
                    .into_iter()
                    .find(|kind| why == format!("{kind} are bound to their scope, tenant:acme"));
                met.insert(bound.unwrap_or_else(|| panic!("{why}: {line}")))
            }
            other => panic!("{other:?}: {line}"),
        };
    }
    // Policies stand in the global scope, for the one that they bound.
    let expected = Exporter::KINDS.into_iter().filter(|kind| *kind != Kind::Policy).collect();
    assert_eq!(met, expected, "one of every other kind");
    let log = target.audit(&beta).list(None, 100).await.unwrap().items;
    let log: Vec<_> = log.iter().map(|entry| (entry.action, entry.kind.unwrap(), &*entry.target)).collect();
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    let imported = [
        (Action::Import, Kind::Client, &*names(&["app"])),
        (Action::Import, Kind::Approval, &*names(&["alice", "doc", "GET"])),
        (Action::Import, Kind::Relationship, &*names(&["a", "trust", "t", "b"])),
    ];
    assert_eq!(log, imported, "authority has an entry in its commit, and data has none");
    let there = target.attributes(&beta).bucket("alice", "profile").unwrap();
    assert_eq!(there.get("name").await.unwrap().unwrap().data, json!({"given": "Alice"}));
    assert!(there.get("falsy").await.unwrap().unwrap().slides);
    let verified = target.clients(&beta).verify("app", &secret).await.unwrap();
    assert!(matches!(verified, VerifyOutcome::Verified(_)), "{verified:?}");
    let found = target.records(&beta).get(&RecordAddress::id("sessions", "id1")).await.unwrap();
    let GetOutcome::Found(found) = found else { panic!("{found:?}") };
    assert_eq!(found.value, RecordValue::from(json!({"cart": [1, 2]})));
    assert_eq!(target.replays(&beta).check(&proof).await.unwrap(), ReplayOutcome::Replay);
    let peek = Peek::new("reset").secret(link);
    let peeked = target.challenges(&beta).peek(&peek).await.unwrap();
    assert!(matches!(peeked, challenges::VerifyOutcome::Verified(_)), "{peeked:?}");
    // In its own scope a key is good too.
    let own = Importer::by_line(target.clone(), false);
    let line = lines.iter().find(|line| line.contains("\"api_keys\"")).unwrap();
    assert_eq!(own.line(line).await.unwrap(), ImportOutcome::Written(Kind::ApiKey));
    assert_eq!(target.find_api_key(&key.key).await.unwrap(), Some(key.about));
    // A line that was changed, or that another keyring has signed, is refused.
    let later = line.replacen('{', "{\"expires_at\":4102444800000,", 1);
    let ImportOutcome::Skipped(why) = own.line(&later).await.unwrap() else { panic!() };
    assert!(why.contains("changed"), "{why}");
    let stranger = Importer::by_line(Stores::for_tests(memory()), false);
    let ImportOutcome::Skipped(why) = stranger.line(line).await.unwrap() else { panic!() };
    assert!(why.contains("this keyring"), "{why}");
}

#[tokio::test]
async fn a_copy_keeps_links_and_checkpoints() {
    let (from, to) = (memory(), memory());
    let (source, acme) = (stores(&from), scope("tenant:acme"));
    source.relationships(&acme).add(&Relationship::trust("a", "t", "b", "admin")).await.unwrap();
    let trust = Parent::Relationship(Edge::new("a", "t", "b", RelationType::Trust));
    let bucket = source.attributes(&acme).bucket("b", "tokens").unwrap();
    bucket.set("of-a", Draft::new(json!(1)).belongs_to(trust)).await.unwrap();
    source.checkpoint_audit().await.unwrap();
    assert!(copy(&from, &to, all()).await.unwrap().is_whole());
    assert_eq!(everything(&to).await, everything(&from).await);
    let target = stores(&to);
    let context = AuditContext::because("over").unwrap();
    let edge = Edge::new("a", "t", "b", RelationType::Trust);
    assert!(target.relationships(&acme).remove(&edge, &context).await.unwrap());
    assert!(target.attributes(&acme).bucket("b", "tokens").unwrap().get("of-a").await.unwrap().is_none());
}
