//! What a demo has measured so far: the datapath's counters, the kernel's own, and the flows. The
//! live table and the summary are two views of it; both count from the end of the warm-up.

use crate::datapath::PortReport;
use crate::show::{Count, Family, PerFamily, PortRow};
use serde::Serialize;
use std::fs;
use std::io;

/// One flow: traffic of one protocol and family in one direction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FlowRow {
    /// `<protocol>-<family>-<from>-<to>`.
    pub name: String,
    /// Its family.
    pub family: Family,
    /// `tcp`, `udp` or `ping`.
    pub protocol: &'static str,
    /// The sending host.
    pub from: &'static str,
    /// The receiving host.
    pub to: &'static str,
    /// What `sent`, `received` and `lost` count: `blocks` of a TCP stream, UDP `datagrams`, or
    /// `echoes` (requests that were answered).
    pub unit: &'static str,
    /// Units sent.
    pub sent: u64,
    /// Units that arrived with the right content, each counted once.
    pub received: u64,
    /// Sent and not received.
    pub lost: u64,
    /// Units that arrived again.
    pub duplicates: u64,
    /// Units that arrived with other content than was sent; they are not among the received.
    pub corrupt: u64,
    /// Bytes of payload received.
    pub bytes: u64,
    /// What ended the flow early.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What a demo has measured so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Measurement {
    /// Seconds of traffic.
    pub seconds: f64,
    /// The gateway's ports.
    pub ports: Vec<PortRow>,
    /// Packets that the gateway's kernel forwarded itself.
    pub kernel: PerFamily<u64>,
    /// The flows.
    pub flows: Vec<FlowRow>,
}

impl Measurement {
    /// Packets of a family that took the fast path.
    pub fn fast_path(&self, family: Family) -> Count {
        self.ports
            .iter()
            .map(|port| port.forwarded.of(family))
            .fold(Count::default(), std::ops::Add::add)
    }

    /// Share of a family's forwarded packets that took the fast path, or `None` before the first.
    pub fn share(&self, family: Family) -> Option<f64> {
        share(self.fast_path(family).packets, self.kernel.of(family))
    }

    /// Units of all flows that were sent and not received.
    pub fn lost(&self) -> u64 {
        self.flows.iter().map(|flow| flow.lost).sum()
    }
}

fn share(fast: u64, kernel: u64) -> Option<f64> {
    let all = fast + kernel;
    (all > 0).then(|| fast as f64 / all as f64)
}

/// All counters of the gateway at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    ports: Vec<PortReport>,
    kernel: PerFamily<u64>,
}

impl Snapshot {
    /// Takes one; the calling thread must be in the gateway's namespace.
    pub fn take(ports: Vec<PortReport>) -> io::Result<Snapshot> {
        Ok(Snapshot {
            ports,
            kernel: kernel_forwarded()?,
        })
    }

    /// What has been counted since `before`.
    pub fn since(&self, before: &Snapshot) -> (Vec<PortRow>, PerFamily<u64>) {
        let ports = self
            .ports
            .iter()
            .zip(&before.ports)
            .map(|(now, then)| PortRow::between(&then.counters, now));
        let kernel = PerFamily {
            ipv4: self.kernel.ipv4.saturating_sub(before.kernel.ipv4),
            ipv6: self.kernel.ipv6.saturating_sub(before.kernel.ipv6),
        };
        (ports.collect(), kernel)
    }
}

/// Packets that the kernel of this thread's network namespace forwarded itself. What a program
/// redirects at tc ingress never gets to `ip_forward()` and is not among them.
fn kernel_forwarded() -> io::Result<PerFamily<u64>> {
    let read = |file: &str, value: fn(&str) -> Option<u64>| {
        let path = format!("/proc/thread-self/net/{file}");
        fs::read_to_string(&path).and_then(|text| {
            value(&text).ok_or_else(|| io::Error::other(format!("{path} has no forward counter")))
        })
    };
    Ok(PerFamily {
        ipv4: read("snmp", ipv4_forwarded)?,
        ipv6: read("snmp6", ipv6_forwarded)?,
    })
}

/// `ForwDatagrams` of `/proc/net/snmp`: a line of names above a line of values.
fn ipv4_forwarded(snmp: &str) -> Option<u64> {
    let mut lines = snmp.lines().filter(|line| line.starts_with("Ip: "));
    let (names, values) = (lines.next()?, lines.next()?);
    let column = names
        .split_whitespace()
        .position(|name| name == "ForwDatagrams")?;
    values.split_whitespace().nth(column)?.parse().ok()
}

/// `Ip6OutForwDatagrams` of `/proc/net/snmp6`: a name and a value on each line.
fn ipv6_forwarded(snmp6: &str) -> Option<u64> {
    snmp6.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next()? == "Ip6OutForwDatagrams").then(|| words.next()?.parse().ok())?
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::datapath::Method;
    use crate::host::Link;
    use crate::show::Reasons;
    use ipoib_ebpf::tables::PortCounters;
    use ipoib_ebpf::verdict::Reason;
    use ipoib_ebpf::wire::link::LinkLayer;

    /// A measurement with every kind of number in it, for the views' tests.
    pub(crate) fn example() -> Measurement {
        let mut before = PortCounters::default();
        before.received.add(60);
        before.handed_up.of(Reason::Arp).add(42);
        let mut ib0 = before;
        for _ in 0..30 {
            ib0.received.add(1000);
            ib0.forwarded_ipv4.add(1000);
        }
        for _ in 0..19 {
            ib0.received.add(2000);
            ib0.forwarded_ipv6.add(2000);
        }
        ib0.received.add(2014);
        ib0.handed_up.of(Reason::TooBig).add(2014);
        ib0.dropped.of(Reason::RewriteFailed).add(70);
        let mut eth0 = before;
        for _ in 0..30 {
            eth0.sent_ipv4.add(1000);
        }
        let row = |name: &str, after: PortCounters| {
            let link = Link {
                ifindex: 2,
                name: name.to_owned(),
                arphrd: 1,
                kind: None,
                link_layer: Some(LinkLayer::Ethernet),
                mtu: 1500,
                up: true,
                master: None,
            };
            let report = PortReport {
                link,
                method: Method::Tcx,
                present: true,
                counters: after,
            };
            PortRow::between(&before, &report)
        };
        let flow = |protocol: &'static str, family: Family, sent, received| FlowRow {
            name: format!("{protocol}-{}-n1-n2", family.name()),
            family,
            protocol,
            from: "n1",
            to: "n2",
            unit: "datagrams",
            sent,
            received,
            lost: sent - received,
            duplicates: 0,
            corrupt: 0,
            bytes: received * 100,
            error: None,
        };
        Measurement {
            seconds: 2.5,
            ports: vec![row("ib0", ib0), row("eth0", eth0)],
            kernel: PerFamily { ipv4: 0, ipv6: 1 },
            flows: vec![
                flow("udp", Family::Ipv4, 30, 30),
                flow("udp", Family::Ipv6, 20, 19),
            ],
        }
    }

    #[test]
    fn counts_begin_at_the_first_snapshot() {
        let ports = example().ports;
        assert_eq!(
            ports[0].received,
            Count {
                packets: 50,
                bytes: 30_000 + 38_000 + 2014
            }
        );
        assert_eq!(
            ports[0].forwarded.ipv6,
            Count {
                packets: 19,
                bytes: 38_000
            }
        );
        assert_eq!(
            ports[1].sent.ipv4,
            Count {
                packets: 30,
                bytes: 30_000
            }
        );
        assert_eq!(
            ports[0].handed_up,
            Reasons::from([(
                "too_big",
                Count {
                    packets: 1,
                    bytes: 2014
                }
            )]),
            "the ARP packet came before"
        );
    }

    #[test]
    fn shares_are_per_family_and_none_where_nothing_was_forwarded() {
        let measurement = example();
        assert_eq!(measurement.share(Family::Ipv4), Some(1.0));
        assert_eq!(measurement.share(Family::Ipv6), Some(0.95));
        assert_eq!(Measurement::default().share(Family::Ipv4), None);
        assert_eq!(share(0, 5), Some(0.0));
    }

    #[test]
    fn losses_of_all_flows_add_up() {
        assert_eq!(example().lost(), 1);
        assert_eq!(Measurement::default().lost(), 0);
    }

    #[test]
    fn the_kernels_counters_are_found_by_name() {
        let snmp = "Ip: Forwarding DefaultTTL ForwDatagrams InDiscards\n\
                    Ip: 1 64 1234 5\nIcmp: InMsgs\nIcmp: 9\n";
        assert_eq!(ipv4_forwarded(snmp), Some(1234));
        assert_eq!(ipv4_forwarded("Ip: Forwarding\nIp: 1\n"), None);
        let snmp6 = "Ip6InReceives \t7\nIp6OutForwDatagrams             \t88\n";
        assert_eq!(ipv6_forwarded(snmp6), Some(88));
        assert_eq!(ipv6_forwarded("Ip6InReceives 7\n"), None);
        kernel_forwarded().expect("this kernel has both");
    }
}
