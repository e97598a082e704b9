//! The two forwarders that are compared, on the same ports: the datapath, or the kernel alone. Each
//! measurement asks the counters of both who it was that carried the traffic.

use super::Error;
use super::topology;
use crate::datapath::{Datapath, Options, Order};
use crate::demo::measurement::Family;
use ipoib_ebpf::tables::Counter;
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
    side: Side,
    family: Family,
    datapath: Option<Datapath>,
    kernel_before: u64,
}

/// Who carried what since the forwarder was started, of one family.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Carried {
    /// What came from n1 and took the fast path.
    fast: Counter,
    /// Packets that the kernel forwarded in either direction.
    kernel: u64,
    /// Why the datapath handed packets of n1 to the kernel: words and counts.
    handed_up: String,
}

impl Forwarder {
    /// Lets `side` forward between the gateway's ports.
    pub fn start(side: Side, family: Family, pin_root: &Path) -> Result<Forwarder, Error> {
        let datapath = match side {
            Side::Peer => None,
            Side::Ours => Some(Datapath::start(&Options {
                ports: topology::ports(),
                order: Order::Refuse,
                pin_root: pin_root.to_owned(),
            })?),
        };
        Ok(Forwarder {
            side,
            family,
            datapath,
            kernel_before: kernel_forwarded(family)?,
        })
    }

    /// An error unless this forwarder, and not the other, has carried exactly `sent` packets.
    pub fn check_packets(&self, row: &'static str, sent: u64) -> Result<(), Error> {
        let carried = self.carried()?;
        let expected = match self.side {
            Side::Ours => (sent, 0),
            Side::Peer => (0, sent),
        };
        let fast = carried.fast.packets;
        if (fast, carried.kernel) == expected {
            return Ok(());
        }
        Err(self.wrong_road(row, "packets", sent, fast, carried))
    }

    /// An error unless this forwarder, and not the other, has carried a stream of which `received`
    /// bytes arrived.
    pub fn check_stream(&self, row: &'static str, received: u64) -> Result<(), Error> {
        let carried = self.carried()?;
        let fast = carried.fast.bytes;
        let right = match self.side {
            Side::Ours => fast >= received && carried.kernel == 0,
            Side::Peer => fast == 0 && carried.kernel > 0,
        };
        if right {
            return Ok(());
        }
        Err(self.wrong_road(row, "bytes", received, fast, carried))
    }

    /// An error unless the datapath has counted exactly `runs` packets as forwarded. Those of a test
    /// run go nowhere.
    pub fn check_runs(&self, row: &'static str, runs: u64) -> Result<(), Error> {
        self.check_packets(row, runs)
    }

    fn carried(&self) -> Result<Carried, Error> {
        let kernel = kernel_forwarded(self.family)?.saturating_sub(self.kernel_before);
        let mut carried = Carried {
            fast: Counter::default(),
            kernel,
            handed_up: String::new(),
        };
        let report = match &self.datapath {
            None => return Ok(carried),
            Some(datapath) => datapath.report()?,
        };
        // The first port is n1's.
        if let Some(port) = report.first() {
            carried.fast = match self.family {
                Family::Ipv4 => port.counters.forwarded_ipv4,
                Family::Ipv6 => port.counters.forwarded_ipv6,
            };
            let counted = port
                .counters
                .handed_up
                .iter()
                .filter(|(_, c)| c.packets > 0);
            let words = counted.map(|(reason, c)| format!("{} {}", reason.name(), c.packets));
            carried.handed_up = words.collect::<Vec<_>>().join(", ");
        }
        Ok(carried)
    }

    fn wrong_road(
        &self,
        row: &'static str,
        unit: &'static str,
        sent: u64,
        fast: u64,
        carried: Carried,
    ) -> Error {
        Error::WrongRoad {
            row,
            side: self.side,
            unit,
            sent,
            fast,
            kernel: carried.kernel,
            handed_up: carried.handed_up,
        }
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
