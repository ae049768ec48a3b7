//! Policies change while the store serves.

use std::sync::Arc;
use std::time::Duration;

use super::approvals::context;
use super::rig::{StoreRig, secs};
use ebbtide::model::error::Result;
use ebbtide::model::kind::Kind;
use ebbtide::model::rng::SystemRng;
use ebbtide::model::scope::Scope;
use ebbtide::model::ttl::{TtlPolicies, TtlPolicy};
use ebbtide::stores::Stores;
use ebbtide::stores::approvals::Approval;
use ebbtide::stores::audit::{Action, AuditOutcome};

/// Another node on the same backend.
pub(super) fn node(rig: &StoreRig, policies: TtlPolicies) -> Stores {
    let builder = Stores::builder_for_tests(Arc::clone(&rig.backend)).clock(rig.clock.clone()).rng(SystemRng);
    builder.keyring(rig.keyring().clone()).policies(policies).build()
}

/// TTL of an approval that is granted without one; `None` if it does not expire.
async fn life(stores: &Stores, scope: &Scope) -> Option<Duration> {
    let granted = stores.approvals(scope).grant(&Approval::new("alice", "doc", "GET", "admin")).await;
    let granted = granted.expect("grant");
    (!granted.expires_at.is_never()).then(|| granted.expires_at.since(granted.granted_at))
}

async fn set(stores: &Stores, scope: &Scope, policy: TtlPolicy) -> Result<Option<TtlPolicy>> {
    stores.policies(&Scope::Global).set(Kind::Approval, scope, policy, &context()).await
}

const HOUR: Option<Duration> = Some(Duration::from_secs(3_600));
const DAY: Option<Duration> = Some(Duration::from_secs(86_400));
const MONTH: Option<Duration> = Some(Duration::from_secs(30 * 86_400));

pub(super) async fn a_policy_holds_at_once_and_is_logged(rig: StoreRig) {
    assert_eq!(life(&rig.stores, &rig.scope).await, None);
    assert_eq!(set(&rig.stores, &rig.scope, TtlPolicy::temporary()).await.expect("set"), None);
    assert_eq!(life(&rig.stores, &rig.scope).await, HOUR);
    let long = Approval::new("alice", "doc", "GET", "admin").ttl(secs(86_401));
    assert!(rig.stores.approvals(&rig.scope).grant(&long).await.is_err());
    let before = set(&rig.stores, &rig.scope, TtlPolicy::short_lived()).await.expect("set");
    assert_eq!(before, Some(TtlPolicy::temporary()));
    assert_eq!(life(&rig.stores, &rig.scope).await, DAY);
    let policies = rig.stores.policies(&rig.scope);
    let listed = policies.list().await.expect("list");
    assert_eq!(listed.len(), 1);
    assert_eq!((listed[0].kind, &listed[0].scope), (Kind::Approval, &rig.scope));
    assert_eq!(listed[0].policy, TtlPolicy::short_lived());
    let removed = policies.unset(Kind::Approval, &rig.scope, &context()).await.expect("unset");
    assert_eq!(removed, Some(TtlPolicy::short_lived()));
    assert_eq!(life(&rig.stores, &rig.scope).await, None);
    assert_eq!(policies.unset(Kind::Approval, &rig.scope, &context()).await.expect("unset"), None);
    let mut entries = rig.stores.audit(&rig.scope).list(None, 100).await.expect("list").items;
    entries.retain(|entry| entry.action == Action::Policy);
    assert_eq!(entries.len(), 3, "a change of nothing is not logged");
    let detail = entries[1].detail.as_deref().expect("the entry states the change");
    assert!(detail.contains("3600 s") && detail.contains("86400 s"), "{detail}");
}

pub(super) async fn a_policy_reaches_other_nodes_when_they_reload(rig: StoreRig) {
    let mut configured = TtlPolicies::default();
    configured.set(Kind::Approval, Scope::Global, TtlPolicy::long_lived()).expect("a good policy");
    let other = node(&rig, configured);
    assert_eq!(life(&other, &rig.scope).await, MONTH);
    set(&rig.stores, &Scope::Global, TtlPolicy::temporary()).await.expect("set");
    other.policies(&Scope::Global).reload().await.expect("reload");
    assert_eq!(
        life(&other, &rig.scope).await,
        HOUR,
        "a stored policy takes precedence over a configured one"
    );
    let policies = rig.stores.policies(&Scope::Global);
    policies.unset(Kind::Approval, &Scope::Global, &context()).await.expect("unset");
    other.policies(&Scope::Global).reload().await.expect("reload");
    assert_eq!(life(&other, &rig.scope).await, MONTH, "and the configured policy applies again");
}

pub(super) async fn a_policy_that_is_not_sound_changes_nothing(rig: StoreRig) {
    let policies = rig.stores.policies(&Scope::Global);
    let crossed = TtlPolicy { default: None, min: secs(10), max: secs(5), enforce: true };
    assert!(set(&rig.stores, &rig.scope, crossed).await.is_err());
    let hours = TtlPolicy { default: None, min: secs(3_600), max: secs(86_400), enforce: true };
    let refused =
        policies.set(Kind::Replay, &rig.scope, hours, &context()).await.expect_err("60 s are refused");
    assert!(refused.message().contains("300 s"), "{refused}");
    assert_eq!(policies.list().await.expect("list"), Vec::new());
    let entries = rig.stores.audit(&rig.scope).list(None, 10).await.expect("list").items;
    assert_eq!(entries, Vec::new());
    let with_default = TtlPolicy { default: Some(secs(3_600)), ..hours };
    policies.set(Kind::Replay, &rig.scope, with_default, &context()).await.expect("it has a default");
}

pub(super) async fn the_most_specific_policy_holds(rig: StoreRig) {
    let prod = Scope::tenant_env("acme", "prod").expect("good names");
    let dev = Scope::tenant_env("acme", "dev").expect("good names");
    set(&rig.stores, &Scope::Global, TtlPolicy::long_lived()).await.expect("set");
    set(&rig.stores, &rig.scope, TtlPolicy::short_lived()).await.expect("set");
    set(&rig.stores, &dev, TtlPolicy::temporary()).await.expect("set");
    let other = node(&rig, TtlPolicies::default());
    other.policies(&Scope::Global).reload().await.expect("reload");
    for stores in [&rig.stores, &other] {
        assert_eq!(life(stores, &dev).await, HOUR);
        assert_eq!(life(stores, &prod).await, DAY);
        assert_eq!(life(stores, &Scope::tenant("else").expect("a good name")).await, MONTH);
    }
}

pub(super) async fn a_caller_changes_only_what_it_covers(rig: StoreRig) {
    let policies = rig.stores.policies(&rig.scope);
    let elsewhere = Scope::tenant("elsewhere").expect("a good name");
    for scope in [&Scope::Global, &elsewhere] {
        assert!(policies.set(Kind::Approval, scope, TtlPolicy::temporary(), &context()).await.is_err());
        assert!(policies.unset(Kind::Approval, scope, &context()).await.is_err());
    }
    set(&rig.stores, &elsewhere, TtlPolicy::temporary()).await.expect("set");
    assert_eq!(policies.list().await.expect("list"), Vec::new());
    assert_eq!(rig.stores.policies(&Scope::Global).list().await.expect("list").len(), 1);
}

pub(super) async fn racing_changes_are_all_logged(rig: StoreRig) {
    let changed = rig.together(16, |rig, index| async move {
        let stores = if index % 2 == 0 { rig.stores.clone() } else { node(&rig, TtlPolicies::default()) };
        let policy = if index % 3 == 0 { TtlPolicy::temporary() } else { TtlPolicy::short_lived() };
        set(&stores, &rig.scope, policy).await.expect("set").is_none()
    });
    assert_eq!(changed.await.into_iter().filter(|first| *first).count(), 1, "one was the first");
    let verdict = rig.stores.audit(&rig.scope).verify(None).await.expect("verify");
    assert!(matches!(verdict, AuditOutcome::Intact { entries: 16, .. }), "{verdict:?}");
}
