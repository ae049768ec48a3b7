//! What `ebbtide sweep` takes.

use std::time::Duration;

use clap::Args as ClapArgs;
use ebbtide::ops::sweeper::Share;

use super::{At, interval};

/// Remove what has expired, once: for a timer
#[derive(Debug, ClapArgs)]
#[command(
    long_about = "Remove what has expired, once, and say how many records of each kind that were.\n\n\
        Made for cron, a systemd timer or a Kubernetes CronJob. Two at once do not double the work: the second finds \
        the first one's turn in the store, and ends. A run that is stopped by its time limit is gone on with by the \
        next. A store in a folder is swept by the process that serves it (--sweep-interval, or POST /v1/sweep); this \
        command sweeps it when nobody does, or has a server do it with --server. On DynamoDB the engine's TTL removes what has expired, and this removes \
        index records whose record is gone; with sweep=delete in the URL it removes what is overdue too.",
    after_help = "Examples:\n  \
        ebbtide sweep --store 'postgres://ebbtide@db/auth' --budget 0.25 --time-limit 10m\n  \
        ebbtide sweep --store fjall:/var/lib/ebbtide --dry-run\n  \
        ebbtide sweep --server http://127.0.0.1:7878 --key-file data/root.key\n\n\
        Exit status: 0 everything that had expired is gone, 1 there is more (the time limit was met, or another sweep \
        is at work), 2 the store could not be swept."
)]
pub(crate) struct Sweep {
    #[command(flatten)]
    pub(crate) at: At,

    /// Write JSON: how many were removed by kind, and "more" if there is more
    #[arg(long)]
    pub(crate) json: bool,

    /// Remove nothing, and tell what has expired and since when, counted to the minute; on DynamoDB this reads the whole table
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// The share of the time that the sweep may take, 0.01 to 1
    #[arg(long, env = "EBBTIDE_SWEEP_BUDGET", value_name = "SHARE", default_value = "1")]
    pub(crate) budget: Share,

    /// Stop after that time, such as 30s, 5m or 1h, and leave the rest to the next run
    #[arg(long, value_name = "TIME", value_parser = interval)]
    pub(crate) time_limit: Option<Duration>,
}
