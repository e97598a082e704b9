//! The two forwarders that are compared, on the same ports: the datapath, or the kernel alone. Each
//! measurement asks the counters of both who it was that carried the traffic.

use super::Error;
use super::plan::Plan;
use super::topology;
use crate::datapath::{Datapath, Options, Order};
use crate::show::Family;
use ipoib_ebpf::tables::PortCounters;
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

/// Who forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The datapath.
    Ours,
    /// The kernel alone.
    Peer,
}

impl Side {
    /// The word in raw rows.
    pub fn name(self) -> &'static str {
        match self {
            Side::Ours => "ours",
            Side::Peer => "peer",
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Side::Ours => "the datapath",
            Side::Peer => "the kernel alone",
        })
    }
}

/// A forwarder at work in the gateway, until it is dropped. To be made, asked and dropped in a
/// thread inside the gateway's namespace.
pub struct Forwarder {
    row: &'static str,
    side: Side,
    family: Family,
    datapath: Option<Datapath>,
    before: Carried,
}

/// Packets of a family that took either road.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Carried {
    /// From n1, on the fast path.
    fast: u64,
    /// In both directions, by the kernel.
    kernel: u64,
}

impl Forwarder {
    /// Lets `side` forward between the gateway's ports, and counts what it carries for a plan.
    pub fn start(side: Side, plan: &Plan, pin_root: &Path) -> Result<Forwarder, Error> {
        let datapath = match side {
            Side::Peer => None,
            Side::Ours => Some(Datapath::start(&Options {
                ports: topology::ports(),
                order: Order::Refuse,
                pin_root: pin_root.to_owned(),
            })?),
        };
        let forwarder = Forwarder {
            row: plan.name,
            side,
            family: plan.family,
            datapath,
            before: Carried::default(),
        };
        let before = forwarder.counted()?;
        Ok(Forwarder {
            before,
            ..forwarder
        })
    }

    /// An error unless this forwarder has carried exactly `packets`, and the other none.
    pub fn carried_exactly(&self, packets: u64) -> Result<(), Error> {
        self.carried(packets, |mine| mine == packets)
    }

    /// An error unless this forwarder has carried anything, and the other nothing.
    pub fn carried_all(&self) -> Result<(), Error> {
        self.carried(1, |mine| mine > 0)
    }

    fn carried(&self, expected: u64, right: impl FnOnce(u64) -> bool) -> Result<(), Error> {
        let now = self.counted()?;
        let fast = now.fast.saturating_sub(self.before.fast);
        let kernel = now.kernel.saturating_sub(self.before.kernel);
        let (mine, others) = match self.side {
            Side::Ours => (fast, kernel),
            Side::Peer => (kernel, fast),
        };
        if right(mine) && others == 0 {
            return Ok(());
        }
        Err(Error::WrongRoad {
            row: self.row,
            side: self.side,
            expected,
            fast,
            kernel,
            handed_up: self.handed_up()?,
        })
    }

    fn counted(&self) -> Result<Carried, Error> {
        let fast = self.fabric_port()?.map(|counters| match self.family {
            Family::Ipv4 => counters.forwarded_ipv4.packets,
            Family::Ipv6 => counters.forwarded_ipv6.packets,
        });
        Ok(Carried {
            fast: fast.unwrap_or(0),
            kernel: kernel_forwarded(self.family)?,
        })
    }

    /// Why the datapath handed packets of n1 to the kernel: words and counts.
    fn handed_up(&self) -> Result<String, Error> {
        let Some(counters) = self.fabric_port()? else {
            return Ok(String::new());
        };
        let counted = counters.handed_up.iter().filter(|(_, c)| c.packets > 0);
        let words = counted.map(|(reason, c)| format!("{} {}", reason.name(), c.packets));
        Ok(words.collect::<Vec<_>>().join(", "))
    }

    /// What the datapath has counted at the port towards n1, its first.
    fn fabric_port(&self) -> Result<Option<PortCounters>, Error> {
        let report = self.datapath.as_ref().map(Datapath::report).transpose()?;
        Ok(report.and_then(|ports| Some(ports.first()?.counters)))
    }
}

/// Packets of a family that the kernel has forwarded in the calling thread's namespace.
fn kernel_forwarded(family: Family) -> Result<u64, Error> {
    let (path, find): (_, fn(&str) -> Option<u64>) = match family {
        Family::Ipv4 => ("/proc/thread-self/net/snmp", ipv4_forwarded),
        Family::Ipv6 => ("/proc/thread-self/net/snmp6", ipv6_forwarded),
    };
    let system = || Error::system(format!("reading what the kernel forwarded from {path}"));
    let text = fs::read_to_string(path).map_err(system())?;
    find(&text).ok_or_else(|| system()(io::ErrorKind::InvalidData.into()))
}

/// A line of names and a line of values for each protocol.
fn ipv4_forwarded(snmp: &str) -> Option<u64> {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Ip: "));
    let mut names = lines.next()?.split_whitespace();
    let index = names.position(|name| name == "ForwDatagrams")?;
    lines.next()?.split_whitespace().nth(index)?.parse().ok()
}

/// A name and its value on each line.
fn ipv6_forwarded(snmp6: &str) -> Option<u64> {
    let value = |line: &str| {
        line.strip_prefix("Ip6OutForwDatagrams")?
            .trim()
            .parse()
            .ok()
    };
    snmp6.lines().find_map(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_counters_are_found_by_name() {
        let snmp = "Ip: Forwarding DefaultTTL ForwDatagrams InUnknownProtos\nIp: 1 64 7001 0\n\
                    Icmp: InMsgs\nIcmp: 3\n";
        assert_eq!(ipv4_forwarded(snmp), Some(7001));
        assert_eq!(ipv4_forwarded("Ip: Forwarding\nIp: 1\n"), None);
        let snmp6 = "Ip6InReceives                   \t9\nIp6OutForwDatagrams             \t7002\n";
        assert_eq!(ipv6_forwarded(snmp6), Some(7002));
        assert_eq!(ipv6_forwarded(""), None);
    }
}
