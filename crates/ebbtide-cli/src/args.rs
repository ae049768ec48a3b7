//! What the command line takes.

mod at;
mod operate;
mod sweep;
mod tools;

use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use ebbtide::Scope;
use ebbtide::audit::Mark;
use ebbtide::keyring::KeyId;

use crate::config::{Settings, duration as interval};

pub(crate) use at::{At, Where};
pub(crate) use operate::{Explain, Key, KeyCreate, KeyList, KeyRevoke, Record, ScopeCommand, ScopeDelete};
pub(crate) use sweep::Sweep;
pub(crate) use tools::{Completions, Man, Stats};

/// A store for authorization state that must expire.
#[derive(Debug, Parser)]
#[command(version, about, long_about = None, propagate_version = true)]
#[command(after_help = "Exit status: 0 done, 1 the answer is no, 2 the command could not be carried out.")]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Backup(Backup),
    Clock(Clock),
    Serve(Serve),
    /// Look at the configuration of a server
    #[command(subcommand)]
    Config(Config),
    MigrateSchema(MigrateSchema),
    Verify(Verify),
    Keyring(Keyring),
    /// Read and check the audit log of a scope
    #[command(subcommand)]
    Audit(Audit),
    #[command(subcommand)]
    Key(Key),
    /// Look at scopes, and delete one
    #[command(subcommand)]
    Scope(ScopeCommand),
    Explain(Explain),
    /// Read approvals and relationships from JSON lines into a scope
    Import(Import),
    /// Write the approvals and relationships of a scope as JSON lines
    Export(Export),
    /// Copy the live records of one store to another
    Copy(Copy),
    Stats(Stats),
    /// Write what a shell needs to complete this command line
    Completions(Completions),
    /// Write the manual page
    Man(Man),
    Sweep(Sweep),
    /// Make a table of DynamoDB for a store, and look at it
    #[cfg(feature = "dynamodb")]
    #[command(subcommand)]
    Table(Table),
}

/// A store, and a scope in it.
#[derive(Debug, ClapArgs)]
pub(crate) struct Place {
    /// The store
    #[arg(long, env = "EBBTIDE_STORE", value_name = "URL", hide_env_values = true)]
    pub(crate) store: String,

    /// The scope: global, tenant:T, env:E, tenant:T/env:E or custom:A/B/C
    #[arg(long, value_name = "SCOPE")]
    pub(crate) scope: Scope,
}

#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:\n  \
    ebbtide audit list --store fjall:data --scope tenant:acme\n  \
    ebbtide audit list --server http://127.0.0.1:7878 --key-file data/root.key --scope tenant:acme\n  \
    ebbtide audit verify --store fjall:data --scope global --below\n  \
    ebbtide audit verify --server http://127.0.0.1:7878 --key-file data/root.key --scope tenant:acme")]
pub(crate) enum Audit {
    /// Write the log as JSON lines, oldest first
    List(Where),
    /// Find an entry that was changed, removed or added: exit status 0 or 1
    Verify(AuditVerify),
}

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "The head that is printed can be kept elsewhere, and given as --mark later: then a log that was \
    rewritten as a whole is found too.\n\n\
    Example:\n  ebbtide audit verify --store fjall:data --scope tenant:acme\n\n\
    Exit status: 0 the log is whole, 1 it is not, 2 it could not be read."
)]
pub(crate) struct AuditVerify {
    #[command(flatten)]
    pub(crate) place: Where,

    /// The logs of the scopes that it covers too
    #[arg(long, conflicts_with = "mark")]
    pub(crate) below: bool,

    /// A head that was printed earlier, which the log must still lead through
    #[arg(long, value_name = "NUMBER:HASH")]
    pub(crate) mark: Option<Mark>,
}

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "What stands in the scope already is never written over, so that a second run writes nothing. \
    Lines that are skipped are told on standard error, with the reason.\n\n\
    Example:\n  ebbtide import --store fjall:data --scope tenant:acme --dry-run approvals.jsonl\n\n\
    Exit status: 0 done, 1 a line was not good, 2 the import could not be carried out."
)]
pub(crate) struct Import {
    #[command(flatten)]
    pub(crate) place: Place,

    /// Write nothing, and tell what would be
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// The file to read; standard input without one
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  ebbtide export --store fjall:data --scope tenant:acme > acme.jsonl")]
pub(crate) struct Export {
    #[command(flatten)]
    pub(crate) place: Place,
}

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Expiries and versions are kept, and everything is compared afterwards. What stands in the \
    target is never written over: run it again to go on with a copy that was stopped. Nothing should write to the \
    source meanwhile.\n\n\
    Example:\n  ebbtide copy --from fjall:data --to postgres://localhost/ebbtide --below tenant:acme\n\n\
    Exit status: 0 the target holds all of it, 1 it does not, 2 the copy could not be carried out."
)]
pub(crate) struct Copy {
    /// The store to copy from
    #[arg(long, value_name = "URL")]
    pub(crate) from: String,

    /// The store to copy to
    #[arg(long, value_name = "URL")]
    pub(crate) to: String,

    /// Only this scope and those that it covers
    #[arg(long, value_name = "SCOPE")]
    pub(crate) below: Option<Scope>,
}

/// Copy an embedded store into a folder, consistently
#[derive(Debug, ClapArgs)]
#[command(
    long_about = "Copy an embedded store into a folder, consistently.\n\n\
        The copy is a store of its own: open it where it is, or put it in the place of the one that was lost. The \
        keys that stand beside the data go along, so keep it as safe as the store. Stores on PostgreSQL and DynamoDB \
        are backed up with those engines' own tools.",
    after_help = "Examples:\n  \
        ebbtide backup --store fjall:/var/lib/ebbtide /backup/ebbtide-1\n  \
        ebbtide verify --store fjall:/backup/ebbtide-1"
)]
pub(crate) struct Backup {
    /// The store
    #[arg(long, env = "EBBTIDE_STORE", value_name = "URL", hide_env_values = true)]
    pub(crate) store: String,

    /// The folder for the copy: empty, or not there yet
    pub(crate) dir: PathBuf,
}

/// See whether the clock agrees with a store, or confirm that it is right
#[derive(Debug, ClapArgs)]
#[command(
    long_about = "See whether the clock agrees with a store, or confirm that it is right.\n\n\
        A store remembers the latest time it was used at. A clock that is behind it is not believed; one that is more \
        than a day ahead is answered with, but nothing is swept by it until it is confirmed here: a wrong year must \
        not erase a store. A store that was shut down for longer than that is confirmed in the same way.",
    after_help = "Examples:\n  \
        ebbtide clock show --store fjall:/var/lib/ebbtide\n  \
        ebbtide clock confirm --store fjall:/var/lib/ebbtide\n\n\
        Exit status of show: 0 the clock agrees, 1 it is ahead and unconfirmed."
)]
pub(crate) struct Clock {
    /// What to do
    pub(crate) action: ClockAction,

    /// The store
    #[arg(long, env = "EBBTIDE_STORE", value_name = "URL", hide_env_values = true)]
    pub(crate) store: String,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum ClockAction {
    /// Say whether the clock is ahead
    Show,
    /// Say that the clock is right
    Confirm,
}

/// Serve the HTTP API
#[derive(Debug, ClapArgs)]
#[command(
    long_about = "Serve the HTTP API, over HTTP/1.1 and HTTP/2.\n\n\
        Prints `listening on URL` on standard output when it is ready; the log goes to standard error. Told to stop by \
        SIGTERM or SIGINT, it answers what it has begun. The root key comes from EBBTIDE_ROOT_KEY; an embedded store \
        has one in root.key in its folder, made on the first start.",
    after_help = "A flag goes before its variable, the variable before the file, the file before the default.\n\n\
    Examples:\n  \
        ebbtide serve --listen 127.0.0.1:7878 --store fjall:./data --sweep-interval 30s\n  \
        ebbtide serve --config /etc/ebbtide.toml --log-format json\n  \
        ebbtide serve --store fjall:./data --tls-cert chain.pem --tls-key key.pem"
)]
pub(crate) struct Serve {
    #[command(flatten)]
    pub(crate) settings: Settings,
}

#[derive(Debug, Subcommand)]
#[command(after_help = "Example:\n  ebbtide config check --config /etc/ebbtide.toml")]
pub(crate) enum Config {
    /// Check the configuration of a server, and show where each value comes from
    Check(ConfigCheck),
}

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Takes what `serve` takes, from the same places, and starts nothing. Passwords are not shown.\n\n\
    Examples:\n  \
        ebbtide config check --config /etc/ebbtide.toml\n  \
        ebbtide config check --config /etc/ebbtide.toml --json\n\n\
    Exit status: 0 a server would start with it, 1 it is not good: the message names the place."
)]
pub(crate) struct ConfigCheck {
    #[command(flatten)]
    pub(crate) settings: Settings,

    /// Write JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

/// Make a store's schema, or bring it to this build's version
#[derive(Debug, ClapArgs)]
#[command(
    long_about = "Make a store's schema, or bring it to this build's version.\n\n\
        Done once: of several at a time one does it, under a lock, and the others find it done. A schema that is \
        newer than this build is left alone. Only PostgreSQL has a schema.",
    after_help = "Example:\n  ebbtide migrate-schema --store 'postgres://ebbtide@db/auth?schema=ebbtide'\n\n\
        Exit status: 0 the schema has this build's version, 2 it could not be brought to it."
)]
pub(crate) struct MigrateSchema {
    /// The store
    #[arg(long, env = "EBBTIDE_STORE", value_name = "URL", hide_env_values = true)]
    pub(crate) store: String,
}

/// Check that a store keeps the contract: one line per case, exit status 0 or 1
#[derive(Debug, ClapArgs)]
#[command(
    long_about = "Check that a store keeps the contract.\n\n\
        Runs the whole conformance kit against a live store: conditions, expiry at the instant, races, scans, \
        sweeps, scopes, and a random run compared with a model. It writes only records of its own kinds, in a time \
        of its own, and removes them afterwards; what the store holds is neither read nor changed. Run one at a \
        time on one store.",
    after_help = "Examples:\n  \
        ebbtide verify --store memory:\n  \
        ebbtide verify --store memory: --filter races::\n\n\
        Exit status: 0 every case passed, 1 one did not, 2 the store could not be opened."
)]
pub(crate) struct Verify {
    /// The store to check
    #[arg(long, env = "EBBTIDE_STORE", value_name = "URL", hide_env_values = true)]
    pub(crate) store: String,

    /// Run only the cases with this in their name
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) filter: String,

    /// The seed of the random runs, to repeat one that failed
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

/// Make and change the keyring that tokens are derived with and payloads are sealed under
#[derive(Debug, ClapArgs)]
#[command(
    long_about = "Make and change the keyring that tokens are derived with and payloads are sealed under.\n\n\
        An embedded store makes its own, keyring.json in its folder. A store that several nodes share needs one \
        that all of them have. The file is for its owner alone (mode 0600); whoever has it can make refresh tokens.",
    after_help = "To change keys on several nodes without refusing anyone's token:\n  \
        1. ebbtide keyring add --standby    and bring the file to every node\n  \
        2. ebbtide keyring activate ID      and bring the file to every node\n  \
        3. ebbtide keyring retire OLD-ID    once what was made with the old key has ended\n\n\
        Example:\n  ebbtide keyring --keyring /etc/ebbtide/keyring.json init"
)]
pub(crate) struct Keyring {
    /// The file
    #[arg(
        long = "keyring",
        env = "EBBTIDE_KEYRING",
        value_name = "FILE",
        default_value = "keyring.json",
        global = true
    )]
    pub(crate) file: PathBuf,

    #[command(subcommand)]
    pub(crate) change: KeyringChange,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeyringChange {
    /// Make a keyring with one key, where no file is
    Init,
    /// Add a new key, and make new tokens with it; those of the others stay good
    Add {
        /// Go on making tokens with the present key, until the new one is activated
        #[arg(long)]
        standby: bool,
    },
    /// Make new tokens with this key; those of the others stay good
    Activate {
        /// The key's id, as `list` shows it
        id: KeyId,
    },
    /// Show the keys' ids, never the keys
    List,
    /// Remove a key: refresh tokens made with it are unknown from then on, and what was sealed with it is lost
    Retire {
        /// The key's id, as `list` shows it
        id: KeyId,
    },
}

#[cfg(feature = "dynamodb")]
#[derive(Debug, Subcommand)]
#[command(after_help = "Example:\n  ebbtide table create --store 'dynamodb:ebbtide?region=eu-west-1'")]
pub(crate) enum Table {
    /// Make the table unless it is there: on-demand, with TTL and point-in-time recovery
    Create(TableStore),
    /// Show the table; exit status 1 if it is missing or not as a store needs it
    Describe(TableStore),
    /// Have the engine delete what has expired
    EnableTtl(TableStore),
}

#[cfg(feature = "dynamodb")]
#[derive(Debug, ClapArgs)]
pub(crate) struct TableStore {
    /// The store: dynamodb:TABLE?region=…&endpoint=…
    #[arg(long, env = "EBBTIDE_STORE", value_name = "URL", hide_env_values = true)]
    pub(crate) store: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_of_every_command_has_an_example() {
        use clap::CommandFactory as _;
        for mut command in Args::command().get_subcommands().cloned() {
            let help = command.render_long_help().to_string();
            assert!(help.contains("Example"), "{}: {help}", command.get_name());
            assert!(command.get_about().is_some(), "{}", command.get_name());
        }
    }

    #[test]
    fn what_a_command_does_at_length_is_in_its_help() {
        use clap::CommandFactory as _;
        let help = |name: &str| {
            let mut command =
                Args::command().find_subcommand(name).cloned().expect("there is such a command");
            command.render_long_help().to_string()
        };
        assert!(help("serve").contains("SIGTERM"), "{}", help("serve"));
        assert!(help("verify").contains("random run"), "{}", help("verify"));
        assert!(help("key").contains("shown once"), "{}", help("key"));
    }

    /// What is minted by chance does, once in 64.
    #[test]
    fn an_id_may_begin_with_a_hyphen() {
        let explain = |record: &[&str]| {
            let before = ["ebbtide", "explain", "--store", "memory:", "--scope", "global"];
            Args::try_parse_from(before.iter().chain(record))
        };
        for id in ["-L_x", "-h_x", "--x"] {
            assert!(explain(&["client", id]).is_ok(), "{id}");
            assert!(explain(&["--json", "replay", "proofs", id]).is_ok(), "{id}");
        }
        assert!(explain(&["--jsn", "client", "x"]).is_err(), "a flag that is none is refused");
    }

    #[test]
    fn the_command_line_is_sound() {
        use clap::CommandFactory as _;
        Args::command().debug_assert();
    }
}
