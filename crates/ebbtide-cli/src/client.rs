//! HTTP client for the operator API of a server.

use std::fmt;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use ebbtide::{Scope, Secret, async_trait};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use serde_json::Value;
use ureq::Agent;
use ureq::http::Request;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

use crate::operator::{Operator, OperatorAnswer};

/// A server, and the API key for it.
pub(crate) struct Client {
    agent: Agent,
    base: String,
    key: Secret,
}

impl Client {
    pub(crate) fn new(url: &str, key_file: Option<&Path>, ca_file: Option<&Path>) -> Result<Self> {
        let secure = url.starts_with("https://");
        if !secure && !url.starts_with("http://") {
            bail!("the URL of a server begins with http:// or https://");
        }
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(Duration::from_secs(10)))
            .user_agent(concat!("ebbtide/", env!("CARGO_PKG_VERSION")));
        if secure {
            let trusted = TlsConfig::builder().root_certs(authorities(ca_file)?).build();
            config = config.tls_config(trusted);
        }
        let base = url.trim_end_matches('/').to_owned();
        Ok(Self { agent: config.build().into(), base, key: key(key_file)? })
    }
}

#[async_trait]
impl Operator for Client {
    /// Sends a request, in a thread for blocking calls.
    async fn call(
        &self,
        method: &str,
        path: &str,
        scope: Option<&Scope>,
        body: Option<Value>,
    ) -> Result<OperatorAnswer> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base))
            .header("authorization", format!("Bearer {}", self.key.expose()));
        if let Some(scope) = scope {
            request = request.header("ebbtide-scope", scope.to_string());
        }
        let agent = self.agent.clone();
        let answer = tokio::task::spawn_blocking(move || {
            let mut response = match body {
                Some(body) => {
                    agent.run(request.header("content-type", "application/json").body(body.to_string())?)
                }
                None => agent.run(request.body(())?),
            }?;
            let text = response.body_mut().read_to_string()?;
            anyhow::Ok((response.status(), text))
        });
        let (status, text) = answer.await?.with_context(|| format!("no answer from {}", self.base))?;
        let body = serde_json::from_str(&text).unwrap_or_default();
        Ok(OperatorAnswer { status: status.as_u16(), body, remote: true })
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({})", self.base)
    }
}

/// Reads the API key. There is no flag for it: other users of the machine can read flags.
fn key(file: Option<&Path>) -> Result<Secret> {
    if let Some(file) = file {
        let text = fs::read_to_string(file)
            .with_context(|| format!("cannot read the API key in {}", file.display()))?;
        return Ok(Secret::new(Secret::new(text).expose().trim()));
    }
    let key = std::env::var("EBBTIDE_API_KEY").map(Secret::new);
    key.map_err(|_| anyhow!("a server needs an API key: set EBBTIDE_API_KEY, or name a file with --key-file"))
}

fn authorities(file: Option<&Path>) -> Result<RootCerts> {
    let Some(file) = file else {
        let found = rustls_native_certs::load_native_certs();
        let owned = |der: &_| Certificate::from_der(der).to_owned();
        let system: Vec<_> = found.certs.iter().map(|certificate| owned(certificate.as_ref())).collect();
        return Ok(RootCerts::new_with_certs(&system));
    };
    let pem = fs::read(file)
        .with_context(|| format!("cannot read the certificate authorities in {}", file.display()))?;
    let mut own = Vec::new();
    for item in parse_pem(&pem) {
        if let PemItem::Certificate(certificate) =
            item.with_context(|| format!("{} does not contain PEM certificates", file.display()))?
        {
            own.push(certificate);
        }
    }
    Ok(RootCerts::new_with_certs(&own))
}

/// Encodes text as one segment of a path, or one value of a query.
pub(crate) fn encoded(text: &str) -> PercentEncode<'_> {
    const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    utf8_percent_encode(text, RESERVED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_characters_are_encoded() {
        assert_eq!(encoded("tenant:acme/env:ü").to_string(), "tenant%3Aacme%2Fenv%3A%C3%BC");
        assert_eq!(encoded("a-b_c.d~e").to_string(), "a-b_c.d~e");
    }
}
