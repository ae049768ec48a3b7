//! TLS from PEM files.

use std::path::Path;
use std::sync::Arc;

use ebbtide::{Error, Result};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

/// Loads the TLS configuration of a server, with the certificate chain in one PEM file and its key in another: TLS
/// 1.2 and 1.3, HTTP/2 and HTTP/1.1. The error names the bad file, and nothing in it.
///
/// With `client_ca`, clients must present a certificate that one of its authorities has signed.
pub fn tls(certificate: &Path, key: &Path, client_ca: Option<&Path>) -> Result<Arc<ServerConfig>> {
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| bad(certificate, "certificates in PEM form").caused_by(error))?;
    if chain.is_empty() {
        return Err(bad(certificate, "certificates in PEM form"));
    }
    let private = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| bad(key, "a private key in PEM form").caused_by(error))?;
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::invalid("cannot enable any version of TLS").caused_by(error))?;
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(authorities(path)?, provider).build();
            let verifier = verifier
                .map_err(|error| bad(path, "certificate authorities in PEM form").caused_by(error))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_single_cert(chain, private).map_err(|error| {
        let message = format!("{} is not the key of {}", key.display(), certificate.display());
        Error::invalid(message).caused_by(error)
    })?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn authorities(path: &Path) -> Result<Arc<RootCertStore>> {
    let wrong = || bad(path, "certificate authorities in PEM form");
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| wrong().caused_by(error))? {
        let certificate = certificate.map_err(|error| wrong().caused_by(error))?;
        roots.add(certificate).map_err(|error| wrong().caused_by(error))?;
    }
    Ok(Arc::new(roots))
}

fn bad(path: &Path, what: &str) -> Error {
    Error::invalid(format!("{} does not hold {what}", path.display()))
}
