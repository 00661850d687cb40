//! Fetches data from the network: files over HTTP, repositories through git.
//!
//! Servers are not trusted. Everything they send is bounded in time and size, stored on disk and not in memory, and
//! checked before it reaches a workspace. Secrets are sent only to the origin they are for, and are in no message.

mod git;
mod http;

pub(crate) use sandbar_http::shown_text;
pub use sandbar_http::{Proxies, Proxy, ProxyError};

pub use git::{Checkout, CloneLimits, GitRequest, clone};
pub use http::{Download, HttpRequest, Retries, Timeouts, download};
