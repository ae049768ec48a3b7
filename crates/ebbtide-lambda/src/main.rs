//! `ebbtide-lambda`: the HTTP API and the scheduled sweep as a function.
//!
//! `EBBTIDE_STORE` names the store. A scheduled event, or `{}`, sweeps: `EBBTIDE_SWEEP_BUDGET` is the share of the time
//! that it may take, either may request a dry run or another budget, and the answer is the number of removed records by
//! kind, with `"more": true` if the time did not suffice: the next event resumes the sweep.
//!
//! The event of a function URL or of API Gateway is a request of the HTTP API: `EBBTIDE_ROOT_KEY` is the root key, and
//! `EBBTIDE_KEYRING_JSON` the keyring, or `EBBTIDE_KEYRING` its file. Initialization does nothing but request the first
//! event.

mod event;
mod serve;
mod sweep;

use lambda_runtime::{Diagnostic, LambdaEvent, service_fn};
use serde_json::Value;

use serve::Served;
use sweep::Swept;

#[derive(Default)]
struct Function {
    served: Served,
    swept: Swept,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda_runtime::Error> {
    let function = Function::default();
    lambda_runtime::run(service_fn(|event| handle(&function, event))).await
}

async fn handle(function: &Function, event: LambdaEvent<Value>) -> Result<Value, Diagnostic> {
    match event::payload_of(&event.payload) {
        Some(payload) => function.served.handle(event.payload, payload).await,
        None => function.swept.handle(&event.payload, event.context.deadline).await,
    }
}

fn store_url() -> Result<String, Diagnostic> {
    std::env::var("EBBTIDE_STORE")
        .map_err(|_| failure("Misconfigured", "EBBTIDE_STORE is not set".to_owned()))
}

fn failure(error_type: &str, error_message: String) -> Diagnostic {
    Diagnostic { error_type: error_type.to_owned(), error_message }
}

/// Error with its causes, which hold no secret.
fn fault(error: &ebbtide::Error) -> Diagnostic {
    let mut message = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        message = format!("{message}: {error}");
        cause = error.source();
    }
    failure("StoreError", message)
}
