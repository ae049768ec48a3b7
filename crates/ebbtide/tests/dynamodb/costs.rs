//! Requests and units of every operation, and the table of them in docs/engines/dynamodb.md.
//!
//! `EBBTIDE_WRITE_COSTS=1` writes the table anew.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use ebbtide::stores::access_tokens::{AccessRequest, IssueOutcome};
use ebbtide::stores::api_keys::{KeyRequest, Role};
use ebbtide::stores::approvals::Approval;
use ebbtide::stores::audit::{Action, AuditContext, Note};
use ebbtide::stores::challenges::{ChallengeRequest, Form, Verify};
use ebbtide::stores::clients::{ClientRequest, RegisterOutcome};
use ebbtide::stores::codes::{CodeRequest, Redeem};
use ebbtide::stores::device_codes::{Approve, DeviceRedeem, DeviceRequest};
use ebbtide::stores::grants::{GrantRequest, Holder, Revoke, Rotate, RotateOutcome};
use ebbtide::stores::nonces::{NonceCheck, NonceRequest};
use ebbtide::stores::pushed_requests::{Push, PushOutcome, Take};
use ebbtide::stores::records::{Increment, PutRecord, RecordAddress, TouchRecord};
use ebbtide::stores::relationships::Relationship;
use ebbtide::stores::replays::Proof;
use ebbtide::stores::sessions::SessionRequest;
use ebbtide::{Clock as _, ManualClock, Scope, Stores, SystemClock, Ttl};
use serde_json::json;

use crate::proxy::{Cost, Proxy};
use crate::site::Site;

crate::trials! {
    the_table_of_costs_is_what_was_measured
}

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/engines/dynamodb.md");
const BEGIN: &str = "<!-- costs: made by the test `costs` -->\n";
const END: &str = "<!-- / -->";

/// Rows of the table.
struct Meter {
    proxy: Proxy,
    stores: Stores,
    rows: Vec<(&'static str, Cost)>,
}

impl Meter {
    async fn row<T>(&mut self, name: &'static str, work: impl Future<Output = ebbtide::Result<T>>) -> T {
        self.proxy.cost();
        let answer = work.await.unwrap_or_else(|error| panic!("{name}: {error}"));
        self.stores.settle().await;
        self.rows.push((name, self.proxy.cost()));
        answer
    }

    fn table(&self) -> String {
        let mut table =
            String::from("| operation | requests | read units | write units |\n|---|---|---|---|\n");
        for (name, cost) in &self.rows {
            let requests: Vec<_> =
                cost.requests.iter().map(|(operation, count)| format!("{count} `{operation}`")).collect();
            let _ =
                writeln!(table, "| {name} | {} | {} | {} |", requests.join(", "), cost.read, cost.written);
        }
        table
    }
}

async fn the_table_of_costs_is_what_was_measured(site: &Site) {
    let (proxy, store, _) = site.proxied().await;
    // A clock that stands: no lease is renewed between two operations.
    let clock = ManualClock::at(SystemClock.now());
    let stores = Stores::builder_for_tests(Arc::new(store)).clock(clock).build();
    // A process reads the epochs of clients once; what follows is renewed by its timer.
    let scope = Scope::tenant("acme").unwrap();
    stores.grants(&scope).issue(GrantRequest::new("first", "app")).await.unwrap();
    let _ = stores.replays(&scope).check(&Proof::new("dpop", "first")).await.unwrap();
    // The first entry of a chain of the audit log has a checkpoint beside it.
    let first = Note::new(Action::Operate, "admin", "opens the chain").unwrap();
    stores.audit(&scope).append(&first).await.unwrap();
    stores.settle().await;
    let mut meter = Meter { proxy, stores: stores.clone(), rows: Vec::new() };
    tokens(&mut meter, &stores, &scope).await;
    credentials(&mut meter, &stores, &scope).await;
    state(&mut meter, &stores, &scope).await;

    let (page, table) = (std::fs::read_to_string(Path::new(PAGE)).unwrap(), meter.table());
    let (before, rest) = page.split_once(BEGIN).expect("the page has a place for the table");
    let (present, after) = rest.split_once(END).expect("the place has an end");
    if std::env::var_os("EBBTIDE_WRITE_COSTS").is_some() {
        std::fs::write(Path::new(PAGE), format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
    } else {
        assert_eq!(present, table, "docs/engines/dynamodb.md differs; write it with EBBTIDE_WRITE_COSTS=1");
    }
}

/// Codes, grants, access tokens and what proves a client.
async fn tokens(meter: &mut Meter, stores: &Stores, scope: &Scope) {
    let (codes, grants, tokens) = (stores.codes(scope), stores.grants(scope), stores.access_tokens(scope));
    let (replays, nonces) = (stores.replays(scope), stores.nonces(scope));
    let uri = "https://app.example/cb";

    let proof = Proof::new("dpop", "one");
    let _ = meter.row("replay check, fresh", replays.check(&proof)).await;
    let _ = meter.row("replay check, seen before", replays.check(&proof)).await;
    let ten: Vec<_> = (0..10).map(|number| Proof::new("dpop", format!("of ten {number}"))).collect();
    let _ = meter.row("replay checks, ten in one call", replays.check_batch(&ten)).await;
    let nonce = meter.row("nonce: issue", nonces.issue(NonceRequest::new("as"))).await.nonce;
    let _ = meter.row("nonce: accept", nonces.accept(&NonceCheck::new("as", &nonce))).await;

    let code = meter.row("code: issue", codes.issue(CodeRequest::new("app", "alice", uri))).await.code;
    let _ = meter.row("code: redeem", codes.redeem(Redeem::new(code, "app").redirect_uri(uri))).await;
    let code = codes.issue(CodeRequest::new("app", "alice", uri)).await.unwrap().code;
    let redeem = Redeem::new(code, "app").redirect_uri(uri).with_grant();
    let _ = meter.row("code: redeem with a grant", codes.redeem(redeem)).await;

    let grant = meter.row("grant: issue", grants.issue(GrantRequest::new("alice", "app"))).await;
    let rotated = meter.row("grant: rotate", grants.rotate(Rotate::new(&grant.refresh_token, "app"))).await;
    assert!(matches!(rotated, RotateOutcome::Rotated(_)), "{rotated:?}");
    let request = AccessRequest::under(grant.grant_id);
    let issued = meter.row("access token: issue under a grant", tokens.issue(request)).await;
    let IssueOutcome::Issued(issued) = issued else { panic!("{issued:?}") };
    let _ = meter.row("access token: introspect", tokens.introspect(&issued.access_token)).await;
    let context = AuditContext::because("sign-out").unwrap();
    let revoke = grants.revoke(grant.grant_id, Some(&context));
    assert_eq!(meter.row("grant: revoke", revoke).await, 1);
    let bob = grants.issue(GrantRequest::new("bob", "app")).await.unwrap();
    let revoke = grants.revoke(Revoke::Holder(Holder::Subject("bob")), Some(&context));
    meter.row("grants of a subject: revoke", revoke).await;
    let _ =
        meter.row("grant: rotate a revoked one", grants.rotate(Rotate::new(&bob.refresh_token, "app"))).await;
}

/// Other flows, and the credentials of clients and callers.
async fn credentials(meter: &mut Meter, stores: &Stores, scope: &Scope) {
    let (sessions, devices) = (stores.sessions(scope), stores.device_codes(scope));
    let request = SessionRequest::new().subject("alice");
    let session = meter.row("session: create", sessions.create(request)).await.session_id;
    let _ = meter.row("session: get", sessions.get(&session)).await;
    let _ = meter.row("session: touch", sessions.touch(&session, None)).await;
    let _ = meter.row("session: delete", sessions.delete(&session)).await;

    let device = meter.row("device code: start", devices.start(DeviceRequest::new("tv"))).await;
    let poll = DeviceRedeem::new(&device.device_code, "tv");
    let _ = meter.row("device code: poll", devices.poll(&poll)).await;
    let approve = Approve::new(&device.user_code, "alice");
    let _ = meter.row("device code: approve", devices.decide(approve)).await;
    let _ = meter.row("device code: redeem", devices.redeem(poll)).await;

    let pushed = stores.pushed_requests(scope);
    let answer =
        meter.row("pushed request: put", pushed.put(Push::new("app", json!({"scope": "read"})))).await;
    let PushOutcome::Pushed { request_uri, .. } = answer else { panic!("{answer:?}") };
    let _ = meter.row("pushed request: take", pushed.take(Take::new(request_uri, "app"))).await;

    let challenges = stores.challenges(scope);
    let request = ChallengeRequest::new("login", "alice", Form::Digits6);
    let challenge = meter.row("challenge: issue", challenges.issue(request)).await;
    let verify = Verify::new("login", &challenge.secret).id(challenge.id.to_string());
    let _ = meter.row("challenge: verify", challenges.verify(&verify)).await;

    let clients = stores.clients(scope);
    let registered = meter.row("client: register", clients.register(ClientRequest::confidential())).await;
    let RegisterOutcome::Registered(client) = registered else { panic!("{registered:?}") };
    let (id, secret) = (client.client.client_id, client.client_secret.unwrap());
    let _ = meter.row("client: verify its secret", clients.verify(&id, &secret)).await;
    let context = AuditContext::because("a deployment").unwrap();
    let request = KeyRequest::new(scope.clone(), Role::Writer);
    let key = meter.row("API key: create", stores.api_keys(scope).create(&request, &context)).await.key;
    let _ = meter.row("API key: authenticate", stores.find_api_key(&key)).await;
}

/// Approvals, relationships, attributes and records.
async fn state(meter: &mut Meter, stores: &Stores, scope: &Scope) {
    let (approvals, relationships) = (stores.approvals(scope), stores.relationships(scope));
    let (hour, context) = (Ttl::from_secs(3_600).unwrap(), AuditContext::because("no longer").unwrap());
    let approval = Approval::new("alice", "door", "open", "admin").ttl(hour);
    let _ = meter.row("approval: grant", approvals.grant(&approval)).await;
    let _ = meter.row("approval: check", approvals.check("alice", "door", "open")).await;
    let _ = meter.row("approval: revoke", approvals.revoke("alice", "door", "open", &context)).await;
    let relationship = Relationship::role("alice", "editor", "page", "admin").ttl(hour);
    let edge = relationship.edge();
    let _ = meter.row("relationship: add", relationships.add(&relationship)).await;
    let _ = meter.row("relationship: check", relationships.check(&edge)).await;
    let _ = meter.row("relationship: remove", relationships.remove(&edge, &context)).await;

    let bucket = stores.attributes(scope).bucket("alice", "profile").unwrap();
    let _ = meter.row("attribute: set", bucket.set("theme", json!("dark"))).await;
    let _ = meter.row("attribute: get", bucket.get("theme")).await;
    let _ = meter.row("attributes of a bucket: list", bucket.list(None, 100)).await;
    let _ = meter.row("attribute: delete", bucket.delete("theme")).await;

    let records = stores.records(scope);
    let address = RecordAddress::id("sessions", "one");
    let put = PutRecord::new("sessions", "one", json!({"user": "alice"})).life(hour);
    // The id of the naming key is noted with the first record of a store.
    let _ = records.put(&PutRecord::new("sessions", "first", json!(1)).life(hour)).await.unwrap();
    let _ = meter.row("record: put", records.put(&put)).await;
    let _ = meter.row("record: get", records.get(&address)).await;
    let _ = meter.row("record: touch", records.touch(&TouchRecord::new(address.clone(), hour))).await;
    let _ = meter.row("record: take", records.take(&address)).await;
    let _ = meter.row("record: increment", records.increment(&Increment::new("counters", "one"))).await;
}
