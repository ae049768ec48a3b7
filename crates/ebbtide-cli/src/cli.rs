//! The command line: every command, and the dispatch to its file in `commands/`.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};

use crate::commands::{
    approval, attribute, audit, backup, belongings, client, clock, completions, config, copy, dev, doctor,
    explain, export, import, key, keyring, man, migrate_schema, owner, policy, record, relationship, restore,
    scope, serve, stats, subject, sweep, table, token, usage, verify, why,
};
use crate::{logging, store};

/// Server and tools for a store of authorization state that must expire
#[derive(Debug, Parser)]
#[command(name = "ebbtide", version, propagate_version = true, after_help = after_help())]
pub(crate) struct Cli {
    /// Write JSON, for programs; refused by commands that have no JSON output
    #[arg(long, global = true, display_order = 1_000)]
    json: bool,

    #[command(subcommand)]
    command: Command,
}

fn after_help() -> String {
    format!(
        "Examples:\n  \
         ebbtide serve --store fjall:./data --sweep-interval 30s\n  \
         ebbtide stats --server http://127.0.0.1:7878 --key-file data/root.key\n  \
         ebbtide help serve\n\n\
         Exit status: 0 success, 1 the answer is no, 2 the command failed.\n\n{}",
        store::engines_help()
    )
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Args),
    Dev(dev::Args),
    Config(config::Args),
    Stats(stats::Args),
    Sweep(sweep::Args),
    Key(key::Args),
    Scope(scope::Args),
    Policy(policy::Args),
    Approval(approval::Args),
    Relationship(relationship::Args),
    Attribute(attribute::Args),
    Owner(owner::Args),
    Client(client::Args),
    Subject(subject::Args),
    Token(token::Args),
    Belongings(belongings::Args),
    Usage(usage::Args),
    Record(record::Args),
    Explain(explain::Args),
    Audit(audit::Args),
    Keyring(keyring::Args),
    Clock(clock::Args),
    Backup(backup::Args),
    Restore(restore::Args),
    Doctor(doctor::Args),
    Copy(copy::Args),
    Export(export::Args),
    Import(import::Args),
    Verify(verify::Args),
    Why(why::Args),
    MigrateSchema(migrate_schema::Args),
    Table(table::Args),
    Completions(completions::Args),
    Man(man::Args),
}

impl Cli {
    /// Runs the command, and returns its exit status.
    pub(crate) async fn run(self) -> Result<ExitCode> {
        let json = self.json;
        if json && !self.command.has_json() {
            bail!("this command has no JSON output: run it without --json");
        }
        if !matches!(self.command, Command::Serve(_) | Command::Dev(_)) {
            logging::start_plain();
        }
        // Manual pages are for everybody.
        #[cfg(unix)]
        if !matches!(self.command, Command::Man(_)) {
            // The cold store of an embedded engine creates files of its own: those, backups and exports are for the owner.
            rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
        }
        match self.command {
            Command::Serve(args) => serve::run(args).await,
            Command::Dev(args) => dev::run(args).await,
            Command::Config(args) => config::run(&args, json),
            Command::Stats(args) => stats::run(args, json).await,
            Command::Sweep(args) => sweep::run(args, json).await,
            Command::Key(args) => key::run(args, json).await,
            Command::Scope(args) => scope::run(args, json).await,
            Command::Policy(args) => policy::run(args, json).await,
            Command::Record(args) => record::run(args, json).await,
            Command::Approval(args) => approval::run(args, json).await,
            Command::Relationship(args) => relationship::run(args, json).await,
            Command::Attribute(args) => attribute::run(args, json).await,
            Command::Owner(args) => owner::run(args, json).await,
            Command::Client(args) => client::run(args, json).await,
            Command::Subject(args) => subject::run(args, json).await,
            Command::Token(args) => token::run(args, json).await,
            Command::Belongings(args) => belongings::run(args, json).await,
            Command::Usage(args) => usage::run(args, json).await,
            Command::Explain(args) => explain::run(args, json).await,
            Command::Audit(args) => audit::run(args, json).await,
            Command::Keyring(args) => keyring::run(&args, json).await,
            Command::Clock(args) => clock::run(args, json).await,
            Command::Backup(args) => backup::run(args).await,
            Command::Restore(args) => restore::run(args).await,
            Command::Doctor(args) => doctor::run(args, json).await,
            Command::Copy(args) => copy::run(args).await,
            Command::Export(args) => export::run(args).await,
            Command::Import(args) => import::run(args).await,
            Command::Verify(args) => verify::run(args).await,
            Command::Why(args) => why::run(args, json).await,
            Command::MigrateSchema(args) => migrate_schema::run(args).await,
            Command::Table(args) => table::run(args).await,
            Command::Completions(args) => completions::run(&args),
            Command::Man(args) => man::run(&args),
        }
    }
}

impl Command {
    /// Returns true if the command can write JSON, or writes nothing else.
    fn has_json(&self) -> bool {
        match self {
            Self::Key(args) => args.has_json(),
            Self::Keyring(args) => args.has_json(),
            Self::Approval(_)
            | Self::Attribute(_)
            | Self::Audit(_)
            | Self::Belongings(_)
            | Self::Client(_)
            | Self::Clock(_)
            | Self::Config(_)
            | Self::Doctor(_)
            | Self::Explain(_)
            | Self::Export(_)
            | Self::Owner(_)
            | Self::Policy(_)
            | Self::Record(_)
            | Self::Relationship(_)
            | Self::Scope(_)
            | Self::Stats(_)
            | Self::Subject(_)
            | Self::Sweep(_)
            | Self::Token(_)
            | Self::Usage(_)
            | Self::Why(_) => true,
            Self::Backup(_)
            | Self::Restore(_)
            | Self::Completions(_)
            | Self::Copy(_)
            | Self::Dev(_)
            | Self::Import(_)
            | Self::Man(_)
            | Self::MigrateSchema(_)
            | Self::Serve(_)
            | Self::Table(_)
            | Self::Verify(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    /// Visits every command, those within commands too.
    fn each(command: &clap::Command, visit: &mut impl FnMut(&clap::Command)) {
        for inner in command.get_subcommands() {
            visit(inner);
            each(inner, visit);
        }
    }

    #[test]
    fn the_help_of_every_command_has_an_example() {
        each(&Cli::command(), &mut |command| {
            let help = command.clone().render_long_help().to_string();
            assert!(help.contains("Example"), "{}: {help}", command.get_name());
            assert!(command.get_about().is_some(), "{}", command.get_name());
        });
    }

    #[test]
    fn no_help_text_begins_with_a_question_word() {
        let question = |text: &str| {
            let first = text.split([' ', ',', ':']).next().unwrap_or_default().to_lowercase();
            ["what", "where", "whether", "who", "whose", "how", "why", "which", "that"].contains(&&*first)
        };
        each(&Cli::command(), &mut |command| {
            let texts =
                command.get_arguments().flat_map(|argument| [argument.get_help(), argument.get_long_help()]);
            for text in texts.chain([command.get_about(), command.get_long_about()]).flatten() {
                assert!(!question(&text.to_string()), "{}: {text}", command.get_name());
            }
        });
    }

    #[test]
    fn every_argument_has_a_help_text() {
        each(&Cli::command(), &mut |command| {
            for argument in command.get_arguments() {
                assert!(argument.get_help().is_some(), "{} {}", command.get_name(), argument.get_id());
            }
        });
    }

    #[test]
    fn the_long_help_explains_the_command() {
        let help = |name: &str| {
            let mut command = Cli::command().find_subcommand(name).cloned().expect("the command exists");
            command.render_long_help().to_string()
        };
        assert!(help("serve").contains("SIGTERM"), "{}", help("serve"));
        assert!(help("verify").contains("random run"), "{}", help("verify"));
        assert!(help("key").contains("shown once"), "{}", help("key"));
    }

    /// One random id in 64 does.
    #[test]
    fn an_id_may_begin_with_a_hyphen() {
        let explain = |record: &[&str]| {
            let before = ["ebbtide", "explain", "--store", "memory:", "--scope", "global"];
            Cli::try_parse_from(before.iter().chain(record))
        };
        for id in ["-L_x", "-h_x", "--x"] {
            assert!(explain(&["client", id]).is_ok(), "{id}");
            assert!(explain(&["--json", "replay", "proofs", id]).is_ok(), "{id}");
        }
        assert!(explain(&["--jsn", "client", "x"]).is_err(), "an unknown flag is refused");
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
