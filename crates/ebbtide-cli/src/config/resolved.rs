//! Resolution of each setting to a value and its source.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Result, anyhow};
use ebbtide::TtlPolicies;
use ebbtide::stores::attributes::BucketTtls;
use ebbtide::stores::profile::Profile;

use super::file::File;
use super::settings::{SETTINGS, Setting, Settings};

/// Source of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
enum SettingSource {
    Flag(&'static str),
    Variable(&'static str),
    /// File, line and key.
    File(String),
    Default,
}

impl fmt::Display for SettingSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(f, "--{flag}"),
            Self::Variable(variable) => f.write_str(variable),
            Self::File(place) => f.write_str(place),
            Self::Default => f.write_str("default"),
        }
    }
}

/// Every setting that has a value, with its source.
pub(crate) struct Resolved {
    values: BTreeMap<&'static str, (String, SettingSource)>,
    file: File,
}

/// A row of `config check`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SettingRow {
    pub(crate) key: String,
    pub(crate) value: Option<String>,
    pub(crate) source: String,
}

impl Resolved {
    pub(crate) fn of(settings: &Settings) -> Result<Self> {
        let file = settings.file.as_ref().map(File::read).transpose()?.unwrap_or_default();
        let mut values = BTreeMap::new();
        for setting in SETTINGS {
            let given = settings.given.iter().find(|given| given.key == setting.key);
            let value = match (given, file.settings.get(setting.key)) {
                (Some(given), _) if given.by_flag => {
                    Some((given.text.clone(), SettingSource::Flag(setting.flag)))
                }
                (Some(given), _) => Some((given.text.clone(), SettingSource::Variable(setting.variable))),
                (None, Some(entry)) => Some((entry.text.clone(), SettingSource::File(entry.place.clone()))),
                (None, None) => setting.default.map(|text| (text.to_owned(), SettingSource::Default)),
            };
            if let Some(value) = value {
                values.insert(setting.key, value);
            }
        }
        Ok(Self { values, file })
    }

    /// Value of a setting that has a default.
    pub(super) fn required<T>(&self, key: &str, read: impl FnOnce(&str) -> Result<T, String>) -> Result<T> {
        self.optional(key, read)?.ok_or_else(|| anyhow!("{key}: missing value"))
    }

    pub(super) fn optional<T>(
        &self,
        key: &str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>> {
        let Some((text, source)) = self.values.get(key) else { return Ok(None) };
        read(text).map(Some).map_err(|error| anyhow!("{source}: {error}"))
    }

    /// Source of a value, for error messages.
    pub(super) fn place(&self, key: &str) -> String {
        self.values.get(key).map_or_else(|| key.to_owned(), |(_, source)| source.to_string())
    }

    pub(super) fn policies(&self) -> Result<TtlPolicies> {
        self.file.policies()
    }

    /// Default lifetimes of buckets: the presets, and those of the file.
    pub(super) fn bucket_lives(&self) -> Result<BucketTtls> {
        self.file.bucket_lives()
    }

    /// Profiles of the file, by name.
    pub(super) fn profiles(&self) -> Result<BTreeMap<String, Profile>> {
        self.file.profiles()
    }

    /// The selected profile: one of the file, or a preset.
    pub(super) fn profile(&self) -> Result<Profile> {
        let name = self.required("profile", |text| Ok(text.to_owned()))?;
        if let Some(own) = self.profiles()?.get(&name) {
            return Ok(*own);
        }
        let names: Vec<_> = Profile::NAMES.into_iter().chain(self.file.profile_names()).collect();
        let wrong =
            |_| anyhow!("{}: unknown profile; expected one of {}", self.place("profile"), names.join(", "));
        name.parse().map_err(wrong)
    }

    /// Every setting with its value and source, without secrets.
    pub(crate) fn rows(&self) -> Vec<SettingRow> {
        let row = |setting: &Setting| {
            let value = self.values.get(setting.key);
            SettingRow {
                key: setting.key.to_owned(),
                value: value.map(
                    |(text, _)| if setting.key == "store" { without_secrets(text) } else { text.clone() },
                ),
                source: value.map_or_else(|| "not set".to_owned(), |(_, source)| source.to_string()),
            }
        };
        let mut rows: Vec<_> = SETTINGS.iter().map(row).collect();
        let listed = |key: &str, value: String| SettingRow {
            key: key.to_owned(),
            value: Some(value),
            source: "file".to_owned(),
        };
        let names: Vec<_> = self.file.profile_names().collect();
        if !names.is_empty() {
            rows.push(listed("profiles", names.join(", ")));
        }
        if self.file.policy_count() > 0 {
            rows.push(listed("policy", format!("{} policies", self.file.policy_count())));
        }
        rows
    }
}

impl fmt::Debug for Resolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.rows()).finish()
    }
}

/// Replaces the password in the URL of a store: after the user name, or in `password=`.
fn without_secrets(url: &str) -> String {
    let mut shown = url.to_owned();
    // Up to the last at sign: this hides a password with an unescaped one.
    if let Some((scheme, rest)) = url.split_once("://")
        && let Some((login, host)) = rest.rsplit_once('@')
        && let Some((user, _)) = login.split_once(':')
    {
        shown = format!("{scheme}://{user}:…@{host}");
    }
    let Some((before, query)) = shown.split_once('?') else { return shown };
    let hide = |pair: &str| match pair.split_once('=') {
        Some((name, _)) if ["password", "sslpassword"].contains(&name) => format!("{name}=…"),
        _ => pair.to_owned(),
    };
    let pairs: Vec<_> = query.split('&').map(hide).collect();
    format!("{before}?{}", pairs.join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_in_a_url_is_not_shown() {
        for (url, shown) in [
            ("fjall:./data", "fjall:./data"),
            ("postgres://db/auth?schema=a", "postgres://db/auth?schema=a"),
            ("postgres://ebb:hunter2@db/auth?pool=4", "postgres://ebb:…@db/auth?pool=4"),
            ("postgres://ebb:hun/ter2@db/auth", "postgres://ebb:…@db/auth"),
            ("postgres://ebb:h@nter2@db:5432/auth", "postgres://ebb:…@db:5432/auth"),
            ("postgres://ebb@db/auth?password=hunter2&pool=4", "postgres://ebb@db/auth?password=…&pool=4"),
        ] {
            assert_eq!(without_secrets(url), shown);
        }
    }
}
