//! A server, asked over HTTP.

use std::fmt;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use ebbtide::{Scope, Secret};
use serde_json::Value;
use ureq::Agent;
use ureq::http::{Request, StatusCode};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

/// Asks one server, with one key.
pub(crate) struct Client {
    agent: Agent,
    base: String,
    key: Secret,
}

/// What a server answered.
pub(crate) struct Answer {
    status: StatusCode,
    body: Value,
}

impl Client {
    pub(crate) fn new(url: &str, key_file: Option<&Path>, ca_file: Option<&Path>) -> Result<Self> {
        let secure = url.starts_with("https://");
        if !secure && !url.starts_with("http://") {
            bail!("a server's URL begins with http:// or https://");
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

    /// Asks; in a thread of its own, since it waits.
    pub(crate) async fn call(
        &self,
        method: &str,
        path: &str,
        scope: Option<&Scope>,
        body: Option<Value>,
    ) -> Result<Answer> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base))
            .header("authorization", format!("Bearer {}", self.key.expose()));
        if let Some(scope) = scope {
            request = request.header("ebbtide-scope", scope.to_string());
        }
        let agent = self.agent.clone();
        let asked = tokio::task::spawn_blocking(move || {
            let mut response = match body {
                Some(body) => {
                    agent.run(request.header("content-type", "application/json").body(body.to_string())?)
                }
                None => agent.run(request.body(())?),
            }?;
            let text = response.body_mut().read_to_string()?;
            anyhow::Ok((response.status(), text))
        });
        let (status, text) = asked.await?.with_context(|| format!("{} has no answer", self.base))?;
        Ok(Answer { status, body: serde_json::from_str(&text).unwrap_or_default() })
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({})", self.base)
    }
}

impl Answer {
    /// The body of a success; anything else is an error, in the server's words.
    pub(crate) fn success(self) -> Result<Value> {
        if self.status.is_success() {
            return Ok(self.body);
        }
        let word = |name: &str| self.body[name].as_str().unwrap_or_default();
        let (title, detail) = (word("title"), word("detail"));
        Err(anyhow!(
            "the server answers {} {title}: {detail} (request {})",
            self.status.as_u16(),
            word("request_id")
        ))
    }

    /// The same, or what the server says of a conflict.
    pub(crate) fn or_conflict(self) -> Result<std::result::Result<Value, String>> {
        if self.status == StatusCode::CONFLICT && self.body["title"] == "conflict" {
            return Ok(Err(self.body["detail"].as_str().unwrap_or_default().to_owned()));
        }
        self.success().map(Ok)
    }

    /// The same, but none where the server knows of no such thing.
    pub(crate) fn found(self) -> Result<Option<Value>> {
        let unknown = self.status == StatusCode::NOT_FOUND && self.body["title"] == "unknown";
        if unknown { Ok(None) } else { self.success().map(Some) }
    }
}

/// The key is no flag: those can be read by other users of the machine.
fn key(file: Option<&Path>) -> Result<Secret> {
    if let Some(file) = file {
        let text =
            fs::read_to_string(file).with_context(|| format!("cannot read the key in {}", file.display()))?;
        return Ok(Secret::new(Secret::new(text).expose().trim()));
    }
    let key = std::env::var("EBBTIDE_API_KEY").map(Secret::new);
    key.map_err(|_| anyhow!("a server asks for a key: set EBBTIDE_API_KEY, or name a file with --key-file"))
}

fn authorities(file: Option<&Path>) -> Result<RootCerts> {
    let Some(file) = file else {
        let found = rustls_native_certs::load_native_certs();
        let owned = |der: &_| Certificate::from_der(der).to_owned();
        let system: Vec<_> = found.certs.iter().map(|certificate| owned(certificate.as_ref())).collect();
        return Ok(RootCerts::new_with_certs(&system));
    };
    let pem = fs::read(file).with_context(|| format!("cannot read the authorities in {}", file.display()))?;
    let mut own = Vec::new();
    for item in parse_pem(&pem) {
        if let PemItem::Certificate(certificate) =
            item.with_context(|| format!("{} does not hold certificates in PEM form", file.display()))?
        {
            own.push(certificate);
        }
    }
    Ok(RootCerts::new_with_certs(&own))
}

/// Text as one name in a path or a query.
pub(crate) fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_encoded_whole() {
        assert_eq!(encoded("tenant:acme/env:ü"), "tenant%3Aacme%2Fenv%3A%C3%BC");
        assert_eq!(encoded("a-b_c.d~e"), "a-b_c.d~e");
    }

    #[test]
    fn a_refusal_is_told_in_the_servers_words_and_shows_no_key() {
        let body = serde_json::json!({"title": "forbidden", "detail": "not yours", "request_id": "r1"});
        let error = Answer { status: StatusCode::FORBIDDEN, body }.success().unwrap_err();
        assert_eq!(error.to_string(), "the server answers 403 forbidden: not yours (request r1)");
    }
}
