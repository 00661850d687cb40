# List the recipes
default:
    @just --list

# Formatting, clippy and tidy
check:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets --all-features -- --deny warnings
    cargo xtask tidy

# Everything that must pass before a change is accepted
test:
    cargo xtask test

# The same, and the slow suites
test-all:
    cargo xtask test --all

# The promises of one client, for instance `just conform local`
conform client:
    cargo test --package sandbar-clients --all-features --test {{client}}

# The documentation, as it will be published
doc:
    RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --workspace --all-features

# What is handed out: a tarball and a Debian package in dist/
dist:
    cargo xtask release

# Everything short of publishing: all checks, then every package built from its own archive
release: test-all
    cargo deny --all-features check
    cargo package --workspace --exclude xtask
