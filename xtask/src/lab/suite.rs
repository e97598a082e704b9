//! `cargo xtask test --lab`: the lab's test programs are built here and run inside one boot of each
//! kernel, one test at a time, since they share the VM's HCAs.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Result, bail};

use super::{Job, Lab, VmArgs};
use crate::build::{self, Options};
use crate::command;
use crate::setup::{Setup, Verb};
use crate::toolchain::Toolchain;

/// The kernels that `--kernel all` means.
const KERNELS: [&str; 2] = ["6.1", "6.12"];

/// Seconds that a whole suite may take; a test that hangs has limits of its own.
const LIMIT: u64 = 1200;

/// Runs the suite on the kernels named, all of them for `all`.
pub fn suite(
    toolchain: &Toolchain,
    kernel: &str,
    filter: Option<&str>,
    args: &[OsString],
) -> Result<()> {
    let setup = Setup::new(toolchain);
    let kernels = if kernel == "all" {
        KERNELS.to_vec()
    } else {
        vec![kernel]
    };
    let tools = setup.tools(Verb::Test)?;
    let labs = kernels
        .iter()
        .map(|version| Lab::prepare(toolchain, &setup, version))
        .collect::<Result<Vec<_>>>()?;
    let options = Options::default();
    let object = build::object(toolchain, &options)?;
    let binary = build::binary(toolchain, &options, &object)?;
    let programs = programs(toolchain, &object)?;

    let script = script(&programs, filter, args);
    let command = ["/bin/sh", "-c", &script].map(OsString::from);
    let mut failed = Vec::new();
    for lab in &labs {
        let began = Instant::now();
        let (vhca, driver) = (
            lab.kernel.folder.join("vhca/vhca.ko"),
            lab.kernel
                .modules()
                .join("kernel/drivers/infiniband/ulp/ipoib/ib_ipoib.ko"),
        );
        let mut variables: Vec<(&str, &OsStr)> = vec![
            ("IPOIB_BIN", binary.as_os_str()),
            ("IPOIB_EBPF_OBJECT", object.as_os_str()),
            ("IPOIB_LAB_VHCA", vhca.as_os_str()),
            ("IPOIB_LAB_DRIVER", driver.as_os_str()),
        ];
        if let Some(bpftool) = &tools.bpftool {
            variables.push(("IPOIB_BPFTOOL", bpftool.as_os_str()));
        }
        let code = lab.run(
            &Job {
                command: &command,
                variables: &variables,
                topology: false,
                terminal: false,
            },
            &VmArgs {
                limit: Some(LIMIT),
                ..VmArgs::default()
            },
        );
        let (release, seconds) = (&lab.kernel.release, began.elapsed().as_secs());
        match code {
            Ok(0) => eprintln!("lab: {release}: the suite passed in {seconds} s"),
            Ok(code) => failed.push(format!("{release}: exit code {code}")),
            Err(error) => failed.push(format!("{release}: {error:#}")),
        }
    }
    if !failed.is_empty() {
        bail!("the lab's suite failed on {}", failed.join("; "));
    }
    Ok(())
}

/// Builds the test programs of the lab and returns them.
fn programs(toolchain: &Toolchain, object: &Path) -> Result<Vec<PathBuf>> {
    let mut cargo = toolchain.cargo();
    cargo
        .env("IPOIB_EBPF_OBJECT", object)
        .args(["test", "--no-run", "--package", "ipoib-tests"])
        .args(["--features", "lab", "--test", "lab_*"]);
    // The first call shows the compiler's messages, the second one only asks for the names.
    command::run(&mut cargo)?;
    let messages = command::output(cargo.args(["--quiet", "--message-format", "json"]))?;
    let programs = executables(&messages);
    if programs.is_empty() {
        bail!("cargo named no test program of the lab");
    }
    Ok(programs)
}

/// The executables in cargo's messages, one JSON object a line.
fn executables(messages: &str) -> Vec<PathBuf> {
    let mut programs: Vec<_> = messages
        .lines()
        .filter_map(|line| {
            let (_, rest) = line.split_once("\"executable\":\"")?;
            Some(PathBuf::from(rest.split('"').next()?))
        })
        .collect();
    programs.sort();
    programs
}

/// Runs them all, whatever the first ones' outcome.
fn script(programs: &[PathBuf], filter: Option<&str>, args: &[OsString]) -> String {
    let mut text = String::from("failed=0\n");
    let mut words: Vec<String> = filter
        .iter()
        .map(|word| super::quote(word.as_ref()))
        .collect();
    let args = args.iter().skip_while(|arg| *arg == "--");
    words.extend(args.map(|arg| super::quote(arg)));
    for program in programs {
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        let name = name.split('-').next().unwrap_or_default();
        text.push_str(&format!(
            "echo '     Running tests/{name}.rs'\n{} --test-threads=1 {} || failed=101\n",
            command::quote(program),
            words.join(" ")
        ));
    }
    text.push_str("exit $failed\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_programs_are_read_from_cargos_messages() {
        let messages = "{\"reason\":\"compiler-artifact\",\"executable\":null}\n\
            {\"reason\":\"compiler-artifact\",\"executable\":\"/t/lab_b-1\",\"fresh\":true}\n\
            {\"reason\":\"compiler-artifact\",\"executable\":\"/t/lab_a-2\",\"fresh\":true}\n";
        assert_eq!(
            executables(messages),
            [PathBuf::from("/t/lab_a-2"), PathBuf::from("/t/lab_b-1")]
        );
    }

    #[test]
    fn every_program_runs_and_one_failure_fails_all() {
        let text = script(
            &["/t/lab_a-1".into()],
            Some("mtu"),
            &["--".into(), "--nocapture".into()],
        );
        assert_eq!(
            text,
            "failed=0\necho '     Running tests/lab_a.rs'\n\
             '/t/lab_a-1' --test-threads=1 'mtu' '--nocapture' || failed=101\nexit $failed\n"
        );
    }
}
