//! The TLS configuration of every connection: one crypto provider, and the certificates that this host trusts.

use std::sync::{Arc, LazyLock};

use rustls::{ClientConfig, ConfigBuilder, RootCertStore, WantsVerifier, crypto::ring};
use rustls_platform_verifier::BuilderVerifierExt;

/// Created once, because reading the certificates takes milliseconds.
static TRUSTING_THIS_HOST: LazyLock<Result<ClientConfig, String>> = LazyLock::new(|| {
    let mut config = builder()?.with_platform_verifier().map_err(|error| error.to_string())?.with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
});

/// Trusts the certificates that this host trusts.
pub(crate) fn trusting_this_host() -> Result<ClientConfig, String> {
    TRUSTING_THIS_HOST.clone()
}

/// Trusts no server: for connections without TLS, which need no certificates.
pub(crate) fn trusting_none() -> Result<ClientConfig, String> {
    Ok(builder()?.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}

/// Uses an explicit provider: a process-wide default may be missing, and rustls then panics.
fn builder() -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, String> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())
}
