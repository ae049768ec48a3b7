//! The library's error type and its kinds.

use std::error::Error as StdError;
use std::fmt;

/// Result with [`Error`] as its error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Kind of an error: the action that it calls for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Invalid request; fix it before retrying. Nothing was written.
    Invalid,
    /// No answer; retry. A write may have happened, unless the message says that nothing was written.
    Unavailable,
    /// Stored data cannot be decoded; an operator must investigate.
    Corrupt,
    /// The record would have ended before it was written. Nothing was written.
    Expired,
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Invalid => "invalid",
            Self::Unavailable => "unavailable",
            Self::Corrupt => "corrupt",
            Self::Expired => "expired",
        })
    }
}

/// Failure to answer. "Not found", "refused" and "replayed" are answers, and are never an `Error`; a record that is
/// found to have expired is one too.
///
/// The message carries no secret and no value that may be one; the cause is in [`source`](StdError::source).
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    member: Option<&'static str>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// Message of an `Unavailable` for whoever would add to an embedded store on a disk that is almost full. Nothing was written.
    pub const ALMOST_FULL: &'static str =
        "the disk is almost full; new records are refused, deletes and revocations are not";

    /// Message of an `Unavailable` for a writer that lost to others at every attempt. Nothing was written.
    pub const CONTENDED: &'static str =
        "others changed the record at every attempt; nothing was written, try again";

    /// Creates an error. The message is in lower case and has no full stop.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), member: None, source: None }
    }

    /// Creates an error for an invalid request; the message names the bound that it violates.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    /// Creates an error for a request without an answer.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unavailable, message)
    }

    /// Creates an error for stored data that cannot be decoded.
    pub fn corrupt(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corrupt, message)
    }

    /// Creates an error for a record that would have ended before it was written.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Expired, message)
    }

    /// Names the member of the request that is invalid.
    #[must_use]
    pub fn about(mut self, member: &'static str) -> Self {
        self.member = Some(member);
        self
    }

    /// Adds the cause.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Kind of the error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Member of the request that is invalid, if it is known.
    #[must_use]
    pub fn member(&self) -> Option<&'static str> {
        self.member
    }

    /// Message without the cause.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_ref().map(|source| source.as_ref() as _)
    }
}
