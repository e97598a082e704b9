//! `cargo xtask run` and `bench`: the release binary as root, in the place of this process, so that
//! its exit code and signals are its own.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;

use crate::build::{self, Options};
use crate::command;
use crate::setup::{Setup, Verb};
use crate::toolchain::Toolchain;

/// ARPHRD_INFINIBAND (linux/if_arp.h).
const INFINIBAND: &str = "32";

/// `cargo xtask run [-- ARGS]`.
pub fn run(toolchain: &Toolchain, args: &[OsString]) -> Result<ExitCode> {
    if !args.is_empty() {
        return ipoib(toolchain, Verb::Run, args);
    }
    let ports = ports(Path::new("/sys/class/net"));
    if ports.is_empty() {
        eprintln!("no IPoIB port here: running the demo on virtual ones");
        return ipoib(toolchain, Verb::Run, &["demo".into()]);
    }
    eprint!("{}", advice(&ports));
    Ok(ExitCode::from(2))
}

/// `cargo xtask bench [ARGS]`.
pub fn bench(toolchain: &Toolchain, args: &[OsString]) -> Result<ExitCode> {
    let out = toolchain.target.join("bench");
    fs::create_dir_all(&out)?;
    let mut all: Vec<OsString> = vec!["bench".into(), "--out".into(), out.into()];
    all.extend_from_slice(args);
    ipoib(toolchain, Verb::Bench, &all)
}

/// Builds `ipoib` and becomes it, as root.
fn ipoib(toolchain: &Toolchain, verb: Verb, args: &[OsString]) -> Result<ExitCode> {
    let tools = Setup::new(toolchain).tools(verb)?;
    let options = Options {
        release: true,
        features: None,
    };
    let binary = build::build(toolchain, &options)?;
    let mut command = command::as_root(binary.as_os_str(), &[("PATH", &tools.path)])?;
    command::exec(command.args(args))?;
    Ok(ExitCode::SUCCESS)
}

/// A network port that speaks IPoIB.
#[derive(Debug, PartialEq, Eq)]
struct Port {
    name: String,
    state: String,
}

/// The IPoIB ports in a `/sys/class/net`.
fn ports(net: &Path) -> Vec<Port> {
    let Ok(entries) = fs::read_dir(net) else {
        return Vec::new();
    };
    let mut ports: Vec<Port> = entries
        .flatten()
        .filter_map(|entry| {
            let read = |file: &str| fs::read_to_string(entry.path().join(file)).ok();
            (read("type")?.trim() == INFINIBAND).then(|| Port {
                name: entry.file_name().to_string_lossy().into_owned(),
                state: read("operstate").unwrap_or_default().trim().to_owned(),
            })
        })
        .collect();
    ports.sort_by(|a, b| a.name.cmp(&b.name));
    ports
}

/// What to type on a host with these ports: a datapath on real ports is never started unasked.
fn advice(ports: &[Port]) -> String {
    let mut text = String::from("IPoIB ports of this host:\n");
    for port in ports {
        text.push_str(&format!("  {:<15} {}\n", port.name, port.state));
    }
    text.push_str(
        "write a configuration that names the ports to use, then run\n  \
         cargo xtask run -- run --config ipoib.toml\n\
         or look first, on virtual ports and without touching these:\n  \
         cargo xtask run -- demo\n",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipoib_ports_are_told_by_their_type_and_not_by_their_name() {
        let net = std::env::temp_dir().join(format!("xtask-net-{}", std::process::id()));
        for (name, kind, state) in [
            ("storage", "32\n", "up\n"),
            ("ib9", "1\n", "up\n"),
            ("ib0", "32\n", "down\n"),
        ] {
            fs::create_dir_all(net.join(name)).unwrap();
            fs::write(net.join(name).join("type"), kind).unwrap();
            fs::write(net.join(name).join("operstate"), state).unwrap();
        }
        let found = ports(&net);
        fs::remove_dir_all(&net).unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|port| (port.name.as_str(), port.state.as_str()))
            .collect();
        assert_eq!(found, [("ib0", "down"), ("storage", "up")]);
        assert_eq!(ports(&net), []);
    }

    #[test]
    fn the_advice_names_the_ports_and_the_command() {
        let text = advice(&[Port {
            name: "ib0".to_owned(),
            state: "up".to_owned(),
        }]);
        assert!(text.contains("  ib0             up\n"));
        assert!(text.contains("\n  cargo xtask run -- run --config ipoib.toml\n"));
    }
}
