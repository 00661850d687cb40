//! How things from the network get in: files over HTTP, repositories through git.
//!
//! A server is a stranger: whatever it sends is bounded in time and size, lands on disk and not in memory, and reaches no
//! workspace before it has been checked. Secrets go only to the origin they were given for, and into no message.

mod git;
mod http;

pub(crate) use sandbar_http::shown_text;
pub use sandbar_http::{Proxies, Proxy, ProxyError};

pub use git::{Checkout, CloneLimits, GitRequest, clone};
pub use http::{Download, HttpRequest, Retries, Timeouts, download};
