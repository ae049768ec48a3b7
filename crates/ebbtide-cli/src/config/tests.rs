use std::fs;

use clap::{Args as _, Command, FromArgMatches as _};

use super::settings::SETTINGS;
use super::*;

/// Resolves these flags, with `text` in a file.
fn resolve(text: &str, flags: &[&str]) -> Result<Resolved> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ebbtide.toml");
    fs::write(&path, text).unwrap();
    let file = path.to_str().unwrap();
    let command = Settings::augment_args(Command::new("serve"));
    let store: &[&str] = if text.starts_with("store") { &[] } else { &["--store", "memory:"] };
    let matches = command.get_matches_from([&["serve", "--config", file], store, flags].concat());
    Resolved::of(&Settings::from_arg_matches(&matches).unwrap())
}

fn read(text: &str, flags: &[&str]) -> Result<Config> {
    Config::read(&resolve(text, flags)?)
}

#[test]
fn a_flag_goes_before_the_file_and_the_file_before_the_default() {
    let text = "listen = \"127.0.0.1:1\"\n[limits]\nrequests = 7\n[sweep]\ninterval = \"5m\"\n";
    let config = read(text, &["--listen", "127.0.0.1:2", "--auto-migrate"]).unwrap();
    assert_eq!(config.listen.port(), 2);
    assert_eq!((config.limits.requests, config.limits.connections), (7, 16_384));
    assert_eq!(config.sweep_interval, Some(Duration::from_secs(300)));
    assert!(config.auto_migrate);
    let rows = resolve(text, &["--listen", "127.0.0.1:2"]).unwrap().rows();
    let source = |key: &str| rows.iter().find(|row| row.key == key).unwrap().source.clone();
    assert_eq!(source("listen"), "--listen");
    assert!(source("limits.requests").ends_with("ebbtide.toml:3: limits.requests"));
    assert_eq!((source("store").as_str(), source("tls.key").as_str()), ("--store", "not set"));
}

#[test]
fn the_defaults_are_valid_and_those_of_the_library() {
    let config = read("", &[]).unwrap();
    assert_eq!(config.limits, Limits::default());
    assert_eq!(config.synchronized_file.to_str(), Some(ebbtide::timekeeping::SYNCHRONIZED_FILE));
    assert_eq!(config.profile, Profile::default());
    assert_eq!(config.sweep_interval, None);
}

#[test]
fn an_invalid_value_is_reported_with_its_place() {
    for (text, place) in [
        ("listne = \"x\"", "ebbtide.toml:1: listne: unknown setting"),
        ("\n[limits]\nbody = 1", "ebbtide.toml:3: limits.body: unknown setting"),
        ("[limit]\nrequests = 1", "ebbtide.toml:1: limit: unknown setting"),
        ("[limits]\nrequests = 0", "ebbtide.toml:2: limits.requests: expected a whole number"),
        ("[limits]\nrequests = [1]", "ebbtide.toml:2: limits.requests: expected a string"),
        ("listen = \"nowhere\"", "ebbtide.toml:1: listen: expected an IP address"),
        ("listen", "ebbtide.toml:1: "),
        ("[sweep]\ninterval = \"0s\"", "ebbtide.toml:2: sweep.interval: expected a whole number"),
        ("[sweep]\ninterval = -1", "ebbtide.toml:2: sweep.interval: expected a whole number"),
        ("[tls]\ncert = \"a.pem\"", "ebbtide.toml:2: tls.cert: a certificate needs a key"),
        ("profile = \"none\"", "ebbtide.toml:1: profile: unknown profile; expected one of oauth, spa, mcp"),
        ("\n[[policy]]\nkind = \"session\"", "ebbtide.toml:3: policy.kind: unknown kind of record"),
        ("[[policy]]\nscope = \"global\"", "ebbtide.toml:1: policy: missing field `kind`"),
        (
            "[[policy]]\nkind = \"sessions\"\nmin = \"2d\"\nmax = \"1d\"",
            "ebbtide.toml:1: policy: the shortest TTL",
        ),
        (
            "[[policy]]\nkind = \"sessions\"\ncollection = \"redis\"",
            "ebbtide.toml:1: policy: only records, counters and leases have collections",
        ),
        ("[[policy]]\nkind = \"sessions\"\nmost = \"1d\"", "ebbtide.toml:3: policy.most: unknown setting"),
        ("[profiles.mobile]\ncodes = \"60s\"", "ebbtide.toml:2: profiles.mobile.codes: unknown setting"),
        ("[profiles.mobile]\ngrace = \"61s\"", "ebbtide.toml:1: profiles.mobile: "),
        ("[quotas]\n\"tenant:acme\" = \"many\"", "ebbtide.toml:2: quotas.tenant:acme: a quota"),
        ("quotas = \"tenant:acme\"", "ebbtide.toml:1: quotas: a quota"),
        ("[sweep]\nbudget = \"2\"", "ebbtide.toml:2: sweep.budget: "),
        ("[profiles.mobile]\ncode = \"11m\"", "ebbtide.toml:1: profiles.mobile: a code lives at most"),
        ("[profiles.spa]\ncode = \"60s\"", "ebbtide.toml:1: profiles.spa: this is the name of a preset"),
    ] {
        let error = format!("{:#}", read(text, &[]).unwrap_err());
        assert!(error.contains(place), "{text}: {error}");
    }
    let error = read("", &["--sweep-interval=-5s"]).unwrap_err().to_string();
    assert!(error.starts_with("--sweep-interval: expected a whole number"), "{error}");
}

#[test]
fn policies_and_profiles_of_the_file_are_used() {
    let text = "profile = \"mobile\"\n[quotas]\nglobal = 9\n\"tenant:acme\" = 5\n[profiles.mobile]\nlike = \"mcp\"\naccess = \"10m\"\ngrace = \"0s\"\n\
                [[policy]]\nkind = \"approvals\"\nscope = \"tenant:acme\"\npreset = \"short_lived\"\nenforce = false\n\
                [[policy]]\nkind = \"records\"\ncollection = \"redis\"\npreset = \"temporary\"\n";
    let config = read(text, &[]).unwrap();
    assert_eq!(config.profiles["mobile"], config.profile);
    assert_eq!(config.profile.access.duration(), Duration::from_secs(600));
    assert_eq!(config.profile.refresh_idle, Profile::mcp().refresh_idle);
    assert_eq!(config.profile.grace, Duration::ZERO);
    assert_eq!(config.quotas.iter().map(|quota| quota.most).sum::<u64>(), 14);
    let scope = "tenant:acme/env:prod".parse().unwrap();
    let policy = config.policies.of(ebbtide::Kind::Approval, &scope).unwrap();
    assert_eq!((policy.max, policy.enforce), (ebbtide::TtlPolicy::short_lived().max, false));
    let redis = ebbtide::PolicyTarget::new(ebbtide::Kind::Record, Some("redis"));
    assert_eq!(config.policies.of(redis, &scope), Some(ebbtide::TtlPolicy::temporary()));
    assert_eq!(config.policies.of(ebbtide::Kind::Record, &scope), None);
}

#[test]
fn every_setting_has_a_flag_a_variable_and_a_reader_of_its_own() {
    let unique = |of: fn(&settings::Setting) -> String| {
        let mut all: Vec<_> = SETTINGS.iter().map(of).collect();
        all.sort();
        all.dedup();
        all.len()
    };
    assert_eq!(unique(|setting| setting.flag.to_owned()), SETTINGS.len());
    assert_eq!(unique(|setting| setting.variable.to_owned()), SETTINGS.len());
    assert!(SETTINGS.iter().all(|setting| setting.variable.starts_with("EBBTIDE_")));
    assert!(SETTINGS.iter().all(|setting| setting.flag == setting.key.replace(['.', '_'], "-")));
    // An empty value is invalid for all but the log filter: a setting that is never read would accept it.
    for setting in SETTINGS {
        let (section, name) = setting.key.split_once('.').unwrap_or(("", setting.key));
        let section = if section.is_empty() { String::new() } else { format!("[{section}]\n") };
        let error = read(&format!("{section}{name} = \"\""), &[]);
        assert!(error.is_err() || setting.key == "log.filter", "{} is not read", setting.key);
    }
}
