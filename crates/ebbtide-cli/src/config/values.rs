//! Reading the text of a setting.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use ebbtide_server::http::quota::Quota;
use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// An object per line, for programs.
    Json,
}

/// A time of whole seconds, minutes, hours or days, more than zero.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => 0,
    };
    match digits.parse::<u64>().ok().and_then(|number| number.checked_mul(seconds)) {
        Some(seconds @ 1..=31_536_000) => Ok(Duration::from_secs(seconds)),
        _ => {
            Err("a time is a whole number above zero and s, m, h or d, up to a year: 30s, 5m, 1h".to_owned())
        }
    }
}

/// Whatever reads itself, with the library's own words for what is wrong.
pub(super) fn parsed<T: FromStr<Err = ebbtide::Error>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: ebbtide::Error| error.message().to_owned())
}

pub(super) fn quotas(text: &str) -> Result<Vec<Quota>, String> {
    text.split(',').map(|quota| parsed(quota.trim())).collect()
}

pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "an address is an IP address and a port: 127.0.0.1:7878".to_owned())
}

pub(super) fn text(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("it is empty".to_owned()) } else { Ok(text.to_owned()) }
}

pub(super) fn path(path: &str) -> Result<PathBuf, String> {
    text(path).map(PathBuf::from)
}

pub(super) fn switch(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Ok(true),
        "false" | "no" | "off" | "0" => Ok(false),
        _ => Err("a switch is true or false".to_owned()),
    }
}

pub(super) fn count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 1..=0xFFFF_FFFF) => Ok(count),
        _ => Err("a number here is whole, above zero and below 4294967296".to_owned()),
    }
}

pub(super) fn log_format(text: &str) -> Result<LogFormat, String> {
    match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err("a log format is text or json".to_owned()),
    }
}

pub(super) fn log_filter(text: &str) -> Result<String, String> {
    match EnvFilter::try_new(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(format!("not a filter for the log: {error}")),
    }
}

pub(super) fn endpoint(text: &str) -> Result<String, String> {
    if text.starts_with("http://") {
        Ok(text.to_owned())
    } else {
        Err("a collector stands beside the server: its URL begins with http://".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_more_than_zero_and_has_a_unit() {
        assert_eq!(time("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(time("5m"), Ok(Duration::from_secs(300)));
        for bad in ["", "0", "0s", "30", "-1s", "1.5s", "s", "30 s", "400d", "99999999999999999999s"] {
            assert!(time(bad).is_err(), "{bad}");
        }
    }
}
