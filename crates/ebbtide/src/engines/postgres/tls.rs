//! TLS by rustls, according to the URL's `sslmode`.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::settings::{Roots, Trust};
use crate::model::error::{Error, Result};

/// Creates the TLS connector of a store.
pub(super) fn connector(trust: &Trust) -> Result<MakeRustlsConnect> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::invalid("cannot set up TLS").caused_by(error))?;
    let config = match trust {
        Trust::Authority { roots, host: true } => builder.with_root_certificates(read_roots(roots)?),
        Trust::Authority { roots, host: false } => {
            let roots = Arc::new(read_roots(roots)?);
            let inner = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider))
                .build()
                .map_err(|error| Error::invalid("cannot set up TLS").caused_by(error))?;
            let lenient = Lenient { provider, authority: Some(inner) };
            builder.dangerous().with_custom_certificate_verifier(Arc::new(lenient))
        }
        Trust::Anyone => {
            let lenient = Lenient { provider, authority: None };
            builder.dangerous().with_custom_certificate_verifier(Arc::new(lenient))
        }
    };
    Ok(MakeRustlsConnect::new(config.with_no_client_auth()))
}

fn read_roots(roots: &Roots) -> Result<RootCertStore> {
    let mut store = RootCertStore::empty();
    match roots {
        Roots::System => {
            store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        Roots::File(path) => {
            let wrong = || Error::invalid("cannot read the certificates of sslrootcert");
            for certificate in
                CertificateDer::pem_file_iter(path).map_err(|error| wrong().caused_by(error))?
            {
                let certificate = certificate.map_err(|error| wrong().caused_by(error))?;
                store.add(certificate).map_err(|error| wrong().caused_by(error))?;
            }
        }
    }
    if store.is_empty() {
        return Err(Error::invalid("no certificates to verify the server with; set sslrootcert"));
    }
    Ok(store)
}

/// Verifier weaker than `verify-full`: it checks the authority but not the host or, without an authority, only that
/// the server holds the key of its certificate.
#[derive(Debug)]
struct Lenient {
    provider: Arc<CryptoProvider>,
    authority: Option<Arc<WebPkiServerVerifier>>,
}

impl ServerCertVerifier for Lenient {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(authority) = &self.authority else { return Ok(ServerCertVerified::assertion()) };
        match authority.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verdict => verdict,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
