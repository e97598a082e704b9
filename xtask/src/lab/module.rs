//! The kernel module of the virtual HCAs, built with the unpacked headers. Its sources are copied
//! first, so that the repository stays clean and each kernel has its own build.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::kernel::Kernel;
use crate::command;
use crate::setup::Setup;

/// How long the compiler may take.
const LIMIT: Duration = Duration::from_secs(300);

/// Builds the module, unless its sources are as they were; returns the `.ko`.
pub fn build(setup: &Setup, kernel: &Kernel, sources: &Path) -> Result<PathBuf> {
    let folder = kernel.folder.join("vhca");
    let module = folder.join("vhca.ko");
    let sources = read(sources)?;
    let is_same = |(name, text): (&OsString, &Vec<u8>)| {
        fs::read(folder.join(name)).is_ok_and(|copy| copy == *text)
    };
    if module.is_file() && sources.iter().all(is_same) {
        return Ok(module);
    }
    // A source that is gone must not stay beside the others.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    for (name, text) in &sources {
        let copy = folder.join(name);
        fs::write(&copy, text).with_context(|| format!("cannot write {}", copy.display()))?;
    }
    for tool in ["make", "ld"] {
        if command::find(tool).is_none() {
            bail!("building the kernel module needs `{tool}`: apt-get install build-essential");
        }
    }
    let headers = kernel.headers();
    setup.action(&format!("vhca: building it for {}", kernel.release));
    let log = kernel.folder.join("vhca.log");
    let mut make = Command::new("make");
    make.arg("-C")
        .arg(&headers)
        .arg(format!("M={}", folder.display()));
    if let Some(compiler) = compiler(&headers)? {
        make.arg(format!("CC={compiler}"));
    }
    command::run_within(make.arg("modules"), LIMIT, &log)
        .with_context(|| format!("building vhca.ko for {}", kernel.release))?;
    if !module.is_file() {
        bail!("make left no {}: see {}", module.display(), log.display());
    }
    Ok(module)
}

/// Another compiler than the one that the headers name, where that one is not here.
fn compiler(headers: &Path) -> Result<Option<&'static str>> {
    let text = fs::read_to_string(headers.join(".kernelvariables")).unwrap_or_default();
    match named_compiler(&text) {
        Some(name) if command::find(name).is_some() => Ok(None),
        _ if command::find("gcc").is_some() => Ok(Some("gcc")),
        _ => bail!("building the kernel module needs gcc: apt-get install build-essential"),
    }
}

fn named_compiler(text: &str) -> Option<&str> {
    let line = text.lines().find(|line| {
        line.trim_start_matches("override ")
            .trim_start()
            .starts_with("CC ")
    })?;
    line.rsplit([' ', ')']).next()
}

/// The sources by name.
fn read(folder: &Path) -> Result<BTreeMap<OsString, Vec<u8>>> {
    let mut sources = BTreeMap::new();
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_owned();
        let is_source = ["c", "h"]
            .iter()
            .any(|e| path.extension().is_some_and(|x| x == *e));
        if is_source || name == "Makefile" || name == "Kbuild" {
            sources.insert(name, fs::read(&path)?);
        }
    }
    Ok(sources)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_headers_compiler_is_read() {
        let text = "override ARCH = x86\nCCACHE = ccache\n\
            CC = $(if $(X),$(CCACHE)) $(CROSS_COMPILE)gcc-12\n";
        assert_eq!(named_compiler(text), Some("gcc-12"));
        assert_eq!(named_compiler("override CC = gcc-14\n"), Some("gcc-14"));
        assert_eq!(named_compiler(""), None);
    }
}
