//! `ebbtide export`

use std::io::{BufWriter, Write};
use std::process::ExitCode;

use anyhow::{Context, Result};
use ebbtide::Stores;
use ebbtide::ops::transfer::Exporter;

use crate::args::Export;

pub(crate) async fn run(args: Export) -> Result<ExitCode> {
    let backend = ebbtide::open(&args.place.store).await.context("the store cannot be opened")?;
    let mut exporter = Exporter::new(Stores::new(backend), &args.place.scope)?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    while let Some(lines) = exporter.page().await.context("the scope cannot be read")? {
        for line in lines {
            writeln!(out, "{line}")?;
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
