//! The eBPF object, and the host's packages with that object inside.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::command;
use crate::setup::{Bpf, Setup};
use crate::toolchain::Toolchain;

/// The target of the eBPF programs.
const TARGET: &str = "bpfel-unknown-none";

/// What to build.
#[derive(Debug, Clone, Default, Args)]
pub struct Options {
    /// Build the host's binary optimised (the eBPF object always is)
    #[arg(long)]
    pub release: bool,
    /// Features of both halves: `log` puts aya-log into the programs, for debugging
    #[arg(long, value_delimiter = ',', value_parser = ["log"])]
    pub features: Vec<String>,
}

impl Options {
    /// The folder of the profile in the target directory.
    pub fn folder(&self) -> &'static str {
        if self.release { "release" } else { "debug" }
    }
}

/// `cargo xtask build`: both halves; returns the binary.
pub fn build(toolchain: &Toolchain, options: &Options) -> Result<PathBuf> {
    let object = object(toolchain, options)?;
    binary(toolchain, options, &object)
}

/// Builds the eBPF object and returns its path.
pub fn object(toolchain: &Toolchain, options: &Options) -> Result<PathBuf> {
    let bpf = Setup::new(toolchain).bpf()?;
    let mut cargo = bpf_cargo(toolchain, &bpf, "build");
    for feature in &options.features {
        cargo.args(["--features", feature]);
    }
    command::run(&mut cargo)?;
    let object = object_path(toolchain);
    check_btf(&object)?;
    Ok(object)
}

/// Builds the binary `ipoib` around an object and returns its path.
pub fn binary(toolchain: &Toolchain, options: &Options, object: &Path) -> Result<PathBuf> {
    let mut cargo = toolchain.cargo();
    cargo.env("IPOIB_EBPF_OBJECT", object).args([
        "build",
        "--package",
        "ipoib-user",
        "--bin",
        "ipoib",
    ]);
    if options.release {
        cargo.arg("--release");
    }
    for feature in &options.features {
        cargo.args(["--features", feature]);
    }
    command::run(&mut cargo)?;
    let binary = toolchain.ipoib(options.folder());
    if !binary.is_file() {
        bail!(
            "cargo built no {}: does a cargo configuration set build.target or build.target-dir?",
            binary.display()
        );
    }
    Ok(binary)
}

/// Where the eBPF object lies once it is built.
pub fn object_path(toolchain: &Toolchain) -> PathBuf {
    bpf_target(toolchain).join(TARGET).join("bpf/ipoib-ebpf")
}

/// The target directory of the eBPF half: its flags must not rebuild the host's packages.
fn bpf_target(toolchain: &Toolchain) -> PathBuf {
    toolchain.target.join("bpf")
}

/// `cargo VERB` for the eBPF programs.
pub fn bpf_cargo(toolchain: &Toolchain, bpf: &Bpf, verb: &str) -> Command {
    let flags = [
        format!("--cfg=bpf_target_arch=\"{}\"", toolchain.version.arch()),
        format!("-Clinker={}", bpf.linker.display()),
        "-Ctarget-cpu=v3".to_owned(),
        "-Cdebuginfo=2".to_owned(),
        "-Clink-arg=--btf".to_owned(),
        // Header fields are loaded whole: without it a byte at a time. The kernel allows it in
        // packets where the machine does (x86-64, arm64); on the stack never.
        "-Clink-arg=--cpu-features=+allows-misaligned-mem-access".to_owned(),
        // Clears and copies of a few words stay in place instead of calling a loop over bytes.
        "-Clink-arg=--disable-expand-memcpy-in-order".to_owned(),
    ];
    let mut cargo = toolchain.cargo();
    cargo
        // -Z build-std on the stable compiler.
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTC", &bpf.compiler.rustc)
        // clippy-driver does not run RUSTC but asks this variable.
        .env("SYSROOT", &bpf.compiler.sysroot)
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"))
        .env("CARGO_TARGET_DIR", bpf_target(toolchain))
        .args([verb, "--package", "ipoib-ebpf", "--bin", "ipoib-ebpf"])
        .args(["--target", TARGET, "-Zbuild-std=core", "--profile", "bpf"])
        .args(["--features", "bpf"]);
    cargo
}

/// Fails unless the object carries BTF: without it maps have no names and the loader refuses it.
fn check_btf(object: &Path) -> Result<()> {
    let bytes = fs::read(object)
        .with_context(|| format!("the build left no object at {}", object.display()))?;
    let names = section_names(&bytes)
        .with_context(|| format!("{} is not a 64-bit ELF object", object.display()))?;
    for wanted in [".BTF", ".BTF.ext"] {
        if !names.iter().any(|name| name == wanted) {
            bail!(
                "{} has no {wanted} section: is debug = 2 missing in the profile `bpf`?",
                object.display()
            );
        }
    }
    Ok(())
}

/// The names of the sections of a little-endian 64-bit ELF file (layout: elf(5)).
fn section_names(elf: &[u8]) -> Option<Vec<String>> {
    let number = |at: usize, size: usize| -> Option<usize> {
        let bytes = elf.get(at..at.checked_add(size)?)?;
        let value = bytes
            .iter()
            .rev()
            .fold(0u64, |value, byte| value << 8 | u64::from(*byte));
        usize::try_from(value).ok()
    };
    if !elf.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (table, size, count, names) = (
        number(40, 8)?,
        number(58, 2)?,
        number(60, 2)?,
        number(62, 2)?,
    );
    let header = |index: usize| table.checked_add(index.checked_mul(size)?);
    let strings = number(header(names)?.checked_add(24)?, 8)?;
    (0..count)
        .map(|index| {
            let start = strings.checked_add(number(header(index)?, 4)?)?;
            let name = elf.get(start..)?.split(|byte| *byte == 0).next()?;
            Some(String::from_utf8_lossy(name).into_owned())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sections_of_this_very_program_are_named() {
        let elf = fs::read("/proc/self/exe").unwrap();
        let names = section_names(&elf).unwrap();
        assert!(names.iter().any(|name| name == ".text"));
        assert!(!names.iter().any(|name| name == ".BTF"));
    }

    #[test]
    fn what_is_no_elf_file_or_a_cut_one_is_refused() {
        assert_eq!(section_names(b"#!/bin/sh\n"), None);
        let elf = fs::read("/proc/self/exe").unwrap();
        assert_eq!(section_names(&elf[..100]), None);
        assert_eq!(section_names(&elf[..20]), None);
    }
}
