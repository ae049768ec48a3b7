//! `docs/lifecycle.md` says what the code does: one record of each kind is made, and its row is compared.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ebbtide::stores::access_tokens::{AccessRequest, IssueOutcome};
use ebbtide::stores::api_keys::{KeyRequest, Role};
use ebbtide::stores::approvals::Approval;
use ebbtide::stores::attributes::Draft;
use ebbtide::stores::audit::AuditContext;
use ebbtide::stores::challenges::{ChallengeRequest, Form};
use ebbtide::stores::clients::{ClientRequest, RegisterOutcome};
use ebbtide::stores::codes::CodeRequest;
use ebbtide::stores::device_codes::{Deny, DeviceRequest};
use ebbtide::stores::grants::{GrantRequest, IssuedGrant, Rotate, RotateOutcome};
use ebbtide::stores::nonces::NonceRequest;
use ebbtide::stores::profile::Profile;
use ebbtide::stores::pushed_requests::{Push, PushOutcome};
use ebbtide::stores::records::{
    Acquire, AcquireOutcome, Increment, IncrementOutcome, PutOutcome, PutRecord, RecordAddress,
    TouchOutcome as RecordTouchOutcome, TouchRecord,
};
use ebbtide::stores::registry::indexes;
use ebbtide::stores::relationships::Relationship;
use ebbtide::stores::replays::{Proof, ReplayOutcome};
use ebbtide::stores::scopes::Scopes;
use ebbtide::stores::sessions::{CreatedSession, SessionRequest, TouchOutcome};
use ebbtide::stores::shared::extension::Extension;
use ebbtide::stores::shared::life::RecordTtl;
use ebbtide::stores::shared::payload::Payload;
use ebbtide::{
    Backend, BackendExt, Clock, Kind, ManualClock, Memory, Prefix, Scope, Stores, Timestamp, Ttl, TtlPolicy,
};
use serde_json::json;

const PAGE: &str = include_str!("../../../docs/lifecycle.md");

/// Made by engines alone.
const NOT_MADE_HERE: Kind = Kind::System;

/// The rows of the first table whose head begins with `first`.
fn table(first: &str) -> Vec<Vec<&'static str>> {
    let rows = PAGE.lines().skip_while(|line| !line.starts_with(&format!("| {first} |"))).skip(2);
    let cells = |line: &'static str| line.trim_matches('|').split('|').map(str::trim).collect();
    rows.take_while(|line| line.starts_with('|')).map(cells).collect()
}

/// A duration as the page writes it; none for what has no end.
fn seconds(text: &str) -> Option<u64> {
    if text == "no end" { None } else { Some(text.strip_suffix(" s").unwrap().parse().unwrap()) }
}

fn context() -> AuditContext {
    AuditContext::new("root", "a test").unwrap()
}

struct World {
    backend: Arc<Memory>,
    clock: ManualClock,
    stores: Stores,
    scope: Scope,
    /// Answered ends, by kind.
    lives: BTreeMap<Kind, Timestamp>,
    grant: IssuedGrant,
    session: CreatedSession,
}

const OWNER: &str = "alice";

impl World {
    /// One of each kind, all of one owner.
    async fn new() -> Self {
        let backend = Arc::new(Memory::default());
        let clock = ManualClock::at(Timestamp::from_millis(1_800_000_000_000).unwrap());
        let builder = Stores::builder_for_tests(backend.clone()).clock(clock.clone());
        let stores = builder.build();
        let scope = Scope::tenant("acme").unwrap();
        let mut lives = BTreeMap::new();

        let ReplayOutcome::Fresh { expires_at } =
            stores.replays(&scope).check(&Proof::new("n", "j")).await.unwrap()
        else {
            panic!()
        };
        lives.insert(Kind::Replay, expires_at);
        lives.insert(
            Kind::Nonce,
            stores.nonces(&scope).issue(NonceRequest::new("as")).await.unwrap().expires_at,
        );
        let code = stores.codes(&scope).issue(CodeRequest::new("app", OWNER, "https://a")).await.unwrap();
        lives.insert(Kind::Code, code.expires_at);
        let grant = stores.grants(&scope).issue(GrantRequest::new(OWNER, "app")).await.unwrap();
        lives.insert(Kind::Grant, grant.expires_at);
        lives.insert(Kind::GrantIndex, grant.ends_at);
        lives.insert(Kind::ProviderToken, grant.ends_at);
        let tokens = Payload::new("t");
        let _ = stores.provider_tokens(&scope).put(grant.grant_id, "google", &tokens, None).await.unwrap();
        let request = AccessRequest::alone(OWNER, "app");
        let IssueOutcome::Issued(token) = stores.access_tokens(&scope).issue(request).await.unwrap() else {
            panic!()
        };
        lives.insert(Kind::AccessToken, token.expires_at);
        let request = SessionRequest::default().subject(OWNER);
        let session = stores.sessions(&scope).create(request).await.unwrap();
        lives.insert(Kind::Session, session.expires_at);
        lives.insert(Kind::SessionIndex, session.ends_at);
        let push = Push::new("app", json!({}));
        let PushOutcome::Pushed { expires_at, .. } = stores.pushed_requests(&scope).put(push).await.unwrap()
        else {
            panic!()
        };
        lives.insert(Kind::PushedRequest, expires_at);
        let device = stores.device_codes(&scope).start(DeviceRequest::new("tv")).await.unwrap();
        lives.insert(Kind::DeviceCode, device.expires_at);
        lives.insert(Kind::UserCode, device.expires_at);
        let challenge = ChallengeRequest::new("login", OWNER, Form::Digits6);
        let challenge = stores.challenges(&scope).issue(challenge).await.unwrap();
        lives.insert(Kind::Challenge, challenge.expires_at);
        lives.insert(Kind::ChallengeIndex, challenge.expires_at);
        let request = ClientRequest::public().owner(OWNER);
        let RegisterOutcome::Registered(client) = stores.clients(&scope).register(request).await.unwrap()
        else {
            panic!()
        };
        lives.insert(Kind::Client, client.client.expires_at);
        lives.insert(Kind::ClientIndex, client.client.expires_at);
        let bucket = stores.attributes(&scope).bucket(OWNER, "b").unwrap();
        lives.insert(Kind::Attribute, bucket.set("a", json!(1)).await.unwrap().expires_at);
        let approval = Approval::new(OWNER, "r", "GET", "root");
        lives.insert(Kind::Approval, stores.approvals(&scope).grant(&approval).await.unwrap().expires_at);
        let related = stores.relationships(&scope).add(&Relationship::role(OWNER, "r", "o", "root")).await;
        let related = related.unwrap().expires_at;
        lives.insert(Kind::Relationship, related);
        lives.insert(Kind::RelationshipReverse, related);
        // It has no default, and so changes no life. The log tells of it.
        let policy = TtlPolicy::default();
        stores.policies(&scope).set(Kind::Approval, &scope, policy, &context()).await.unwrap();
        lives.insert(Kind::Policy, Timestamp::NEVER);
        let key = KeyRequest::new(scope.clone(), Role::Writer);
        let key = stores.api_keys(&scope).create(&key, &context()).await.unwrap();
        lives.insert(Kind::ApiKey, key.about.expires_at);
        let records = stores.records(&scope);
        let put = PutRecord::new("c", "id", json!(1)).keys(["k"]);
        let PutOutcome::Stored { expires_at, .. } = records.put(&put).await.unwrap() else { panic!() };
        lives.insert(Kind::Record, expires_at);
        lives.insert(Kind::RecordKey, expires_at);
        lives.insert(Kind::RecordGroup, records.revoke_group("c", "g", None).await.unwrap());
        let IncrementOutcome::Counted { expires_at, .. } =
            records.increment(&Increment::new("c", "id")).await.unwrap()
        else {
            panic!()
        };
        lives.insert(Kind::Counter, expires_at);
        let acquire = Acquire::new("c", "id", RecordTtl::Default);
        let AcquireOutcome::Acquired { expires_at, .. } = records.acquire(&acquire).await.unwrap() else {
            panic!()
        };
        lives.insert(Kind::Lease, expires_at);
        Self { backend, clock, stores, scope, lives, grant, session }
    }

    /// The first end of the live records of a kind; none if there are none.
    async fn first_end(&self, kind: Kind) -> Option<Timestamp> {
        self.ends(kind).await.into_iter().min()
    }

    async fn ends(&self, kind: Kind) -> Vec<Timestamp> {
        let records = self.backend.scan_all(&Prefix::kind_wide(kind), self.clock.now()).await.unwrap();
        records.into_iter().map(|(_, record)| record.expires_at).collect()
    }

    async fn kinds(&self) -> BTreeSet<Kind> {
        let mut kinds = BTreeSet::new();
        for &kind in Kind::ALL {
            if self.first_end(kind).await.is_some() {
                kinds.insert(kind);
            }
        }
        kinds
    }

    fn age(&self, end: Timestamp) -> Option<u64> {
        (!end.is_never()).then(|| end.since(self.clock.now()).as_secs())
    }
}

fn rows() -> Vec<(Kind, Vec<&'static str>)> {
    table("kind").into_iter().map(|row| (row[0].trim_matches('`').parse().unwrap(), row)).collect()
}

#[test]
fn every_kind_has_its_row_in_order() {
    let kinds: Vec<_> = rows().into_iter().map(|(kind, _)| kind).collect();
    let all: Vec<_> = Kind::ALL.iter().copied().filter(|kind| !kind.is_probe()).collect();
    assert_eq!(kinds, all);
}

#[tokio::test]
async fn lives_and_ends_are_those_of_the_page() {
    let world = World::new().await;
    for (kind, row) in rows() {
        if kind == NOT_MADE_HERE || kind == Kind::Owner {
            continue;
        }
        if let Some(&end) = world.lives.get(&kind) {
            assert_eq!(world.age(end), seconds(row[1]), "{kind} lives");
        } else {
            assert_eq!(kind, Kind::Audit, "the only kind that is never answered with its end");
        }
        // Some kinds have records of two sorts: an index of grants also lists tokens, and a log has a head.
        let stored: Vec<_> = world.ends(kind).await.into_iter().map(|end| world.age(end)).collect();
        assert!(stored.contains(&seconds(row[2])), "{kind} is stored for {stored:?}");
    }
    // A tombstone, once its deletion has ended.
    world.stores.owners(&world.scope).delete(OWNER, &context()).await.unwrap().finish().await.unwrap();
    let (_, row) = rows().into_iter().find(|(kind, _)| *kind == Kind::Owner).unwrap();
    let stored = world.first_end(Kind::Owner).await.unwrap();
    assert_eq!((world.age(stored), seconds(row[1])), (seconds(row[2]), seconds(row[2])));
}

#[tokio::test]
async fn what_makes_a_life_longer_is_what_the_page_says() {
    let world = World::new().await;
    let (stores, scope) = (&world.stores, &world.scope);
    let hour = Ttl::from_secs(3600).unwrap();
    let bucket = stores.attributes(scope).bucket(OWNER, "b").unwrap();
    bucket.set("a", Draft::new(json!(1)).ttl(hour)).await.unwrap();
    let approval = Approval::new(OWNER, "r", "GET", "root").ttl(hour);
    stores.approvals(scope).grant(&approval).await.unwrap();
    let related = Relationship::role(OWNER, "r", "o", "root");
    stores.relationships(scope).add(&related.clone().ttl(hour)).await.unwrap();
    let record = PutRecord::new("c", "id", json!(1)).keys(["k"]).life(hour);
    assert!(matches!(stores.records(scope).put(&record).await.unwrap(), PutOutcome::Stored { .. }));
    world.clock.advance(Duration::from_secs(10));
    let mut before = BTreeMap::new();
    for &kind in Kind::ALL {
        before.insert(kind, world.first_end(kind).await);
    }
    let grants = stores.grants(scope);
    let idle = grants.get(world.grant.grant_id).await.unwrap().unwrap().expires_at;
    let rotated = grants.rotate(Rotate::new(&world.grant.refresh_token, "app")).await.unwrap();
    assert!(matches!(rotated, RotateOutcome::Rotated(_)));
    let mut longer = BTreeSet::new();
    if grants.get(world.grant.grant_id).await.unwrap().unwrap().expires_at > idle {
        longer.insert(Kind::Grant);
    }
    let touched = stores.sessions(scope).touch(&world.session.session_id, None).await.unwrap();
    assert!(matches!(touched, TouchOutcome::Touched { .. }));
    let touch = TouchRecord::new(RecordAddress::id("c", "id"), hour);
    let touched = stores.records(scope).touch(&touch).await.unwrap();
    assert!(matches!(touched, RecordTouchOutcome::Touched(_)));
    let extension = Extension::by(hour, "root", "a test").unwrap();
    assert!(bucket.extend("a", &extension).await.unwrap().is_extended());
    assert!(stores.approvals(scope).extend(OWNER, "r", "GET", &extension).await.unwrap().is_extended());
    assert!(stores.relationships(scope).extend(&related.edge(), &extension).await.unwrap().is_extended());
    for (kind, was) in before {
        if world.first_end(kind).await > was {
            longer.insert(kind);
        }
    }
    let said: BTreeSet<_> =
        rows().into_iter().filter(|(_, row)| row[3] != "nobody").map(|(kind, _)| kind).collect();
    assert_eq!(longer, said);
    for (kind, row) in rows() {
        let named = ["`rotate`", "`touch`", "`extend`"].iter().any(|call| row[3].starts_with(call));
        assert!(named || row[3] == "nobody", "{kind}");
    }
}

/// The kinds whose row says that this removes them.
fn removed_by(what: &str) -> BTreeSet<Kind> {
    let says = |row: &[&str]| row[4].split(", ").any(|by| by == what);
    rows().into_iter().filter(|(_, row)| says(row)).map(|(kind, _)| kind).collect()
}

#[tokio::test]
async fn what_removes_a_record_is_what_the_page_says() {
    let world = World::new().await;
    let before = world.kinds().await;
    world.stores.owners(&world.scope).delete(OWNER, &context()).await.unwrap().finish().await.unwrap();
    let gone: BTreeSet<_> = before.difference(&world.kinds().await).copied().collect();
    assert_eq!(gone, removed_by("owner"));

    let world = World::new().await;
    let (stores, scope) = (&world.stores, &world.scope);
    let listed = stores.clients(scope).list(OWNER, None, 1).await.unwrap();
    let registered = listed.items[0].client_id.clone();
    let grants = stores.grants(scope);
    let grant = grants.issue(GrantRequest::new("bob", registered.as_str())).await.unwrap();
    let tokens = Payload::new("t");
    let _ = stores.provider_tokens(scope).put(grant.grant_id, "google", &tokens, None).await.unwrap();
    let request = AccessRequest::alone("bob", registered.as_str());
    let _ = stores.access_tokens(scope).issue(request).await.unwrap();
    let with_client = count(&world).await;
    stores.clients(scope).delete(&registered, &context()).await.unwrap().unwrap().finish().await.unwrap();
    let after = count(&world).await;
    let fewer: BTreeSet<_> =
        with_client.into_iter().filter(|(kind, n)| after[kind] < *n).map(|(k, _)| k).collect();
    assert_eq!(fewer, removed_by("client"));

    // Policies are kept apart from their scopes, and go when a scope was deleted.
    let deletable: BTreeSet<_> = Scopes::deletable().chain([Kind::Policy]).collect();
    assert_eq!(deletable, removed_by("scope"));
}

#[tokio::test]
async fn every_index_leads_to_its_record() {
    let world = World::new().await;
    for (kind, leads_to) in indexes() {
        let found = world.backend.scan_all(&Prefix::kind_wide(kind), world.clock.now()).await.unwrap();
        assert!(!found.is_empty(), "{kind}");
        for (index, record) in found {
            let key = leads_to(&index, &record).unwrap();
            let target = world.backend.get(&key, world.clock.now()).await.unwrap();
            assert!(target.is_some(), "{kind} leads to {key:?}");
        }
    }
    // The wrong guesses at user codes are no index.
    let device_codes = world.stores.device_codes(&world.scope);
    let _ = device_codes.decide(Deny::new("BBBB-BBBB", "a browser")).await.unwrap();
    let beside = world.backend.scan_all(&Prefix::kind_wide(Kind::UserCode), world.clock.now()).await.unwrap();
    let (_, device_of) = indexes().into_iter().find(|(kind, _)| *kind == Kind::UserCode).unwrap();
    let leading = beside.iter().filter(|(index, record)| device_of(index, record).is_some()).count();
    assert_eq!((beside.len(), leading), (2, 1));
}

async fn count(world: &World) -> BTreeMap<Kind, usize> {
    let mut counts = BTreeMap::new();
    for &kind in Kind::ALL {
        counts.insert(kind, world.ends(kind).await.len());
    }
    counts
}

#[test]
fn the_profiles_are_those_of_the_page() {
    let rows = table("what");
    for (column, name) in Profile::NAMES.iter().enumerate() {
        let profile: Profile = name.parse().unwrap();
        let lives = [
            profile.code,
            profile.access,
            profile.refresh_idle,
            profile.session,
            profile.nonce,
            profile.replay,
        ];
        for (row, life) in rows.iter().zip(lives) {
            assert_eq!(seconds(row[column + 1]), Some(life.duration().as_secs()), "{name}: {}", row[0]);
        }
    }
    assert_eq!(rows.len(), 6);
}
