//! The way to an answer: redirects, followed only where that gives nothing away.

use std::collections::HashSet;

use sandbar_http::{
    Client, HttpError, Request, Response, Retries, StatusCode, Timeouts, Url, forget_user,
    header::{HeaderMap, LOCATION},
};

use super::{
    Errand,
    reach::{Reach, is_public},
    trouble::Trouble,
};

const MOST_REDIRECTS: usize = 10;
const NOT_PUBLIC: &str =
    "it leads to an address of this host or of a private network, where only public ones may be asked";
/// What is added where a word of the caller's would have allowed it.
const ALLOWED_BY: &str = "; allow it with `--allow-private-addresses`, or in code with `allow_private_addresses`";

fn not_public(errand: &Errand<'_>) -> Trouble {
    let next = if errand.request.public_only { ALLOWED_BY } else { "" };
    errand.voice.refuse(&format!("{NOT_PUBLIC}{next}"))
}

/// Asks, and asks where it is sent to, until there is an answer with a file in it.
pub(super) async fn follow(errand: &Errand<'_>) -> Result<Response, Trouble> {
    let mut url = errand.url.clone();
    let mut headers = errand.headers.clone();
    let mut seen = HashSet::from([url.clone()]);
    let mut reach = errand.reach;
    loop {
        let answer = ask(errand, &url, &headers, reach).await?;
        reach = reach.after(answer.server_address());
        match answer.status() {
            StatusCode::OK => return Ok(answer),
            StatusCode::MOVED_PERMANENTLY
            | StatusCode::FOUND
            | StatusCode::SEE_OTHER
            | StatusCode::TEMPORARY_REDIRECT
            | StatusCode::PERMANENT_REDIRECT => {}
            other => return Err(errand.voice.status(other, answer.retry_after())),
        }
        url = next(errand, &answer, &url)?;
        if url.origin() != errand.url.origin() {
            // Not sent again even if a later redirect leads home: a stranger chose that path.
            headers = HeaderMap::new();
        }
        if seen.len() > MOST_REDIRECTS {
            return Err(errand.voice.refuse(&format!("there are more than {MOST_REDIRECTS} redirects")));
        }
        if !seen.insert(url.clone()) {
            return Err(errand.voice.refuse("its redirects lead in a circle"));
        }
    }
}

async fn ask(errand: &Errand<'_>, url: &Url, headers: &HeaderMap, reach: Reach) -> Result<Response, Trouble> {
    let times = errand.request.timeouts;
    let head = times.connect.saturating_add(times.idle);
    let client = Client::new(errand.request.proxies.clone()).connect_timeout(times.connect).fresh_connections();
    let client = match reach {
        Reach::Anywhere => client,
        Reach::Public => client.only(is_public),
    };
    // Attempts are counted for the whole way. The file comes as it is, for its digest is that of the file.
    let question = Request::get(url).headers(headers).uncompressed().retries(Retries::none());
    let answer = client.send(question.timeouts(Timeouts { head, idle: times.idle, total: None })).await;
    answer.map_err(|error| match error {
        HttpError::Refused { .. } => not_public(errand),
        other => errand.voice.failed("the server cannot be asked", other),
    })
}

fn next(errand: &Errand<'_>, answer: &Response, from: &Url) -> Result<Url, Trouble> {
    let refuse = |reason: &str| errand.voice.refuse(reason);
    let location = answer.headers().get(LOCATION).ok_or_else(|| refuse("it redirects to nowhere"))?;
    let location = location.to_str().map_err(|_| refuse("it redirects to something that is no address"))?;
    target(from, location).map_err(refuse)
}

fn target(from: &Url, location: &str) -> Result<Url, &'static str> {
    let mut url = from.join(location).map_err(|_| "it redirects to something that is no address")?;
    forget_user(&mut url);
    url.set_fragment(None);
    match (from.scheme(), url.scheme()) {
        ("http", "http" | "https") | ("https", "https") => Ok(url),
        ("https", "http") => Err("it redirects from https to http, where everybody can read along"),
        _ => Err("it redirects to something other than http and https"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_leads_to_the_same_or_a_safer_protocol() {
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
