//! Parser of `dynamodb:TABLE?region=…&endpoint=…&prefix=…&sweep=…`.

use crate::model::error::{Error, Result};

/// Location of a store, and its way of sweeping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Location {
    pub(super) table: String,
    pub(super) region: Option<String>,
    pub(super) endpoint: Option<String>,
    pub(super) prefix: String,
    /// If true, every sweep deletes overdue records, for endpoints whose TTL deletes nothing.
    pub(super) sweeps: bool,
}

/// Maximum length of a prefix: with it, the largest partition key is within DynamoDB's 2,048 bytes.
const MAX_PREFIX_BYTES: usize = 255;

impl Location {
    pub(super) fn parse(url: &str) -> Result<Self> {
        let rest = url.strip_prefix("dynamodb:").ok_or_else(|| Error::invalid("not a dynamodb: URL"))?;
        let (table, options) = rest.split_once('?').unwrap_or((rest, ""));
        let mut location = Self {
            table: checked_table(table)?,
            region: None,
            endpoint: None,
            prefix: String::new(),
            sweeps: false,
        };
        for option in options.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let value = decoded(value)?;
            match name {
                "region" => location.region = Some(checked_region(value)?),
                "endpoint" => location.endpoint = Some(checked_endpoint(value)?),
                "prefix" => location.prefix = checked_prefix(value)?,
                "sweep" => location.sweeps = reads_sweep(&value)?,
                _ => {
                    return Err(Error::invalid(
                        "the options of a dynamodb: URL are region, endpoint, prefix and sweep",
                    ));
                }
            }
        }
        Ok(location)
    }

    /// Returns true for a named endpoint that is not one of the provider's own.
    pub(super) fn is_elsewhere(&self) -> bool {
        self.endpoint.is_some()
    }
}

fn checked_table(table: &str) -> Result<String> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    if !(3..=255).contains(&table.len()) || !table.bytes().all(good) {
        return Err(Error::invalid(
            "the table of a dynamodb: URL must have 3 to 255 letters, digits, dots, dashes and underscores",
        ));
    }
    Ok(table.to_owned())
}

fn checked_region(region: String) -> Result<String> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if region.is_empty() || region.len() > 63 || !region.bytes().all(good) {
        return Err(Error::invalid("a region must have 1 to 63 letters, digits and dashes"));
    }
    Ok(region)
}

fn checked_endpoint(endpoint: String) -> Result<String> {
    let host = endpoint.strip_prefix("http://").or_else(|| endpoint.strip_prefix("https://"));
    match host {
        // A user or password before the host would not be sent, but might be printed.
        Some(host) if !host.is_empty() && !host.contains('@') => Ok(endpoint),
        _ => Err(Error::invalid("an endpoint must be http://HOST:PORT or https://HOST, without a user")),
    }
}

fn checked_prefix(prefix: String) -> Result<String> {
    if prefix.len() > MAX_PREFIX_BYTES || prefix.chars().any(char::is_control) {
        return Err(Error::invalid(format!(
            "a prefix must have at most {MAX_PREFIX_BYTES} bytes and no control characters"
        )));
    }
    Ok(prefix)
}

fn reads_sweep(value: &str) -> Result<bool> {
    match value {
        "ttl" => Ok(false),
        "delete" => Ok(true),
        _ => Err(Error::invalid("sweep must be ttl (the engine's TTL deletes) or delete (sweeps delete)")),
    }
}

fn decoded(text: &str) -> Result<String> {
    let wrong = || Error::invalid("an option of the URL is not valid percent-encoded text");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
            let (high, low) = (digit(rest.next()), digit(rest.next()));
            let value = high.zip(low).map(|(high, low)| high * 16 + low).ok_or_else(wrong)?;
            bytes.push(u8::try_from(value).map_err(|_| wrong())?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_table_region_endpoint_prefix_and_sweep() {
        let url =
            "dynamodb:tide-1?region=eu-west-1&endpoint=http%3A%2F%2F127.0.0.1:8000&prefix=a%26b&sweep=delete";
        let location = Location::parse(url).unwrap();
        assert_eq!(location.table, "tide-1");
        assert_eq!(location.region.as_deref(), Some("eu-west-1"));
        assert_eq!(location.endpoint.as_deref(), Some("http://127.0.0.1:8000"));
        assert_eq!(location.prefix, "a&b");
        assert!(location.sweeps);
        assert!(!Location::parse("dynamodb:tide?sweep=ttl").unwrap().sweeps);
    }

    #[test]
    fn what_is_wrong_is_named_and_not_repeated() {
        for (url, named) in [
            ("dynamodb:", "3 to 255"),
            ("dynamodb:a b c", "3 to 255"),
            ("dynamodb:tide?regoin=x", "region, endpoint, prefix and sweep"),
            ("dynamodb:tide?region=", "region"),
            ("dynamodb:tide?endpoint=ftp://x", "http://"),
            ("dynamodb:tide?endpoint=http://me:hunter2@host", "without a user"),
            ("dynamodb:tide?prefix=%zz", "percent"),
            ("dynamodb:tide?prefix=%", "percent"),
            ("dynamodb:tide?prefix=%ff", "percent"),
            ("dynamodb:tide?sweep=never", "ttl"),
        ] {
            let error = Location::parse(url).unwrap_err();
            assert!(error.message().contains(named), "{url}: {error}");
            assert!(!error.message().contains("hunter2"));
        }
        let long = format!("dynamodb:tide?prefix={}", "x".repeat(256));
        assert!(Location::parse(&long).unwrap_err().message().contains("255"));
    }
}
