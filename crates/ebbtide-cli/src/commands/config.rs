//! `ebbtide config`

use std::process::ExitCode;

use anyhow::Result;
use ebbtide_server::http::tls::tls;
use serde_json::{Map, Value, json};

use crate::args::{Config as Args, ConfigCheck};
use crate::config::{Config, Resolved, Row};

pub(crate) fn run(args: &Args) -> ExitCode {
    let Args::Check(args) = args;
    match check(args) {
        Ok(rows) => {
            if args.json {
                print_json(rows);
            } else {
                print_table(&rows);
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("ebbtide: {error:#}");
            ExitCode::from(1)
        }
    }
}

fn check(args: &ConfigCheck) -> Result<Vec<Row>> {
    let resolved = Resolved::of(&args.settings)?;
    let config = Config::read(&resolved)?;
    if let Some((certificate, key)) = &config.tls {
        tls(certificate, key)?;
    }
    Ok(resolved.rows())
}

fn print_table(rows: &[Row]) {
    let width =
        |of: fn(&Row) -> &str| rows.iter().map(|row| of(row).chars().count()).max().unwrap_or_default();
    let value = |row: &Row| -> String { row.value.clone().unwrap_or_else(|| "-".to_owned()) };
    let (keys, values) = (width(|row| &row.key), rows.iter().map(|row| value(row).chars().count()).max());
    for row in rows {
        println!(
            "{:keys$}  {:values$}  {}",
            row.key,
            value(row),
            row.source,
            values = values.unwrap_or_default()
        );
    }
}

fn print_json(rows: Vec<Row>) {
    let row = |row: Row| (row.key, json!({"value": row.value, "source": row.source}));
    println!("{:#}", Value::Object(rows.into_iter().map(row).collect::<Map<_, _>>()));
}
