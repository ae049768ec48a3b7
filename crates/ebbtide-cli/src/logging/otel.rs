//! Spans to an OpenTelemetry collector, by OTLP over HTTP.

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

/// Sends the spans that are left, when it is dropped.
pub(super) struct Flush(SdkTracerProvider);

impl Drop for Flush {
    fn drop(&mut self) {
        // The collector may be gone; there is nobody to tell it to.
        let _ = self.0.shutdown();
    }
}

/// A span for each request and each call to the engine, sent to `endpoint` in batches.
pub(super) fn layer<S>(endpoint: &str) -> Result<(impl Layer<S> + use<S>, Flush)>
where
    S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
{
    let endpoint = format!("{}{PATH}", endpoint.trim_end_matches('/').trim_end_matches(PATH));
    let exporter = SpanExporter::builder()
        .with_http()
        .with_endpoint(endpoint)
        .build()
        .context("spans cannot be sent to the collector")?;
    let resource = Resource::builder().with_service_name("ebbtide").build();
    let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build();
    let own = Targets::new()
        .with_target("ebbtide", LevelFilter::DEBUG)
        .with_target("ebbtide_server", LevelFilter::DEBUG);
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("ebbtide")).with_filter(own);
    Ok((layer, Flush(provider)))
}
