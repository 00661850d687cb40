//! A page that rustdoc wrote, as far as the list of public items needs it.

/// Marks that a page consists of, found in its order.
const HEADING: &str = "<h2 id=\"";
const SECTION: &str = "<section id=\"";

/// One page: an item or a module.
pub(super) struct Page<'a>(&'a str);

/// An item that a module's page lists: kind and address, relative to the module.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) kind: String,
    pub(super) address: String,
}

/// Headings of an item's page below which its own members are listed.
const MEMBERS: [&str; 7] = [
    "implementations",
    "required-associated-types",
    "provided-associated-types",
    "required-associated-consts",
    "provided-associated-consts",
    "required-methods",
    "provided-methods",
];

/// What a derived `PartialEq` brings along.
const DERIVED: &str = "StructuralPartialEq";

impl<'a> Page<'a> {
    /// A whole page. Only the main content counts.
    pub(super) fn new(html: &'a str) -> Self {
        Self(html.split_once("id=\"main-content\"").map_or("", |(_, content)| content))
    }

    /// Whether the item is written in this crate. A page of an item that is exported again has no link to its source here.
    pub(super) fn is_of(&self, library: &str) -> bool {
        let heading = between(self.0, "<span class=\"sub-heading\">", "</span>").unwrap_or_default();
        let link = between(heading, "href=\"", "\"").unwrap_or_default();
        link.trim_start_matches("../").strip_prefix("src/").is_some_and(|path| path.starts_with(&format!("{library}/")))
    }

    /// The version of the compiler that wrote a page.
    pub(super) fn version(html: &str) -> Option<&str> {
        between(html, "data-rustdoc-version=\"", "\"")?.split(' ').next()
    }

    /// The items of a module's page.
    pub(super) fn entries(&self) -> Vec<Entry> {
        let links = self.0.split("<dt><a class=\"").skip(1);
        let entries = links.filter_map(|link| {
            let (kind, rest) = link.split_once('"')?;
            Some(Entry { kind: kind.to_owned(), address: between(rest, "href=\"", "\"")?.to_owned() })
        });
        entries.collect()
    }

    /// What a module's page exports without a page of its own.
    pub(super) fn exports(&self) -> Vec<String> {
        let exports = self.0.split("<dt id=\"reexport.").skip(1);
        exports.filter_map(|export| between(export, "<code>", "</code>")).map(text).collect()
    }

    /// The declaration in pieces: the head, then each field or variant.
    pub(super) fn declaration(&self) -> Vec<String> {
        let code = between(self.0, "<pre class=\"rust item-decl\"><code>", "</code></pre>").unwrap_or_default();
        // Long declarations have a button in between.
        let code = without(code, "<summary", "</summary>");
        pieces(&plain(&code))
    }

    /// The head of the declaration alone.
    pub(super) fn head(&self) -> String {
        self.declaration().into_iter().next().unwrap_or_default()
    }

    /// Methods, associated items and implemented traits, each as its signature; `name` is the item's own.
    pub(super) fn members(&self, name: &str) -> Vec<String> {
        let mut members = Vec::new();
        let mut implemented = Vec::new();
        let (mut heading, mut block) = ("", String::new());
        for mark in marks(self.0) {
            let (id, class, code) = match mark {
                Mark::Heading(id) => {
                    heading = if is_structure(id) { id } else { heading };
                    continue;
                }
                Mark::Section { id, class, code } => (id, class, text(code)),
            };
            match (heading, class) {
                ("implementations", "impl") => block = prefix_of(&code, name),
                ("implementations", _) => members.push(format!("{block}{code}")),
                ("trait-implementations", "impl") => match plain_trait(&code, name) {
                    Some(DERIVED) => {}
                    Some(known) => implemented.push(known.to_owned()),
                    None if code.contains(DERIVED) => {}
                    None => members.push(code),
                },
                ("trait-implementations", "associatedtype trait-impl") => members.push(format!("implements {code}")),
                ("synthetic-implementations", "impl") if is_negative(&code) => members.push(code),
                (kind, _) if MEMBERS.contains(&kind) => {
                    let is_required = id.starts_with("ty") || kind.starts_with("required");
                    members.push(format!("{} {code}", if is_required { "required" } else { "provided" }));
                }
                _ => {}
            }
        }
        implemented.sort();
        if !implemented.is_empty() {
            members.push(format!("implements {}", implemented.join(", ")));
        }
        members
    }
}

/// Whether a heading begins a part of the page, and not of the item's documentation.
fn is_structure(id: &str) -> bool {
    let others =
        ["fields", "variants", "trait-implementations", "synthetic-implementations", "blanket-implementations"];
    let traits = ["foreign-impls", "implementors", "synthetic-implementors", "dyn-compatibility"];
    MEMBERS.contains(&id) || others.contains(&id) || traits.contains(&id) || id.starts_with("deref-methods")
}

/// What stands before the methods of a block: nothing unless it is limited to some of the type's arguments.
fn prefix_of(code: &str, name: &str) -> String {
    if code.strip_prefix("impl ") == Some(name) { String::new() } else { format!("{code}: ") }
}

/// The trait of `impl Trait for Name`, where neither has parameters of its own.
fn plain_trait<'a>(code: &'a str, name: &str) -> Option<&'a str> {
    code.strip_prefix("impl ")?.strip_suffix(name)?.strip_suffix(" for ")
}

/// Of what the compiler derives by itself, only its absence is a decision.
fn is_negative(code: &str) -> bool {
    ["!Send for ", "!Sync for ", "!Unpin for "].iter().any(|absent| code.contains(absent))
}

enum Mark<'a> {
    Heading(&'a str),
    /// Its code is the line that the page shows for it, with tags.
    Section {
        id: &'a str,
        class: &'a str,
        code: &'a str,
    },
}

fn marks(html: &str) -> Vec<Mark<'_>> {
    let mut marks = Vec::new();
    let mut rest = html;
    while let Some(at) = [HEADING, SECTION].into_iter().filter_map(|mark| rest.find(mark)).min() {
        let is_heading = rest[at..].starts_with(HEADING);
        rest = &rest[at + if is_heading { HEADING } else { SECTION }.len()..];
        let id = rest.split('"').next().unwrap_or_default();
        marks.push(if is_heading {
            Mark::Heading(id)
        } else {
            let html = rest.split("</section>").next().unwrap_or_default();
            let class = between(html, "class=\"", "\"").unwrap_or_default();
            Mark::Section { id, class, code: between(html, "class=\"code-header\">", "</h").unwrap_or_default() }
        });
    }
    marks
}

/// A declaration of several lines: the head, and what its braces hold, where deeper lines belong to the one above.
fn pieces(declaration: &str) -> Vec<String> {
    let lines: Vec<&str> = declaration.lines().filter(|line| !line.trim().is_empty()).collect();
    let opening = lines.iter().position(|line| line.ends_with('{')).filter(|_| lines.last() == Some(&"}"));
    let Some(opening) = opening else { return vec![joined(&lines)] };
    let head = joined(&lines[..=opening]);
    let mut pieces = vec![head.trim_end_matches(['{', ' ', ',']).to_owned()];
    let mut members: Vec<Vec<&str>> = Vec::new();
    for line in &lines[opening + 1..lines.len() - 1] {
        let is_deeper = line.starts_with("     ") || matches!(line.trim(), "}" | "}," | ")" | "),");
        match members.last_mut() {
            Some(member) if is_deeper => member.push(line),
            _ => members.push(vec![line]),
        }
    }
    pieces.extend(members.iter().map(|member| joined(member)));
    pieces
}

/// Lines of code as one, as if it were wide enough.
fn joined(lines: &[&str]) -> String {
    let words: Vec<&str> = lines.iter().flat_map(|line| line.split_whitespace()).collect();
    let line = words
        .join(" ")
        .replace("( ", "(")
        .replace(", )", ")")
        .replace(" )", ")")
        .replace(", >", ">")
        .replace(", }", " }");
    // The page marks types that are iterators or readers.
    line.trim_end_matches([',', 'ⓘ', ' ']).to_owned()
}

/// The text of a piece of HTML, on one line.
fn text(html: &str) -> String {
    joined(&[&plain(html)])
}

/// Without tags, and with characters for their names.
fn plain(html: &str) -> String {
    // Blocks begin and end words; other tags stand inside them.
    let html = html.replace("<div", " <div").replace("</div>", "</div> ");
    let mut pieces = html.split('<');
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    pieces.for_each(|piece| plain.push_str(piece.split_once('>').map_or("", |(_, text)| text)));
    [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&nbsp;", " "), ("&#60;", "<"), ("&#62;", ">")]
        .into_iter()
        .fold(plain, |plain, (name, character)| plain.replace(name, character))
        .replace("&amp;", "&")
}

fn between<'a>(text: &'a str, start: &str, end: &str) -> Option<&'a str> {
    Some(text.split_once(start)?.1.split_once(end)?.0)
}

fn without(text: &str, start: &str, end: &str) -> String {
    let mut pieces = text.split(start);
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |all, piece| all + piece.split_once(end).map_or("", |(_, rest)| rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ITEM: &str = r##"<h1>Struct</h1><section id="main-content"><span class="sub-heading">
        <a class="src" href="../../src/shop/till.rs.html#1-9">Source</a></span><pre class="rust item-decl"><code><div
        class="code-attribute">#[non_exhaustive]</div>pub struct Till&lt;T&gt;<div class="where">where
    T: <a href="x">Coin</a>,</div>{
    pub coins: Vec&lt;T&gt;,
    pub limits: (
        u8,
        u8,
    ),
}</code></pre><div class="docblock"><h2 id="errors">Errors</h2></div>
<h2 id="implementations"></h2><section id="impl-Till" class="impl"><h3 class="code-header">impl&lt;T&gt; Till&lt;T&gt;</h3></section>
<section id="method.open" class="method"><h4 class="code-header">pub fn open(
    &amp;self,
    key: Key,
) -&gt; Result&lt;()&gt;<div class="where">where
    T: Coin,</div></h4></section>
<h2 id="deref-methods-str"></h2><section id="method.len" class="method"><h4 class="code-header">pub fn len(&amp;self)</h4></section>
<h2 id="trait-implementations"></h2><section id="a" class="impl"><h3 class="code-header">impl Eq for Till</h3></section>
<section id="b" class="impl"><h3 class="code-header">impl Clone for Till</h3></section>
<section id="method.clone" class="method trait-impl"><h4 class="code-header">fn clone()</h4></section>
<section id="c" class="impl"><h3 class="code-header">impl&lt;T&gt; From&lt;T&gt; for Till</h3></section>
<section id="associatedtype.E" class="associatedtype trait-impl"><h4 class="code-header">type E = u8</h4></section>
<h2 id="synthetic-implementations"></h2><section id="d" class="impl"><h3 class="code-header">impl Send for Till</h3></section>
<section id="e" class="impl"><h3 class="code-header">impl !Sync for Till</h3></section>
<h2 id="blanket-implementations"></h2><section id="f" class="impl"><h3 class="code-header">impl&lt;T&gt; Any for T</h3></section>"##;

    #[test]
    fn a_declaration_is_its_head_and_a_line_for_each_part() {
        let page = Page::new(ITEM);
        let head = "#[non_exhaustive] pub struct Till<T> where T: Coin";
        assert_eq!(page.declaration(), [head, "pub coins: Vec<T>", "pub limits: (u8, u8)"]);
        assert_eq!(page.head(), head);
        assert_eq!(pieces("pub trait A:\n    B\n    + C {\n    fn d();\n}"), ["pub trait A: B + C", "fn d();"]);
        assert_eq!(
            pieces("pub enum A {\n    B {\n        c: u8,\n    },\n    D,\n}"),
            ["pub enum A", "B { c: u8 }", "D"]
        );
        assert_eq!(pieces("pub fn f(\n    a: u8,\n) -> u8"), ["pub fn f(a: u8) -> u8"]);
    }

    #[test]
    fn members_are_what_the_item_itself_decides() {
        let members = Page::new(ITEM).members("Till");
        let expected = [
            "impl<T> Till<T>: pub fn open(&self, key: Key) -> Result<()> where T: Coin",
            "impl<T> From<T> for Till",
            "implements type E = u8",
            "impl !Sync for Till",
            "implements Clone, Eq",
        ];
        assert_eq!(members, expected);
    }

    #[test]
    fn an_item_of_another_crate_has_no_source_here() {
        let page = Page::new(ITEM);
        assert!(page.is_of("shop") && !page.is_of("sho") && !page.is_of("market"));
        assert!(!Page::new("<section id=\"main-content\">").is_of("shop"));
        assert_eq!(Page::version(r#"<meta data-rustdoc-version="1.95.0 (5980 2026)">"#), Some("1.95.0"));
    }

    #[test]
    fn a_module_lists_items_and_exports() {
        let html = r#"<section id="main-content"><dl><dt id="reexport.B"><code>pub use <a>bytes</a>::B;</code></dt></dl>
            <dt><a class="struct" href="struct.Till.html" title="">Ti<wbr>ll</a></dt>
            <dt><a class="mod" href="inner/index.html">inner</a></dt>"#;
        let page = Page::new(html);
        let entry = |kind: &str, address: &str| Entry { kind: kind.to_owned(), address: address.to_owned() };
        assert_eq!(page.entries(), [entry("struct", "struct.Till.html"), entry("mod", "inner/index.html")]);
        assert_eq!(page.exports(), ["pub use bytes::B;"]);
    }
}
