//! The shell scripts: constant text for any POSIX `sh`; all variable values are arguments.

/// Beginning of every script. `$1` is the directory that must not be left, or empty.
///
/// Exit 20: the last line of standard error is the error text of the system. Exit 21: the path leaves the directory. In
/// [`RENAME`], 30 and 31 mean the same for the second path.
pub(super) const PRELUDE: &str = r#"
LC_ALL=C; export LC_ALL; umask 022
fail() { echo "$1" >&2; exit 20; }
# step DIRECTORY: enters its real path. `cd` does not print why it failed, `stat` does.
step() {
  cd -P -- "$1" 2>/dev/null && return 0
  stat -- "$1/." >/dev/null || exit 20
  fail 'Permission denied'
}
# inside ROOT: exits with 21 unless the current directory is ROOT or below it.
inside() {
  here=$(pwd -P && printf x) || exit 20
  here=${here%?x}
  case $here/ in "${1%/}"/*) return 0 ;; *) exit 21 ;; esac
}
# enter DIRECTORY BENEATH: enters the directory, one part at a time if BENEATH must not be left.
enter() {
  [ -n "$2" ] || { step "$1"; return 0; }
  step "$2"
  root=$(pwd -P && printf x) || exit 20
  root=${root%?x}
  set -f; IFS=/
  for part in ${1#"${2%/}"}; do
    [ -n "$part" ] || continue
    step "./$part"; inside "$root"
  done
  set +f; unset IFS
}
"#;

/// BENEATH DIRECTORY START MINDEPTH MAXDEPTH [PRUNE…]: prints eight NUL-ended fields for each entry.
pub(super) const DESCRIBE: &str = r#"
beneath=$1 start=$3 min=$4 max=$5
enter "$2" "$beneath"; shift 5
if find . -maxdepth 0 -printf x >/dev/null 2>&1; then
  exec find "$start" -ignore_readdir_race -mindepth "$min" -maxdepth "$max" "$@" \
    -printf '%P\0%y\0%s\0%m\0%T@\0%U\0%G\0%l\0'
fi
exec find "$start" -mindepth "$min" -maxdepth "$max" "$@" -exec sh -c '
  IFS="|"; set -f
  for path; do
    fields=$(stat -c "%F|%s|%a|%Y|%u|%g" "$path" 2>/dev/null) || continue
    link=
    if [ -L "$path" ]; then link=$(readlink -n "$path"; printf x); link=${link%x}; fi
    set -- $fields
    printf "%s\0" "${path#./}" "$1" "$2" "$3" "$4" "$5" "$6" "$link"
  done' sh {} +
"#;

/// BENEATH DIRECTORY [PRUNE…]: prints `HEX  ./path`, NUL-ended, for each file.
pub(super) const HASH: &str = r#"
enter "$2" "$1"; shift 2
if sha256sum -z </dev/null >/dev/null 2>&1; then
  exec find . -mindepth 1 "$@" -type f -exec sha256sum -z -- {} +
fi
exec find . -mindepth 1 "$@" -type f -exec sh -c '
  failed=0
  for path; do
    if sum=$(sha256sum <"$path"); then printf "%s  %s\0" "${sum%% *}" "$path"; else failed=1; fi
  done
  exit $failed' sh {} +
"#;

/// BENEATH START MODE PART…: creates the directory START/PART/….
pub(super) const MAKE_DIR: &str = r#"
beneath=$1 mode=$3
enter "$2" "$beneath"; shift 3
while [ $# -gt 0 ]; do
  if [ ! -d "./$1" ]; then
    if [ $# -gt 1 ]; then made=0755; else made=$mode; fi
    mkdir -m "$made" -- "./$1" || [ -d "./$1" ] || exit 20
  fi
  step "./$1"
  [ -z "$beneath" ] || inside "$root"
  shift
done
"#;

/// BENEATH DIRECTORY ./NAME: removes the entry and everything below it.
pub(super) const REMOVE: &str = r#"
enter "$2" "$1"
exec rm -rf -- "$3"
"#;

/// BENEATH DIRECTORY ./NAME BENEATH DIRECTORY NAME: renames the first entry to the second.
pub(super) const RENAME: &str = r#"
to=$(enter "$5" "$4" && pwd -P && printf x) || exit $(($? + 10))
to=${to%?x}; to=${to%/}/$6
enter "$2" "$1"
[ -e "$3" ] || [ -L "$3" ] || fail 'No such file or directory'
# Without GNU's -T, `mv` moves into a directory (or a link to one) at the new name.
case $(mv --version 2>&1) in *GNU*) exec mv -fT -- "$3" "$to" ;; esac
if [ -L "$to" ]; then rm -f -- "$to" || exit 20
elif [ -d "$to" ]; then
  if [ -L "$3" ] || [ ! -d "$3" ]; then fail 'Is a directory'; fi
  rmdir -- "$to" || exit 20
fi
exec mv -f -- "$3" "$to"
"#;

/// BENEATH DIRECTORY [PRUNE…]: prints a tar stream. Pruned paths are left out only with GNU tar.
pub(super) const PACK: &str = r#"
enter "$2" "$1"; shift 2
case $(tar --version 2>&1) in *'GNU tar'*) ;; *) exec tar -cf - . ;; esac
exec 3>&1
ends=$({
  { find . -mindepth 1 "$@" -print0; echo "find=$?." >&4; } |
  { tar -cf - --hard-dereference --no-recursion --null -T - >&3; echo "tar=$?." >&4; }
} 4>&1)
case $ends in *find=0.*) ;; *) exit 20 ;; esac
# tar exits with 1 if a file changed while it was read.
case $ends in *tar=0.* | *tar=1.*) exit 0 ;; *) exit 20 ;; esac
"#;

/// BENEATH DIRECTORY: prints the paths of the symbolic links below it, NUL-ended.
pub(super) const LINKS: &str = r#"
enter "$2" "$1"
exec find . -type l -print0
"#;

/// BENEATH DIRECTORY: unpacks standard input there; the files belong to the user that runs the script.
pub(super) const UNPACK: &str = r#"
enter "$2" "$1"
exec tar -x -p -o -f -
"#;

/// Creates an empty file that only its user can read, and prints its path.
pub(super) const SPOOL: &str = r#"
exec mktemp
"#;

/// BENEATH DIRECTORY FILE: opens the archive FILE, removes it, and unpacks it there.
pub(super) const UNPACK_FILE: &str = r#"
exec <"$3" || exit 20
rm -f -- "$3"
enter "$2" "$1"
exec tar -x -p -o -f -
"#;

/// MODES DIRECTORY PROGRAM ARGUMENT…: executes the program. The script sets no variable of its own
/// that the command would inherit, except `SANDBAR_WORD`.
pub(super) const LAUNCH: &str = r#"
case $1 in joined,*) exec 2>&1 ;; esac
case $1 in
  *,terminal,*) export TERM="${TERM-xterm-256color}" ;;
  *) export TERM="${TERM-dumb}" NO_COLOR="${NO_COLOR-1}" ;;
esac
case $1 in
  *,escaped)
    set -- "$#" "$@"
    for SANDBAR_WORD; do SANDBAR_WORD=$(printf '%bx' "$SANDBAR_WORD"); set -- "$@" "${SANDBAR_WORD%x}"; done
    unset SANDBAR_WORD
    shift "$(($1 + 2))" ;;
esac
if [ -n "$2" ]; then cd -- "$2" || exit 126; unset OLDPWD; fi
shift 2
exec "$@"
"#;

/// MARK SIGNAL: sends the signal to every process with MARK in its environment. A kill is repeated until two searches in a row
/// find no process, because during `execve` a process briefly has no environment.
pub(super) const SIGNAL_TREE: &str = r#"
mark=$1 signal=$2 round=0 empty=0
# Not every grep supports NUL-ended lines. Whole lines are compared, because one mark may be a prefix of another.
if printf 'a\0b\0' | grep -qzxF b 2>/dev/null; then
  marked() { grep -lszxF -e "$mark" /proc/[0-9]*/environ; }
else
  marked() { for at in /proc/[0-9]*/environ; do tr '\0' '\n' 2>/dev/null <"$at" | grep -qxF -e "$mark" && echo "$at"; done; }
fi
while [ "$round" -lt 100 ]; do
  round=$((round + 1)) found=
  for at in $(marked); do at=${at#/proc/}; found="$found ${at%/environ}"; done
  [ -z "$found" ] || kill -"$signal" $found 2>/dev/null
  [ "$signal" = 9 ] || exit 0
  if [ -n "$found" ]; then empty=0; else empty=$((empty + 1)); fi
  [ "$empty" -lt 2 ] || exit 0
  sleep 0.05
done
exit 1
"#;

/// BENEATH DIRECTORY ./NAME: prints a regular file. Its real path is checked after it was opened, so that exchanging a link has
/// no effect.
pub(super) const READ: &str = r#"
beneath=$1
enter "$2" "$beneath"
if [ -d "$3" ]; then fail 'Is a directory'; fi
if [ ! -e "$3" ]; then stat -L -- "$3" >/dev/null; exit 20; fi
[ -f "$3" ] || fail 'Not a regular file'
[ -r "$3" ] || fail 'Permission denied'
exec <"$3"
if [ -n "$beneath" ]; then
  here=$(readlink /proc/self/fd/0 && printf x) || exit 20
  case ${here%?x} in "${root%/}"/*) ;; *) exit 21 ;; esac
fi
exec cat
"#;

/// BENEATH START SPOOL MODE NAME PART…: moves the uploaded file SPOOL to START/PART/…/NAME. Exit 22: a symbolic link is there.
/// Exit 23: SPOOL does not exist.
pub(super) const PLACE: &str = r#"
beneath=$1 spool=$3 mode=$4 name=./$5 new=
[ -f "$spool" ] || exit 23
trap 'rm -f -- "$spool" ${new:+"$new"}' EXIT
enter "$2" "$beneath"; shift 5
for part; do
  if [ ! -d "./$part" ]; then mkdir -m 0755 -- "./$part" || [ -d "./$part" ] || exit 20; fi
  step "./$part"
  [ -z "$beneath" ] || inside "$root"
done
[ ! -L "$name" ] || exit 22
if [ -d "$name" ]; then fail 'Is a directory'; fi
if [ -e "$name" ]; then
  [ -f "$name" ] || fail 'Not a regular file'
  [ -n "$mode" ] || { mode=$(stat -c %a -- "$name") || exit 20; }
fi
new=./.${spool##*/}
mv -f -- "$spool" "$new" || exit 20
chmod "$(printf %o $((0${mode:-644} & 0777)))" "$new" || exit 20
case $(mv --version 2>&1) in *GNU*) mv -fT -- "$new" "$name" || exit 20 ;; *) mv -f -- "$new" "$name" || exit 20 ;; esac
new=
"#;
