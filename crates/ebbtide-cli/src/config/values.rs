//! Parsers of the values of settings.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use ebbtide_server::http::quota::Quota;
use tracing_subscriber::EnvFilter;

/// Format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One object per line, for programs.
    Json,
}

/// A whole number of milliseconds, seconds, minutes, hours or days: above zero, up to a year.
///
/// Stricter than the `humantime` crate on purpose: `30 s`, `1h30m`, `1M` (a month) and zero are refused.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let millis = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => 0,
    };
    match digits.parse::<u64>().ok().and_then(|number| number.checked_mul(millis)) {
        Some(millis @ 1..=31_536_000_000) => Ok(Duration::from_millis(millis)),
        _ => {
            Err("expected a whole number above zero and ms, s, m, h or d, up to a year: 30s, 5m, 1h"
                .to_owned())
        }
    }
}

/// Like [`duration`], or `0s` for none.
pub(super) fn delay(text: &str) -> Result<Duration, String> {
    if text == "0s" { Ok(Duration::ZERO) } else { duration(text) }
}

/// A type that parses itself, with the error message of the library.
pub(super) fn parsed<T: FromStr<Err = ebbtide::Error>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: ebbtide::Error| error.message().to_owned())
}

pub(super) fn quotas(text: &str) -> Result<Vec<Quota>, String> {
    text.split(',').map(|quota| parsed(quota.trim())).collect()
}

pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "expected an IP address and a port: 127.0.0.1:7878".to_owned())
}

pub(super) fn text(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("the value is empty".to_owned()) } else { Ok(text.to_owned()) }
}

pub(super) fn path(path: &str) -> Result<PathBuf, String> {
    text(path).map(PathBuf::from)
}

/// Paths, separated by commas.
pub(super) fn paths(paths: &str) -> Result<Vec<PathBuf>, String> {
    paths.split(',').map(|one| path(one.trim())).collect()
}

pub(super) fn switch(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Ok(true),
        "false" | "no" | "off" | "0" => Ok(false),
        _ => Err("expected true or false".to_owned()),
    }
}

pub(super) fn count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 1..=0xFFFF_FFFF) => Ok(count),
        _ => Err("expected a whole number above zero and below 4294967296".to_owned()),
    }
}

pub(super) fn log_format(text: &str) -> Result<LogFormat, String> {
    match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err("expected text or json".to_owned()),
    }
}

pub(super) fn log_filter(text: &str) -> Result<String, String> {
    match EnvFilter::try_new(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(format!("invalid log filter: {error}")),
    }
}

pub(super) fn endpoint(text: &str) -> Result<String, String> {
    if text.starts_with("http://") {
        Ok(text.to_owned())
    } else {
        Err("expected a URL that begins with http://: run the collector on this machine or in a trusted network".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_above_zero_and_has_a_unit() {
        assert_eq!(duration("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(duration("5m"), Ok(Duration::from_secs(300)));
        assert_eq!(duration("1500ms"), Ok(Duration::from_millis(1_500)));
        for bad in [
            "",
            "0",
            "0s",
            "0ms",
            "30",
            "-1s",
            "1.5s",
            "s",
            "30 s",
            "1M",
            "1h30m",
            "400d",
            "99999999999999999999s",
        ] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
