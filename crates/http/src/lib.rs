//! The HTTP client that models, downloads and providers share.
//!
//! A [`Client`] is created with the [`Proxies`] it may use and sends [`Request`]s. Every server is untrusted: heads and
//! bodies are bounded in time and size, redirects are not followed, and no error contains a secret of its request.
//!
//! - TLS: one provider of cryptography, and the certificates that this host trusts.
//! - Proxies: only those that were passed to the client; never for this host, and never for a key over plain http.
//! - Retries: if repeating the request is harmless, with the pause that the server asks for, up to a limit.

mod address;
mod client;
mod coding;
mod complaint;
mod error;
mod patience;
mod proxy;
mod redaction;
mod request;
mod resolve;
mod response;
mod retry;
mod tls;

pub use reqwest::{Method, StatusCode, Url, header};

pub use self::{
    address::{Credentials, forget_user, is_loopback, origin, shown, shown_text},
    client::Client,
    complaint::{Complaint, error_parts},
    error::{HttpError, Phase},
    patience::{Patience, RealTime},
    proxy::{Key, Proxies, Proxy, ProxyError, Route},
    redaction::Redaction,
    request::{Request, Timeouts},
    resolve::Check,
    response::Response,
    retry::{Retries, retry_after},
};
