//! Log lines to standard error, and spans to a collector.

mod lines;
#[cfg(feature = "otel")]
mod otel;

use std::io::IsTerminal as _;

use anyhow::{Context as _, Result};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt, reload};

use crate::config::{Config, LogFormat};
use lines::Lines;

/// Starts the log of a command that runs once.
pub(crate) fn start_plain() {
    let filter = EnvFilter::from_env("EBBTIDE_LOG");
    // A closed standard error is ignored; reporting it there would panic.
    let has_colour = std::io::stderr().is_terminal();
    let lines = fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(has_colour);
    lines.log_internal_errors(false).init();
}

/// Guard of the log: writes the last lines when it is dropped.
#[must_use]
pub(crate) struct Logging {
    _lines: lines::Flush,
    filter: reload::Handle<EnvFilter, Registry>,
    #[cfg(feature = "otel")]
    _spans: Option<otel::Flush>,
}

impl Logging {
    /// Replaces the filter.
    pub(crate) fn set_filter(&self, filter: &str) -> Result<()> {
        Ok(self.filter.reload(EnvFilter::try_new(filter)?)?)
    }
}

/// Starts the log of a server.
pub(crate) fn start(config: &Config) -> Result<Logging> {
    let (lines, flush) = Lines::start().context("cannot start the log thread")?;
    let (filter, handle) = reload::Layer::new(EnvFilter::try_new(&config.log_filter)?);
    let layer = fmt::layer().with_writer(lines);
    let layer: Box<dyn Layer<Registry> + Send + Sync> = match config.log_format {
        LogFormat::Text => layer.with_ansi(std::io::stderr().is_terminal()).with_filter(filter).boxed(),
        LogFormat::Json => layer
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false)
            .with_filter(filter)
            .boxed(),
    };
    let registry = tracing_subscriber::registry().with(layer);
    #[cfg(feature = "otel")]
    let (registry, spans) = {
        let (layer, flush) = config.otel_endpoint.as_deref().map(otel::layer).transpose()?.unzip();
        (registry.with(layer), flush)
    };
    registry.init();
    Ok(Logging {
        _lines: flush,
        filter: handle,
        #[cfg(feature = "otel")]
        _spans: spans,
    })
}
