//! Output to a reader that may go away, as in `ebbtide export … | head`.
//!
//! `println!` panics when the pipe is closed. [`outln!`] returns [`ClosedPipe`] instead, which ends the command without
//! a message.

use std::fmt;
use std::io::{self, BufWriter, ErrorKind, StdoutLock, Write};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
pub(crate) use ebbtide::ops::explain::span;
use ebbtide::{Clock as _, SystemClock};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Standard output is closed. A type of its own: a broken connection to a server is an error worth a message.
#[derive(Debug)]
pub(crate) struct ClosedPipe;

impl ClosedPipe {
    /// Exit status of a process that SIGPIPE ends, as shells report it.
    pub(crate) const STATUS: u8 = 141;
}

impl fmt::Display for ClosedPipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("standard output is closed")
    }
}

impl std::error::Error for ClosedPipe {}

/// Writes a line to standard output.
macro_rules! outln {
    ($($argument:tt)*) => { $crate::output::write_line(format_args!($($argument)*)) };
}

/// Writes a line to standard error. A reader that has gone away is ignored: nobody is left to tell.
macro_rules! errln {
    ($($argument:tt)*) => { $crate::output::write_error(format_args!($($argument)*)) };
}

pub(crate) use {errln, outln};

pub(crate) fn write_line(line: fmt::Arguments<'_>) -> Result<()> {
    checked(writeln!(io::stdout().lock(), "{line}"))
}

pub(crate) fn write_error(line: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Writes bytes to standard output.
pub(crate) fn write_bytes(bytes: &[u8]) -> Result<()> {
    let mut out = io::stdout().lock();
    checked(out.write_all(bytes).and_then(|()| out.flush()))
}

/// Time for people: RFC 3339 with the local offset.
pub(crate) fn local_time(millis: u64) -> String {
    let time = i64::try_from(millis).ok().and_then(|millis| Timestamp::from_millisecond(millis).ok());
    let Some(time) = time else { return millis.to_string() };
    time.to_zoned(TimeZone::system()).strftime("%Y-%m-%dT%H:%M:%S%.3f%:z").to_string()
}

/// Buffered standard output, for listings of any length.
pub(crate) struct Listing(BufWriter<StdoutLock<'static>>);

impl Listing {
    pub(crate) fn start() -> Self {
        Self(BufWriter::new(io::stdout().lock()))
    }

    pub(crate) fn line(&mut self, line: impl fmt::Display) -> Result<()> {
        checked(writeln!(self.0, "{line}"))
    }

    pub(crate) fn finish(mut self) -> Result<()> {
        checked(self.0.flush())
    }
}

/// Time for people: RFC 3339 with the local offset, and the distance to now.
pub(crate) fn when(millis: Option<u64>) -> String {
    let Some(millis) = millis else { return "never".to_owned() };
    when_at(millis, SystemClock.now().as_millis(), &TimeZone::system())
}

fn when_at(millis: u64, now: u64, zone: &TimeZone) -> String {
    let time = i64::try_from(millis).ok().and_then(|millis| Timestamp::from_millisecond(millis).ok());
    let Some(time) = time else { return millis.to_string() };
    let time = time.to_zoned(zone.clone()).strftime("%Y-%m-%dT%H:%M:%S%:z");
    if millis > now {
        format!("{time} (in {})", span((millis - now).div_ceil(1_000)))
    } else {
        format!("{time} ({} ago)", span((now - millis) / 1_000))
    }
}

/// State of a record, in colour on a terminal.
pub(crate) fn state(name: &str) -> console::StyledObject<&str> {
    let style = console::Style::new();
    match name {
        "live" => style.green(),
        "expired" | "unknown" => style.yellow(),
        _ => style.red(),
    }
    .apply_to(name)
}

/// Writes a table with columns as wide as their cells.
pub(crate) fn table<const N: usize>(
    head: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> Result<()> {
    let rows: Vec<[String; N]> = std::iter::once(head.map(str::to_owned)).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: Vec<usize> = (0..N).map(width).collect();
    let bold = console::Style::new().bold();
    let mut listing = Listing::start();
    for (number, row) in rows.iter().enumerate() {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        let line = line.trim_end();
        if number == 0 {
            listing.line(bold.apply_to(line))?;
        } else {
            listing.line(line)?;
        }
    }
    listing.finish()
}

/// Writes items of the API: as lines of JSON, or as a table of type `T`.
pub(crate) fn print_items<T: DeserializeOwned, const N: usize>(
    found: Vec<Value>,
    json: bool,
    head: [&str; N],
    row: impl Fn(T) -> [String; N],
) -> Result<ExitCode> {
    if json {
        found.iter().try_for_each(|item| outln!("{item}"))?;
    } else {
        let found: Vec<T> = serde_json::from_value(found.into())?;
        table(head, found.into_iter().map(row))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn checked(written: io::Result<()>) -> Result<()> {
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(ClosedPipe.into()),
        written => written.context("cannot write to standard output"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_by_people() {
        let now = 1_800_000_000_000;
        for (millis, text) in [
            (now + 3 * 3_600_000, "2027-01-15T11:00:00+00:00 (in 3 h)"),
            (now + 90_000, "2027-01-15T08:01:30+00:00 (in 1 min 30 s)"),
            (now, "2027-01-15T08:00:00+00:00 (0 s ago)"),
            (now - 2_000, "2027-01-15T07:59:58+00:00 (2 s ago)"),
            (now + 40 * 86_400_000, "2027-02-24T08:00:00+00:00 (in 40 d)"),
        ] {
            assert_eq!(when_at(millis, now, &TimeZone::UTC), text);
        }
        assert_eq!(when(None), "never");
    }

    #[test]
    fn a_time_for_people_is_rfc_3339_with_an_offset() {
        let text = local_time(1_800_000_000_123);
        let parsed: Timestamp = text.parse().unwrap();
        assert_eq!(parsed.as_millisecond(), 1_800_000_000_123);
        assert!(text.ends_with(":00") || text.ends_with(":30") || text.ends_with(":45"), "{text}");
        assert_eq!(text.len(), "2027-01-15T08:00:00.123+00:00".len());
    }

    #[test]
    fn a_closed_pipe_is_told_apart_from_other_errors() {
        let closed = checked(Err(ErrorKind::BrokenPipe.into())).unwrap_err();
        assert!(closed.context("cannot list the keys").is::<ClosedPipe>());
        let full = checked(Err(ErrorKind::StorageFull.into())).unwrap_err();
        assert!(!full.is::<ClosedPipe>());
        let server = anyhow::Error::from(io::Error::from(ErrorKind::BrokenPipe));
        assert!(!server.is::<ClosedPipe>());
    }
}
