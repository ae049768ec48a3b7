//! Keyrings in files.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::sync::Arc;

use ebbtide::layers::authenticated::Untagged;
use ebbtide::ops::reseal::{Resealer, uses};
use ebbtide::stores::approvals::Approval;
use ebbtide::stores::audit::{AuditContext, AuditOutcome};
use ebbtide::stores::grants::{GrantRequest, Rotate, RotateOutcome};
use ebbtide::stores::nonces::{NonceCheck, NonceOutcome, NonceRequest};
use ebbtide::{
    Admin, BackendExt as _, Clock as _, Ebbtide, ErrorKind, Keyring, Kind, ManualClock, Memory, Prefix,
    Scope, SeededRng, Stores, SystemClock, SystemRng, Timestamp,
};
use serde_json::json;

fn make(path: &Path) -> Keyring {
    Keyring::load_or_create(path, &SystemRng, Timestamp::ZERO).unwrap()
}

#[cfg(unix)]
fn mode(path: &Path) -> u32 {
    std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(path).unwrap().permissions()) & 0o7777
}

#[test]
fn a_keyring_is_made_once_and_read_after() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store/keyring.json");
    let made = make(&path);
    assert_eq!(make(&path).keys(), made.keys());
    assert_eq!(Keyring::load(&path).unwrap().keys(), made.keys());
    assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing else is left behind");
}

#[cfg(unix)]
#[test]
fn the_file_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keyring.json");
    make(&path);
    assert_eq!(mode(&path), 0o600);
    Keyring::edit(&path, |keyring| keyring.add(&SystemRng, Timestamp::ZERO)).unwrap();
    assert_eq!(mode(&path), 0o600, "after a change too");
    for looser in [0o640, 0o604, 0o644, 0o620, 0o660, 0o666, 0o601] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(looser)).unwrap();
        let error = Keyring::load(&path).unwrap_err();
        assert!(error.message().contains("chmod 600"), "{error}");
        assert!(Keyring::load_or_create(&path, &SystemRng, Timestamp::ZERO).is_err());
        assert!(Keyring::edit(&path, |keyring| keyring.add(&SystemRng, Timestamp::ZERO)).is_err());
    }
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o400)).unwrap();
    assert_eq!(Keyring::load(&path).unwrap().keys().len(), 2, "stricter is good, and nothing was lost");
}

#[test]
fn a_file_that_is_there_is_never_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keyring.json");
    let made = make(&path);
    let other = Keyring::generate(&SystemRng, Timestamp::ZERO);
    assert_eq!(other.create(&path, &SystemRng).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(make(&path).keys(), made.keys());
}

#[test]
fn of_many_who_make_one_all_have_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keyring.json");
    let rings: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..16).map(|_| scope.spawn(|| make(&path).active())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(rings.iter().all(|id| *id == rings[0]), "{rings:?}");
}

#[test]
fn a_change_is_whole_or_none_and_one_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keyring.json");
    let before = make(&path).keys();
    let failed = Keyring::edit(&path, |keyring| {
        keyring.add(&SystemRng, Timestamp::ZERO)?;
        keyring.retire(keyring.active())
    });
    assert!(failed.is_err());
    assert_eq!(make(&path).keys(), before, "a change that failed left nothing");
    Keyring::edit(&path, |keyring| {
        let within = Keyring::edit(&path, |keyring| keyring.add(&SystemRng, Timestamp::ZERO));
        assert!(within.unwrap_err().message().contains("is changing the keyring"));
        keyring.add(&SystemRng, Timestamp::ZERO)
    })
    .unwrap();
    assert_eq!(make(&path).keys().len(), 2);
}

#[test]
fn what_is_no_keyring_is_corrupt_and_is_not_quoted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keyring.json");
    make(&path);
    let good = std::fs::read_to_string(&path).unwrap();
    let secret = good.split('"').find(|text| text.len() == 43).unwrap();
    let bad = [
        String::new(),
        good.replace(secret, &secret[1..]),
        good.replace(&format!("\"{secret}\""), secret),
        good.replace("\"format\": 1", "\"format\": 2"),
        good.replace("\"active\": \"", "\"active\": \"f"),
        good.replace("\"keys\"", "\"kees\""),
        good[..good.len() - 4].to_owned(),
    ];
    for text in bad {
        assert_ne!(text, good);
        std::fs::write(&path, text).unwrap();
        let error = Keyring::load(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        let all =
            format!("{error} {error:?} {:?}", std::error::Error::source(&error).map(ToString::to_string));
        assert!(!all.contains(&secret[1..]), "{all}");
    }
}

#[tokio::test]
async fn each_store_has_the_keyring_it_needs() {
    let folder = tempfile::tempdir().unwrap();
    let embedded = format!("fjall:{}?cache_mib=1", folder.path().join("data").display());
    let db = Ebbtide::open(&embedded).await.unwrap();
    let request = GrantRequest::new("alice", "app");
    let issued = db.scope("tenant:acme").unwrap().grants().issue(request).await.unwrap();
    db.close().await;
    let file = folder.path().join("data").join(Keyring::FILE_NAME);
    assert!(file.exists(), "in the store's own folder, so that it is on the same volume");
    let again = Ebbtide::open(&embedded).await.unwrap().scope("tenant:acme").unwrap();
    let rotated = again.grants().rotate(Rotate::new(&issued.refresh_token, "app")).await.unwrap();
    assert!(matches!(rotated, RotateOutcome::Rotated(_)), "the same keyring at the next start: {rotated:?}");
    assert!(Ebbtide::open("memory:").await.is_ok());
    for shared in ["postgres://u:hunter2@h/db", "postgresql://h/db", "dynamodb:table"] {
        let error = Ebbtide::open(shared).await.unwrap_err();
        assert!(error.message().contains("ebbtide keyring init"), "{error}");
        assert!(!error.message().contains("hunter2"));
    }
    let missing =
        Ebbtide::builder("memory:").keyring_file(folder.path().join("none")).open().await.unwrap_err();
    assert!(missing.message().contains("no keyring at"), "a file that was named must be there");
}

/// Records of the reseal; `EBBTIDE_TEST_RESEAL` asks for another number, such as a million.
fn records() -> usize {
    std::env::var("EBBTIDE_TEST_RESEAL").map_or(2_300, |number| number.parse().unwrap())
}

#[tokio::test]
async fn a_reseal_that_was_stopped_is_resumed_and_keeps_versions() {
    let rng = SeededRng::new(5);
    let clock = || ManualClock::at(Timestamp::from_millis(1_800_000_000_000).unwrap());
    let backend: Arc<dyn Admin> = Arc::new(Memory::default());
    let over = |ring: &Keyring| {
        Stores::builder_for_tests(Arc::clone(&backend)).clock(clock()).keyring(ring.clone()).build()
    };
    let mut ring = Keyring::generate(&rng, Timestamp::ZERO);
    let (old, acme) = (ring.active(), Scope::tenant("acme").unwrap());
    let bucket = over(&ring).attributes(&acme).bucket("alice", "b").unwrap();
    let mut versions = Vec::new();
    for number in 0..records() {
        versions.push(bucket.set(&format!("n{number}"), json!(number)).await.unwrap().version);
    }
    let grants = over(&ring).grants(&acme);
    let grant = grants.issue(GrantRequest::new("alice", "app").data(json!("secret"))).await.unwrap();
    let new = ring.add(&rng, Timestamp::ZERO).unwrap();
    ring.activate(new).unwrap();
    let stores = over(&ring);
    let now = clock().now();
    let start = async || Resealer::start(&stores, &backend, Arc::new(SeededRng::new(6)), now).await.unwrap();
    let mut first = start().await;
    while first.done().looked < 1_000 {
        assert!(first.step(now).await.unwrap());
    }
    let done = first.done().clone();
    drop(first);
    let mut second = start().await;
    assert_eq!(*second.done(), done, "it goes on where the first one stopped");
    while second.step(now).await.unwrap() {}
    assert!(second.done().moved > records() as u64, "{:?}", second.done());
    // The refresh token is derived with the old key until it is rotated.
    let left = uses(&stores, backend.as_ref(), old, now).await.unwrap();
    assert_eq!(left, [(Kind::Grant, 1)].into());
    let rotated = stores.grants(&acme).rotate(Rotate::new(grant.refresh_token, "app")).await.unwrap();
    assert!(matches!(rotated, RotateOutcome::Rotated(_)), "{rotated:?}");
    assert!(uses(&stores, backend.as_ref(), old, now).await.unwrap().is_empty());
    ring.retire(old).unwrap();
    let bucket = over(&ring).attributes(&acme).bucket("alice", "b").unwrap();
    for (number, version) in versions.iter().enumerate() {
        let found = bucket.get(&format!("n{number}")).await.unwrap().unwrap();
        assert_eq!((found.data, found.version), (json!(number), *version));
    }
}

#[cfg(feature = "fjall")]
#[tokio::test]
async fn a_token_of_a_key_that_only_other_nodes_have_is_unavailable_and_an_invented_one_unknown() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("fjall:{}", dir.path().join("data").display());
    let file = |name: &str| dir.path().join(name);
    Keyring::generate(&SystemRng, Timestamp::ZERO).create(&file("one"), &SystemRng).unwrap();
    std::fs::copy(file("one"), file("two")).unwrap();
    let added = Keyring::edit(&file("two"), |ring| {
        let id = ring.add(&SystemRng, Timestamp::ZERO)?;
        ring.activate(id).map(|()| id)
    })
    .unwrap();
    let open = async |name: &str| Ebbtide::builder(&url).keyring_file(file(name)).open().await.unwrap();
    let db = open("two").await;
    let grant = db.scope("global").unwrap().grants().issue(GrantRequest::new("alice", "app")).await.unwrap();
    let stateless = || NonceRequest::new("rs").stateless();
    let nonce = db.scope("global").unwrap().nonces().issue(stateless()).await.unwrap().nonce;
    db.close().await;
    // The copy of this node is signed for by the old key: the note was signed with the new one.
    std::fs::copy(file("two"), file("three")).unwrap();
    Keyring::edit(&file("three"), |ring| {
        let old = ring.keys().iter().find(|key| key.id != added).unwrap().id;
        ring.activate(old)
    })
    .unwrap();
    open("three").await.close().await;
    let db = open("one").await;
    let grants = db.scope("global").unwrap().grants();
    let refused = grants.rotate(Rotate::new(grant.refresh_token, "app")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    let nonces = db.scope("global").unwrap().nonces();
    let check = NonceCheck::new("rs", nonce);
    for refused in [nonces.check(&check).await, nonces.accept(&check).await] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Unavailable);
    }
    let stranger = Ebbtide::in_memory();
    let other = stranger.scope("global").unwrap().nonces().issue(stateless()).await.unwrap().nonce;
    assert_eq!(nonces.check(&NonceCheck::new("rs", other)).await.unwrap(), NonceOutcome::Unknown);
    let other =
        stranger.scope("global").unwrap().grants().issue(GrantRequest::new("alice", "app")).await.unwrap();
    let unknown = grants.rotate(Rotate::new(other.refresh_token, "app")).await.unwrap();
    assert_eq!(unknown, RotateOutcome::Unknown);
}

/// Returns whether a file below a folder has this text in it.
#[cfg(feature = "fjall")]
fn is_below(folder: &Path, text: &str) -> bool {
    std::fs::read_dir(folder).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            return is_below(&path, text);
        }
        path.is_file() && contains(&std::fs::read(&path).unwrap(), text)
    })
}

fn contains(bytes: &[u8], text: &str) -> bool {
    String::from_utf8_lossy(bytes).contains(text)
}

#[cfg(feature = "fjall")]
#[tokio::test(flavor = "multi_thread")]
async fn values_of_attributes_are_not_in_the_files_of_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let db = Ebbtide::open(&format!("fjall:{}", data.display())).await.unwrap();
    let bucket = db.scope("tenant:acme").unwrap().attributes().bucket("alice", "profile").unwrap();
    bucket.set("the-name-of-it", json!({"ssn": "a-value-that-nobody-reads"})).await.unwrap();
    drop(bucket);
    db.close().await;
    assert!(is_below(&data, "the-name-of-it"), "names are readable, and this looks in the right place");
    assert!(!is_below(&data, "a-value-that-nobody-reads"));
    // Nobody else enters the folder, for any umask of a process that embeds the library.
    for place in [data.clone(), data.join("log"), data.join("cold")] {
        let mode = std::os::unix::fs::PermissionsExt::mode(&place.metadata().unwrap().permissions());
        assert_eq!(mode & 0o077, 0, "{}", place.display());
    }
}

#[tokio::test]
async fn an_attribute_from_before_is_read_and_sealed_by_a_reseal() {
    let (engine, clock) = (Arc::new(Memory::default()), SystemClock);
    let ring = Keyring::generate(&SystemRng, clock.now());
    let stores = |untagged: Untagged| {
        let engine: Arc<dyn Admin> = engine.clone();
        Stores::builder_for_tests(engine).keyring(ring.clone()).untagged(untagged).build()
    };
    let bucket = |stores: &Stores| stores.attributes(&Scope::Global).bucket("alice", "profile").unwrap();
    // As an earlier version stored it.
    bucket(&stores(Untagged::Unread)).set("a", json!("a-value-that-nobody-reads")).await.unwrap();
    let raw = async || {
        let all = engine.scan_all(&Prefix::kind_wide(Kind::Attribute), clock.now()).await.unwrap();
        all[0].1.value.to_vec()
    };
    assert!(contains(&raw().await, "a-value-that-nobody-reads"));
    let now = stores(Untagged::Accepted);
    let read = async || bucket(&now).get("a").await.unwrap().unwrap().data;
    assert_eq!(read().await, json!("a-value-that-nobody-reads"));
    let admin: Arc<dyn Admin> = engine.clone();
    let mut resealer = Resealer::start(&now, &admin, Arc::new(SystemRng), clock.now()).await.unwrap();
    while resealer.step(clock.now()).await.unwrap() {}
    assert!(!contains(&raw().await, "a-value-that-nobody-reads"));
    assert_eq!(read().await, json!("a-value-that-nobody-reads"));
}

#[cfg(feature = "fjall")]
#[tokio::test(flavor = "multi_thread")]
async fn a_handle_without_the_keyring_writes_no_entry_that_breaks_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("fjall:{}", folder.path().join("data").display());
    let context = AuditContext::because("a test").unwrap();
    let db = Ebbtide::open(&url).await.unwrap();
    let approvals = db.scope("global").unwrap().approvals();
    approvals.grant(&Approval::new("alice", "doc", "GET", "admin")).await.unwrap();
    drop(approvals);
    db.close().await;
    let tool = Ebbtide::builder(&url).must_exist().without_keyring().open().await.unwrap();
    for back in [false, true] {
        let refused = tool.accept_clock(&context, back).await.unwrap_err();
        assert!(refused.kind() == ErrorKind::Invalid && refused.message().contains("keyring"), "{refused}");
    }
    let approvals = tool.scope("global").unwrap().approvals();
    let refused = approvals.revoke("alice", "doc", "GET", &context).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    drop(approvals);
    tool.close().await;
    let db = Ebbtide::open(&url).await.unwrap();
    let global = db.scope("global").unwrap();
    assert!(global.approvals().check("alice", "doc", "GET").await.unwrap());
    let verified = global.audit().verify(None).await.unwrap();
    assert!(matches!(verified, AuditOutcome::Intact { entries: 1, .. }), "{verified:?}");
}
