//! TLS from two PEM files.

use std::path::Path;
use std::sync::Arc;

use ebbtide::{Error, Result};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Loads the TLS configuration of a server, with the certificate chain in one PEM file and its key in another: TLS
/// 1.2 and 1.3, HTTP/2 and HTTP/1.1. The error names the bad file, and nothing in it.
pub fn tls(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>> {
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| bad(certificate, "certificates in PEM form").caused_by(error))?;
    if chain.is_empty() {
        return Err(bad(certificate, "certificates in PEM form"));
    }
    let private = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| bad(key, "a private key in PEM form").caused_by(error))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::invalid("cannot enable any version of TLS").caused_by(error))?
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(|error| {
            let message = format!("{} is not the key of {}", key.display(), certificate.display());
            Error::invalid(message).caused_by(error)
        })?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn bad(path: &Path, what: &str) -> Error {
    Error::invalid(format!("{} does not hold {what}", path.display()))
}
