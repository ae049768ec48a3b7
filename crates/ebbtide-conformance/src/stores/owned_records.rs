//! Records of an owner in every store, and checks that they are honoured.

use serde_json::json;

use super::clients;
use super::device_codes::{decide, start};
use super::grants::is_active;
use super::rig::StoreRig;
use ebbtide::model::secret::Secret;
use ebbtide::stores::access_tokens::{AccessRequest, IssueOutcome};
use ebbtide::stores::approvals::Approval;
use ebbtide::stores::attributes::SwapOutcome;
use ebbtide::stores::audit::AuditContext;
use ebbtide::stores::clients::{ClientRequest, RegisteredClient};
use ebbtide::stores::codes::{CodeRequest, Redeem, RedeemOutcome};
use ebbtide::stores::device_codes::{Approve, DeviceRedeem, DeviceRedeemOutcome, StartedDevice};
use ebbtide::stores::grants::{GrantRequest, IssuedGrant, Rotate, RotateOutcome};
use ebbtide::stores::provider_tokens::AttachOutcome;
use ebbtide::stores::pushed_requests::{Push, PushOutcome, Take, TakeOutcome};
use ebbtide::stores::relationships::{Edge, RelationType, Relationship, TransitiveOutcome};
use ebbtide::stores::sessions::{CreatedSession, SessionOutcome, SessionRequest};
use ebbtide::stores::shared::payload::Payload;

pub(super) fn context() -> AuditContext {
    AuditContext::new("root", "asked for by themselves").expect("good words")
}

/// Grant with its dependents, and a token without one.
pub(super) struct Held {
    subject: String,
    client_id: String,
    grant: IssuedGrant,
    access: Secret,
    alone: Secret,
    code: Secret,
}

impl Held {
    pub(super) async fn new(rig: &StoreRig, subject: &str, client_id: &str) -> Self {
        let (stores, scope) = (&rig.stores, &rig.scope);
        let request = GrantRequest::new(subject, client_id);
        let grant = stores.grants(scope).issue(request).await.expect("issue");
        let issue = async |request: AccessRequest| match stores.access_tokens(scope).issue(request).await {
            Ok(IssueOutcome::Issued(issued)) => issued.access_token,
            other => panic!("{other:?}"),
        };
        let access = issue(AccessRequest::under(grant.grant_id)).await;
        let alone = issue(AccessRequest::alone(subject, client_id)).await;
        let tokens = Payload::new(json!("a provider's"));
        let kept = stores.provider_tokens(scope).put(grant.grant_id, "google", &tokens, None).await;
        assert!(matches!(kept.expect("put"), AttachOutcome::Kept { .. }));
        let request = CodeRequest::new(client_id, subject, "https://a");
        let code = stores.codes(scope).issue(request).await.expect("issue").code;
        Self { subject: subject.to_owned(), client_id: client_id.to_owned(), grant, access, alone, code }
    }

    /// Names of the parts that are honoured. Changes nothing.
    pub(super) async fn honoured(&self, rig: &StoreRig) -> Vec<&'static str> {
        let (stores, scope) = (&rig.stores, &rig.scope);
        let id = self.grant.grant_id;
        let found = stores.grants(scope).find(&self.grant.refresh_token).await.expect("find");
        let attached = stores.provider_tokens(scope).get(id, "google").await.expect("get");
        named([
            ("grant", found.is_some()),
            ("provider tokens", attached.is_some()),
            ("access token", is_active(rig, &self.access).await),
            ("access token alone", is_active(rig, &self.alone).await),
        ])
    }

    /// Names of the records that can be created from it or beside it.
    pub(super) async fn made(&self, rig: &StoreRig) -> Vec<&'static str> {
        let (stores, scope, client_id) = (&rig.stores, &rig.scope, &self.client_id);
        let rotation = stores.grants(scope).rotate(Rotate::new(&self.grant.refresh_token, client_id)).await;
        let access = stores.access_tokens(scope).issue(AccessRequest::under(self.grant.grant_id)).await;
        let alone = AccessRequest::alone(&self.subject, client_id);
        let presented = Redeem::new(self.code.clone(), client_id).redirect_uri("https://a").with_grant();
        let redemption = stores.codes(scope).redeem(presented.clone()).await.expect("redeem");
        let code = CodeRequest::new(client_id, &self.subject, "https://a");
        named([
            (
                "rotation",
                matches!(rotation.expect("rotate"), RotateOutcome::Rotated(_) | RotateOutcome::Retried(_)),
            ),
            ("access token", matches!(access.expect("issue"), IssueOutcome::Issued(_))),
            ("access token alone", stores.access_tokens(scope).issue(alone).await.is_ok()),
            ("redemption", redemption != RedeemOutcome::Unknown),
            ("code", stores.codes(scope).issue(code).await.is_ok()),
            ("grant", stores.grants(scope).issue(GrantRequest::new(&self.subject, client_id)).await.is_ok()),
        ])
    }
}

fn named<const N: usize>(answers: [(&'static str, bool); N]) -> Vec<&'static str> {
    answers.into_iter().filter_map(|(name, yes)| yes.then_some(name)).collect()
}

/// Records of an owner in every store.
pub(super) struct OwnedRecords {
    owner: String,
    held: Held,
    session: CreatedSession,
    device: StartedDevice,
    client: RegisteredClient,
    /// Grants and tokens that others hold from the owner's client.
    given: Held,
}

impl OwnedRecords {
    pub(super) async fn new(rig: &StoreRig, owner: &str) -> Self {
        let (stores, scope) = (&rig.stores, &rig.scope);
        let request = SessionRequest::default().subject(owner);
        let session = stores.sessions(scope).create(request).await.expect("create");
        stores.approvals(scope).grant(&approval(owner)).await.expect("grant");
        for relationship in relationships(owner) {
            stores.relationships(scope).add(&relationship).await.expect("add");
        }
        let bucket = stores.attributes(scope).bucket(owner, "b").expect("good names");
        bucket.set("a", json!(1)).await.expect("set");
        let device = start(rig).await;
        let _ = decide(rig, Approve::new(&device.user_code, owner)).await;
        let client_id = format!("client of {owner}");
        let request = ClientRequest::confidential().client_id(&client_id).owner(owner);
        let client = clients::register(rig, request).await;
        let given = Held::new(rig, "somebody", &client_id).await;
        let held = Held::new(rig, owner, "app").await;
        Self { owner: owner.to_owned(), held, session, device, client, given }
    }

    /// Names of the records that are honoured. Changes nothing.
    pub(super) async fn honoured(&self, rig: &StoreRig) -> Vec<&'static str> {
        let (stores, scope, owner) = (&rig.stores, &rig.scope, self.owner.as_str());
        let session = stores.sessions(scope).get(&self.session.session_id).await.expect("get");
        let approved = stores.approvals(scope).check(owner, "document", "GET").await.expect("check");
        let [from, to] = relationships(owner).map(|relationship| relationship.edge());
        let relationships = stores.relationships(scope);
        let (before, after) = (format!("before {owner}"), format!("after {owner}"));
        let way = Edge::new(before, "member", after, RelationType::Membership);
        let way = relationships.check_transitive(&way, 5).await.expect("check");
        let bucket = stores.attributes(scope).bucket(owner, "b").expect("good names");
        let client_id = &self.client.client.client_id;
        let secret = self.client.client_secret.as_ref().expect("it keeps one");
        let mut honoured = named([
            ("session", matches!(session, SessionOutcome::Live(_))),
            ("approval", approved),
            ("relationship from", relationships.check(&from).await.expect("check")),
            ("relationship to", relationships.check(&to).await.expect("check")),
            ("way over them", matches!(way, TransitiveOutcome::Related { .. })),
            ("attribute", bucket.get("a").await.expect("get").is_some()),
            ("client", clients::find(rig, client_id).await.is_some()),
            ("client's secret", clients::is_good(rig, client_id, secret).await),
        ]);
        honoured.extend(self.held.honoured(rig).await);
        let listed = [
            ("sessions", stores.sessions(scope).list(owner, None, 9).await.expect("list").items.len()),
            ("clients", stores.clients(scope).list(owner, None, 9).await.expect("list").items.len()),
            ("attributes", bucket.list(None, 9).await.expect("list").items.len()),
            ("approvals", stores.approvals(scope).list(owner, None, 9).await.expect("list").items.len()),
            ("relationships", relationships.list(owner, None, None, 9).await.expect("list").items.len()),
            ("reverse", relationships.list_reverse(owner, None, None, 9).await.expect("list").items.len()),
        ];
        honoured.extend(named(listed.map(|(name, items)| (name, items > 0))));
        honoured
    }

    /// Number of records that can be honoured.
    pub(super) const ALL: usize = 18;

    /// Names of the records that can be created for the owner.
    pub(super) async fn made(&self, rig: &StoreRig) -> Vec<&'static str> {
        let (stores, scope, owner) = (&rig.stores, &rig.scope, self.owner.as_str());
        let bucket = stores.attributes(scope).bucket(owner, "b").expect("good names");
        let [from, to] = relationships(owner);
        let relationships = stores.relationships(scope);
        let changes = stores.attributes(scope).changes().insert(&bucket, "d", json!(1));
        let session = SessionRequest::default().subject(owner);
        let presented = DeviceRedeem::new(self.device.device_code.clone(), "tv");
        let redemption = stores.device_codes(scope).redeem(presented.clone()).await.expect("redeem");
        let swap = bucket.compare_and_swap("a", &json!(1), json!(1)).await.expect("swap");
        let mut made = named([
            ("attribute swapped", matches!(swap, SwapOutcome::Swapped(_))),
            ("attribute taken", bucket.take("a").await.expect("take").is_some()),
            ("attribute set", bucket.set("b", json!(1)).await.is_ok()),
            ("attribute inserted", bucket.insert("c", json!(1)).await.is_ok()),
            ("attributes changed", changes.commit().await.is_ok()),
            ("approval", stores.approvals(scope).grant(&approval(owner)).await.is_ok()),
            ("relationship from", relationships.add(&from).await.is_ok()),
            ("relationship to", relationships.add(&to).await.is_ok()),
            ("session", stores.sessions(scope).create(session).await.is_ok()),
            ("client", stores.clients(scope).register(ClientRequest::public().owner(owner)).await.is_ok()),
            ("device", matches!(redemption, DeviceRedeemOutcome::Redeemed(_))),
        ]);
        made.extend(self.held.made(rig).await);
        made
    }

    /// Grants and tokens that others hold from the owner's client.
    pub(super) fn given(&self) -> &Held {
        &self.given
    }
}

fn approval(owner: &str) -> Approval {
    Approval::new(owner, "document", "GET", "root")
}

/// Relationships with the owner in the middle of a path.
fn relationships(owner: &str) -> [Relationship; 2] {
    let edge = |from: &str, to: &str| {
        Relationship::new(Edge::new(from, "member", to, RelationType::Membership), "root")
    };
    [edge(owner, &format!("after {owner}")), edge(&format!("before {owner}"), owner)]
}

/// Pushes a request of a client.
pub(super) async fn push(rig: &StoreRig, client_id: &str) -> Secret {
    match rig.stores.pushed_requests(&rig.scope).put(Push::new(client_id, json!({}))).await {
        Ok(PushOutcome::Pushed { request_uri, .. }) => request_uri,
        other => panic!("{other:?}"),
    }
}

pub(super) async fn is_taken(rig: &StoreRig, uri: &Secret, client_id: &str) -> bool {
    let answer = rig.stores.pushed_requests(&rig.scope).take(Take::new(uri, client_id)).await.expect("take");
    matches!(answer, TakeOutcome::Taken { .. })
}
