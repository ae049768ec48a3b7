//! `ebbtide table`

use std::process::ExitCode;

use anyhow::{Context, Result};
use ebbtide::SystemRng;
use ebbtide::engines::dynamodb::DynamoDb;
use ebbtide::engines::dynamodb::table::Description;

use crate::args::Table;

pub(crate) async fn run(args: Table) -> Result<ExitCode> {
    match args {
        Table::Create(args) => {
            let done = open(&args.store).await?.create_table().await;
            Ok(told(&done.context("the table cannot be made")?))
        }
        Table::EnableTtl(args) => {
            let done = open(&args.store).await?.enable_ttl().await;
            Ok(told(&done.context("TTL cannot be turned on")?))
        }
        Table::Describe(args) => {
            let description = open(&args.store).await?.describe_table().await;
            Ok(described(description.context("the table cannot be described")?.as_ref()))
        }
    }
}

async fn open(url: &str) -> Result<DynamoDb> {
    DynamoDb::open(url, SystemRng).await.context("the store cannot be opened")
}

fn told(done: &[String]) -> ExitCode {
    for line in done {
        println!("{line}");
    }
    ExitCode::SUCCESS
}

fn described(description: Option<&Description>) -> ExitCode {
    let Some(table) = description else {
        println!("there is no such table: make it with `ebbtide table create`");
        return ExitCode::from(1);
    };
    let switch = |on: bool| if on { "on" } else { "off" };
    println!("table                   {}", table.table);
    println!("status                  {}", table.status);
    println!(
        "keys                    {}",
        if table.is_fit { "pk and sk, binary" } else { "NOT those of a store" }
    );
    println!("billing                 {}", if table.on_demand { "on demand" } else { "provisioned" });
    println!(
        "ttl                     {}",
        if table.ttl { "on" } else { "OFF: run `ebbtide table enable-ttl`" }
    );
    println!(
        "point-in-time recovery  {}",
        table.point_in_time_recovery.map_or("unknown to the endpoint", switch)
    );
    println!("items, about            {}", table.items);
    println!("bytes, about            {}", table.bytes);
    if table.is_fit && table.ttl { ExitCode::SUCCESS } else { ExitCode::from(1) }
}
