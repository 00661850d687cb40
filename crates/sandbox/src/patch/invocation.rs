//! A patch inside a command line: `apply_patch <<'EOF'`, found by reading, never by running.

/// A patch that a command line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    /// The patch's text.
    pub patch: String,
    /// The directory that the command line goes to first.
    pub dir: Option<String>,
}

impl Invocation {
    /// Where the patch's paths begin: where the command line would run, and then where it goes to first.
    #[must_use]
    pub fn directory(&self, workdir: Option<&str>) -> Option<String> {
        match (workdir, self.dir.as_deref()) {
            (Some(workdir), Some(dir)) if !dir.starts_with('/') => Some(format!("{workdir}/{dir}")),
            (workdir, dir) => dir.or(workdir).map(str::to_owned),
        }
    }
}

const PROGRAMS: [&str; 2] = ["apply_patch", "applypatch"];
const SHELLS: [&str; 4] = ["bash", "sh", "zsh", "dash"];

/// The patch in a command, if the command does nothing but apply it: `["apply_patch", text]`, or a shell with a script that
/// [`from_script`] understands.
#[must_use]
pub fn from_command<S: AsRef<str>>(argv: &[S]) -> Option<Invocation> {
    let argv: Vec<&str> = argv.iter().map(AsRef::as_ref).collect();
    match argv.as_slice() {
        [program, patch] if PROGRAMS.contains(program) => Some(Invocation { patch: (*patch).to_owned(), dir: None }),
        [shell, flags, script] if is_shell(shell) && flags.starts_with('-') && flags.ends_with('c') => {
            from_script(script)
        }
        [script] => from_script(script),
        _ => None,
    }
}

fn is_shell(program: &str) -> bool {
    program.rsplit('/').next().is_some_and(|name| SHELLS.contains(&name))
}

/// The patch in a script, if the script does nothing but apply it: `apply_patch` with a here-document or one quoted
/// argument, perhaps after `cd DIR &&`.
#[must_use]
pub fn from_script(script: &str) -> Option<Invocation> {
    let mut rest = script.trim();
    let mut dir = None;
    if let Some(after) = word_then_space(rest, "cd") {
        let (name, after) = shell_word(after)?;
        rest = after.trim_start_matches([' ', '\t']).strip_prefix("&&")?.trim_start();
        dir = Some(name);
    }
    let rest = PROGRAMS.iter().find_map(|program| word_then_space(rest, program))?;
    let patch = if rest.starts_with("<<") {
        document(rest)?
    } else {
        let (patch, after) = shell_word(rest)?;
        after.trim().is_empty().then_some(patch)?
    };
    Some(Invocation { patch, dir })
}

/// What a here-document holds, with or without the program it is given to; `None` for any other text.
pub(super) fn heredoc(text: &str) -> Option<String> {
    let text = text.trim();
    let rest = PROGRAMS.iter().find_map(|program| word_then_space(text, program)).unwrap_or(text);
    document(rest)
}

fn word_then_space<'t>(text: &'t str, word: &str) -> Option<&'t str> {
    let rest = text.strip_prefix(word)?;
    rest.starts_with([' ', '\t']).then(|| rest.trim_start_matches([' ', '\t']))
}

/// One word as a shell reads it; `None` where its meaning would depend on the shell.
fn shell_word(text: &str) -> Option<(String, &str)> {
    if let Some(inner) = text.strip_prefix('\'') {
        let (word, rest) = inner.split_once('\'')?;
        return Some((word.to_owned(), rest));
    }
    if let Some(inner) = text.strip_prefix('"') {
        let (word, rest) = inner.split_once('"')?;
        return (!word.contains(['$', '`', '\\', '!'])).then(|| (word.to_owned(), rest));
    }
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    let special = ['$', '`', '\\', '\'', '"', '*', '?', '[', '~', ';', '&', '|', '<', '>', '(', ')', '{', '#', '!'];
    (!word.is_empty() && !word.contains(special)).then(|| (word.to_owned(), rest))
}

/// The lines of a here-document that ends with the text.
fn document(text: &str) -> Option<String> {
    let (head, body) = text.strip_prefix("<<")?.split_once('\n')?;
    let head = head.strip_prefix('-').unwrap_or(head).trim();
    let unquoted = ['\'', '"'].iter().find_map(|quote| head.strip_prefix(*quote)?.strip_suffix(*quote));
    let delimiter = unquoted.unwrap_or(head);
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    if delimiter.is_empty() || !delimiter.chars().all(is_word) {
        return None;
    }
    let body = body.trim_end();
    let (lines, last) = body.rsplit_once('\n').unwrap_or(("", body));
    let ends_early = lines.split('\n').any(|line| line == delimiter);
    (last.trim() == delimiter && !ends_early).then(|| format!("{lines}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: &str = "*** Begin Patch\n*** Delete File: a\n*** End Patch\n";

    #[test]
    fn a_patch_is_found_in_a_command_that_does_nothing_else() {
        let found: &[(String, Option<&str>)] = &[
            (format!("apply_patch <<'EOF'\n{PATCH}EOF\n"), None),
            (format!("apply_patch <<EOF\n{PATCH}EOF"), None),
            (format!("apply_patch <<-\"PATCH\"\n{PATCH}\tPATCH\n\n"), None),
            (format!("applypatch << 'EOF'\n{PATCH}EOF"), None),
            (format!("  cd src && apply_patch <<'EOF'\n{PATCH}EOF\n"), Some("src")),
            (format!("cd 'my dir' && apply_patch <<'EOF'\n{PATCH}EOF\n"), Some("my dir")),
            (format!("cd \"my dir\" &&\napply_patch <<'EOF'\n{PATCH}EOF\n"), Some("my dir")),
            (format!("apply_patch '{PATCH}'"), None),
            (format!("apply_patch \"{PATCH}\"\n"), None),
        ];
        for (script, dir) in found {
            let expected = Some(Invocation { patch: PATCH.to_owned(), dir: dir.map(str::to_owned) });
            assert_eq!(from_script(script), expected, "{script}");
            assert_eq!(from_command(&["/bin/bash", "-lc", script]), expected, "{script}");
            assert_eq!(from_command(&[script]), expected, "{script}");
        }
        let direct = Some(Invocation { patch: PATCH.to_owned(), dir: None });
        assert_eq!(from_command(&["apply_patch", PATCH]), direct);
    }

    #[test]
    fn paths_begin_where_the_command_line_would_be() {
        for (workdir, dir, expected) in [
            (None, None, None),
            (Some("src"), None, Some("src")),
            (None, Some("lib"), Some("lib")),
            (Some("src"), Some("lib"), Some("src/lib")),
            (Some("src"), Some("/workspace/lib"), Some("/workspace/lib")),
        ] {
            let found = Invocation { patch: String::new(), dir: dir.map(str::to_owned) };
            assert_eq!(found.directory(workdir).as_deref(), expected, "{workdir:?} {dir:?}");
        }
    }

    #[test]
    fn a_command_that_does_more_is_left_to_the_shell() {
        let table = [
            format!("apply_patch <<'EOF'\n{PATCH}EOF\nrm -rf x"),
            format!("apply_patch <<'EOF'\n{PATCH}EOF\nrm x\nEOF"),
            format!("apply_patch <<'EOF' | cat\n{PATCH}EOF"),
            format!("apply_patch <<'EOF'\n{PATCH}"),
            format!("ls && apply_patch <<'EOF'\n{PATCH}EOF"),
            format!("cd $HOME && apply_patch <<'EOF'\n{PATCH}EOF"),
            format!("cd a; apply_patch <<'EOF'\n{PATCH}EOF"),
            format!("cd a b && apply_patch <<'EOF'\n{PATCH}EOF"),
            format!("apply_patch '{PATCH}' | cat"),
            "apply_patch \"$(cat x)\"".to_owned(),
            "apply_patch".to_owned(),
            "apply_patch x.patch; ls".to_owned(),
            "apply_patching <<'EOF'\nx\nEOF".to_owned(),
            "cat <<'EOF'\nx\nEOF".to_owned(),
            String::new(),
        ];
        for script in &table {
            assert_eq!(from_script(script), None, "{script}");
        }
        assert_eq!(from_command(&["apply_patch", "a", "b"]), None);
        assert_eq!(from_command(&["python3", "-c", &table[0]]), None);
        assert_eq!(from_command::<&str>(&[]), None);
    }
}
