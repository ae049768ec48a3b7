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

    /// Counts commands that ran together. Those of one name in a row, as most are, are counted at once.
    pub(super) fn count_all<'a>(&self, answered: impl Iterator<Item = (&'a Spec, &'a Reply)>) {
        let mut row: Option<(&Spec, u64)> = None;
        for (spec, reply) in answered {
            if matches!(reply, Reply::Error(_)) {
                self.count(spec, reply);
                continue;
            }
            match &mut row {
                Some((same, count)) if same.place == spec.place => *count += 1,
                _ => {
                    if let Some((other, count)) = row.replace((spec, 1)) {
                        self.count_good(other, count);
                    }
                }
            }
        }
        if let Some((spec, count)) = row {
            self.count_good(spec, count);
        }
    }

    fn count_good(&self, spec: &Spec, count: u64) {
        self.good[spec.place].get_or_init(|| counter(spec, "ok")).increment(count);
    }

    /// Counts a command by its name and outcome.
    pub(super) fn count(&self, spec: &Spec, reply: &Reply) {
        let Reply::Error(message) = reply else { return self.count_good(spec, 1) };
        let outcome = match message.split(' ').next() {
            Some("UNAVAILABLE") => "unavailable",
            Some("NOAUTH" | "WRONGPASS") => "unauthorized",
            Some("NOPERM") => "forbidden",
            Some("OOM") => "quota",
            _ => "error",
        };
        counter(spec, outcome).increment(1);
    }
}

fn counter(spec: &Spec, outcome: &'static str) -> Counter {
    counter!("ebbtide_resp_commands_total", "command" => spec.name, "outcome" => outcome)
}
