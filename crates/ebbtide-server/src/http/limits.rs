//! What a server takes on at the most.

use std::time::Duration;

/// The bounds within which a server stays up while clients do what they like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The largest body that is read, in bytes.
    pub body_bytes: usize,
    /// For how long a body may take to arrive.
    pub body_timeout: Duration,
    /// For how long a connection may be quiet, or take to send the head of a request.
    pub header_timeout: Duration,
    /// How many requests are worked on at a time; what comes beyond is answered 503 at once.
    pub requests: usize,
    /// How many connections are open at a time; what comes beyond is answered 503 and closed.
    pub connections: usize,
    /// For how long a server that was told to stop goes on with what it has begun.
    pub shutdown_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // What the largest attribute or payload takes, and some more.
            body_bytes: 1 << 20,
            body_timeout: Duration::from_secs(30),
            header_timeout: Duration::from_secs(60),
            requests: 4_096,
            connections: 16_384,
            shutdown_timeout: Duration::from_secs(30),
        }
    }
}
