//! `ebbtide usage`

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use ebbtide::Scope;
use ebbtide_api::attributes::UsageAnswer;
use serde_json::{Value, json};

use crate::args::StoreTarget;
use crate::client::encoded;
use crate::output::{outln, table};
use crate::store::Access;

/// Count the attributes of a scope or an owner and their bytes, by bucket
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Count the attributes of a scope or an owner and their bytes, by bucket.\n\n\
        It reads every attribute of them. With --last, the growth since the last run is shown, and the file is replaced: \
        run it weekly from a timer, and look at buckets that only grow.",
    after_help = "Examples:\n  \
        ebbtide usage --store fjall:data --scope tenant:acme --by bucket\n  \
        ebbtide usage --server http://127.0.0.1:7878 --below --last /var/lib/ebbtide/usage.json"
)]
pub(crate) struct Args {
    #[command(flatten)]
    target: StoreTarget,

    /// Scope: global, tenant:T, env:E, tenant:T/env:E or custom:A/B/C
    #[arg(long, value_name = "SCOPE", default_value = "global")]
    scope: Scope,

    /// Owner; every owner of the scope without it
    #[arg(long, conflicts_with = "below")]
    owner: Option<String>,

    /// Include the scopes below
    #[arg(long)]
    below: bool,

    /// Grouping
    #[arg(long, value_name = "WHAT", value_parser = ["bucket"], default_value = "bucket")]
    by: String,

    /// File that holds the last result, and gets this one
    #[arg(long, value_name = "FILE")]
    last: Option<PathBuf>,
}

/// Change of a bucket since the last run.
#[derive(Clone, Copy, Default)]
struct Growth {
    count: i128,
    bytes: i128,
}

pub(crate) async fn run(args: Args, json: bool) -> Result<ExitCode> {
    let operator = args.target.operator(Access::Read).await?;
    let answer = if let Some(owner) = &args.owner {
        let path = format!("/v1/attributes/{}?usage=true", encoded(owner));
        operator.call("GET", &path, Some(&args.scope), None).await?
    } else {
        let path = format!("/v1/scopes/{}/usage?below={}", encoded(&args.scope.to_string()), args.below);
        operator.call("GET", &path, None, None).await?
    };
    let usage: UsageAnswer = answer.read()?;
    let last = args.last.as_ref().map(read).transpose()?.flatten();
    let growth = last.as_ref().map(|last| growth(&usage, last));
    if json {
        outln!("{}", with_growth(json!(usage), growth.as_ref()))?;
    } else {
        print(&usage, growth.as_ref())?;
    }
    if let Some(file) = &args.last {
        std::fs::write(file, json!(usage).to_string())
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads the last result; none if there is no file yet.
fn read(file: &PathBuf) -> Result<Option<UsageAnswer>> {
    match std::fs::read_to_string(file) {
        Ok(text) => {
            let usage = serde_json::from_str(&text);
            usage.map(Some).with_context(|| format!("{} is not a result of this command", file.display()))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", file.display())),
    }
}

/// Growth of every bucket that has attributes now or had some then.
fn growth(usage: &UsageAnswer, last: &UsageAnswer) -> BTreeMap<String, Growth> {
    let mut growth: BTreeMap<String, Growth> = BTreeMap::new();
    for (buckets, sign) in [(&usage.buckets, 1), (&last.buckets, -1)] {
        for of in buckets {
            let change = growth.entry(of.bucket.clone()).or_default();
            change.count += sign * i128::from(of.count);
            change.bytes += sign * i128::from(of.bytes);
        }
    }
    growth
}

/// The answer, with `growth` by bucket where there is an earlier result.
fn with_growth(mut usage: Value, growth: Option<&BTreeMap<String, Growth>>) -> Value {
    if let Some(growth) = growth {
        let change = |(bucket, change): (&String, &Growth)| {
            let number = |value: i128| Value::from(i64::try_from(value).unwrap_or_default());
            (bucket.clone(), json!({"count": number(change.count), "bytes": number(change.bytes)}))
        };
        usage["growth"] = Value::Object(growth.iter().map(change).collect());
    }
    usage
}

fn print(usage: &UsageAnswer, growth: Option<&BTreeMap<String, Growth>>) -> Result<()> {
    let mut now: BTreeMap<&str, (u64, u64)> =
        usage.buckets.iter().map(|of| (of.bucket.as_str(), (of.count, of.bytes))).collect();
    for bucket in growth.into_iter().flatten().map(|(bucket, _)| bucket) {
        now.entry(bucket).or_default();
    }
    let signed = |change: Option<i128>| change.map_or("-".to_owned(), |change| format!("{change:+}"));
    let rows = now.into_iter().map(|(bucket, (count, bytes))| {
        let change = growth.and_then(|growth| growth.get(bucket));
        let (more, larger) = (change.map(|of| of.count), change.map(|of| of.bytes));
        [bucket.to_owned(), count.to_string(), signed(more), bytes.to_string(), signed(larger)]
    });
    table(["BUCKET", "COUNT", "GROWTH", "BYTES", "GROWTH"], rows)?;
    outln!("{} attributes, {} bytes", usage.count, usage.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_that_of_every_bucket_now_and_then() {
        let usage = |buckets: Value| -> UsageAnswer {
            serde_json::from_value(json!({"buckets": buckets, "count": 0, "bytes": 0})).unwrap()
        };
        let last = usage(
            json!([{"bucket": "a", "count": 5, "bytes": 50}, {"bucket": "gone", "count": 1, "bytes": 9}]),
        );
        let now = usage(
            json!([{"bucket": "a", "count": 3, "bytes": 60}, {"bucket": "new", "count": 2, "bytes": 8}]),
        );
        let answer = with_growth(json!({}), Some(&growth(&now, &last)));
        let expected = json!({"a": {"count": -2, "bytes": 10}, "gone": {"count": -1, "bytes": -9},
            "new": {"count": 2, "bytes": 8}});
        assert_eq!(answer["growth"], expected);
        assert_eq!(with_growth(json!({}), None), json!({}));
    }
}
