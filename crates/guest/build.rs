//! Tells dependants where this crate's sources are, so that they can build the guest program from them.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if let Some(directory) = std::env::var_os("CARGO_MANIFEST_DIR") {
        println!("cargo::metadata=dir={}", directory.display());
    }
}
