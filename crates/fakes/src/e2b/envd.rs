//! `envd`, the service inside a sandbox: authentication, users, paths, and the dispatch to its methods.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hyper::{HeaderMap, Method, Response, header::AUTHORIZATION, http::request::Parts};
use sandbar_machine::MachinePath;
use serde_json::{Value, json};

use super::{
    connect::{self, Code, Envelopes, Framing, RpcError},
    files, filesystem, input,
    sandbox::{Sandbox, USER, User},
    start,
};
use crate::{
    body::{self, Body, RequestBody},
    listener::respond,
};

/// Port that `envd` listens on.
pub(super) const PORT: u16 = 49983;
/// Version of `envd` whose behaviour this fake copies.
pub(super) const VERSION: &str = "0.6.13";

/// A sandbox, and the user that a call is made for.
pub(super) struct Caller {
    pub(super) sandbox: Arc<Sandbox>,
    pub(super) user: User,
}

impl Caller {
    /// The user that HTTP Basic authentication names.
    fn of(sandbox: &Arc<Sandbox>, headers: &HeaderMap) -> Result<Self, RpcError> {
        let basic = |value: &str| {
            let decoded = STANDARD.decode(value.strip_prefix("Basic ")?.trim()).ok()?;
            String::from_utf8(decoded).ok()?.split(':').next().map(str::to_owned)
        };
        let named = headers.get(AUTHORIZATION).and_then(|value| basic(value.to_str().ok()?));
        Self::named(sandbox, named.as_deref().unwrap_or(USER))
            .map_err(|name| RpcError::new(Code::Unauthenticated, format!("invalid username: '{name}'")))
    }

    /// The user with this name. The error is the unknown name.
    pub(super) fn named(sandbox: &Arc<Sandbox>, name: &str) -> Result<Self, String> {
        let name = if name.is_empty() { USER } else { name };
        let user = sandbox.user(name).cloned().ok_or_else(|| name.to_owned())?;
        Ok(Self { sandbox: sandbox.clone(), user })
    }
}

/// Resolves a path as `envd` does: relative to the user's home, which is also `~`.
pub(super) fn expand(path: &str, user: &User) -> Result<MachinePath, RpcError> {
    let home = &user.home;
    let whole = match path.strip_prefix('~') {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => format!("{home}{rest}"),
        Some(_) => {
            let message = format!("failed to expand path '{path}' for user '{}'", user.name);
            return Err(RpcError::new(Code::InvalidArgument, message));
        }
        // The default directory of every template is this home, for every user.
        None if path.is_empty() => format!("/home/{USER}"),
        None if path.starts_with('/') => path.to_owned(),
        None => format!("{home}/{path}"),
    };
    let mut parts = Vec::new();
    for part in whole.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    Ok(MachinePath::new(format!("/{}", parts.join("/")))?)
}

/// Answers a request to `envd`.
pub(super) async fn answer(sandbox: Arc<Sandbox>, parts: Parts, body: RequestBody) -> Response<Body> {
    let path = parts.uri.path().to_owned();
    // The first needs no token; the second checks tokens and signatures itself.
    match (&parts.method, path.as_str()) {
        (&Method::GET, "/health") => {
            let headers = [("cache-control", "no-store"), ("content-type", ""), ("vary", "Origin")];
            return respond(204, &headers, body::full(""));
        }
        (&Method::GET | &Method::POST, "/files") => return files::answer(&sandbox, parts, body).await,
        _ => {}
    }
    let token = parts.headers.get("x-access-token").and_then(|token| token.to_str().ok());
    if sandbox.token.is_some() && sandbox.token.as_deref() != token {
        return refuse(401, "unauthorized access, please provide a valid access token");
    }
    match (&parts.method, &path.split('/').collect::<Vec<_>>()[..]) {
        (&Method::POST, ["", "process.Process", method]) => process(&sandbox, method, &parts.headers, body).await,
        (&Method::POST, ["", "filesystem.Filesystem", method]) => {
            if let Some(refused) = Framing::Unary.refuse(&parts.headers) {
                return refused;
            }
            let caller = Caller::of(&sandbox, &parts.headers);
            let answer = async { filesystem::answer(&caller?, method, &connect::message(body).await?).await };
            connect::unary(within(&parts.headers, answer).await)
        }
        _ => respond(404, &[("content-type", "text/plain; charset=utf-8")], body::full("404 page not found\n")),
    }
}

async fn process(sandbox: &Arc<Sandbox>, method: &str, headers: &HeaderMap, body: RequestBody) -> Response<Body> {
    let streams = matches!(method, "Start" | "Connect" | "StreamInput");
    let framing = if streams { Framing::Stream } else { Framing::Unary };
    if let Some(refused) = framing.refuse(headers) {
        return refused;
    }
    match method {
        "Start" => match Caller::of(sandbox, headers) {
            Ok(caller) => start::start(caller, headers, body).await,
            Err(error) => connect::stream(futures::stream::iter([Err(error)])),
        },
        "Connect" => start::attach(sandbox, headers, body).await,
        "StreamInput" => {
            let sent = within(headers, input::send_stream(sandbox, Envelopes::new(body))).await;
            connect::stream(futures::stream::iter([sent]))
        }
        _ => {
            let answer = async {
                let request = connect::message(body).await?;
                match method {
                    "List" => input::list(sandbox),
                    "SendInput" => input::send(sandbox, &request).await,
                    "CloseStdin" => input::close_stdin(sandbox, &request).await,
                    "SendSignal" => input::signal(sandbox, &request).await,
                    "Update" => input::update(sandbox, &request).await,
                    _ => Err(RpcError::new(Code::Unimplemented, "unknown method")),
                }
            };
            connect::unary(within(headers, answer).await)
        }
    }
}

/// Applies the call's `Connect-Timeout-Ms`.
async fn within(headers: &HeaderMap, answer: impl Future<Output = Result<Value, RpcError>>) -> Result<Value, RpcError> {
    match connect::deadline(headers)? {
        Some(after) => tokio::time::timeout(after, answer).await.unwrap_or_else(|_| Err(RpcError::deadline())),
        None => answer.await,
    }
}

/// An error of the plain HTTP methods.
pub(super) fn refuse(status: u16, message: &str) -> Response<Body> {
    let headers = [
        ("content-type", "application/json; charset=utf-8"),
        ("vary", "Origin"),
        ("x-content-type-options", "nosniff"),
    ];
    respond(status, &headers, body::full(json!({"code": status, "message": message}).to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_expanded_as_envd_does() {
        let user = User::for_tests("user", "/home/user");
        let root = User::for_tests("root", "/root");
        let expanded = |path, user| expand(path, user).map(|path| path.to_string()).ok();
        for (path, whole) in [
            ("", "/home/user"),
            ("a/b", "/home/user/a/b"),
            ("./a//b/", "/home/user/a/b"),
            ("~", "/home/user"),
            ("~/x", "/home/user/x"),
            ("/tmp/../etc", "/etc"),
            ("/..", "/"),
        ] {
            assert_eq!(expanded(path, &user).as_deref(), Some(whole), "{path}");
        }
        assert_eq!(expanded("x", &root).as_deref(), Some("/root/x"));
        assert_eq!(expanded("", &root).as_deref(), Some("/home/user"));
        assert_eq!(expanded("~other/x", &user), None);
    }
}
