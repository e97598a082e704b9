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

/// ARPHRD_ETHER and ARPHRD_INFINIBAND (linux/if_arp.h).
const ETHER: &str = "1";
const INFINIBAND: &str = "32";

/// `cargo xtask run [-- ARGS]`.
pub fn run(toolchain: &Toolchain, args: &[OsString]) -> Result<ExitCode> {
    if !args.is_empty() {
        return ipoib(toolchain, Verb::Run, args);
    }
    let ports = ports(Path::new("/sys/class/net"));
    if !ports.iter().any(|port| port.kind == Kind::Ipoib) {
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
    command::way_to_root("ipoib")?;
    let tools = Setup::new(toolchain).tools(verb)?;
    let options = Options {
        release: true,
        ..Options::default()
    };
    let binary = build::build(toolchain, &options)?;
    let mut command = command::as_root(binary.as_os_str(), &[("PATH", &tools.path)])?;
    command::exec(command.args(args))?;
    Ok(ExitCode::SUCCESS)
}

/// What a port speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Ipoib,
    Ethernet,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Ipoib => "IPoIB",
            Self::Ethernet => "Ethernet",
        }
    }

    /// The option of `ipoib run`.
    fn option(self) -> &'static str {
        match self {
            Self::Ipoib => "--ib",
            Self::Ethernet => "--eth",
        }
    }
}

/// A port that the datapath could be run on.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Port {
    kind: Kind,
    name: String,
    state: String,
}

/// The ports in a `/sys/class/net`: IPoIB of any sort, Ethernet of hardware or a bond; never the
/// members of a bond or a bridge.
fn ports(net: &Path) -> Vec<Port> {
    let Ok(entries) = fs::read_dir(net) else {
        return Vec::new();
    };
    let mut ports: Vec<Port> = entries
        .flatten()
        .filter_map(|entry| {
            let port = entry.path();
            let read = |file: &str| fs::read_to_string(port.join(file)).ok();
            let has = |file: &str| port.join(file).exists();
            let kind = match read("type")?.trim() {
                INFINIBAND => Kind::Ipoib,
                ETHER if has("device") || has("bonding") => Kind::Ethernet,
                _ => return None,
            };
            (!has("master")).then(|| Port {
                kind,
                name: entry.file_name().to_string_lossy().into_owned(),
                state: read("operstate").unwrap_or_default().trim().to_owned(),
            })
        })
        .collect();
    ports.sort();
    ports
}

/// What to type on a host with these ports: a datapath on real ports is never started unasked.
fn advice(ports: &[Port]) -> String {
    let mut text = String::from("ports of this host:\n");
    let mut command = String::from("cargo xtask run -- run");
    for port in ports {
        let Port { kind, name, state } = port;
        text.push_str(&format!("  {name:<15} {:<8} {state}\n", kind.name()));
        let none_is_up = !ports.iter().any(|p| p.kind == *kind && p.state == "up");
        if state == "up" || none_is_up {
            command.push_str(&format!(" {} {name}", kind.option()));
        }
    }
    text.push_str(&format!(
        "to run the datapath on them (leave out those that are not to take part):\n  {command}\n\
         to see it on virtual ports, without touching these:\n  cargo xtask run -- demo\n"
    ));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(kind: Kind, name: &str, state: &str) -> Port {
        Port {
            kind,
            name: name.to_owned(),
            state: state.to_owned(),
        }
    }

    #[test]
    fn ports_are_told_by_their_type_and_not_by_their_name() {
        let net = std::env::temp_dir().join(format!("xtask-net-{}", std::process::id()));
        for (name, kind, state, extra) in [
            ("storage", "32\n", "up\n", None),
            ("ib9", "1\n", "up\n", Some("device")),
            ("ib0", "32\n", "down\n", Some("device")),
            ("ib1", "32\n", "up\n", Some("master")),
            ("bond0", "1\n", "up\n", Some("bonding")),
            ("veth3", "1\n", "up\n", None),
            ("lo", "772\n", "unknown\n", None),
        ] {
            let folder = net.join(name);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("type"), kind).unwrap();
            fs::write(folder.join("operstate"), state).unwrap();
            if let Some(extra) = extra {
                fs::create_dir_all(folder.join(extra)).unwrap();
            }
        }
        let found = ports(&net);
        fs::remove_dir_all(&net).unwrap();
        assert_eq!(
            found,
            [
                port(Kind::Ipoib, "ib0", "down"),
                port(Kind::Ipoib, "storage", "up"),
                port(Kind::Ethernet, "bond0", "up"),
                port(Kind::Ethernet, "ib9", "up"),
            ]
        );
        assert_eq!(ports(&net), []);
    }

    #[test]
    fn the_advice_lists_every_port_and_names_those_that_are_up() {
        let text = advice(&[
            port(Kind::Ipoib, "ib0", "up"),
            port(Kind::Ipoib, "ib1", "down"),
            port(Kind::Ethernet, "eth0", "up"),
        ]);
        assert!(text.contains("  ib1             IPoIB    down\n"));
        assert!(text.contains("\n  cargo xtask run -- run --ib ib0 --eth eth0\n"));
    }

    #[test]
    fn ports_that_are_down_are_named_where_none_is_up() {
        let text = advice(&[port(Kind::Ipoib, "ib0", "down")]);
        assert!(text.contains("\n  cargo xtask run -- run --ib ib0\n"));
    }
}
