//! The HTTP client: this host's certificates, a fixed provider of cryptography, and nothing from the environment.

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use reqwest::{Client, dns::Resolve, redirect::Policy};
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use rustls_platform_verifier::BuilderVerifierExt;

/// Reading the certificates takes milliseconds, so it is done once.
static TRUSTING_THIS_HOST: LazyLock<Result<ClientConfig, String>> = LazyLock::new(|| {
    let mut config = builder()?.with_platform_verifier().map_err(|error| error.to_string())?.with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
});

type Builder = rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>;

/// With an explicit provider: a process-wide default may be missing, and asking for it then would panic.
fn builder() -> Result<Builder, String> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())
}

/// A client for one question to a server of this scheme, found by this resolver of names. It follows nothing and remembers
/// nothing.
pub(super) fn client(scheme: &str, connect: Duration, names: Arc<dyn Resolve>) -> Result<Client, String> {
    let tls = if scheme == "https" {
        TRUSTING_THIS_HOST.clone()?
    } else {
        builder()?.with_root_certificates(RootCertStore::empty()).with_no_client_auth()
    };
    Client::builder()
        .tls_backend_preconfigured(tls)
        .no_proxy()
        .redirect(Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .connect_timeout(connect)
        .dns_resolver(names)
        .pool_max_idle_per_host(0)
        .user_agent(concat!("sandbar/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| error.without_url().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fetch::http::reach::{Names, Reach};

    #[test]
    fn no_process_wide_provider_is_needed() {
        assert!(rustls::crypto::CryptoProvider::get_default().is_none());
        for scheme in ["http", "https"] {
            client(scheme, Duration::from_secs(1), Arc::new(Names::new(Reach::Anywhere))).unwrap();
        }
        assert!(rustls::crypto::CryptoProvider::get_default().is_none());
    }
}
