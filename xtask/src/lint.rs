//! `cargo xtask lint`: rustfmt and clippy over both halves; any finding is an error.

use anyhow::Result;

use crate::build;
use crate::command;
use crate::setup::Setup;
use crate::toolchain::Toolchain;

/// `cargo xtask lint`.
pub fn lint(toolchain: &Toolchain) -> Result<()> {
    command::run(toolchain.cargo().args(["fmt", "--all", "--check"]))?;

    let mut host = toolchain.cargo();
    let object = build::object_path(toolchain);
    if object.is_file() {
        // The same environment as the other verbs: else each lint would rebuild what they built.
        host.env("IPOIB_EBPF_OBJECT", object);
    }
    host.args(["clippy", "--workspace", "--all-targets"])
        .args(["--features", "ipoib-tests/lab"])
        .args(["--", "-D", "warnings"]);
    command::run(&mut host)?;

    let bpf = Setup::new(toolchain).bpf()?;
    for features in ["bpf", "log"] {
        let mut cargo = build::bpf_cargo(toolchain, &bpf, "clippy");
        cargo.args(["--features", features, "--", "-D", "warnings"]);
        command::run(&mut cargo)?;
    }
    Ok(())
}
