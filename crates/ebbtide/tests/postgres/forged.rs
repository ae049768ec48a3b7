//! Rows forged with SQL: none of them is honoured.

use std::sync::Arc;

use ebbtide::ops::reseal::Resealer;
use ebbtide::stores::access_tokens::{AccessRequest, IntrospectOutcome, IssueOutcome};
use ebbtide::stores::api_keys::{KeyRequest, Role};
use ebbtide::stores::approvals::Approval;
use ebbtide::stores::audit::AuditContext;
use ebbtide::stores::challenges::{ChallengeRequest, Form, Peek, VerifyOutcome};
use ebbtide::stores::clients::{ClientRequest, RegisterOutcome};
use ebbtide::stores::codes::{CodeRequest, Redeem, RedeemOutcome};
use ebbtide::stores::device_codes::{Approve, DeviceRedeem, DeviceRequest, Inspect, PollOutcome};
use ebbtide::stores::grants::GrantRequest;
use ebbtide::stores::pushed_requests::{Push, PushOutcome, Take, TakeOutcome};
use ebbtide::stores::relationships::{Edge, RelationType, Relationship};
use ebbtide::stores::sessions::{SessionOutcome, SessionRequest};
use ebbtide::{
    Clock as _, Ebbtide, ErrorKind, Keyring, Scope, Scoped, Secret, SystemClock, SystemRng, Timestamp,
};

use crate::service::{cases, migrated, open_at, schema_of, sql};

cases! {
    someone_with_sql_makes_nothing_that_is_honoured
    every_forged_or_moved_row_is_corrupt
    a_user_code_leads_to_no_other_device_code
    a_reseal_gives_no_tag_to_a_forged_row
    a_strangers_keyring_is_refused
}

fn ring() -> Keyring {
    Keyring::generate(&SystemRng, Timestamp::ZERO)
}

async fn open(url: &str, keyring: &Keyring) -> ebbtide::Result<Ebbtide> {
    Ebbtide::builder(url).keyring(keyring.clone()).open().await
}

async fn someone_with_sql_makes_nothing_that_is_honoured() {
    let (url, keyring) = (migrated().await, ring());
    let db = open(&url, &keyring).await.unwrap();
    let acme = db.scope("tenant:acme").unwrap();
    for identity in ["alice", "mallory"] {
        let approval =
            Approval::new(identity, identity, "GET", "admin").ttl(ebbtide::Ttl::from_secs(600).unwrap());
        acme.approvals().grant(&approval).await.unwrap();
    }
    let grant = acme.grants().issue(GrantRequest::new("app", "alice")).await.unwrap();
    assert!(acme.approvals().check("alice", "alice", "GET").await.unwrap());
    let schema = url.split("schema=").nth(1).unwrap().split('&').next().unwrap();
    let server = crate::service::server();
    let run = async |statement: &str| sql(&server, &statement.replace("{schema}", schema)).await;
    let corrupt =
        |error: ebbtide::Error, case: &str| assert_eq!(error.kind(), ErrorKind::Corrupt, "{case}: {error}");

    // A longer life.
    run("UPDATE {schema}.approvals SET expires_at = expires_at + 1000000000").await;
    corrupt(acme.approvals().check("alice", "alice", "GET").await.unwrap_err(), "a longer life");
    corrupt(acme.approvals().list("alice", None, 10).await.unwrap_err(), "a longer life, in a list");
    run("UPDATE {schema}.approvals SET expires_at = expires_at - 1000000000").await;
    assert!(acme.approvals().check("alice", "alice", "GET").await.unwrap(), "as it was");

    // Another value, of the same length.
    run("UPDATE {schema}.grants SET value = set_byte(value, length(value) / 2, (get_byte(value, length(value) / 2) + 1) % 256)").await;
    corrupt(acme.grants().find(&grant.refresh_token).await.unwrap_err(), "another value");
    run("UPDATE {schema}.grants SET value = set_byte(value, length(value) / 2, (get_byte(value, length(value) / 2) + 255) % 256)").await;
    assert!(acme.grants().find(&grant.refresh_token).await.unwrap().is_some(), "as it was");

    // Without the tag: the store is new, so every row has one.
    run("UPDATE {schema}.grants SET value = substring(value from 22)").await;
    corrupt(acme.grants().find(&grant.refresh_token).await.unwrap_err(), "without a tag");

    // The note that says so is removed: the store does not open.
    run("DELETE FROM {schema}.system").await;
    corrupt(open(&url, &keyring).await.unwrap_err(), "without the note of the keyring");
}

/// Credentials of one name, of every kind with authority.
struct Credentials {
    name: &'static str,
    code: Secret,
    refresh_token: Secret,
    access_token: Secret,
    session: Secret,
    key: Secret,
    link: Secret,
    pushed: Secret,
    device: Secret,
}

/// Tables of the kinds with authority, and of attributes.
const TABLES: [&str; 12] = [
    "approvals",
    "relationships",
    "codes",
    "grants",
    "access_tokens",
    "sessions",
    "clients",
    "api_keys",
    "challenges",
    "pushed_requests",
    "device_codes",
    "attributes",
];

fn edge(name: &str) -> Edge {
    Edge::new(name, "member", "staff", RelationType::Membership)
}

impl Credentials {
    async fn issue(db: &Ebbtide, acme: &Scoped, name: &'static str) -> Self {
        let context = AuditContext::new("root", "a test").unwrap();
        let ttl = ebbtide::Ttl::from_secs(600).unwrap();
        acme.approvals().grant(&Approval::new(name, "doc", "GET", "admin").ttl(ttl)).await.unwrap();
        acme.relationships().add(&Relationship::new(edge(name), "admin").ttl(ttl)).await.unwrap();
        let client = ClientRequest::confidential().client_id(name);
        let RegisterOutcome::Registered(_) = acme.clients().register(client).await.unwrap() else { panic!() };
        let code = CodeRequest::new("app", name, "https://app.example/cb");
        let token = AccessRequest::alone(name, "app");
        let IssueOutcome::Issued(token) = acme.access_tokens().issue(token).await.unwrap() else { panic!() };
        let link = acme.challenges().issue(ChallengeRequest::new("reset", name, Form::Token)).await.unwrap();
        let pushed = Push::new("app", serde_json::json!({"login_hint": name}));
        let PushOutcome::Pushed { request_uri: pushed, .. } =
            acme.pushed_requests().put(pushed).await.unwrap()
        else {
            panic!()
        };
        let bucket = acme.attributes().bucket(name, "profile").unwrap();
        bucket.set("name", serde_json::json!(name)).await.unwrap();
        let keys = db.stores().api_keys(&Scope::Global);
        let key = KeyRequest::new(acme.scope().clone(), Role::Reader);
        Self {
            name,
            code: acme.codes().issue(code).await.unwrap().code,
            refresh_token: acme.grants().issue(GrantRequest::new(name, "app")).await.unwrap().refresh_token,
            access_token: token.access_token,
            session: acme.sessions().create(SessionRequest::new().subject(name)).await.unwrap().session_id,
            key: keys.create(&key, &context).await.unwrap().key,
            link: link.secret,
            pushed,
            device: acme.device_codes().start(DeviceRequest::new("app")).await.unwrap().device_code,
        }
    }

    /// Uses the credential that a row of that table is about, and returns whether it is honoured.
    async fn is_honoured(&self, db: &Ebbtide, acme: &Scoped, table: &str) -> ebbtide::Result<bool> {
        Ok(match table {
            "approvals" => acme.approvals().check(self.name, "doc", "GET").await?,
            "relationships" => acme.relationships().check(&edge(self.name)).await?,
            "codes" => {
                let redeem = Redeem::new(&self.code, "app").redirect_uri("https://app.example/cb");
                matches!(acme.codes().redeem(redeem).await?, RedeemOutcome::Redeemed(_))
            }
            "grants" => acme.grants().find(&self.refresh_token).await?.is_some(),
            "access_tokens" => {
                let answer = acme.access_tokens().introspect(&self.access_token).await?;
                matches!(answer, IntrospectOutcome::Active(_))
            }
            "sessions" => matches!(acme.sessions().get(&self.session).await?, SessionOutcome::Live(_)),
            "clients" => acme.clients().find(self.name).await?.is_some(),
            "api_keys" => db.stores().find_api_key(&self.key).await?.is_some(),
            "challenges" => {
                let peek = Peek::new("reset").secret(self.link.clone());
                matches!(acme.challenges().peek(&peek).await?, VerifyOutcome::Verified(_))
            }
            "pushed_requests" => {
                let take = Take::new(self.pushed.clone(), "app");
                matches!(acme.pushed_requests().take(take).await?, TakeOutcome::Taken { .. })
            }
            "device_codes" => {
                let polled = acme.device_codes().poll(&DeviceRedeem::new(self.device.clone(), "app")).await?;
                matches!(polled, PollOutcome::Pending { .. } | PollOutcome::SlowDown { .. })
            }
            "attributes" => {
                let bucket = acme.attributes().bucket(self.name, "profile")?;
                bucket.get("name").await?.is_some_and(|found| found.data == self.name)
            }
            other => panic!("{other}"),
        })
    }
}

async fn every_forged_or_moved_row_is_corrupt() {
    let (url, keyring) = (migrated().await, ring());
    let db = open(&url, &keyring).await.unwrap();
    let acme = db.scope("tenant:acme").unwrap();
    let both =
        [Credentials::issue(&db, &acme, "alice").await, Credentials::issue(&db, &acme, "mallory").await];
    let (schema, server) = (schema_of(&url), crate::service::server());
    // Each is undone by a second statement. Rows of two names are swapped by either.
    let swap = "UPDATE {t} a SET value = b.value, version = b.version, expires_at = b.expires_at FROM {t} b WHERE a.key <> b.key";
    let values = "UPDATE {t} a SET value = b.value FROM {t} b WHERE a.key <> b.key";
    let forgeries = [
        ("moved", swap, swap),
        ("value of another row", values, values),
        (
            // One without an end gets one.
            "another life",
            "UPDATE {t} SET expires_at = expires_at + CASE WHEN expires_at < 9000000000000000 THEN 600000 ELSE -600000 END",
            "UPDATE {t} SET expires_at = expires_at - CASE WHEN expires_at < 9000000000000000 THEN 600000 ELSE -600000 END",
        ),
        (
            "another version",
            "UPDATE {t} SET version = set_byte(version, 0, get_byte(version, 0) # 1)",
            "UPDATE {t} SET version = set_byte(version, 0, get_byte(version, 0) # 1)",
        ),
        (
            "another byte",
            "UPDATE {t} SET value = set_byte(value, length(value) - 1, get_byte(value, length(value) - 1) # 1)",
            "UPDATE {t} SET value = set_byte(value, length(value) - 1, get_byte(value, length(value) - 1) # 1)",
        ),
    ];
    for table in TABLES {
        let run = async |statement: &str| {
            sql(&server, &statement.replace("{t}", &format!("{schema}.{table}"))).await;
        };
        for (forgery, forge, undo) in forgeries {
            run(forge).await;
            for one in &both {
                match one.is_honoured(&db, &acme, table).await {
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt, "{table}, {forgery}: {error}"),
                    Ok(honoured) => panic!("{table}, {forgery}, {}: honoured {honoured}", one.name),
                }
            }
            run(undo).await;
        }
        for one in &both {
            assert!(one.is_honoured(&db, &acme, table).await.unwrap(), "{table}: as it was");
        }
    }
}

async fn a_user_code_leads_to_no_other_device_code() {
    let (url, keyring) = (migrated().await, ring());
    let codes = open(&url, &keyring).await.unwrap().scope("tenant:acme").unwrap().device_codes();
    let victim = codes.start(DeviceRequest::new("tv")).await.unwrap();
    let thief = codes.start(DeviceRequest::new("tv")).await.unwrap();
    // The digests of the two device codes; counts of guesses are in the same table.
    let swap = format!(
        "UPDATE {0}.user_codes a SET value = b.value FROM {0}.user_codes b
        WHERE a.key <> b.key AND length(a.value) = 32 AND length(b.value) = 32",
        schema_of(&url)
    );
    sql(&crate::service::server(), &swap).await;
    let inspected = codes.inspect(&Inspect::new(victim.user_code.clone(), "a")).await;
    assert_eq!(inspected.unwrap_err().kind(), ErrorKind::Corrupt);
    let decided = codes.decide(Approve::new(victim.user_code.clone(), "alice")).await;
    assert_eq!(decided.unwrap_err().kind(), ErrorKind::Corrupt, "the user approves nobody else's device");
    let polled = codes.poll(&DeviceRedeem::new(thief.device_code, "tv")).await.unwrap();
    assert!(matches!(polled, PollOutcome::Pending { .. }), "{polled:?}");
    sql(&crate::service::server(), &swap).await;
    let decided = codes.decide(Approve::new(victim.user_code, "alice")).await;
    assert!(decided.is_ok(), "as it was: {decided:?}");
}

/// A row without a tag is `Corrupt` in a new store. A rotation of the keyring must not make it genuine.
async fn a_reseal_gives_no_tag_to_a_forged_row() {
    let (url, mut keyring) = (migrated().await, ring());
    let db = open(&url, &keyring).await.unwrap();
    let approvals = db.scope("tenant:acme").unwrap().approvals();
    approvals.grant(&Approval::new("alice", "doc", "GET", "admin")).await.unwrap();
    // The value of an approval that the forger saw, without its tag, for somebody else.
    let forge = "UPDATE {s}.approvals SET value = substring(value from 22), \
        key = decode(replace(encode(key, 'hex'), encode('alice', 'hex'), encode('mallo', 'hex')), 'hex')";
    sql(&crate::service::server(), &forge.replace("{s}", &schema_of(&url))).await;
    let checked = async |db: &Ebbtide| {
        let approvals = db.scope("tenant:acme").unwrap().approvals();
        approvals.check("mallo", "doc", "GET").await.map_err(|error| error.kind())
    };
    assert_eq!(checked(&db).await, Err(ErrorKind::Corrupt));
    drop(db);
    let new = keyring.add(&SystemRng, Timestamp::ZERO).unwrap();
    keyring.activate(new).unwrap();
    let db = open(&url, &keyring).await.unwrap();
    let now = SystemClock.now();
    let mut resealer = Resealer::start(db.stores(), db.engine(), Arc::new(SystemRng), now).await.unwrap();
    let stopped = async {
        while resealer.step(now).await? {}
        Ok::<_, ebbtide::Error>(())
    };
    assert_eq!(stopped.await.unwrap_err().kind(), ErrorKind::Corrupt, "an operator must look at it");
    assert_eq!(checked(&db).await, Err(ErrorKind::Corrupt));
}

async fn a_strangers_keyring_is_refused() {
    let (url, keyring) = (migrated().await, ring());
    drop(open(&url, &keyring).await.unwrap());
    let error = open(&url, &ring()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.message().contains(&keyring.active().to_string()), "{error}");
    // An older ring of the same store has one of its keys.
    let mut newer = keyring.clone();
    let added = newer.add(&SystemRng, Timestamp::ZERO).unwrap();
    newer.activate(added).unwrap();
    drop(open(&url, &newer).await.unwrap());
    let engine: Arc<dyn ebbtide::Admin> = open_at(&url).await;
    let rings =
        ebbtide::ops::ring::Rings::new(engine.as_ref(), &SystemRng, Timestamp::from_millis(1).unwrap());
    assert_eq!(rings.known().await.unwrap().unwrap().keys.len(), 2);
    rings.report(&[1; 8], &newer).await.unwrap();
    rings.check_everywhere(added).await.unwrap();
    rings.report(&[2; 8], &keyring).await.unwrap();
    let error = rings.check_everywhere(added).await.unwrap_err();
    assert!(error.message().contains("1 of 2 nodes"), "{error}");
}
