//! Approvals allow exactly what was granted, for as long as it was granted.

use std::time::Duration;

use super::attribute_lives::by;
use super::rig::{StoreRig, secs};
use ebbtide::model::kind::Kind;
use ebbtide::model::scope::Scope;
use ebbtide::model::time::{Clock, Timestamp};
use ebbtide::stores::approvals::{
    Approval, ApprovalQuery, Approvals, GrantOutcome, Granted, MAX_METADATA_BYTES,
};
use ebbtide::stores::audit::{Action, AuditContext, AuditOutcome};
use ebbtide::stores::shared::extension::ExtendOutcome;

fn approvals(rig: &StoreRig) -> Approvals {
    rig.stores.approvals(&rig.scope)
}

fn approval(resource: &str) -> Approval {
    Approval::new("alice", resource, "GET", "admin")
}

async fn grant(approvals: &Approvals, approval: &Approval) -> Granted {
    approvals.grant(approval).await.expect("grant")
}

async fn check(approvals: &Approvals, identity: &str, resource: &str, action: &str) -> bool {
    approvals.check(identity, resource, action).await.expect("check")
}

pub(super) fn context() -> AuditContext {
    AuditContext::new("root", "a good reason").expect("good words")
}

pub(super) async fn what_was_granted_is_read_back(rig: StoreRig) {
    let (approvals, now) = (approvals(&rig), rig.clock.now());
    let approval = approval("doc").ttl(secs(60)).metadata("ticket", "T-1").metadata("é", "");
    let granted = grant(&approvals, &approval).await;
    assert_eq!((granted.granted_at, granted.expires_at.since(now)), (now, Duration::from_secs(60)));
    assert_eq!((granted.granted_by.as_str(), granted.scope.clone()), ("admin", rig.scope.clone()));
    assert_eq!(granted.metadata["ticket"], "T-1");
    assert_eq!(approvals.get("alice", "doc", "GET").await.expect("get"), Some(granted.clone()));
    assert_eq!(approvals.list("alice", None, 10).await.expect("list").items, [granted]);
    assert_eq!(grant(&approvals, &self::approval("ever")).await.expires_at, Timestamp::NEVER);
    for bad in [
        Approval::new("", "doc", "GET", "admin"),
        Approval::new("alice", "doc", "GET\n", "admin"),
        Approval::new("alice", "doc", "GET", ""),
        self::approval("doc").metadata("a", "x".repeat(MAX_METADATA_BYTES)),
        self::approval("doc").sliding_ttl(secs(10), secs(5)),
    ] {
        assert!(approvals.grant(&bad).await.is_err());
    }
}

pub(super) async fn a_check_is_exact_in_every_name(rig: StoreRig) {
    let approvals = approvals(&rig);
    grant(&approvals, &Approval::new("alice", "/data", "GET", "admin")).await;
    assert!(check(&approvals, "alice", "/data", "GET").await);
    for (identity, resource, action) in [
        ("alice", "/data-secret", "GET"),
        ("alice", "/dat", "GET"),
        ("alice", "/data", "GE"),
        ("alice", "/data", "get"),
        ("alic", "/data", "GET"),
        ("alice:/data", "GET", "x"),
        ("alice", "/data:GET", "GET"),
    ] {
        assert!(!check(&approvals, identity, resource, action).await, "{identity} {resource} {action}");
    }
}

pub(super) async fn an_approval_ends_at_the_instant(rig: StoreRig) {
    let approvals = approvals(&rig);
    let granted = grant(&approvals, &approval("doc").ttl(secs(60))).await;
    rig.go_to(granted.expires_at, 1);
    assert!(check(&approvals, "alice", "doc", "GET").await);
    rig.go_to(granted.expires_at, 0);
    assert!(!check(&approvals, "alice", "doc", "GET").await);
    assert_eq!(approvals.count("alice").await.expect("count"), 0);
    assert!(!approvals.revoke("alice", "doc", "GET", &context()).await.expect("revoke"));
    let extended = approvals.extend("alice", "doc", "GET", &by(60)).await.expect("extend");
    assert_eq!(extended, ExtendOutcome::Unknown);
    rig.pass(1);
    rig.sweep().await;
    assert!(!check(&approvals, "alice", "doc", "GET").await);
}

pub(super) async fn granting_again_begins_a_new_life(rig: StoreRig) {
    let approvals = approvals(&rig);
    let first = grant(&approvals, &approval("doc").ttl(secs(60)).metadata("a", "b")).await;
    rig.pass(30);
    let again = grant(&approvals, &approval("doc").ttl(secs(20))).await;
    assert_ne!(first.version, again.version);
    let read = approvals.get("alice", "doc", "GET").await.expect("get");
    assert!(read.as_ref().is_some_and(|read| read.metadata.is_empty()));
    assert_eq!(read, Some(again));
}

pub(super) async fn a_batch_answers_in_order(rig: StoreRig) {
    let approvals = approvals(&rig);
    for number in (0..200).step_by(3) {
        grant(&approvals, &approval(&format!("doc{number}"))).await;
    }
    let names: Vec<_> = (0..200).map(|number| format!("doc{number}")).collect();
    let ask = |resource| ApprovalQuery { identity: "alice", resource, action: "GET" };
    let questions: Vec<_> = names.iter().map(|name| ask(name.as_str())).collect();
    let answers = approvals.check_many(&questions).await.expect("check");
    assert_eq!(answers, (0..200).map(|number| number % 3 == 0).collect::<Vec<_>>());
    assert_eq!(approvals.check_many(&[]).await.expect("check"), Vec::<bool>::new());
    let many = vec![ask("doc0"); Approvals::MAX_QUESTIONS + 1];
    assert!(approvals.check_many(&many).await.is_err());
}

pub(super) async fn an_identity_is_listed_and_counted_alone(rig: StoreRig) {
    let approvals = approvals(&rig);
    for identity in ["alice", "alice2", "alice:doc", "al"] {
        for resource in ["a", "b", "c"] {
            grant(&approvals, &Approval::new(identity, resource, "GET", "admin")).await;
        }
    }
    let first = approvals.list("alice", None, 2).await.expect("list");
    let rest = approvals.list("alice", first.next.as_ref(), 10).await.expect("list");
    let met: Vec<_> =
        first.items.iter().chain(&rest.items).map(|granted| granted.resource.as_str()).collect();
    assert_eq!((met, rest.next), (vec!["a", "b", "c"], None));
    assert_eq!(approvals.count("alice").await.expect("count"), 3);
    assert_eq!(approvals.count("nobody").await.expect("count"), 0);
}

pub(super) async fn a_revocation_is_told_once_and_logged(rig: StoreRig) {
    let granted = grant(&approvals(&rig), &approval("doc").ttl(secs(60))).await;
    let revoked = rig.together(20, |rig, _| async move {
        approvals(&rig).revoke("alice", "doc", "GET", &context()).await.expect("revoke")
    });
    assert_eq!(revoked.await.into_iter().filter(|revoked| *revoked).count(), 1);
    assert!(!check(&approvals(&rig), "alice", "doc", "GET").await);
    let audit = rig.stores.audit(&rig.scope);
    let entries = audit.list(None, 10).await.expect("list").items;
    let [granted_entry, entry] = entries.as_slice() else { panic!("two entries, not {}", entries.len()) };
    assert_eq!((granted_entry.action, granted_entry.after), (Action::Grant, Some(granted.expires_at)));
    assert_eq!((entry.action, entry.kind), (Action::Revoke, Some(Kind::Approval)));
    assert_eq!(entry.target, ["alice", "doc", "GET"]);
    assert!(matches!(audit.verify(None).await.expect("verify"), AuditOutcome::Intact { entries: 2, .. }));
    let again = grant(&approvals(&rig), &approval("doc")).await;
    assert_ne!(again.version, granted.version);
    assert!(check(&approvals(&rig), "alice", "doc", "GET").await);
}

pub(super) async fn an_approval_is_extended_within_its_cap(rig: StoreRig) {
    let approvals = approvals(&rig);
    let first = grant(&approvals, &approval("doc").ttl(secs(60)).cap(secs(100))).await;
    let extended = approvals.extend("alice", "doc", "GET", &by(40)).await.expect("extend");
    assert!(extended.is_extended());
    let read = approvals.get("alice", "doc", "GET").await.expect("get").expect("the record is live");
    assert_eq!(read.expires_at.since(first.expires_at), Duration::from_secs(40));
    assert_eq!((read.granted_at, &read.metadata), (first.granted_at, &first.metadata));
    let beyond = approvals.extend("alice", "doc", "GET", &by(1)).await.expect("extend");
    assert!(matches!(beyond, ExtendOutcome::BeyondCap { .. }));
    assert_eq!(rig.stores.audit(&rig.scope).list(None, 10).await.expect("list").items.len(), 2);
}

pub(super) async fn a_grant_by_a_caller_that_may_not_extend_lengthens_nothing(rig: StoreRig) {
    let approvals = approvals(&rig);
    let first = grant(&approvals, &approval("doc").ttl(secs(60))).await;
    let ask = async |approval: &Approval| approvals.grant_no_longer(approval).await.expect("grant");
    let sliding = approval("doc").sliding_ttl(secs(10), secs(600));
    for longer in [approval("doc").ttl(secs(61)), approval("doc"), sliding] {
        assert_eq!(ask(&longer).await, GrantOutcome::Longer { expires_at: first.expires_at });
    }
    let entries = async || rig.stores.audit(&rig.scope).list(None, 10).await.expect("list").items.len();
    assert_eq!(entries().await, 1, "what is refused is not in the log");
    let GrantOutcome::Granted(shorter) = ask(&approval("doc").ttl(secs(30))).await else { panic!("shorter") };
    assert_eq!(shorter.expires_at.since(rig.clock.now()), Duration::from_secs(30));
    rig.pass(30);
    assert!(matches!(ask(&approval("doc").ttl(secs(600))).await, GrantOutcome::Granted(_)), "it had ended");
    assert_eq!(entries().await, 3);
}

pub(super) async fn a_check_renews_what_slides(rig: StoreRig) {
    let approvals = approvals(&rig);
    grant(&approvals, &approval("doc").sliding_ttl(secs(60), secs(100))).await;
    rig.pass(50);
    assert!(check(&approvals, "alice", "doc", "GET").await);
    rig.pass(49);
    assert!(check(&approvals, "alice", "doc", "GET").await);
    rig.pass(1);
    assert!(!check(&approvals, "alice", "doc", "GET").await, "its cap");
}

pub(super) async fn a_handle_is_not_talked_into_another_scope(rig: StoreRig) {
    let scope = |text: &str| text.parse::<Scope>().expect("a good scope");
    let acme = rig.stores.approvals(&scope("tenant:acme"));
    for other in ["global", "tenant:other", "tenant:acme%3Aenv%3Aprod", "env:prod", "tenant:other/env:prod"] {
        assert!(acme.grant(&approval("doc").scope(scope(other))).await.is_err(), "{other}");
        assert!(acme.within(&scope(other)).is_err(), "{other}");
        assert!(!check(&rig.stores.approvals(&scope(other)), "alice", "doc", "GET").await, "{other}");
    }
    let prod = scope("tenant:acme/env:prod");
    assert_eq!(grant(&acme, &approval("doc").scope(prod.clone())).await.scope, prod);
    assert!(!check(&acme, "alice", "doc", "GET").await, "a tenant is not its environments");
    assert!(check(&acme.within(&prod).expect("it is covered"), "alice", "doc", "GET").await);
}
