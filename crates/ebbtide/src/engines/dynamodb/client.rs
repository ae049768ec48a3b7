//! Client of the SDK, and an interceptor for the `Date` header that its answers omit.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws_config::environment::region::EnvironmentVariableRegionProvider;
use aws_config::meta::region::RegionProviderChain;
use aws_config::profile::region::ProfileFileRegionProvider;
use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, Region};
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::interceptors::BeforeDeserializationInterceptorContextRef;
use aws_sdk_dynamodb::config::{Builder as Config, ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;
use aws_sdk_dynamodb::primitives::{DateTime, DateTimeFormat};
use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;

use super::location::Location;
use crate::model::error::{Error, Result};
use crate::model::time::Timestamp;

/// Timeout of an attempt. A write that takes longer counts as lost. Three of them are within the time of a login.
const ATTEMPT: Duration = Duration::from_millis(1_500);
const CONNECT: Duration = Duration::from_secs(1);

/// Timeout of a request that reads a page of the whole table, which nobody waits for at a login.
const PAGE: Duration = Duration::from_secs(10);

/// Idle timeout of a connection: shorter than the service's, so that no request is sent into a closing connection.
const IDLE: Duration = Duration::from_secs(15);

/// Builds the client. Nothing is sent: credentials are resolved with the first request.
pub(super) async fn connect(location: &Location) -> Result<Client> {
    // The SDK's own retries would hide that an answer was lost.
    let retries = RetryConfig::disabled();
    let timeouts =
        TimeoutConfig::builder().connect_timeout(CONNECT).operation_attempt_timeout(ATTEMPT).build();
    let http =
        Builder::new().pool_idle_timeout(IDLE).tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https();
    let mut loader = aws_config::defaults(BehaviorVersion::v2026_01_12())
        .region(regions(location))
        .retry_config(retries)
        .timeout_config(timeouts)
        .http_client(http);
    if let Some(endpoint) = &location.endpoint {
        loader = loader.endpoint_url(endpoint);
    }
    let config = loader.load().await;
    if config.region().is_none() {
        return Err(Error::invalid("no region; set region=… in the store URL, AWS_REGION, or a profile"));
    }
    Ok(Client::new(&config))
}

/// Timeouts of a request that reads a page of the whole table.
pub(super) fn for_a_page() -> Config {
    let timeouts = TimeoutConfig::builder().connect_timeout(CONNECT).operation_attempt_timeout(PAGE).build();
    Config::new().timeout_config(timeouts)
}

/// Region of the URL, else of the environment, else of the profile. Never asks the instance metadata service.
fn regions(location: &Location) -> RegionProviderChain {
    let chain = RegionProviderChain::first_try(location.region.clone().map(Region::new))
        .or_else(EnvironmentVariableRegionProvider::new())
        .or_else(ProfileFileRegionProvider::new());
    // A custom endpoint has no regions, but signatures need one.
    if location.is_elsewhere() { chain.or_else(Region::from_static("us-east-1")) } else { chain }
}

/// Captures the `Date` of an answer.
#[derive(Debug, Clone, Default)]
pub(super) struct DateOfAnswer(Arc<Mutex<Option<String>>>);

impl DateOfAnswer {
    /// Engine's clock at the answer. The header has whole seconds: the beginning of that second.
    pub(super) fn read(&self) -> Option<Timestamp> {
        let date = self.0.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let date = DateTime::from_str(&date, DateTimeFormat::HttpDate).ok()?;
        let millis = u64::try_from(date.to_millis().ok()?).ok()?;
        Timestamp::from_millis(millis).ok()
    }
}

impl Intercept for DateOfAnswer {
    fn name(&self) -> &'static str {
        "DateOfAnswer"
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> std::result::Result<(), BoxError> {
        let date = context.response().headers().get("date").map(ToOwned::to_owned);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = date;
        Ok(())
    }
}
