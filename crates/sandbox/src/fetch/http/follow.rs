//! Sends a request and follows redirects without leaking credentials.

use std::collections::HashSet;

use sandbar_http::{
    Client, HttpError, Request, Response, Retries, StatusCode, Timeouts, Url, forget_user,
    header::{HeaderMap, LOCATION},
};

use super::{
    Fetch,
    failure::Failure,
    reach::{Reach, is_public},
};

const MOST_REDIRECTS: usize = 10;
const NOT_PUBLIC: &str =
    "it leads to an address of this host or of a private network, and only public addresses are allowed";
/// Hint for the error if the caller could have allowed private addresses.
const ALLOWED_BY: &str = "; allow it with `--allow-private-addresses`, or in code with `allow_private_addresses`";

fn not_public(fetch: &Fetch<'_>) -> Failure {
    let next = if fetch.request.public_only { ALLOWED_BY } else { "" };
    fetch.reporter.refuse(&format!("{NOT_PUBLIC}{next}"))
}

/// Sends the request, follows redirects, and returns the response with the file.
pub(super) async fn follow(fetch: &Fetch<'_>) -> Result<Response, Failure> {
    let mut url = fetch.url.clone();
    let mut headers = fetch.headers.clone();
    let mut seen = HashSet::from([url.clone()]);
    let mut reach = fetch.reach;
    loop {
        let answer = ask(fetch, &url, &headers, reach).await?;
        reach = reach.after(answer.server_address());
        match answer.status() {
            StatusCode::OK => return Ok(answer),
            StatusCode::MOVED_PERMANENTLY
            | StatusCode::FOUND
            | StatusCode::SEE_OTHER
            | StatusCode::TEMPORARY_REDIRECT
            | StatusCode::PERMANENT_REDIRECT => {}
            other => return Err(fetch.reporter.status(other, answer.retry_after())),
        }
        url = next(fetch, &answer, &url)?;
        if url.origin() != fetch.url.origin() {
            // Not sent again even if a later redirect leads back to the origin: an untrusted server chose that path.
            headers = HeaderMap::new();
        }
        if seen.len() > MOST_REDIRECTS {
            return Err(fetch.reporter.refuse(&format!("there are more than {MOST_REDIRECTS} redirects")));
        }
        if !seen.insert(url.clone()) {
            return Err(fetch.reporter.refuse("its redirects form a loop"));
        }
    }
}

async fn ask(fetch: &Fetch<'_>, url: &Url, headers: &HeaderMap, reach: Reach) -> Result<Response, Failure> {
    let times = fetch.request.timeouts;
    let head = times.connect.saturating_add(times.idle);
    let client = Client::new(fetch.request.proxies.clone()).connect_timeout(times.connect).fresh_connections();
    let client = match reach {
        Reach::Anywhere => client,
        Reach::Public => client.only(is_public),
    };
    // Attempts are counted for the whole chain of redirects. The digest is that of the uncompressed file.
    let question = Request::get(url).headers(headers).uncompressed().retries(Retries::none());
    let answer = client.send(question.timeouts(Timeouts { head, idle: times.idle, total: None })).await;
    answer.map_err(|error| match error {
        HttpError::Refused { .. } => not_public(fetch),
        other => fetch.reporter.failed("the request failed", other),
    })
}

fn next(fetch: &Fetch<'_>, answer: &Response, from: &Url) -> Result<Url, Failure> {
    let refuse = |reason: &str| fetch.reporter.refuse(reason);
    let location = answer.headers().get(LOCATION).ok_or_else(|| refuse("it redirects without a `Location`"))?;
    let location = location.to_str().map_err(|_| refuse("it redirects to an invalid address"))?;
    target(from, location).map_err(refuse)
}

fn target(from: &Url, location: &str) -> Result<Url, &'static str> {
    let mut url = from.join(location).map_err(|_| "it redirects to an invalid address")?;
    forget_user(&mut url);
    url.set_fragment(None);
    match (from.scheme(), url.scheme()) {
        ("http", "http" | "https") | ("https", "https") => Ok(url),
        ("https", "http") => Err("it redirects from https to http, which is not encrypted"),
        _ => Err("it redirects to something other than http and https"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_leads_to_the_same_or_a_more_secure_protocol() {
        let table = [
            ("http://h/a/b", "c", Some("http://h/a/c")),
            ("http://h/a/b", "https://g/", Some("https://g/")),
            ("https://h/a/b", "//g/x#y", Some("https://g/x")),
            ("https://h/a", "https://me:pass@g/x", Some("https://g/x")),
            ("https://h/a", "http://h/a", None),
            ("https://h/a", "file:///etc/passwd", None),
            ("http://h/a", "data:,x", None),
            ("http://h/a", "http://[x", None),
        ];
        for (from, location, expected) in table {
            let url = target(&Url::parse(from).unwrap(), location);
            assert_eq!(url.as_ref().map(Url::as_str).ok(), expected, "{from} -> {location}");
        }
    }
}
