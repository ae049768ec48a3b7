//! API keys are found by their secret alone, and are valid for exactly their scope and lifetime.

use super::approvals::context;
use super::rig::{StoreRig, secs};
use ebbtide::model::kind::Kind;
use ebbtide::model::scope::{Reach, Scope};
use ebbtide::model::secret::Secret;
use ebbtide::model::time::{Clock, Timestamp};
use ebbtide::stores::api_keys::{ApiKey, ApiKeys, CreatedKey, KeyRequest, Role};
use ebbtide::stores::audit::{Action, AuditOutcome};

fn scope(text: &str) -> Scope {
    text.parse().expect("a good scope")
}

fn request(scope: &Scope) -> KeyRequest {
    KeyRequest::new(scope.clone(), Role::Writer)
}

async fn create(rig: &StoreRig, request: &KeyRequest) -> CreatedKey {
    rig.stores.api_keys(&Scope::Global).create(request, &context()).await.expect("create")
}

async fn find(rig: &StoreRig, key: &Secret) -> Option<ApiKey> {
    rig.stores.find_api_key(key).await.expect("find")
}

pub(super) async fn a_key_is_found_by_its_secret(rig: StoreRig) {
    for text in ["global", "tenant:acme", "tenant:acme/env:prod", "tenant:a%2Fb", "env:é", "custom:a/b"] {
        let request = request(&scope(text)).name("for tests").rate_limit(5).ttl(secs(60));
        let created = create(&rig, &request).await;
        assert!(created.key.expose().starts_with("ebk_"));
        let about = &created.about;
        assert_eq!((&about.scope, about.role), (&scope(text), Role::Writer));
        assert_eq!((about.name.as_deref(), about.rate_limit), (Some("for tests"), Some(5)));
        assert_eq!(
            (about.created_at, about.expires_at.since(about.created_at)),
            (rig.clock.now(), secs(60).duration())
        );
        assert_eq!(find(&rig, &created.key).await.as_ref(), Some(about));
        assert_eq!(
            rig.stores.api_keys(&Scope::Global).get(&about.id).await.expect("get").as_ref(),
            Some(about)
        );
        for (_, record) in rig.contents().await {
            let body = &created.key.expose()["ebk_".len()..];
            assert!(!String::from_utf8_lossy(&record.value).contains(body), "only a digest is kept");
        }
    }
    assert_eq!(create(&rig, &request(&rig.scope)).await.about.expires_at, Timestamp::NEVER);
}

pub(super) async fn what_is_not_a_key_is_unknown(rig: StoreRig) {
    let (one, other) = (create(&rig, &request(&rig.scope)).await, create(&rig, &request(&rig.scope)).await);
    let text = one.key.expose();
    // The first 40 characters belong to the secret alone.
    let (secret, id) = (&text[4..44], &other.key.expose()[44..]);
    let altered = |at: usize| {
        let with = if text.as_bytes()[at] == b'A' { "B" } else { "A" };
        format!("{}{with}{}", &text[..at], &text[at + 1..])
    };
    let mut wrong = vec![
        String::new(),
        "ebk_".to_owned(),
        text.replace("ebk_", "eba_"),
        format!("{text}A"),
        format!("{text}="),
        format!("ebk_{secret}{id}"),
        one.about.id.to_string(),
        format!("ebk_{}", one.about.id),
    ];
    wrong.extend((4..text.len()).map(altered));
    for key in wrong {
        assert_eq!(find(&rig, &Secret::new(key.clone())).await, None, "{key}");
    }
    assert!(find(&rig, &one.key).await.is_some());
}

pub(super) async fn a_key_ends_at_the_instant(rig: StoreRig) {
    let created = create(&rig, &request(&rig.scope).ttl(secs(60))).await;
    rig.go_to(created.about.expires_at, 1);
    assert!(find(&rig, &created.key).await.is_some());
    rig.go_to(created.about.expires_at, 0);
    assert_eq!(find(&rig, &created.key).await, None);
    let keys = rig.stores.api_keys(&rig.scope);
    assert!(!keys.revoke(&created.about.id, &context()).await.expect("revoke"));
    rig.pass(1);
    rig.sweep().await;
    assert_eq!(find(&rig, &created.key).await, None);
}

pub(super) async fn a_key_is_revoked_once(rig: StoreRig) {
    let (created, other) =
        (create(&rig, &request(&rig.scope)).await, create(&rig, &request(&rig.scope)).await);
    let id = created.about.id.clone();
    let revoked = rig.together(16, |rig, _| {
        let id = id.clone();
        async move { rig.stores.api_keys(&rig.scope).revoke(&id, &context()).await.expect("revoke") }
    });
    assert_eq!(revoked.await.into_iter().filter(|revoked| *revoked).count(), 1);
    assert_eq!(find(&rig, &created.key).await, None);
    assert!(find(&rig, &other.key).await.is_some());
}

pub(super) async fn keys_are_listed_exactly_or_below(rig: StoreRig) {
    let scopes = ["tenant:acme", "tenant:acme/env:prod", "tenant:acme2", "global"];
    for text in scopes {
        for name in ["a", "b", "c"] {
            create(&rig, &request(&scope(text)).name(name)).await;
        }
    }
    let keys = rig.stores.api_keys(&Scope::Global);
    for text in scopes {
        for (reach, expected) in [
            (Reach::Exact(scope(text)), 3),
            (
                Reach::Below(scope(text)),
                3 * scopes.iter().filter(|other| scope(text).covers(&scope(other))).count(),
            ),
        ] {
            let first = keys.list(&reach, None, 2).await.expect("list");
            assert_eq!(first.items.len(), 2);
            let rest = keys.list(&reach, first.next.as_ref(), 100).await.expect("list");
            assert_eq!((first.items.len() + rest.items.len(), rest.next), (expected, None), "{text}");
            assert!(first.items.iter().chain(&rest.items).all(|key| reach.contains(&key.scope)));
        }
    }
}

pub(super) async fn a_caller_manages_only_what_it_covers(rig: StoreRig) {
    let acme = rig.stores.api_keys(&rig.scope);
    for other in ["global", "tenant:other", "tenant:acme%2Fenv%3Aprod", "env:prod", "tenant:other/env:prod"] {
        let other = scope(other);
        assert!(acme.create(&request(&other), &context()).await.is_err(), "{other}");
        for reach in [Reach::Exact(other.clone()), Reach::Below(other.clone())] {
            assert!(acme.list(&reach, None, 10).await.is_err(), "{other}");
        }
        let created = create(&rig, &request(&other)).await;
        assert!(acme.get(&created.about.id).await.is_err(), "{other}");
        assert!(acme.revoke(&created.about.id, &context()).await.is_err(), "{other}");
        assert!(find(&rig, &created.key).await.is_some(), "{other}");
    }
    let below = acme.create(&request(&scope("tenant:acme/env:prod")), &context()).await.expect("create");
    assert!(acme.revoke(&below.about.id, &context()).await.expect("revoke"));
}

pub(super) async fn a_key_is_gone_with_its_scope(rig: StoreRig) {
    let mut keys = Vec::new();
    for text in ["tenant:acme", "tenant:acme/env:prod", "tenant:acme2"] {
        keys.push(create(&rig, &request(&scope(text))).await);
    }
    let reach = Reach::Below(rig.scope.clone());
    let deletion = rig.stores.scopes(&rig.scope).delete(&reach, &context()).await.expect("delete");
    assert_eq!(deletion.finish().await.expect("delete").records, [(Kind::ApiKey, 2)].into());
    for (key, left) in keys.iter().zip([false, false, true]) {
        assert_eq!(find(&rig, &key.key).await.is_some(), left, "{}", key.about.scope);
    }
}

pub(super) async fn what_was_done_to_keys_is_logged(rig: StoreRig) {
    let created = create(&rig, &request(&rig.scope)).await;
    let keys = rig.stores.api_keys(&Scope::Global);
    assert!(keys.revoke(&created.about.id, &context()).await.expect("revoke"));
    assert!(!keys.revoke(&created.about.id, &context()).await.expect("revoke"));
    let audit = rig.stores.audit(&rig.scope);
    let entries = audit.list(None, 10).await.expect("list").items;
    let actions: Vec<_> = entries.iter().map(|entry| (entry.action, entry.kind)).collect();
    assert_eq!(actions, [(Action::Create, Some(Kind::ApiKey)), (Action::Revoke, Some(Kind::ApiKey))]);
    assert!(entries.iter().all(|entry| entry.target == [created.about.id.to_string()]));
    assert_eq!(entries[0].detail.as_deref(), Some("writer of tenant:acme"));
    assert!(matches!(audit.verify(None).await.expect("verify"), AuditOutcome::Intact { entries: 2, .. }));
}

pub(super) async fn a_request_is_within_bounds(rig: StoreRig) {
    let keys = rig.stores.api_keys(&rig.scope);
    for bad in [
        request(&rig.scope).name(""),
        request(&rig.scope).name("a\nb"),
        request(&rig.scope).name("x".repeat(ApiKeys::MAX_NAME_BYTES + 1)),
        request(&rig.scope).rate_limit(0),
        request(&rig.scope).rate_limit(ApiKeys::MAX_RATE_LIMIT + 1),
        request(&Scope::Custom(Vec::new())),
    ] {
        assert!(keys.create(&bad, &context()).await.is_err(), "{bad:?}");
    }
    assert!(rig.contents().await.is_empty(), "nothing was written");
}
