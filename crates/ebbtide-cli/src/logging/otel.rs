//! Spans to an OpenTelemetry collector: OTLP over HTTP.

use anyhow::{Context as _, Result};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::registry::LookupSpan;

const PATH: &str = "/v1/traces";

/// Sends the remaining spans when it is dropped.
pub(super) struct Flush(SdkTracerProvider);

impl Drop for Flush {
    fn drop(&mut self) {
        // Nothing to report to if the collector is gone.
        let _ = self.0.shutdown();
    }
}

/// Layer that sends a span for each request and each engine call to `endpoint`, in batches.
pub(super) fn layer<S>(endpoint: &str) -> Result<(impl Layer<S> + use<S>, Flush)>
where
    S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
{
    let endpoint = format!("{}{PATH}", endpoint.trim_end_matches('/').trim_end_matches(PATH));
    let exporter = SpanExporter::builder()
        .with_http()
        .with_endpoint(endpoint)
        .build()
        .context("cannot send spans to the collector")?;
    let resource = Resource::builder().with_service_name("ebbtide").build();
    let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build();
    let own = Targets::new()
        .with_target("ebbtide", LevelFilter::DEBUG)
        .with_target("ebbtide_server", LevelFilter::DEBUG);
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("ebbtide")).with_filter(own);
    Ok((layer, Flush(provider)))
}
