//! Names of temporary files and directories that sandbar creates next to the files it replaces.

/// The prefix of every such name.
const PREFIX: &[u8] = b".sandbar-";

/// Whether this is the name of a temporary file that a guest writes before it renames it.
pub(crate) fn is_staged_file(name: &[u8]) -> bool {
    name.strip_prefix(PREFIX).is_some_and(|rest| rest.len() == 16 && is_hexadecimal(rest))
}

/// Whether this is the name of a leftover of an interrupted operation: a temporary file, a tree that was being
/// exchanged or removed, or a temporary file of `sandbar apply` or `sandbar session cp`.
#[must_use]
pub fn is_leftover(name: &[u8]) -> bool {
    let Some(rest) = name.strip_prefix(PREFIX) else { return false };
    let numbered = matches!(rest.len(), 16 | 32) && is_hexadecimal(rest);
    numbered || [b"apply-".as_slice(), b"copy-", b"removing-"].iter().any(|kind| rest.starts_with(kind))
}

fn is_hexadecimal(text: &[u8]) -> bool {
    text.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_temporary_names_of_sandbar_match() {
        for (name, staged, leftover) in [
            (".sandbar-0123456789abcdef", true, true),
            (".sandbar-0123456789abcdef0123456789abcdef", false, true),
            (".sandbar-apply-x", false, true),
            (".sandbar-copy-0123abcd-1-2", false, true),
            (".sandbar-removing-0000000000000000", false, true),
            (".sandbar-0123456789abcdeg", false, false),
            (".sandbar-0123456789ABCDEF", false, false),
            (".sandbar-", false, false),
            (".sandbar-notes", false, false),
            (".sandbar", false, false),
            ("x.sandbar-0123456789abcdef", false, false),
        ] {
            assert_eq!((is_staged_file(name.as_bytes()), is_leftover(name.as_bytes())), (staged, leftover), "{name}");
        }
    }
}
