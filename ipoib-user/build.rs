//! Puts the eBPF object that `cargo xtask` built into the binary. Without it (a plain
//! `cargo build`) an empty one is embedded, and the verbs that need it say so.

use std::path::PathBuf;
use std::{env, fs};

const VARIABLE: &str = "IPOIB_EBPF_OBJECT";

fn main() {
    println!("cargo::rerun-if-env-changed={VARIABLE}");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let object = env::var_os(VARIABLE).map(PathBuf::from);
    let bytes = match &object {
        Some(path) => {
            println!("cargo::rerun-if-changed={}", path.display());
            fs::read(path).unwrap_or_else(|e| panic!("{VARIABLE}={}: {e}", path.display()))
        }
        None => Vec::new(),
    };
    fs::write(out.join("ipoib-ebpf.o"), bytes).expect("OUT_DIR is writable");
}
