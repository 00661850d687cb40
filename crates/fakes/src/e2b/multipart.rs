//! A parser for `multipart/form-data`.

use bytes::Bytes;

/// One part of a form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) name: String,
    pub(super) filename: Option<String>,
    pub(super) content: Bytes,
}

/// The boundary parameter of a multipart content type.
pub(super) fn boundary(content_type: &str) -> Option<String> {
    let (kind, parameters) = content_type.split_once(';')?;
    if !kind.trim().to_ascii_lowercase().starts_with("multipart/") {
        return None;
    }
    parameter(parameters, "boundary")
}

/// Parses the parts of a form, or returns the fault.
pub(super) fn parts(form: &Bytes, boundary: &str) -> Result<Vec<Part>, &'static str> {
    let delimiter = format!("--{boundary}");
    // The first delimiter opens the form or follows a preamble, which is ignored.
    let mut at = find(form, delimiter.as_bytes()).ok_or("the boundary does not occur")? + delimiter.len();
    let delimiter = format!("\r\n{delimiter}");
    let mut parts = Vec::new();
    loop {
        let rest = form.get(at..).unwrap_or_default();
        if rest.starts_with(b"--") {
            return Ok(parts);
        }
        if !rest.starts_with(b"\r\n") {
            return Err("a boundary is followed by neither a part nor the end");
        }
        let head_end = find(rest, b"\r\n\r\n").ok_or("a part has no end of its headers")?;
        let content = at + head_end + 4;
        let end = find(&form[content..], delimiter.as_bytes()).ok_or("the form ends early")?;
        let head = String::from_utf8_lossy(&rest[..head_end]);
        let (name, filename) = disposition(&head).ok_or("a part has no name")?;
        parts.push(Part { name, filename, content: form.slice(content..content + end) });
        at = content + end + delimiter.len();
    }
}

/// The name and the file name in the headers of a part.
fn disposition(head: &str) -> Option<(String, Option<String>)> {
    let value = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.trim().eq_ignore_ascii_case("content-disposition").then_some(value)
    })?;
    let parameters = value.split_once(';')?.1;
    Some((parameter(parameters, "name")?, parameter(parameters, "filename")))
}

/// A parameter of `; name="value"; …`; a backslash escapes the next character.
fn parameter(parameters: &str, wanted: &str) -> Option<String> {
    let mut rest = parameters;
    loop {
        let (name, after) = rest.trim_start_matches([';', ' ', '\t']).split_once('=')?;
        let value: String;
        if let Some(quoted) = after.strip_prefix('"') {
            let mut letters = quoted.char_indices();
            let mut text = String::new();
            let end = loop {
                match letters.next()? {
                    (at, '"') => break at + 1,
                    (_, '\\') => text.push(letters.next()?.1),
                    (_, letter) => text.push(letter),
                }
            };
            (value, rest) = (text, &quoted[end..]);
        } else {
            let end = after.find(';').unwrap_or(after.len());
            (value, rest) = (after[..end].trim().to_owned(), &after[end..]);
        }
        if name.trim().eq_ignore_ascii_case(wanted) {
            return Some(value);
        }
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    let first = *wanted.first()?;
    let mut from = 0;
    loop {
        from += bytes.get(from..)?.iter().position(|byte| *byte == first)?;
        if bytes[from..].starts_with(wanted) {
            return Some(from);
        }
        from += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_taken_apart_byte_by_byte() {
        let kind = "multipart/form-data; charset=x; boundary=\"b-1\"";
        assert_eq!(boundary(kind).as_deref(), Some("b-1"));
        assert_eq!(boundary("application/json; boundary=x"), None);
        let form = b"--b-1\r\nContent-Disposition: form-data; name=\"file\"; filename=\"/tmp/a \\\"b\\\"\"\r\n\
            Content-Type: application/octet-stream\r\n\r\n\x00\r\n--b-0\r\n\r\n--b-1\r\n\
            content-disposition: form-data; name=file\r\n\r\n\r\n--b-1--\r\n";
        let parts = parts(&Bytes::from_static(form), "b-1").expect("a form");
        let [first, second] = &parts[..] else { panic!("{parts:?}") };
        assert_eq!(first.filename.as_deref(), Some("/tmp/a \"b\""));
        assert_eq!(first.content, &b"\x00\r\n--b-0\r\n"[..]);
        assert_eq!((second.filename.as_deref(), second.content.len()), (None, 0));
    }

    #[test]
    fn what_is_no_form_is_refused() {
        for form in
            [&b""[..], b"--b", b"--bx", b"--b\r\nno headers", b"--b\r\nA: b\r\n\r\nx", b"--b\r\nA: b\r\n\r\n\r\n--b"]
        {
            assert!(parts(&Bytes::copy_from_slice(form), "b").is_err(), "{form:?}");
        }
    }
}
