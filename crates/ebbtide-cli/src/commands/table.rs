//! `ebbtide table`

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

use crate::args::StoreArg;

/// Create and inspect the DynamoDB table of a store
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    ebbtide table create --store 'dynamodb:ebbtide?region=eu-west-1'\n  \
    ebbtide table describe --store 'dynamodb:ebbtide?region=eu-west-1'")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Create the table unless it exists: on-demand, with TTL and point-in-time recovery
    #[command(after_help = "Example:\n  ebbtide table create --store 'dynamodb:ebbtide?region=eu-west-1'")]
    Create(StoreArg),
    /// Describe the table; exit status 1 if it is missing or unfit for a store
    #[command(after_help = "Example:\n  ebbtide table describe --store 'dynamodb:ebbtide?region=eu-west-1'")]
    Describe(StoreArg),
    /// Enable TTL, so that DynamoDB deletes expired records
    #[command(
        after_help = "Example:\n  ebbtide table enable-ttl --store 'dynamodb:ebbtide?region=eu-west-1'"
    )]
    EnableTtl(StoreArg),
}

#[cfg(not(feature = "dynamodb"))]
#[expect(clippy::unused_async, reason = "the build with the engine awaits it")]
pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let (Action::Create(_) | Action::Describe(_) | Action::EnableTtl(_)) = args.action;
    crate::store::require_engine("dynamodb:").map(|()| ExitCode::SUCCESS)
}

#[cfg(feature = "dynamodb")]
pub(crate) use dynamodb::run;

#[cfg(feature = "dynamodb")]
mod dynamodb {
    use anyhow::Context as _;
    use ebbtide::engines::dynamodb::table::Description;

    use super::{Action, Args, ExitCode, Result};
    use crate::output::outln;
    use crate::store::open_dynamodb;

    pub(crate) async fn run(args: Args) -> Result<ExitCode> {
        match args.action {
            Action::Create(store) => {
                let done = open_dynamodb(&store.url).await?.create_table().await;
                print_done(&done.context("cannot create the table")?)
            }
            Action::EnableTtl(store) => {
                let done = open_dynamodb(&store.url).await?.enable_ttl().await;
                print_done(&done.context("cannot enable TTL")?)
            }
            Action::Describe(store) => {
                let description = open_dynamodb(&store.url).await?.describe_table().await;
                print(description.context("cannot describe the table")?.as_ref())
            }
        }
    }

    fn print_done(done: &[String]) -> Result<ExitCode> {
        for line in done {
            outln!("{line}")?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn print(description: Option<&Description>) -> Result<ExitCode> {
        let Some(table) = description else {
            outln!("the table does not exist: create it with `ebbtide table create`")?;
            return Ok(ExitCode::from(1));
        };
        let switch = |on: bool| if on { "on" } else { "off" };
        let rows = [
            ("table", table.table.clone()),
            ("status", table.status.clone()),
            ("keys", if table.is_fit { "pk and sk, binary" } else { "NOT those of a store" }.to_owned()),
            ("billing", if table.on_demand { "on demand" } else { "provisioned" }.to_owned()),
            ("ttl", if table.ttl { "on" } else { "OFF: run `ebbtide table enable-ttl`" }.to_owned()),
            (
                "point-in-time recovery",
                table.point_in_time_recovery.map_or("unknown to the endpoint", switch).to_owned(),
            ),
            ("items, about", table.items.to_string()),
            ("bytes, about", table.bytes.to_string()),
        ];
        for (name, value) in rows {
            outln!("{name:<22}  {value}")?;
        }
        Ok(if table.is_fit && table.ttl { ExitCode::SUCCESS } else { ExitCode::from(1) })
    }
}
