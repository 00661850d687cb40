//! The subcommands and long options of `sandbar`, as its sources declare them to clap.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// The enumeration of the subcommands, and the options that every subcommand has.
const ROOT: &str = "Task";
const EVERYWHERE: &str = "Args";
const BUILT_IN: [&str; 2] = ["help", "version"];

/// Everything that can be typed after `sandbar`.
pub(crate) struct CommandLine {
    /// Subcommands of each enumeration, with the type of their arguments (empty for arguments that are declared in place).
    subcommands: BTreeMap<String, BTreeMap<String, String>>,
    arguments: BTreeMap<String, Arguments>,
}

/// The fields of one type of arguments.
#[derive(Default)]
struct Arguments {
    options: BTreeSet<String>,
    /// Types whose options belong to this one.
    flattened: Vec<String>,
}

/// What `CommandLine::check` found in a text.
#[derive(Default)]
pub(crate) struct Findings {
    pub(crate) checked: usize,
    pub(crate) wrong: Vec<String>,
}

impl CommandLine {
    /// Reads `args.rs` and the files of `args/` in this folder.
    pub(crate) fn read(folder: &Path) -> Self {
        let mut line = Self { subcommands: BTreeMap::new(), arguments: BTreeMap::new() };
        let modules = fs::read_dir(folder.join("args")).expect("a folder").map(|file| file.expect("a file").path());
        for path in modules.chain([folder.join("args.rs")]) {
            let text = fs::read_to_string(path).expect("a source");
            let declarations = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
            line.add(declarations);
        }
        assert!(line.subcommands.contains_key(ROOT) && line.arguments.contains_key(EVERYWHERE), "the types have moved");
        line
    }

    fn add(&mut self, text: &str) {
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            let Some((kind, name)) = opening(line) else { continue };
            let mut body = lines.by_ref().take_while(|line| *line != "}");
            match kind {
                "struct" => drop(self.arguments.insert(name.to_owned(), Arguments::of(&mut body))),
                _ => drop(self.subcommands.insert(name.to_owned(), variants(&mut body))),
            }
        }
    }

    /// Every path of subcommands, such as `session`, `exec`.
    pub(crate) fn paths(&self) -> Vec<Vec<&str>> {
        let mut paths = Vec::new();
        for (name, arguments) in &self.subcommands[ROOT] {
            match self.subcommands.get(arguments) {
                Some(below) => paths.extend(below.keys().map(|below| vec![name.as_str(), below.as_str()])),
                None => paths.push(vec![name.as_str()]),
            }
        }
        paths
    }

    fn options(&self, name: &str) -> BTreeSet<&str> {
        let Some(arguments) = self.arguments.get(name) else { return BTreeSet::new() };
        let own = arguments.options.iter().map(String::as_str);
        own.chain(arguments.flattened.iter().flat_map(|name| self.options(name))).collect()
    }

    /// Checks every call of `sandbar` in a line of shell, and options that stand alone.
    pub(crate) fn check(&self, text: &str) -> Findings {
        let mut findings = Findings::default();
        for call in calls(text) {
            // Variables and `sudo` may stand before the name of the program.
            let mut words = call.iter().skip_while(|word| *word == "sudo" || word.contains('='));
            if words.next().is_none_or(|program| program != "sandbar") {
                continue;
            }
            findings.checked += 1;
            findings.wrong.extend(self.fault(words));
        }
        if let Some(option) = text.strip_prefix("--").filter(|option| !option.is_empty()) {
            let name = option.split([' ', '=']).next().unwrap_or_default();
            let is_known = self.arguments.values().any(|arguments| arguments.options.contains(name));
            findings.wrong.extend((!is_known && !BUILT_IN.contains(&name)).then(|| format!("no option --{name}")));
        }
        findings
    }

    /// What is wrong with the words after `sandbar`.
    fn fault<'a>(&self, words: impl Iterator<Item = &'a String>) -> Option<String> {
        let mut words = words.take_while(|word| *word != "--");
        let mut subcommands = Some(&self.subcommands[ROOT]);
        let mut arguments = EVERYWHERE;
        for word in words.by_ref() {
            let Some(known) = subcommands.filter(|_| !word.starts_with('-')) else {
                if let Some(fault) = self.unknown_option(word, arguments) {
                    return Some(fault);
                }
                continue;
            };
            // A word in capitals, such as COMMAND, stands for any subcommand.
            if word == "help" || word.chars().all(char::is_uppercase) {
                return None;
            }
            let Some(next) = known.get(word) else { return Some(format!("no subcommand {word}")) };
            arguments = next;
            subcommands = self.subcommands.get(next);
        }
        None
    }

    fn unknown_option(&self, word: &str, arguments: &str) -> Option<String> {
        let name = word.strip_prefix("--")?.split('=').next()?;
        let is_known = BUILT_IN.contains(&name)
            || self.options(EVERYWHERE).contains(name)
            || self.options(arguments).contains(name);
        (!is_known).then(|| format!("no option --{name}"))
    }
}

impl Arguments {
    fn of<'a>(body: &mut impl Iterator<Item = &'a str>) -> Self {
        let mut arguments = Self::default();
        while let Some((attributes, line)) = declaration(body) {
            let Some((name, kind)) = line.trim_start_matches("pub(crate) ").split_once(": ") else { continue };
            if attributes.contains("flatten") {
                arguments.flattened.push(kind.trim_end_matches(',').to_owned());
            } else if let Some(option) = long_option(&attributes, name) {
                arguments.options.insert(option);
            }
        }
        arguments
    }
}

/// The kind and the name of a type that opens on this line.
fn opening(line: &str) -> Option<(&str, &str)> {
    let rest = line.strip_prefix("pub(crate) ").or_else(|| line.strip_prefix("pub ")).unwrap_or(line);
    let (kind, name) = rest.strip_suffix(" {")?.split_once(' ')?;
    (kind == "struct" || kind == "enum").then_some((kind, name))
}

fn variants<'a>(body: &mut impl Iterator<Item = &'a str>) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    while let Some((_, line)) = declaration(body) {
        if !line.starts_with(char::is_uppercase) {
            continue;
        }
        let name = line.split(['(', ' ', ',']).next().unwrap_or_default();
        let inner = line.split_once('(').map_or("", |(_, inner)| inner.trim_end_matches([',', ')', '>']));
        found.insert(kebab(name), inner.trim_start_matches("Box<").to_owned());
    }
    found
}

/// The next line of a type that is no comment, with the attributes above it.
fn declaration<'a>(body: &mut impl Iterator<Item = &'a str>) -> Option<(String, &'a str)> {
    let mut attributes = String::new();
    let mut depth = 0;
    loop {
        let line = body.next()?.trim();
        if depth > 0 || line.starts_with("#[") {
            attributes += line;
            depth += line.matches(['[', '(']).count();
            depth -= line.matches([']', ')']).count().min(depth);
        } else if !line.is_empty() && !line.starts_with("//") {
            return Some((attributes, line));
        }
    }
}

/// The long option that these attributes give to a field.
fn long_option(attributes: &str, field: &str) -> Option<String> {
    if let Some((_, rest)) = attributes.split_once("long = \"") {
        return rest.split('"').next().map(str::to_owned);
    }
    let outside_strings: String = attributes.split('"').step_by(2).collect();
    let mut words = outside_strings.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.any(|word| word == "long").then(|| field.replace('_', "-"))
}

fn kebab(name: &str) -> String {
    let mut text = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !text.is_empty() {
            text.push('-');
        }
        text.extend(c.to_lowercase());
    }
    text
}

/// The commands of a line of shell, each as its words. Quotes are taken away, comments are left out.
fn calls(text: &str) -> Vec<Vec<String>> {
    let mut calls = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in text.chars() {
        match (quote, c) {
            (Some(open), c) if open == c => quote = None,
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, ' ' | '|' | ';' | '&' | '(' | ')') => {
                calls.last_mut().expect("a call").extend(word.take());
                if c != ' ' {
                    calls.push(Vec::new());
                }
            }
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    calls.last_mut().expect("a call").extend(word);
    calls
}

#[test]
fn a_command_line_is_read_from_the_sources_of_clap() {
    let mut line = CommandLine { subcommands: BTreeMap::new(), arguments: BTreeMap::new() };
    line.add(
        "pub(crate) struct Args {\n    #[arg(short, long,\n        value_name = \"a long one\")]\n    verbose: u8,\n}\n\
         enum Task {\n    /// X.\n    Go(Box<GoArgs>),\n    #[command(subcommand)]\n    Way(WayTask),\n}\n\
         enum WayTask {\n    TurnBack(GoArgs),\n}\n\
         struct GoArgs {\n    #[command(flatten)]\n    more: MoreArgs,\n    #[arg(value_name = \"a long one\")]\n    place: X,\n}\n\
         struct MoreArgs {\n    #[arg(long = \"by\")]\n    hows: Vec<String>,\n    #[arg(long)]\n    dry_run: bool,\n}\n",
    );
    let faults = |text: &str| line.check(text).wrong;
    for sound in [
        "sandbar go there --by foot --dry-run",
        "sandbar --verbose way turn-back --dry-run -- ls --place",
        "x=$(sandbar go) # --place",
        "echo 'sandbar stay' | sandbar go",
        "--by foot",
        "sandbar help",
        "cargo run -p sandbar --example x",
    ] {
        assert_eq!(faults(sound), [""; 0], "{sound}");
    }
    for (wrong, reason) in [
        ("sandbar stay", "no subcommand stay"),
        ("sandbar way go", "no subcommand go"),
        ("sandbar go --place x", "no option --place"),
        ("true | sandbar way turn-back --hows", "no option --hows"),
        ("X=1 sudo sandbar stay", "no subcommand stay"),
        ("--place", "no option --place"),
    ] {
        assert_eq!(faults(wrong), [reason], "{wrong}");
    }
}
