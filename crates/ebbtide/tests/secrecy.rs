//! Secrets are in no `Debug`, no `Display`, no error, no span and no event; and in nothing that
//! is stored.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::error::Error as _;
use std::fmt::{Debug, Write as _};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64ct::{Base64UrlUnpadded, Encoding as _};
use ebbtide::stores::access_tokens::{AccessRequest, IssueOutcome};
use ebbtide::stores::clients::{ClientRequest, RegisterOutcome, RotateSecretOutcome};
use ebbtide::stores::codes::{CodeRequest, Redeem, RedeemOutcome};
use ebbtide::stores::device_codes::{Approve, DeviceRedeem, DeviceRequest};
use ebbtide::stores::grants::{GrantRequest, Holder, Rotate, RotateOutcome};
use ebbtide::stores::nonces::{NonceCheck, NonceRequest};
use ebbtide::stores::pushed_requests::{Push, PushOutcome, PushedRequests, Take};
use ebbtide::stores::replays::Proof;
use ebbtide::stores::sessions::SessionRequest;
use ebbtide::stores::shared::payload::Payload;
use ebbtide::{
    Admin, BackendExt, Error, Keyring, Kind, ManualClock, Memory, Metered, Prefix, Scope, Secret, SeededRng,
    Stores, Timestamp,
};
use ebbtide_conformance::faulty::{FaultPoint, Faulty};
use proptest::prelude::*;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tracing_subscriber::fmt::format::FmtSpan;

/// Everything that was printed, by whatever way.
#[derive(Clone, Default)]
struct Printed(Arc<Mutex<String>>);

impl Printed {
    fn debug(&self, value: &impl Debug) {
        write!(self.0.lock().unwrap(), "{value:?}\n{value:#?}\n").unwrap();
    }

    fn error(&self, error: &Error) {
        self.debug(error);
        let mut cause: Option<&dyn std::error::Error> = error.source();
        writeln!(self.0.lock().unwrap(), "{error}").unwrap();
        while let Some(error) = cause {
            write!(self.0.lock().unwrap(), "{error}\n{error:?}\n").unwrap();
            cause = error.source();
        }
    }
}

impl io::Write for Printed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().push_str(&String::from_utf8_lossy(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The secrets that a caller puts in.
#[derive(Debug, Clone)]
struct Given {
    data: String,
    verifier: String,
    upstream: String,
    seed: u64,
}

fn given() -> impl Strategy<Value = Given> {
    let word = || "[a-z0-9]{16,40}";
    (word(), "[A-Za-z0-9._~-]{43,128}", word(), any::<u64>())
        .prop_map(|(data, verifier, upstream, seed)| Given { data, verifier, upstream, seed })
}

/// A whole flow with everything that can be answered in it. Returns the secrets that were met.
async fn flow(
    given: &Given,
    backend: Arc<dyn Admin>,
    faults: &Faulty<Metered<Memory>>,
    printed: &Printed,
) -> Vec<String> {
    let now = Timestamp::from_millis(1_800_000_000_000).unwrap();
    let scope = Scope::tenant("acme").unwrap();
    let keyring = Keyring::generate(&SeededRng::new(given.seed), now);
    printed.debug(&keyring);
    printed.debug(&keyring.keys());
    let clock = ManualClock::at(now);
    let builder = Stores::builder_for_tests(Arc::clone(&backend)).clock(clock.clone()).keyring(keyring);
    printed.debug(&builder);
    let stores = builder.build();
    printed.debug(&stores);
    let mut secrets = vec![given.data.clone(), given.verifier.clone(), given.upstream.clone()];
    let secret_of = |secret: &Secret| secret.expose()[4..].to_owned();
    let data = || json!({ "note": given.data, given.data.as_str(): [given.data] });

    let nonces = stores.nonces(&scope);
    let nonce = nonces.issue(NonceRequest::new("as")).await.unwrap();
    secrets.push(secret_of(&nonce.nonce));
    printed.debug(&nonce);
    for _ in 0..2 {
        printed.debug(&nonces.accept(&NonceCheck::new("as", nonce.nonce.clone())).await.unwrap());
    }
    printed.debug(&stores.replays(&scope).check(&Proof::new("htu", "jti")).await.unwrap());

    let codes = stores.codes(&scope);
    let challenge = Base64UrlUnpadded::encode_string(&Sha256::digest(&given.verifier));
    let request = CodeRequest::new("app", "ada", "https://a").code_challenge(challenge).data(data());
    printed.debug(&request);
    let (code, second) = (codes.issue(request.clone()).await.unwrap(), codes.issue(request).await.unwrap());
    secrets.push(secret_of(&code.code));
    secrets.push(secret_of(&second.code));
    printed.debug(&code);
    let present = |code: &Secret| {
        let verifier = Secret::new(given.verifier.as_str());
        Redeem::new(code.clone(), "app").redirect_uri("https://a").code_verifier(verifier).with_grant()
    };
    let presented = present(&code.code);
    printed.debug(&presented);
    let redemption = codes.redeem(presented.clone()).await.unwrap();
    printed.debug(&redemption);
    printed.debug(
        &codes.redeem(Redeem::new(second.code.clone(), "evil").redirect_uri("https://a")).await.unwrap(),
    );
    let RedeemOutcome::Redeemed(redeemed) = redemption else { panic!("{redemption:?}") };
    let grant = redeemed.grant.unwrap();
    secrets.push(secret_of(&grant.refresh_token));

    let grants = stores.grants(&scope);
    printed.debug(&grants.get(grant.grant_id).await.unwrap());
    printed.debug(&grants.list(Holder::Subject("ada"), None, 10).await.unwrap());
    let rotation = grants.rotate(Rotate::new(&grant.refresh_token, "app")).await.unwrap();
    printed.debug(&rotation);
    let RotateOutcome::Rotated(next) = rotation else { panic!("{rotation:?}") };
    secrets.push(secret_of(&next.refresh_token));
    printed.debug(&grants.rotate(Rotate::new(&grant.refresh_token, "app")).await.unwrap());
    printed.debug(&grants.rotate(Rotate::new(&grant.refresh_token, "evil")).await.unwrap());

    let tokens = stores.access_tokens(&scope);
    let request = AccessRequest::under(grant.grant_id).data(data());
    printed.debug(&request);
    let issuing = tokens.issue(request).await.unwrap();
    printed.debug(&issuing);
    let IssueOutcome::Issued(access) = issuing else { panic!("{issuing:?}") };
    secrets.push(secret_of(&access.access_token));
    printed.debug(&tokens.introspect(&access.access_token).await.unwrap());

    let providers = stores.provider_tokens(&scope);
    let upstream = Payload::new(json!({ "access_token": given.upstream }));
    printed.debug(&upstream);
    printed.debug(&providers.put(grant.grant_id, "google", &upstream, None).await.unwrap());
    printed.debug(&providers.get(grant.grant_id, "google").await.unwrap());

    secrets.extend(state(given, &stores, &scope, printed).await);

    // Faults: a store that is down, a value that is too large, and one that was sealed under another key.
    faults.fail(0, FaultPoint::Before);
    printed.error(&grants.rotate(Rotate::new(&next.refresh_token, "app")).await.unwrap_err());
    faults.mend();
    let large = json!({ "note": given.data.repeat(20_000) });
    printed.error(&grants.issue(GrantRequest::new("ada", "app").data(large)).await.unwrap_err());
    let plain = CodeRequest::new("app", "ada", "https://a").code_challenge(format!("{}~", given.verifier));
    printed.error(&codes.issue(plain).await.unwrap_err());
    let others = Stores::builder_for_tests(backend).clock(clock.clone()).build();
    printed.error(&others.access_tokens(&scope).introspect(&access.access_token).await.unwrap_err());
    printed.error(&others.grants(&scope).get(grant.grant_id).await.unwrap_err());
    printed.error(&given.upstream.parse::<ebbtide::stores::grants::GrantId>().unwrap_err());

    // Reuse after the retry window, and what it leaves.
    clock.advance(Duration::from_secs(60));
    let rotation = grants.rotate(Rotate::new(&next.refresh_token, "app")).await.unwrap();
    let RotateOutcome::Rotated(last) = rotation else { panic!("{rotation:?}") };
    secrets.push(secret_of(&last.refresh_token));
    printed.debug(&grants.rotate(Rotate::new(&grant.refresh_token, "app")).await.unwrap());
    printed.debug(&codes.redeem(presented.clone()).await.unwrap());
    secrets
}

/// The stores of what is kept between requests. Returns the secrets that were met.
async fn state(given: &Given, stores: &Stores, scope: &Scope, printed: &Printed) -> Vec<String> {
    let mut secrets = Vec::new();
    let data = || Payload::new(json!({ "note": given.data }));
    let request = SessionRequest::new()
        .data(data())
        .state(Secret::new(given.upstream.as_str()))
        .provider(given.data.clone())
        .code_verifier(Secret::new(given.verifier.as_str()))
        .verified_emails([given.data.clone()])
        .token_data(json!(given.upstream))
        .user_info(data())
        .subject("ada");
    printed.debug(&request);
    let sessions = stores.sessions(scope);
    let session = sessions.create(request).await.unwrap();
    secrets.push(session.session_id.expose()[4..].to_owned());
    printed.debug(&session);
    printed.debug(&sessions.list("ada", None, 10).await.unwrap());
    printed.debug(&sessions.touch(&session.session_id, None).await.unwrap());
    for _ in 0..2 {
        printed.debug(&sessions.get(&session.session_id).await.unwrap());
        printed.debug(&sessions.claim(&session.session_id).await.unwrap());
    }

    let push = Push::new("app", data());
    printed.debug(&push);
    let pushing = stores.pushed_requests(scope).put(push).await.unwrap();
    printed.debug(&pushing);
    let PushOutcome::Pushed { request_uri, .. } = pushing else { panic!("{pushing:?}") };
    secrets.push(request_uri.expose()[PushedRequests::URI_PREFIX.len()..].to_owned());
    for _ in 0..2 {
        printed.debug(&stores.pushed_requests(scope).take(Take::new(&request_uri, "app")).await.unwrap());
    }

    let codes = stores.device_codes(scope);
    let device = codes.start(DeviceRequest::new("tv").data(data())).await.unwrap();
    secrets.push(device.device_code.expose()[4..].to_owned());
    secrets.extend([device.user_code.expose().to_owned(), device.user_code.expose().replace('-', "")]);
    printed.debug(&device);
    let approve = Approve::new(&device.user_code, "ada").data(data()).source(given.upstream.as_str());
    printed.debug(&approve);
    printed.debug(&codes.poll(&DeviceRedeem::new(&device.device_code, "tv")).await.unwrap());
    printed.debug(&codes.decide(approve).await.unwrap());
    let presented = DeviceRedeem::new(device.device_code.clone(), "tv").with_grant();
    printed.debug(&presented);
    for _ in 0..2 {
        printed.debug(&codes.redeem(presented.clone()).await.unwrap());
    }

    let request = ClientRequest::confidential().owner("ada").metadata(data());
    printed.debug(&request);
    let registration = stores.clients(scope).register(request).await.unwrap();
    printed.debug(&registration);
    let RegisterOutcome::Registered(registered) = registration else { panic!("nobody else is there") };
    let (client_id, secret) = (registered.client.client_id, registered.client_secret.unwrap());
    secrets.push(secret.expose()[4..].to_owned());
    printed.debug(&stores.clients(scope).verify(&client_id, &secret).await.unwrap());
    let rotation = stores.clients(scope).rotate_secret(&client_id, Duration::from_secs(60)).await.unwrap();
    printed.debug(&rotation);
    let RotateSecretOutcome::Rotated { client_secret, .. } = rotation else { panic!("it keeps one") };
    secrets.push(client_secret.expose()[4..].to_owned());
    secrets
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_secret_is_printed_or_stored(given in given()) {
        let printed = Printed::default();
        let writer = printed.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
            .with_span_events(FmtSpan::FULL)
            .with_writer(move || writer.clone())
            .finish();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let backend = Arc::new(Faulty::new(Metered::new(Memory::default())));
        let secrets = tracing::subscriber::with_default(subscriber, || {
            runtime.block_on(flow(&given, backend.clone(), &backend, &printed))
        });
        let printed = printed.0.lock().unwrap().clone();
        for expected in ["backend", "Secret(…)", "Payload(…)", "used twice", "injected"] {
            prop_assert!(printed.contains(expected), "nothing was captured of {expected:?}:\n{printed}");
        }
        let mut stored = Vec::new();
        for &kind in Kind::ALL {
            for (key, record) in runtime.block_on(backend.scan_all(&Prefix::kind_wide(kind), Timestamp::ZERO)).unwrap() {
                stored.extend_from_slice(key.as_bytes());
                stored.extend_from_slice(&record.value);
            }
        }
        for secret in &secrets {
            prop_assert!(!printed.contains(secret.as_str()), "{secret} was printed:\n{printed}");
            let bytes = secret.as_bytes();
            prop_assert!(!stored.windows(bytes.len()).any(|window| window == bytes), "{secret} was stored");
            // A token's bytes are not stored either, nor printed as a list of numbers.
            let raw = Base64UrlUnpadded::decode_vec(secret).unwrap_or_default();
            let Some(tail) = raw.last_chunk::<16>() else { continue };
            prop_assert!(!stored.windows(16).any(|window| window == tail), "{secret} was stored as bytes");
            let list = format!("{tail:?}");
            prop_assert!(!printed.contains(&list[1..list.len() - 1]));
        }
    }
}
