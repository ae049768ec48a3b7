//! The configuration file: TOML, read with the line of each value, for error messages.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use ebbtide::stores::attributes::{BucketExtend, BucketTtls};
use ebbtide::stores::profile::Profile;
use ebbtide::{Kind, PolicyTarget, Scope, Ttl, TtlPolicies, TtlPolicy};
use toml::de::{DeTable, DeValue};

use super::settings::SETTINGS;
use super::values;

/// A value of the file.
#[derive(Debug, Clone)]
pub(super) struct FileValue {
    pub(super) text: String,
    /// File, line and key, for error messages.
    pub(super) place: String,
}

/// Content of a file.
#[derive(Debug, Default)]
pub(super) struct File {
    /// Values of settings, by key.
    pub(super) settings: BTreeMap<String, FileValue>,
    /// Fields of each `[[policy]]`.
    policies: Vec<Fields>,
    /// Fields of each `[[bucket]]`.
    buckets: Vec<Fields>,
    /// Fields of `[profiles.NAME]`, by name.
    profiles: BTreeMap<String, Fields>,
}

/// Fields of a table, and the place of the table.
#[derive(Debug)]
struct Fields {
    place: String,
    entries: BTreeMap<String, FileValue>,
}

/// Text of the file, to find lines in.
struct FileText<'a> {
    path: &'a Path,
    text: &'a str,
}

impl FileText<'_> {
    fn place(&self, span: &Range<usize>, key: &str) -> String {
        format!("{}:{}: {key}", self.path.display(), self.line(span))
    }

    fn line(&self, span: &Range<usize>) -> usize {
        self.text[..span.start.min(self.text.len())].matches('\n').count() + 1
    }
}

impl File {
    pub(super) fn read(path: &PathBuf) -> Result<Self> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let source = FileText { path, text: &text };
        let table = DeTable::parse(&text).map_err(|error| {
            let line = error.span().map_or(1, |span| source.line(&span));
            anyhow::anyhow!("{}:{line}: {}", path.display(), error.message())
        })?;
        let mut file = Self::default();
        file.gather(&source, "", table.get_ref())?;
        Ok(file)
    }

    fn gather(&mut self, source: &FileText<'_>, above: &str, table: &DeTable<'_>) -> Result<()> {
        for (name, value) in table {
            let key = if above.is_empty() {
                name.get_ref().to_string()
            } else {
                format!("{above}.{}", name.get_ref())
            };
            let place = source.place(&name.span(), &key);
            match (key.as_str(), value.get_ref()) {
                ("policy" | "bucket", DeValue::Array(items)) => {
                    for item in items {
                        let place = source.place(&item.span(), &key);
                        let DeValue::Table(table) = item.get_ref() else {
                            bail!("{place}: expected a table: [[{key}]]");
                        };
                        let fields = fields(source, place, &key, table)?;
                        if key == "policy" { self.policies.push(fields) } else { self.buckets.push(fields) }
                    }
                }
                ("profiles", DeValue::Table(profiles)) => {
                    for (name, value) in profiles {
                        let key = format!("profiles.{}", name.get_ref());
                        let place = source.place(&name.span(), &key);
                        let DeValue::Table(table) = value.get_ref() else {
                            bail!("{place}: expected a table: [{key}]");
                        };
                        let fields = fields(source, place, &key, table)?;
                        self.profiles.insert(name.get_ref().to_string(), fields);
                    }
                }
                ("quotas", DeValue::Table(quotas)) => {
                    let mut each = Vec::new();
                    for (scope, most) in quotas {
                        let place = source.place(&scope.span(), &format!("{key}.{}", scope.get_ref()));
                        let quota =
                            format!("{}={}", scope.get_ref(), entry(place.clone(), most.get_ref())?.text);
                        values::quotas(&quota).map_err(|error| anyhow::anyhow!("{place}: {error}"))?;
                        each.push(quota);
                    }
                    let entry = FileValue { text: each.join(","), place };
                    self.settings.insert(key, entry);
                }
                (key, DeValue::Table(table)) if is_section(key) => self.gather(source, key, table)?,
                (key, value) if SETTINGS.iter().any(|setting| setting.key == key) => {
                    self.settings.insert(key.to_owned(), entry(place, value)?);
                }
                _ => bail!("{place}: unknown setting"),
            }
        }
        Ok(())
    }

    /// TTL policies of the file.
    pub(super) fn policies(&self) -> Result<TtlPolicies> {
        let mut policies = TtlPolicies::default();
        for fields in &self.policies {
            let kind = fields.get("kind", values::parsed::<Kind>)?;
            let Some(kind) = kind else { bail!("{}: missing field `kind`", fields.place) };
            let scope = fields.get("scope", values::parsed::<Scope>)?;
            let collection = fields.get("collection", values::text)?;
            let mut policy = fields.get("preset", preset)?.unwrap_or_default();
            if let Some(default) = fields.get("default", ttl)? {
                policy.default = Some(default);
            }
            policy.min = fields.get("min", ttl)?.unwrap_or(policy.min);
            policy.max = fields.get("max", ttl)?.unwrap_or(policy.max);
            policy.enforce = fields.get("enforce", values::switch)?.unwrap_or(policy.enforce);
            fields.only(&["kind", "collection", "scope", "preset", "default", "min", "max", "enforce"])?;
            let scope = scope.unwrap_or(Scope::Global);
            let target = PolicyTarget::new(kind, collection.as_deref());
            let before = policies.set(target, scope, policy).with_context(|| fields.place.clone())?;
            if before.is_some() {
                bail!("{}: duplicate policy for this kind, collection and scope", fields.place);
            }
        }
        Ok(policies)
    }

    /// Default lifetimes of buckets: the presets, and those of the file in place of them.
    pub(super) fn bucket_lives(&self) -> Result<BucketTtls> {
        let mut lives = BucketTtls::default();
        for fields in &self.buckets {
            let Some(name) = fields.get("name", values::text)? else {
                bail!("{}: missing field `name`", fields.place)
            };
            let owner = fields.get("owner", values::text)?;
            let life = |text: &str| if text == "never" { Ok(None) } else { ttl(text).map(Some) };
            let Some(ttl) = fields.get("ttl", life)? else { bail!("{}: missing field `ttl`", fields.place) };
            let rule = |text: &str| match text {
                "free" => Ok(BucketExtend::Free),
                "privileged" => Ok(BucketExtend::Privileged),
                _ => Err("expected free or privileged".to_owned()),
            };
            let extend = fields.get("extend", rule)?.unwrap_or_default();
            fields.only(&["name", "owner", "ttl", "extend"])?;
            lives.set(owner.as_deref(), &name, ttl);
            lives.set_extend(owner.as_deref(), &name, extend);
        }
        Ok(lives)
    }

    /// Profiles of the file, by name.
    pub(super) fn profiles(&self) -> Result<BTreeMap<String, Profile>> {
        let mut profiles = BTreeMap::new();
        for (name, fields) in &self.profiles {
            if Profile::NAMES.contains(&name.as_str()) {
                bail!("{}: this is the name of a preset", fields.place);
            }
            profiles.insert(name.clone(), fields.profile()?);
        }
        Ok(profiles)
    }

    /// Names of the profiles of the file.
    pub(super) fn profile_names(&self) -> impl Iterator<Item = &str> {
        self.profiles.keys().map(String::as_str)
    }

    /// Number of policies in the file.
    pub(super) fn policy_count(&self) -> usize {
        self.policies.len()
    }
}

impl Fields {
    fn get<T>(&self, name: &str, read: impl FnOnce(&str) -> Result<T, String>) -> Result<Option<T>> {
        let Some(entry) = self.entries.get(name) else { return Ok(None) };
        read(&entry.text).map(Some).map_err(|error| anyhow::anyhow!("{}: {error}", entry.place))
    }

    fn only(&self, names: &[&str]) -> Result<()> {
        match self.entries.iter().find(|(name, _)| !names.contains(&name.as_str())) {
            Some((_, entry)) => bail!("{}: unknown setting", entry.place),
            None => Ok(()),
        }
    }

    fn profile(&self) -> Result<Profile> {
        let mut profile: Profile = self.get("like", values::parsed)?.unwrap_or_default();
        let lifetimes = [
            ("code", &mut profile.code),
            ("access", &mut profile.access),
            ("refresh_idle", &mut profile.refresh_idle),
            ("refresh_max", &mut profile.refresh_max),
            ("session", &mut profile.session),
            ("nonce", &mut profile.nonce),
            ("replay", &mut profile.replay),
        ];
        for (name, lifetime) in lifetimes {
            *lifetime = self.get(name, ttl)?.unwrap_or(*lifetime);
        }
        // Zero is valid here: it makes rotation strict.
        let grace = |text: &str| if text == "0s" { Ok(Duration::ZERO) } else { values::duration(text) };
        profile.grace = self.get("grace", grace)?.unwrap_or(profile.grace);
        profile.strict = self.get("strict", values::switch)?.unwrap_or(profile.strict);
        self.only(&[
            "like",
            "code",
            "access",
            "refresh_idle",
            "refresh_max",
            "session",
            "nonce",
            "replay",
            "grace",
            "strict",
        ])?;
        profile.check().with_context(|| self.place.clone())?;
        Ok(profile)
    }
}

fn preset(text: &str) -> Result<TtlPolicy, String> {
    TtlPolicy::preset(text).map_err(|error| error.message().to_owned())
}

fn ttl(text: &str) -> Result<Ttl, String> {
    values::duration(text).and_then(|duration| Ttl::new(duration).map_err(|error| error.to_string()))
}

fn is_section(key: &str) -> bool {
    let section =
        |setting: &super::settings::Setting| setting.key.split_once('.').is_some_and(|(s, _)| s == key);
    SETTINGS.iter().any(section)
}

fn fields(source: &FileText<'_>, place: String, above: &str, table: &DeTable<'_>) -> Result<Fields> {
    let mut entries = BTreeMap::new();
    for (name, value) in table {
        let place = source.place(&name.span(), &format!("{above}.{}", name.get_ref()));
        entries.insert(name.get_ref().to_string(), entry(place, value.get_ref())?);
    }
    Ok(Fields { place, entries })
}

fn entry(place: String, value: &DeValue<'_>) -> Result<FileValue> {
    let text = match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) if number.radix() == 10 => number.as_str().to_owned(),
        DeValue::Boolean(switch) => switch.to_string(),
        _ => bail!("{place}: expected a string, a decimal number, true or false"),
    };
    Ok(FileValue { text, place })
}
