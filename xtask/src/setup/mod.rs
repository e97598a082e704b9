//! What the build and the other verbs need beyond cargo: found, or fetched and said so, one line an
//! action. Everything but system packages lies under `target/tools`, keyed by the compiler.

use std::cell::Cell;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::toolchain::Toolchain;

pub(crate) mod apt;
mod bpf_linker;
mod rust_src;
mod tools;

pub use rust_src::Compiler;
pub use tools::{Tools, Verb};

/// A run of setup: counts what it does.
pub struct Setup<'a> {
    toolchain: &'a Toolchain,
    actions: Cell<usize>,
}

/// What building the eBPF object takes.
pub struct Bpf {
    /// The compiler with the sources of `core`.
    pub compiler: Compiler,
    /// bpf-linker.
    pub linker: PathBuf,
}

impl<'a> Setup<'a> {
    /// Begins a run.
    pub fn new(toolchain: &'a Toolchain) -> Self {
        Self {
            toolchain,
            actions: Cell::new(0),
        }
    }

    /// Everything that the eBPF build needs.
    pub fn bpf(&self) -> Result<Bpf> {
        Ok(Bpf {
            compiler: rust_src::ensure(self)?,
            linker: bpf_linker::ensure(self)?,
        })
    }

    /// The system's tools that `verb` needs.
    pub fn tools(&self, verb: Verb) -> Result<Tools> {
        tools::ensure(self, verb)
    }

    /// Whether this run has done nothing so far.
    pub fn idle(&self) -> bool {
        self.actions.get() == 0
    }

    /// Says what is being done.
    pub(crate) fn action(&self, text: &str) {
        self.actions.set(self.actions.get() + 1);
        eprintln!("setup: {text}");
    }

    /// The file for the output of a program that is run quietly.
    fn log(&self, name: &str) -> Result<PathBuf> {
        let folder = self.toolchain.tools().join("log");
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(folder.join(name))
    }

    /// Where the private apt states lie, one a suite; they are dropped at the end of the run.
    fn apt_folder(&self) -> PathBuf {
        self.toolchain
            .tools()
            .join(format!("apt-{}", std::process::id()))
    }
}

impl Drop for Setup<'_> {
    fn drop(&mut self) {
        // Lists of packages: hundreds of megabytes that are stale tomorrow.
        let _ = fs::remove_dir_all(self.apt_folder());
    }
}
