//! The Rust toolchain in use and the folders that depend on it: what `rustc -vV` says, and where
//! everything that xtask fetches or builds lies.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::command;

/// What `rustc -vV` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// Such as `1.95.0`.
    pub release: String,
    /// The first nine digits of the commit, or `unknown` in distributions' builds.
    pub commit: String,
    /// The host triple.
    pub host: String,
    /// The major version of LLVM.
    pub llvm: u32,
}

impl Version {
    /// Reads the output of `rustc -vV`.
    pub fn parse(text: &str) -> Option<Self> {
        let field = |name: &str| {
            text.lines().find_map(|line| {
                let (key, value) = line.split_once(':')?;
                (key == name).then(|| value.trim())
            })
        };
        let commit = field("commit-hash").unwrap_or("unknown");
        Some(Self {
            release: field("release")?.to_owned(),
            commit: commit.get(..9).unwrap_or(commit).to_owned(),
            host: field("host")?.to_owned(),
            llvm: field("LLVM version")?.split('.').next()?.parse().ok()?,
        })
    }

    /// The architecture of the host as aya's `bpf_target_arch` spells it.
    pub fn arch(&self) -> &str {
        let arch = self.host.split('-').next().unwrap_or_default();
        if arch.starts_with("riscv64") {
            "riscv64"
        } else {
            arch
        }
    }

    /// The name of the folder of all that must be made anew for another compiler.
    pub fn key(&self) -> String {
        format!("rustc-{}-{}", self.release, self.commit)
    }
}

/// The toolchain, the repository and the one place of all that xtask fetches.
#[derive(Debug, Clone)]
pub struct Toolchain {
    /// What the compiler says of itself.
    pub version: Version,
    /// The compiler's own sysroot.
    pub sysroot: PathBuf,
    /// The cargo that runs us.
    pub cargo: PathBuf,
    /// The top of the repository.
    pub root: PathBuf,
    /// The target directory of the host's packages.
    pub target: PathBuf,
}

impl Toolchain {
    /// Asks the compiler that cargo would use.
    pub fn probe() -> Result<Self> {
        let manifest = env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let root = manifest
            .parent()
            .context("xtask lies in no workspace")?
            .to_owned();
        let target = match env::var_os("CARGO_TARGET_DIR") {
            Some(folder) if !folder.is_empty() => std::path::absolute(folder)?,
            _ => root.join("target"),
        };
        let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let ask = |args: &[&str]| {
            command::output(Command::new(&rustc).args(args).current_dir(&root))
                .context("the Rust compiler does not answer: install Rust from https://rustup.rs")
        };
        let text = ask(&["-vV"])?;
        let version = Version::parse(&text)
            .with_context(|| format!("cannot read the answer of `rustc -vV`: {text:?}"))?;
        let sysroot = PathBuf::from(ask(&["--print", "sysroot"])?.trim());
        Ok(Self {
            version,
            sysroot,
            cargo: env::var_os("CARGO").map_or_else(|| "cargo".into(), PathBuf::from),
            root,
            target,
        })
    }

    /// Everything that setup fetches or builds, for any compiler.
    pub fn tools(&self) -> PathBuf {
        self.target.join("tools")
    }

    /// What belongs to this very compiler: a new one gets a new set.
    pub fn set(&self) -> PathBuf {
        self.tools().join(self.version.key())
    }

    /// The compiler itself, behind any proxy.
    pub fn rustc(&self) -> PathBuf {
        let rustc = self.sysroot.join("bin/rustc");
        if command::is_executable(&rustc) {
            rustc
        } else {
            env::var_os("RUSTC").map_or_else(|| "rustc".into(), PathBuf::from)
        }
    }

    /// A cargo call in the repository, free of what the cargo that started us set for our package.
    pub fn cargo(&self) -> Command {
        let mut command = Command::new(&self.cargo);
        command
            .current_dir(&self.root)
            .env("CARGO_TARGET_DIR", &self.target);
        for (name, _) in env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
                command.env_remove(&name);
            }
        }
        command
    }

    /// Where cargo puts the binary `ipoib` of a profile's folder (`debug` or `release`).
    pub fn ipoib(&self, folder: &str) -> PathBuf {
        self.target.join(folder).join("ipoib")
    }
}

/// The folder of the standard library's sources in a sysroot.
pub fn library(sysroot: &Path) -> PathBuf {
    sysroot.join("lib/rustlib/src/rust/library")
}

/// Whether a sysroot holds the sources that `-Z build-std=core` needs.
pub fn has_library(sysroot: &Path) -> bool {
    library(sysroot).join("core/Cargo.toml").is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STABLE: &str = "rustc 1.95.0 (59807616e 2026-04-14)\nbinary: rustc\n\
        commit-hash: 59807616e1fa2540724bfbac14d7976d7e4a3860\ncommit-date: 2026-04-14\n\
        host: x86_64-unknown-linux-gnu\nrelease: 1.95.0\nLLVM version: 22.1.2\n";

    #[test]
    fn the_compiler_is_read() {
        let version = Version::parse(STABLE).unwrap();
        assert_eq!(version.release, "1.95.0");
        assert_eq!(version.host, "x86_64-unknown-linux-gnu");
        assert_eq!(version.llvm, 22);
        assert_eq!(version.arch(), "x86_64");
        assert_eq!(version.key(), "rustc-1.95.0-59807616e");
    }

    #[test]
    fn a_distributions_compiler_without_a_commit_is_read() {
        let text = "binary: rustc\ncommit-hash: unknown\nhost: riscv64gc-unknown-linux-gnu\n\
            release: 1.85.0\nLLVM version: 19.1\n";
        let version = Version::parse(text).unwrap();
        assert_eq!(version.key(), "rustc-1.85.0-unknown");
        assert_eq!(version.arch(), "riscv64");
    }

    #[test]
    fn another_programs_answer_is_refused() {
        assert_eq!(Version::parse("gcc 14\n"), None);
        assert_eq!(
            Version::parse("release: 1.95.0\nhost: x\nLLVM version: new\n"),
            None
        );
    }
}
