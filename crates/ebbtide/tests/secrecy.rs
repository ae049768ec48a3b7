//! What was put in as a secret is in no `Debug`, no `Display`, no error, no span and no event; and in nothing that
//! is stored.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::error::Error as _;
use std::fmt::{Debug, Write as _};
use std::io;
use std::sync::{Arc, Mutex};

use base64ct::{Base64UrlUnpadded, Encoding as _};
use ebbtide::conformance::faulty::{Fault, Faulty};
use ebbtide::stores::access_tokens::{AccessRequest, Issuing};
use ebbtide::stores::codes::{CodeRequest, Presented, Redemption};
use ebbtide::stores::grants::{GrantRequest, Holder, Rotation, Terms};
use ebbtide::stores::payload::Payload;
use ebbtide::stores::replays::Proof;
use ebbtide::{
    Backend, BackendExt, Error, Keyring, Kind, ManualClock, Memory, Metered, Prefix, Scope, Secret,
    SeededChance, Stores, Timestamp,
};
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
    backend: Arc<dyn Backend>,
    faults: &Faulty<Metered<Memory>>,
    printed: &Printed,
) -> Vec<String> {
    let now = Timestamp::from_millis(1_800_000_000_000).unwrap();
    let scope = Scope::tenant("acme").unwrap();
    let keyring = Keyring::generate(&SeededChance::new(given.seed), now);
    printed.debug(&keyring);
    printed.debug(&keyring.keys());
    let clock = ManualClock::at(now);
    let builder = Stores::builder(Arc::clone(&backend)).clock(clock.clone()).keyring(keyring);
    printed.debug(&builder);
    let stores = builder.build();
    printed.debug(&stores);
    let mut secrets = vec![given.data.clone(), given.verifier.clone(), given.upstream.clone()];
    let mut keep = |secret: &Secret| secrets.push(secret.expose()[4..].to_owned());
    let data = || json!({ "note": given.data, given.data.as_str(): [given.data] });

    let nonces = stores.nonces(&scope);
    let nonce = nonces.issue("as", None).await.unwrap();
    keep(&nonce.nonce);
    printed.debug(&nonce);
    for _ in 0..2 {
        printed.debug(&nonces.accept("as", &nonce.nonce).await.unwrap());
    }
    printed
        .debug(&stores.replays(&scope).check_and_record(&Proof::new("htu", "jti").unwrap()).await.unwrap());

    let codes = stores.codes(&scope);
    let challenge = Base64UrlUnpadded::encode_string(&Sha256::digest(&given.verifier));
    let request = CodeRequest::new("app", "ada", "https://a").challenge(challenge).data(data());
    printed.debug(&request);
    let (code, second) = (codes.issue(request.clone()).await.unwrap(), codes.issue(request).await.unwrap());
    keep(&code.code);
    keep(&second.code);
    printed.debug(&code);
    let present = |code: &Secret| {
        let verifier = Secret::new(given.verifier.as_str());
        Presented::new(code.clone(), "app", "https://a").verifier(verifier).grant(Terms::default())
    };
    let presented = present(&code.code);
    printed.debug(&presented);
    let redemption = codes.redeem(&presented).await.unwrap();
    printed.debug(&redemption);
    printed.debug(&codes.redeem(&Presented::new(second.code.clone(), "evil", "https://a")).await.unwrap());
    let Redemption::Redeemed(redeemed) = redemption else { panic!("{redemption:?}") };
    let grant = redeemed.grant.unwrap();
    keep(&grant.refresh_token);

    let grants = stores.grants(&scope);
    printed.debug(&grants.get(grant.grant_id).await.unwrap());
    printed.debug(&grants.list(Holder::Subject("ada"), None, 10).await.unwrap());
    let rotation = grants.rotate(&grant.refresh_token, "app", None).await.unwrap();
    printed.debug(&rotation);
    let Rotation::Rotated(next) = rotation else { panic!("{rotation:?}") };
    keep(&next.refresh_token);
    printed.debug(&grants.rotate(&grant.refresh_token, "app", None).await.unwrap());
    printed.debug(&grants.rotate(&grant.refresh_token, "evil", None).await.unwrap());

    let tokens = stores.access_tokens(&scope);
    let request = AccessRequest::under(grant.grant_id).data(data());
    printed.debug(&request);
    let issuing = tokens.issue(request).await.unwrap();
    printed.debug(&issuing);
    let Issuing::Issued(access) = issuing else { panic!("{issuing:?}") };
    keep(&access.access_token);
    printed.debug(&tokens.introspect(&access.access_token).await.unwrap());

    let providers = stores.provider_tokens(&scope);
    let upstream = Payload::new(json!({ "access_token": given.upstream }));
    printed.debug(&upstream);
    printed.debug(&providers.put(grant.grant_id, "google", &upstream, None).await.unwrap());
    printed.debug(&providers.get(grant.grant_id, "google").await.unwrap());

    // Faults: a store that is down, a value that is too large, and one that was sealed under another key.
    faults.fail(0, Fault::Before);
    printed.error(&grants.rotate(&next.refresh_token, "app", None).await.unwrap_err());
    faults.mend();
    let large = json!({ "note": given.data.repeat(20_000) });
    printed.error(&grants.issue(GrantRequest::new("ada", "app").data(large)).await.unwrap_err());
    let plain = CodeRequest::new("app", "ada", "https://a").challenge(format!("{}~", given.verifier));
    printed.error(&codes.issue(plain).await.unwrap_err());
    let others = Stores::builder(backend).clock(clock).build();
    printed.error(&others.access_tokens(&scope).introspect(&access.access_token).await.unwrap_err());
    printed.error(&others.grants(&scope).get(grant.grant_id).await.unwrap_err());
    printed.error(&given.upstream.parse::<ebbtide::stores::grants::GrantId>().unwrap_err());

    // Reuse, and what it leaves.
    let rotation = grants.rotate(&next.refresh_token, "app", None).await.unwrap();
    let Rotation::Rotated(last) = rotation else { panic!("{rotation:?}") };
    keep(&last.refresh_token);
    printed.debug(&grants.rotate(&grant.refresh_token, "app", None).await.unwrap());
    printed.debug(&codes.redeem(&presented).await.unwrap());
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
        for expected in ["backend", "Secret(…)", "Payload(…)", "used twice", "purpose"] {
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
