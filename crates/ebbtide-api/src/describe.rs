//! Answers in words.

use ebbtide::stores::audit::Break;

/// Fault of an entry of the audit log, in words.
#[must_use]
pub fn broken(why: Break) -> &'static str {
    match why {
        Break::Changed => "is not what was written",
        Break::Missing => "is missing",
        Break::Added => "was not written by the log",
        Break::Checkpoint => "has a checkpoint that this store did not write",
        _ => "is broken",
    }
}
