//! `ebbtide config`

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use ebbtide_server::http::tls::tls;
use serde_json::{Map, Value, json};

use crate::config::{Config, Resolved, SettingRow, Settings};
use crate::output::{errln, outln};

/// Check the configuration of a server
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  ebbtide config check --config /etc/ebbtide.toml")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Check the configuration of a server, and show the source of each value
    Check(CheckArgs),
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Takes the flags, variables and file of `serve`, and starts nothing. Passwords are not shown.\n\n\
    Examples:\n  \
        ebbtide config check --config /etc/ebbtide.toml\n  \
        ebbtide config check --config /etc/ebbtide.toml --json\n\n\
    Exit status: 0 the configuration is valid, 1 it is not; the message names the flag, variable or line."
)]
struct CheckArgs {
    #[command(flatten)]
    settings: Settings,
}

pub(crate) fn run(args: &Args, json: bool) -> Result<ExitCode> {
    let Action::Check(args) = &args.action;
    match check(args) {
        Ok(rows) => {
            if json {
                print_json(rows)?;
            } else {
                print_table(&rows)?;
            }
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            errln!("ebbtide: {error:#}");
            Ok(ExitCode::from(1))
        }
    }
}

fn check(args: &CheckArgs) -> Result<Vec<SettingRow>> {
    let resolved = Resolved::of(&args.settings)?;
    let config = Config::read(&resolved)?;
    if let Some(files) = &config.tls {
        tls(&files.certificate, &files.key, files.client_ca.as_deref())?;
    }
    Ok(resolved.rows())
}

fn print_table(rows: &[SettingRow]) -> Result<()> {
    let value = |row: &SettingRow| -> String { row.value.clone().unwrap_or_else(|| "-".to_owned()) };
    let width = |of: &dyn Fn(&SettingRow) -> String| {
        rows.iter().map(|row| of(row).chars().count()).max().unwrap_or(0)
    };
    let (keys, values) = (width(&|row| row.key.clone()), width(&value));
    for row in rows {
        outln!("{:keys$}  {:values$}  {}", row.key, value(row), row.source)?;
    }
    Ok(())
}

fn print_json(rows: Vec<SettingRow>) -> Result<()> {
    let row = |row: SettingRow| (row.key, json!({"value": row.value, "source": row.source}));
    outln!("{:#}", Value::Object(rows.into_iter().map(row).collect::<Map<_, _>>()))
}
