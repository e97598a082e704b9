//! The sources of `core` for `-Z build-std`, of the very version of the compiler: from rustup where
//! it can, else from Debian's archive, and then beside the user's toolchain instead of in it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::{Setup, apt};
use crate::command;
use crate::toolchain::{self, Toolchain};

/// How long rustup may take: without a network some versions retry for minutes.
const RUSTUP_LIMIT: Duration = Duration::from_secs(90);

/// A compiler whose sysroot holds the sources.
#[derive(Debug, Clone)]
pub struct Compiler {
    /// The program to name in `RUSTC`.
    pub rustc: PathBuf,
    /// Its sysroot.
    pub sysroot: PathBuf,
}

/// The compiler for `-Z build-std`, with the sources fetched first if they are absent.
pub fn ensure(setup: &Setup) -> Result<Compiler> {
    let toolchain = &setup.toolchain;
    let own = Compiler {
        rustc: toolchain.rustc(),
        sysroot: toolchain.sysroot.clone(),
    };
    if toolchain::has_library(&own.sysroot) {
        return Ok(own);
    }
    let beside = Compiler {
        rustc: toolchain.set().join("wrapper/rustc"),
        sysroot: toolchain.set().join("sysroot"),
    };
    let library = toolchain.set().join("library");
    if library.join("core/Cargo.toml").is_file() {
        // The links and the wrapper hold absolute paths: make them anew where the repository moved.
        let script = wrapper(toolchain, &beside);
        if fs::read_to_string(&beside.rustc).ok() != Some(script)
            || !toolchain::has_library(&beside.sysroot)
        {
            make_sysroot(toolchain, &library, &beside)?;
        }
        return Ok(beside);
    }
    let Err(rustup) = from_rustup(setup) else {
        return Ok(own);
    };
    if let Err(debian) = from_debian(setup, &library) {
        bail!(
            "rust-src {} (the sources of `core`) is missing; from rustup: {rustup:#}; from Debian: \
             {debian:#}; remedy: with a network, `rustup component add rust-src` or this again",
            toolchain.version.release
        );
    }
    make_sysroot(toolchain, &library, &beside)?;
    Ok(beside)
}

/// Lets rustup put the sources into its own toolchain.
fn from_rustup(setup: &Setup) -> Result<()> {
    let toolchain = &setup.toolchain;
    let Some(name) = rustup_name(&toolchain.sysroot) else {
        bail!("the compiler is not rustup's");
    };
    let Some(rustup) = command::find("rustup") else {
        bail!("there is no rustup");
    };
    setup.action(&format!(
        "rust-src {}: asking rustup for it (toolchain {name})",
        toolchain.version.release
    ));
    let mut add = Command::new(rustup);
    add.args(["component", "add", "rust-src", "--toolchain", name]);
    command::run_within(&mut add, RUSTUP_LIMIT, &setup.log("rustup")?)?;
    if !toolchain::has_library(&toolchain.sysroot) {
        bail!("rustup reported success, but the sources are not there");
    }
    Ok(())
}

/// The name under which rustup knows a toolchain, from the path of its sysroot.
fn rustup_name(sysroot: &Path) -> Option<&str> {
    let parent = sysroot.parent()?;
    (parent.file_name()? == "toolchains")
        .then(|| sysroot.file_name()?.to_str())
        .flatten()
}

/// Fetches Debian's package of the same version and keeps its `library` folder as `to`.
fn from_debian(setup: &Setup, to: &Path) -> Result<()> {
    let release = &setup.toolchain.version.release;
    let wanted = format!("rust-src {release}");
    let package = apt::fetch(setup, "rust-src", &wanted, |version| {
        apt::upstream(version) == release
    })?;
    let folder = setup.apt_folder().join("rust-src");
    apt::unpack(&package, &folder)?;
    let library = folder.join(format!("usr/src/rustc-{release}/library"));
    if !library.join("core/Cargo.toml").is_file() {
        bail!("{} holds no library/core", package.display());
    }
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
    }
    let _ = fs::remove_dir_all(to);
    fs::rename(&library, to).with_context(|| format!("cannot move it to {}", to.display()))
}

/// Makes a sysroot of links to the toolchain that also holds `library`, and a compiler that uses it.
fn make_sysroot(toolchain: &Toolchain, library: &Path, to: &Compiler) -> Result<()> {
    let real = &toolchain.sysroot;
    let made = to.sysroot.with_extension("new");
    let _ = fs::remove_dir_all(&made);
    let rustlib = made.join("lib/rustlib");
    fs::create_dir_all(rustlib.join("src/rust"))
        .with_context(|| format!("cannot make {}", rustlib.display()))?;
    link_all(real, &made, "lib")?;
    link_all(&real.join("lib"), &made.join("lib"), "rustlib")?;
    link_all(&real.join("lib/rustlib"), &rustlib, "src")?;
    symlink(library, toolchain::library(&made))?;
    let _ = fs::remove_dir_all(&to.sysroot);
    fs::rename(&made, &to.sysroot)?;

    let folder = to.rustc.parent().context("the wrapper has no folder")?;
    fs::create_dir_all(folder)?;
    command::write_script(&to.rustc, &wrapper(toolchain, to))
}

/// The text of the wrapper; its file name must stay `rustc`, because clippy-driver looks for it.
fn wrapper(toolchain: &Toolchain, to: &Compiler) -> String {
    format!(
        "#!/bin/sh\n# rustc with a sysroot that also holds the sources of the standard library.\n\
         exec {} --sysroot {} \"$@\"\n",
        command::quote(&toolchain.rustc()),
        command::quote(&to.sysroot)
    )
}

/// Links every entry of `from` into `to`, but for the one that `to` has on its own.
fn link_all(from: &Path, to: &Path, except: &str) -> Result<()> {
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        if entry.file_name() != except {
            symlink(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rustups_name_of_a_toolchain_comes_from_its_folder() {
        let path = Path::new("/home/u/.rustup/toolchains/stable-x86_64-unknown-linux-gnu");
        assert_eq!(rustup_name(path), Some("stable-x86_64-unknown-linux-gnu"));
        assert_eq!(rustup_name(Path::new("/usr")), None);
    }
}
