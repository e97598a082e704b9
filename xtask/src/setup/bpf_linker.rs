//! bpf-linker, built against the LLVM that rustc itself carries: no LLVM packages are needed, and
//! the bitcode of this compiler is always readable.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::Setup;
use crate::command;

/// The version that the build was tried with.
const VERSION: &str = "0.13.0";

/// How long the build may take: it is a minute's work for two cores.
const LIMIT: Duration = Duration::from_secs(1800);

/// Where the linker lies once it is there.
fn path(setup: &Setup) -> PathBuf {
    setup.toolchain.set().join("bin/bpf-linker")
}

/// The linker, built first if it is absent.
pub fn ensure(setup: &Setup) -> Result<PathBuf> {
    let linker = path(setup);
    if command::is_executable(&linker) {
        return Ok(linker);
    }
    let toolchain = &setup.toolchain;
    let lib = toolchain.sysroot.join("lib");
    let llvm = shared_llvm(&lib)?;
    setup.action(&format!(
        "bpf-linker {VERSION}: building it against rustc's LLVM {} (about a minute)",
        toolchain.version.llvm
    ));
    let set = toolchain.set();
    let link_folder = set.join("llvm");
    fs::create_dir_all(&link_folder)
        .with_context(|| format!("cannot make {}", link_folder.display()))?;
    let link = link_folder.join("libLLVM.so");
    if link.symlink_metadata().is_ok() {
        fs::remove_file(&link)?;
    }
    symlink(&llvm, &link)?;

    let flags = [
        format!("-Lnative={}", link_folder.display()),
        "-ldylib=LLVM".to_owned(),
        format!("-Clink-arg=-Wl,-rpath,{}", lib.display()),
    ];
    let build = set.join("bpf-linker-build");
    let mut cargo = toolchain.cargo();
    cargo
        .env_remove("CARGO_BUILD_TARGET")
        .env_remove("RUSTFLAGS")
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"))
        .env("CARGO_TARGET_DIR", &build)
        .args(["install", "bpf-linker", "--version", VERSION, "--locked"])
        .args(["--force", "--no-default-features", "--features"])
        .arg(format!("llvm-{},no-llvm-linking", toolchain.version.llvm))
        .arg("--root")
        .arg(&set);
    command::run_within(&mut cargo, LIMIT, &setup.log("bpf-linker")?)
        .context("bpf-linker could not be built (it needs a C compiler and crates.io)")?;
    // Half a gigabyte that nobody needs any more.
    fs::remove_dir_all(&build).with_context(|| format!("cannot remove {}", build.display()))?;
    Ok(linker)
}

/// The shared LLVM of the toolchain, in its `lib` folder.
fn shared_llvm(lib: &Path) -> Result<PathBuf> {
    let entries = fs::read_dir(lib).with_context(|| format!("cannot read {}", lib.display()))?;
    for entry in entries.flatten() {
        if entry
            .file_name()
            .to_string_lossy()
            .starts_with("libLLVM.so.")
        {
            return Ok(entry.path());
        }
    }
    bail!(
        "there is no libLLVM.so.* in {}: this compiler was not built by the Rust project; \
         use a toolchain from https://rustup.rs",
        lib.display()
    )
}
