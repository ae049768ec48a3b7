//! Metrics of the commands. Each is looked for once, when it is first needed.

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use metrics::{Counter, Histogram, counter, histogram};

use super::reply::Reply;
use super::specs::{SPECS, Spec};
use crate::http::route::Route;

/// Metrics of a listener.
pub(super) struct Meters {
    seconds: OnceLock<Histogram>,
    /// Successful commands, by their places in the table.
    good: Vec<OnceLock<Counter>>,
    /// Name of the protocol among the routes, for connections that name no scope.
    pub(super) route: Route,
}

impl fmt::Debug for Meters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Meters")
    }
}

impl Default for Meters {
    fn default() -> Self {
        Self {
            seconds: OnceLock::new(),
            good: SPECS.iter().map(|_| OnceLock::new()).collect(),
            route: Route::new("redis"),
        }
    }
}

impl Meters {
    /// Notes the time of commands that ran together.
    pub(super) fn took(&self, elapsed: Duration, commands: usize) {
        let seconds = self.seconds.get_or_init(|| histogram!("ebbtide_resp_command_seconds"));
        seconds.record_many(elapsed.as_secs_f64(), commands);
    }

    /// Counts a command by its name and outcome.
    pub(super) fn count(&self, spec: &Spec, reply: &Reply) {
        let counter = |outcome: &'static str| counter!("ebbtide_resp_commands_total", "command" => spec.name, "outcome" => outcome);
        let Reply::Error(message) = reply else {
            return self.good[spec.place].get_or_init(|| counter("ok")).increment(1);
        };
        let outcome = match message.split(' ').next() {
            Some("UNAVAILABLE") => "unavailable",
            Some("NOAUTH" | "WRONGPASS") => "unauthorized",
            Some("NOPERM") => "forbidden",
            Some("OOM") => "quota",
            _ => "error",
        };
        counter(outcome).increment(1);
    }
}
