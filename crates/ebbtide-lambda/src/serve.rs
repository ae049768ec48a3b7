//! The HTTP API, one event for each request.

use std::time::Duration;

use axum::Router;
use axum::body::to_bytes;
use ebbtide::{Ebbtide, Keyring, Scope, Secret, Stopwatch};
use ebbtide_server::upkeep::Upkeep;
use ebbtide_server::{App, metrics, public_router};
use lambda_runtime::Diagnostic;
use serde_json::{Value, json};
use tokio::sync::{Mutex, OnceCell};
use tower::ServiceExt as _;

use crate::event::{Payload, answer, request_of};
use crate::{failure, fault, store_url};

/// Maximum size of an answer: the platform carries six megabytes, and binary ones grow by a third.
const MOST_BYTES: usize = 4 << 20;

/// Age of the policies from which they are read again before a request. A change is in force everywhere within 5 s.
const POLICIES: Duration = Duration::from_secs(3);

/// Interval of the other upkeep, beside a request.
const UPKEEP: Duration = Duration::from_secs(10);

/// Minimum length of a root key: shorter ones can be guessed.
const MIN_ROOT_KEY: usize = 16;

/// The store that is served. It is opened by the first request.
#[derive(Default)]
pub(crate) struct Served(OnceCell<OpenStore>);

struct OpenStore {
    db: Ebbtide,
    router: Router,
    upkeep: Mutex<Round>,
}

struct Round {
    upkeep: Upkeep,
    last: Option<Stopwatch>,
    policies: Stopwatch,
}

impl Served {
    /// Answers the request of an event. The function may have been frozen for any time since the last one, so that it
    /// holds no lease, and looks at the clocks and the policies first.
    pub(crate) async fn handle(&self, event: Value, payload: Payload) -> Result<Value, Diagnostic> {
        let request = match request_of(event, payload) {
            Ok(request) => request,
            Err(message) => return Ok(invalid(message)),
        };
        let open = self.0.get_or_try_init(open).await?;
        // In doubt about the clock, or without the policies, the API itself refuses.
        if let Err(error) = open.db.timed().compare_engine().await {
            eprintln!("cannot compare the engine's clock: {error}");
        }
        let work = open.router.clone().oneshot(request);
        let response = match open.upkeep.try_lock() {
            Ok(mut round) => {
                if round.policies.elapsed() >= POLICIES {
                    match open.db.stores().policies(&Scope::Global).reload().await {
                        Ok(()) => round.policies = Stopwatch::start(),
                        Err(error) => eprintln!("cannot read the stored policies: {error}"),
                    }
                }
                let response = if round.last.as_ref().is_none_or(|last| last.elapsed() >= UPKEEP) {
                    round.last = Some(Stopwatch::start());
                    tokio::join!(work, round.upkeep.round()).0
                } else {
                    work.await
                };
                // It costs a write only after an audited call. The process may not run again after the answer.
                round.upkeep.checkpoint().await;
                response
            }
            // One event at a time is the rule; if there are more, one of them looks after this.
            Err(_) => work.await,
        };
        let (parts, body) = response.unwrap_or_else(|never| match never {}).into_parts();
        match to_bytes(body, MOST_BYTES).await {
            Ok(bytes) => Ok(answer(&axum::http::Response::from_parts(parts, ()), &bytes, payload)),
            Err(_) => {
                Ok(problem(503, "unavailable", "the answer is too large for this platform; ask for less"))
            }
        }
    }
}

async fn open() -> Result<OpenStore, Diagnostic> {
    metrics::recorder();
    let root_key =
        secret("EBBTIDE_ROOT_KEY").filter(|key| key.expose().len() >= MIN_ROOT_KEY).ok_or_else(|| {
            failure("Misconfigured", format!("EBBTIDE_ROOT_KEY must have at least {MIN_ROOT_KEY} bytes"))
        })?;
    let mut builder = Ebbtide::builder(&store_url()?).without_leases();
    if let Some(text) = secret("EBBTIDE_KEYRING_JSON") {
        builder = builder.keyring(Keyring::from_text(text.expose()).map_err(|error| fault(&error))?);
    } else if let Some(path) = variable("EBBTIDE_KEYRING") {
        builder = builder.keyring_file(path);
    }
    let db = builder.open().await.map_err(|error| fault(&error))?;
    let app = App::new(&db, &root_key);
    let router = public_router(app.clone());
    let round = Round { upkeep: Upkeep::new(app), last: None, policies: Stopwatch::start() };
    Ok(OpenStore { db, router, upkeep: Mutex::new(round) })
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn secret(name: &str) -> Option<Secret> {
    variable(name).map(Secret::new)
}

fn invalid(message: &str) -> Value {
    problem(400, "invalid", message)
}

fn problem(status: u16, kind: &str, detail: &str) -> Value {
    let body =
        json!({"type": format!("/problems/{kind}"), "title": kind, "status": status, "detail": detail});
    json!({
        "statusCode": status, "headers": {"content-type": "application/problem+json"},
        "body": body.to_string(), "isBase64Encoded": false,
    })
}
