//! Classification of failed requests, and their retries.

use std::error::Error as StdError;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;

use crate::model::error::Error;
use crate::model::rng::Rng;
use crate::model::time::Stopwatch;

/// Failure of an attempt.
#[derive(Debug)]
pub(super) enum AttemptFault {
    /// The endpoint did nothing; a retry may succeed.
    Busy(Error),
    /// The outcome is unknown.
    Lost(Error),
    /// The endpoint did nothing; a retry would fail too.
    Failed(Error),
}

impl AttemptFault {
    fn into_error(self) -> Error {
        match self {
            Self::Busy(error) | Self::Lost(error) | Self::Failed(error) => error,
        }
    }
}

/// Retry policy of a store.
#[derive(Clone)]
pub(super) struct Patience {
    rng: Arc<dyn Rng>,
}

/// Attempts while the endpoint is busy: about a second and a half in all, four at the most.
const BUSY_ATTEMPTS: u32 = 10;

/// Time after which no further attempt begins. A caller waits for no more than this, one pause and one attempt: five
/// seconds, which fit a login.
const NO_MORE: Duration = Duration::from_secs(3);

/// Attempts at a request whose answers are lost.
const LOST_ATTEMPTS: u32 = 3;

const FIRST_PAUSE: Duration = Duration::from_millis(25);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

impl Patience {
    pub(super) fn new(rng: Arc<dyn Rng>) -> Self {
        Self { rng }
    }

    pub(super) fn begin(&self) -> Attempts<'_> {
        Attempts { patience: self, busy: 0, lost: 0, stopwatch: Stopwatch::start() }
    }

    /// Sends a request that is safe to repeat until it is answered or the attempts are used up.
    pub(super) async fn repeat<T, F>(&self, request: impl Fn() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, AttemptFault>>,
    {
        let mut attempts = self.begin();
        loop {
            match request().await {
                Ok(answer) => return Ok(answer),
                Err(fault) => attempts.pause(fault).await?,
            }
        }
    }
}

/// Attempts at one request.
pub(super) struct Attempts<'a> {
    patience: &'a Patience,
    busy: u32,
    lost: u32,
    stopwatch: Stopwatch,
}

impl Attempts<'_> {
    /// Waits before the next attempt with a growing, random pause, so that colliding writers do not collide again.
    /// Returns the error if no attempt is left.
    pub(super) async fn pause(&mut self, fault: AttemptFault) -> Result<(), Error> {
        match fault {
            AttemptFault::Busy(_) => self.busy += 1,
            AttemptFault::Lost(_) => self.lost += 1,
            AttemptFault::Failed(error) => return Err(error),
        }
        if self.busy >= BUSY_ATTEMPTS || self.lost >= LOST_ATTEMPTS || self.stopwatch.elapsed() >= NO_MORE {
            return Err(fault.into_error());
        }
        let longest = FIRST_PAUSE.saturating_mul(1 << (self.busy + self.lost).min(10)).min(LONGEST_PAUSE);
        let share = u32::from_be_bytes(self.patience.rng.bytes());
        tokio::time::sleep(longest.mul_f64(f64::from(share) / f64::from(u32::MAX))).await;
        Ok(())
    }
}

/// Error codes that ask for a retry.
const BUSY: &[&str] = &[
    "ProvisionedThroughputExceededException",
    "ProvisionedThroughputExceeded",
    "ThrottlingException",
    "ThrottlingError",
    "Throttling",
    "RequestLimitExceeded",
    "LimitExceededException",
    "TransactionConflictException",
    "TransactionConflict",
    "TransactionInProgressException",
    "ReplicatedWriteConflictException",
];

/// Returns true if the code, of an error or of a cancellation reason, asks for a retry.
pub(super) fn is_busy(code: &str) -> bool {
    BUSY.contains(&code)
}

/// Error for a code that asks for a retry.
pub(super) fn busy(code: &str) -> Error {
    Error::unavailable("the table is busy: it is throttled, or other writers contend for the same items")
        .caused_by(code)
}

/// Maps the SDK's errors. Neither the service's errors nor its answers go into the cause: they may hold items.
pub(super) fn fault<E: ProvideErrorMetadata + StdError + 'static>(
    error: SdkError<E, HttpResponse>,
) -> AttemptFault {
    match error {
        SdkError::ServiceError(service) => {
            let code = service.err().code().unwrap_or("no code").to_owned();
            service_fault(&code, service.raw().status().as_u16())
        }
        SdkError::ConstructionFailure(_) => AttemptFault::Failed(unsent(
            "cannot build the request: credentials or region are missing",
            &error,
        )),
        SdkError::DispatchFailure(_) if was_refused(&error) => {
            AttemptFault::Busy(unsent("the endpoint refused the connection", &error))
        }
        SdkError::DispatchFailure(ref failure) if failure.is_user() => {
            AttemptFault::Failed(unsent("cannot send the request", &error))
        }
        error => AttemptFault::Lost(unsent("the endpoint gave no answer", &error)),
    }
}

fn service_fault(code: &str, status: u16) -> AttemptFault {
    let cause = format!("{code}, status {status}");
    match code {
        code if is_busy(code) => AttemptFault::Busy(busy(code)),
        "ResourceNotFoundException" => {
            let message = "the table does not exist; create it with `ebbtide table create`";
            AttemptFault::Failed(Error::unavailable(message).caused_by(cause))
        }
        "AccessDeniedException" => {
            let message = "the role lacks a permission on the table; docs/engines/dynamodb.md lists them";
            AttemptFault::Failed(Error::unavailable(message).caused_by(cause))
        }
        "ExpiredTokenException"
        | "IncompleteSignatureException"
        | "InvalidSignatureException"
        | "MissingAuthenticationTokenException"
        | "UnrecognizedClientException" => {
            AttemptFault::Failed(Error::unavailable("the endpoint refused the credentials").caused_by(cause))
        }
        "ValidationException" => AttemptFault::Failed(
            Error::invalid("the endpoint refused the request; the table may not have Ebbtide's keys")
                .caused_by(cause),
        ),
        _ if status >= 500 => AttemptFault::Lost(Error::unavailable("the endpoint failed").caused_by(cause)),
        _ => AttemptFault::Failed(Error::unavailable("the endpoint refused the request").caused_by(cause)),
    }
}

/// Error of the connection to the endpoint; it holds no stored data.
fn unsent(message: &str, error: &(dyn StdError + 'static)) -> Error {
    let texts: Vec<_> = chain(error).skip(1).map(ToString::to_string).collect();
    Error::unavailable(message).caused_by(texts.join(": "))
}

/// Returns true if there was no connection, and so no request.
fn was_refused(error: &(dyn StdError + 'static)) -> bool {
    const NO_CONNECTION: [io::ErrorKind; 4] = [
        io::ErrorKind::ConnectionRefused,
        io::ErrorKind::HostUnreachable,
        io::ErrorKind::NetworkUnreachable,
        io::ErrorKind::AddrNotAvailable,
    ];
    // The SDK names its own timeout of the connection, and the resolver of names, by these texts alone.
    let told = ["HTTP connect timeout", "dns error", "failed to lookup address"];
    chain(error).any(|error| {
        let io = error.downcast_ref::<io::Error>();
        io.is_some_and(|error| NO_CONNECTION.contains(&error.kind()))
            || told.iter().any(|text| error.to_string().contains(text))
    })
}

fn chain<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}
