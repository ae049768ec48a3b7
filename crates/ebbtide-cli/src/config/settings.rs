//! The table of settings, and the flags and variables that follow from it.

use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

/// One setting: its place in the file, its flag, its variable and its default.
#[derive(Debug)]
pub(crate) struct Setting {
    /// Its place in the file: `section.name`.
    pub(crate) key: &'static str,
    /// Its flag, without the dashes.
    pub(crate) flag: &'static str,
    pub(crate) variable: &'static str,
    /// What stands for its value in the help; none for a switch.
    value: Option<&'static str>,
    pub(crate) default: Option<&'static str>,
    help: &'static str,
}

impl Setting {
    fn argument(&self) -> Arg {
        let argument = Arg::new(self.key).long(self.flag).env(self.variable).hide_env_values(true);
        let help = match self.default {
            Some(default) if self.value.is_some() => format!("{} [default: {default}]", self.help),
            _ => self.help.to_owned(),
        };
        let argument = argument.help(help);
        match self.value {
            Some(value) => argument.value_name(value),
            // A switch may still be turned off: by its variable, or `=false`.
            None => argument
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("true")
                .hide_possible_values(true),
        }
    }
}

macro_rules! settings {
    ($($key:literal $flag:literal $variable:literal $value:expr, $default:expr, $help:literal;)+) => {
        /// Every setting of a server. Flags, variables, the file and `config check` are all made from this table.
        pub(crate) const SETTINGS: &[Setting] = &[$(Setting {
            key: $key, flag: $flag, variable: $variable, value: $value, default: $default, help: $help,
        },)+];
    };
}

settings! {
    "listen" "listen" "EBBTIDE_LISTEN" Some("ADDRESS"), Some("127.0.0.1:7878"), "The address to listen on; port 0 takes a free one";
    "store" "store" "EBBTIDE_STORE" Some("URL"), Some("fjall:./data"), "The store to serve";
    "keyring" "keyring" "EBBTIDE_KEYRING" Some("FILE"), None, "The keyring; an embedded store has one in its folder";
    "auto_migrate" "auto-migrate" "EBBTIDE_AUTO_MIGRATE" None, Some("false"), "Bring the store's schema to this build's version before serving";
    "profile" "profile" "EBBTIDE_PROFILE" Some("NAME"), Some("oauth"), "What lives how long where nothing else is asked for: oauth, spa, mcp, or one of the file";
    "sweep.interval" "sweep-interval" "EBBTIDE_SWEEP_INTERVAL" Some("TIME"), None, "How often to sweep, such as 30s, 5m or 1h; without it, nothing is swept";
    "sweep.budget" "sweep-budget" "EBBTIDE_SWEEP_BUDGET" Some("SHARE"), Some("0.25"), "The share of the time that sweeping may take, 0.01 to 1";
    "quotas" "quotas" "EBBTIDE_QUOTAS" Some("SCOPE=N,…"), None, "How many records a scope and those below it may have, with commas between";
    "tls.cert" "tls-cert" "EBBTIDE_TLS_CERT" Some("FILE"), None, "Speak TLS, with the certificate chain in this PEM file";
    "tls.key" "tls-key" "EBBTIDE_TLS_KEY" Some("FILE"), None, "The certificate's private key, in PEM form";
    "limits.body_bytes" "limits-body-bytes" "EBBTIDE_LIMITS_BODY_BYTES" Some("N"), Some("1048576"), "The largest body that is read";
    "limits.body_timeout" "limits-body-timeout" "EBBTIDE_LIMITS_BODY_TIMEOUT" Some("TIME"), Some("30s"), "For how long a body may take to arrive";
    "limits.header_timeout" "limits-header-timeout" "EBBTIDE_LIMITS_HEADER_TIMEOUT" Some("TIME"), Some("60s"), "For how long a connection may be quiet, or take to send the head of a request";
    "limits.requests" "limits-requests" "EBBTIDE_LIMITS_REQUESTS" Some("N"), Some("4096"), "How many requests are worked on at a time; the rest are answered 503";
    "limits.connections" "limits-connections" "EBBTIDE_LIMITS_CONNECTIONS" Some("N"), Some("16384"), "How many connections are open at a time; the rest are answered 503";
    "limits.shutdown_timeout" "limits-shutdown-timeout" "EBBTIDE_LIMITS_SHUTDOWN_TIMEOUT" Some("TIME"), Some("30s"), "For how long to go on with what has begun, once told to stop";
    "clock.bound" "clock-bound" "EBBTIDE_CLOCK_BOUND" Some("TIME"), Some("2s"), "How far the clock may be from a shared engine's: beyond it every call is refused";
    "clock.leap" "clock-leap" "EBBTIDE_CLOCK_LEAP" Some("TIME"), Some("1d"), "How far the clock may be ahead of the store: beyond it nothing is swept";
    "log.format" "log-format" "EBBTIDE_LOG_FORMAT" Some("FORMAT"), Some("text"), "How log lines look: text or json";
    "log.filter" "log-filter" "EBBTIDE_LOG" Some("FILTER"), Some("info"), "What is logged: error, warn, info, debug, or target=level, with commas between";
    "otel.endpoint" "otel-endpoint" "EBBTIDE_OTEL_ENDPOINT" Some("URL"), None, "Send spans to this OpenTelemetry collector, by OTLP over HTTP; feature otel";
}

/// What flags and variables say. The rest is in the file, or left at its default.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    pub(crate) file: Option<PathBuf>,
    pub(crate) given: Vec<Given>,
}

/// A value of a flag or a variable.
#[derive(Clone)]
pub(crate) struct Given {
    pub(crate) key: &'static str,
    pub(crate) text: String,
    pub(crate) by_flag: bool,
}

impl std::fmt::Debug for Given {
    /// Without the text: a store's URL may hold a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.key)
    }
}

const FILE: &str = "config";

impl Args for Settings {
    fn augment_args(command: Command) -> Command {
        let file = Arg::new(FILE)
            .long("config")
            .env("EBBTIDE_CONFIG")
            .hide_env_values(true)
            .value_name("FILE")
            .value_parser(clap::value_parser!(PathBuf))
            .help("A TOML file with any of these settings; flags and variables go before it");
        command.arg(file).args(SETTINGS.iter().map(Setting::argument))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Settings {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = |setting: &Setting| {
            let text = matches.get_one::<String>(setting.key)?.clone();
            let by_flag = matches.value_source(setting.key) == Some(ValueSource::CommandLine);
            Some(Given { key: setting.key, text, by_flag })
        };
        Ok(Self { file: matches.get_one(FILE).cloned(), given: SETTINGS.iter().filter_map(given).collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
