//! Table of settings, with the flags and variables that are made from it.

use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

/// A setting: key in the file, flag, variable and default.
#[derive(Debug)]
pub(crate) struct Setting {
    /// Key in the file: `section.name`.
    pub(crate) key: &'static str,
    /// Flag, without the dashes.
    pub(crate) flag: &'static str,
    pub(crate) variable: &'static str,
    /// Placeholder of the value in the help; none for a switch.
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
            // A variable or `=false` turns a switch off.
            None => argument
                .value_name("true|false")
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("true")
                .hide_possible_values(true),
        }
    }
}

macro_rules! settings {
    ($($key:literal $flag:literal $variable:literal $value:expr, $default:expr, $help:literal;)+) => {
        /// Every setting of a server. Flags, variables, the file and `config check` are made from this table.
        pub(crate) const SETTINGS: &[Setting] = &[$(Setting {
            key: $key, flag: $flag, variable: $variable, value: $value, default: $default, help: $help,
        },)+];
    };
}

settings! {
    "listen" "listen" "EBBTIDE_LISTEN" Some("ADDRESS"), Some("127.0.0.1:7878"), "Address to listen on; port 0 selects a free port";
    "resp" "resp" "EBBTIDE_RESP" Some("ADDRESS"), None, "Address to listen on for the Redis protocol, such as 127.0.0.1:7879; without it, there is none";
    "operator_listen" "operator-listen" "EBBTIDE_OPERATOR_LISTEN" Some("ADDRESS"), None, "Address for health, readiness, metrics and documentation; plain HTTP. Metrics and documentation are then served there alone";
    "store" "store" "EBBTIDE_STORE" Some("URL"), None, "URL of the store, such as fjall:./data; required";
    "keyring" "keyring" "EBBTIDE_KEYRING" Some("FILE"), None, "Keyring file; an embedded store has one in its folder";
    "root_key_file" "root-key-file" "EBBTIDE_ROOT_KEY_FILE" Some("FILES"), None, "File with the root key; two lines, or two files separated by a comma, while it is rotated";
    "auto_migrate" "auto-migrate" "EBBTIDE_AUTO_MIGRATE" None, Some("false"), "Migrate the schema to the version of this build before serving";
    "profile" "profile" "EBBTIDE_PROFILE" Some("NAME"), Some("oauth"), "Default lifetimes: oauth, spa, mcp, or a profile from the config file";
    "require_pkce" "require-pkce" "EBBTIDE_REQUIRE_PKCE" None, Some("false"), "Issue no authorization code without a PKCE challenge";
    "sweep.interval" "sweep-interval" "EBBTIDE_SWEEP_INTERVAL" Some("TIME"), None, "Interval between sweeps, such as 500ms, 30s, 5m or 1h; without it, this server does not sweep";
    "sweep.budget" "sweep-budget" "EBBTIDE_SWEEP_BUDGET" Some("SHARE"), Some("0.25"), "Share of the time that sweeps may use, 0.01 to 1";
    "sweep.turn" "sweep-turn" "EBBTIDE_SWEEP_TURN" Some("TIME"), Some("1m"), "Lease of a sweep; another process takes over after it if the sweeper has died";
    "sweep.silence" "sweep-silence" "EBBTIDE_SWEEP_SILENCE" Some("TIME"), Some("26h"), "Time without a sweep after which a warning is due";
    "sweep.overdue" "sweep-overdue" "EBBTIDE_SWEEP_OVERDUE" Some("TIME"), None, "Age of an overdue record from which a sweep that removes nothing is a fault; by default that of the engine";
    "warn_unscoped" "warn-unscoped" "EBBTIDE_WARN_UNSCOPED" None, Some("true"), "Warn about requests that name no scope: log, metric and a header of the answer";
    "require_scope" "require-scope" "EBBTIDE_REQUIRE_SCOPE" None, Some("false"), "Refuse requests that name no scope";
    "global_for_admins" "global-for-admins" "EBBTIDE_GLOBAL_FOR_ADMINS" None, Some("false"), "Keep the global scope for keys with the role admin";
    "quotas" "quotas" "EBBTIDE_QUOTAS" Some("SCOPE=N,…"), None, "Maximum number of records of a scope and the scopes below it, separated by commas";
    "tls.cert" "tls-cert" "EBBTIDE_TLS_CERT" Some("FILE"), None, "Certificate chain for TLS, a PEM file; without it, the server speaks plain HTTP";
    "tls.key" "tls-key" "EBBTIDE_TLS_KEY" Some("FILE"), None, "Private key of the certificate, a PEM file";
    "tls.client_ca" "tls-client-ca" "EBBTIDE_TLS_CLIENT_CA" Some("FILE"), None, "Certificate authorities of clients, a PEM file; with it, every client must present a certificate";
    "limits.body_bytes" "limits-body-bytes" "EBBTIDE_LIMITS_BODY_BYTES" Some("N"), Some("1048576"), "Maximum size of a request body, in bytes; larger bodies are answered 413";
    "limits.body_timeout" "limits-body-timeout" "EBBTIDE_LIMITS_BODY_TIMEOUT" Some("TIME"), Some("30s"), "Time limit for the body of a request; slower ones are answered 408";
    "limits.header_timeout" "limits-header-timeout" "EBBTIDE_LIMITS_HEADER_TIMEOUT" Some("TIME"), Some("60s"), "Time limit for an idle connection, and for the head of a request";
    "limits.send_timeout" "limits-send-timeout" "EBBTIDE_LIMITS_SEND_TIMEOUT" Some("TIME"), Some("30s"), "Time limit for a client that does not read its answer; then the connection is closed";
    "limits.resp_idle_timeout" "limits-resp-idle-timeout" "EBBTIDE_LIMITS_RESP_IDLE_TIMEOUT" Some("TIME"), Some("1h"), "Time limit for an idle connection of the Redis protocol";
    "limits.requests" "limits-requests" "EBBTIDE_LIMITS_REQUESTS" Some("N"), Some("4096"), "Maximum number of requests in flight; the rest are answered 503";
    "limits.key_requests" "limits-key-requests" "EBBTIDE_LIMITS_KEY_REQUESTS" Some("N"), Some("1024"), "Maximum number of requests in flight of one tenant; the rest are answered 429";
    "limits.key_bytes" "limits-key-bytes" "EBBTIDE_LIMITS_KEY_BYTES" Some("N"), Some("67108864"), "Maximum number of bytes of one tenant's bodies and answers in memory; the rest are answered 429";
    "limits.connections" "limits-connections" "EBBTIDE_LIMITS_CONNECTIONS" Some("N"), Some("16384"), "Maximum number of open connections; the rest are answered 503";
    "drain_delay" "drain-delay" "EBBTIDE_DRAIN_DELAY" Some("TIME"), Some("2s"), "Time at shutdown in which the server is not ready but still accepts connections; 0s for none";
    "limits.shutdown_timeout" "limits-shutdown-timeout" "EBBTIDE_LIMITS_SHUTDOWN_TIMEOUT" Some("TIME"), Some("30s"), "Time limit to drain requests in flight at shutdown";
    "clock.synchronized_file" "clock-synchronized-file" "EBBTIDE_CLOCK_SYNCHRONIZED_FILE" Some("FILE"), Some(ebbtide::timekeeping::SYNCHRONIZED_FILE), "File that the time service touches at every synchronization; it vouches for the wall clock after a reboot";
    "log.format" "log-format" "EBBTIDE_LOG_FORMAT" Some("FORMAT"), Some("text"), "Format of log lines: text or json";
    "log.filter" "log-filter" "EBBTIDE_LOG" Some("FILTER"), Some("info"), "Log filter: error, warn, info, debug, or target=level, separated by commas";
    "otel.endpoint" "otel-endpoint" "EBBTIDE_OTEL_ENDPOINT" Some("URL"), None, "URL of an OpenTelemetry collector for spans, OTLP over HTTP; needs the feature otel";
}

/// Values from flags and variables, and the path of the file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    pub(crate) file: Option<PathBuf>,
    pub(crate) given: Vec<Given>,
}

/// Value of a flag or a variable.
#[derive(Clone)]
pub(crate) struct Given {
    pub(crate) key: &'static str,
    pub(crate) text: String,
    pub(crate) by_flag: bool,
}

impl std::fmt::Debug for Given {
    /// Omits the text: the URL of a store may contain a password.
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
            .help("TOML file with any of these settings; flags and variables take precedence");
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
