//! `cargo xtask test`: plain `cargo test` over the workspace, with the eBPF object inside and the
//! test programs run as root.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use clap::Args;

use crate::build::{self, Options};
use crate::command;
use crate::lab;
use crate::setup::{Setup, Verb};
use crate::toolchain::Toolchain;

/// What tests ask for by name; sudo would drop them.
const VARIABLES: [&str; 4] = ["PATH", "IPOIB_BIN", "IPOIB_BPFTOOL", "IPOIB_EBPF_OBJECT"];

/// What to test.
#[derive(Debug, Args)]
pub struct TestArgs {
    /// Run only tests whose name contains this
    #[arg(long, value_name = "NAME")]
    filter: Option<String>,
    /// Prove the way from `git clone` to a running demo in a minimal Debian instead (as root)
    #[arg(long, conflicts_with_all = ["filter", "args"])]
    fresh_machine: bool,
    /// Run the suite of the lab instead, in a VM with the real ib_ipoib driver
    #[arg(long, conflicts_with = "fresh_machine")]
    lab: bool,
    /// With --lab: Debian's kernel of that version, 6.1 or 6.12, or `all`
    #[arg(long, value_name = "VERSION", default_value = "6.1", requires = "lab")]
    kernel: String,
    /// Arguments for `cargo test`, such as `-p ipoib-ebpf` or `-- --nocapture`
    #[arg(last = true, value_name = "ARGS")]
    args: Vec<OsString>,
}

/// `cargo xtask test`.
pub fn test(toolchain: &Toolchain, args: &TestArgs) -> Result<()> {
    if args.fresh_machine {
        return fresh_machine(toolchain);
    }
    if args.lab {
        return lab::suite(toolchain, &args.kernel, args.filter.as_deref(), &args.args);
    }
    let sudo = command::way_to_root("the test programs")?;
    let tools = Setup::new(toolchain).tools(Verb::Test)?;
    let options = Options::default();
    let object = build::object(toolchain, &options)?;
    let binary = build::binary(toolchain, &options, &object)?;

    let mut cargo = toolchain.cargo();
    cargo
        .env("PATH", &tools.path)
        .env("IPOIB_EBPF_OBJECT", &object)
        .env("IPOIB_BIN", &binary);
    if let Some(bpftool) = &tools.bpftool {
        cargo.env("IPOIB_BPFTOOL", bpftool);
    }
    if let Some(sudo) = sudo {
        let runner = toolchain.tools().join("as-root");
        command::write_script(&runner, &runner_script(&sudo))?;
        cargo.arg("--config").arg(format!(
            "target.{}.runner=[{:?}]",
            toolchain.version.host,
            runner.display().to_string()
        ));
    }
    cargo.arg("test");
    if !names_package(&args.args) {
        cargo.arg("--workspace");
    }
    cargo.args(&args.filter).args(&args.args);
    command::exec(&mut cargo)
}

/// Whether cargo's own arguments choose the packages, so that `--workspace` would overrule them.
fn names_package(args: &[OsString]) -> bool {
    args.iter()
        .map(|arg| arg.to_string_lossy())
        .take_while(|arg| *arg != "--")
        .any(|arg| arg.starts_with("-p") || arg.starts_with("--package"))
}

/// What runs a test program as root.
fn runner_script(sudo: &Path) -> String {
    let mut text = format!("#!/bin/sh\nexec {} -E env", command::quote(sudo));
    for name in VARIABLES {
        text.push_str(&format!(" {name}=\"${name}\""));
    }
    text.push_str(" \"$@\"\n");
    text
}

/// Hands over to the script that debootstraps a machine.
fn fresh_machine(toolchain: &Toolchain) -> Result<()> {
    let tools = Setup::new(toolchain).tools(Verb::FreshMachine)?;
    let script = toolchain.root.join("tests/fresh-machine/run");
    let folder = toolchain.target.join("fresh-machine");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut command = command::as_root(script.as_os_str(), &[("PATH", &tools.path)])?;
    command
        .current_dir(&toolchain.root)
        .arg(&folder)
        .arg(&toolchain.sysroot);
    command::exec(&mut command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_is_tested_unless_a_package_is_named() {
        let named =
            |args: &[&str]| names_package(&args.iter().map(OsString::from).collect::<Vec<_>>());
        assert!(named(&["-p", "xtask"]));
        assert!(named(&["--package=xtask"]));
        assert!(!named(&["--test", "demo", "--", "-p"]));
        assert!(!named(&[]));
    }

    #[test]
    fn test_programs_keep_their_variables_across_sudo() {
        assert_eq!(
            runner_script(Path::new("/usr/bin/sudo")),
            "#!/bin/sh\nexec '/usr/bin/sudo' -E env PATH=\"$PATH\" IPOIB_BIN=\"$IPOIB_BIN\" \
             IPOIB_BPFTOOL=\"$IPOIB_BPFTOOL\" IPOIB_EBPF_OBJECT=\"$IPOIB_EBPF_OBJECT\" \"$@\"\n"
        );
    }
}
