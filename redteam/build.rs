//! Links the probe statically, so that the same program runs on the host and in any image.

use std::{env, fs, path::Path};

/// What the compiler asks for, and the archives that hold it.
const LIBRARIES: [(&str, &str); 7] = [
    ("c", "-l:libc.a -l:libgcc_eh.a -l:libgcc.a"),
    ("dl", "-l:libc.a"),
    ("gcc_s", "-l:libgcc_eh.a -l:libgcc.a -l:libc.a"),
    ("m", "-l:libm.a"),
    ("pthread", "-l:libc.a"),
    ("rt", "-l:libc.a"),
    ("util", "-l:libc.a"),
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let wanted = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    if !wanted("CARGO_CFG_TARGET_OS", "linux") || !wanted("CARGO_CFG_TARGET_ENV", "gnu") {
        return;
    }
    let Ok(out) = env::var("OUT_DIR") else { return };
    // A shared library by name, a list of archives by contents: one program only cannot be built with other flags.
    for (name, archives) in LIBRARIES {
        if let Err(error) = fs::write(Path::new(&out).join(format!("lib{name}.so")), format!("GROUP({archives})\n")) {
            println!("cargo::error=cannot prepare a static link: {error}");
        }
    }
    for argument in ["-static", "-no-pie", &format!("-L{out}")] {
        println!("cargo::rustc-link-arg-bin=probe={argument}");
    }
}
