//! A port's counters: as a row of JSON and as lines of a table.

use super::text;
use crate::datapath::PortReport;
use ipoib_ebpf::tables::{Counter, PortCounters};
use ipoib_ebpf::verdict::{Reason, ReasonCounters};
use ipoib_ebpf::wire::link::LinkLayer;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

impl Family {
    /// Both.
    pub const ALL: [Family; 2] = [Family::Ipv4, Family::Ipv6];

    /// The word in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Family::Ipv4 => "ipv4",
            Family::Ipv6 => "ipv6",
        }
    }

    /// The word for people.
    pub fn text(self) -> &'static str {
        match self {
            Family::Ipv4 => "IPv4",
            Family::Ipv6 => "IPv6",
        }
    }
}

/// One of something for each family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PerFamily<T> {
    /// For IPv4.
    pub ipv4: T,
    /// For IPv6.
    pub ipv6: T,
}

impl<T: Copy> PerFamily<T> {
    /// The one of a family.
    pub fn of(&self, family: Family) -> T {
        match family {
            Family::Ipv4 => self.ipv4,
            Family::Ipv6 => self.ipv6,
        }
    }
}

/// Packets and bytes, as [`Counter`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Count {
    /// Packets; a GSO superpacket is one.
    pub packets: u64,
    /// Bytes of frame, link header included.
    pub bytes: u64,
}

impl Count {
    fn between(before: Counter, after: Counter) -> Count {
        Count {
            packets: after.packets.saturating_sub(before.packets),
            bytes: after.bytes.saturating_sub(before.bytes),
        }
    }
}

impl std::ops::Add for Count {
    type Output = Count;
    fn add(self, other: Count) -> Count {
        Count {
            packets: self.packets + other.packets,
            bytes: self.bytes + other.bytes,
        }
    }
}

/// Counts by reason; reasons that never happened are not in it.
pub type Reasons = BTreeMap<&'static str, Count>;

/// A port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PortRow {
    /// Its name.
    pub name: String,
    /// `ethernet`, `ipoib` or `none`.
    pub link_layer: &'static str,
    /// Frames that arrived.
    pub received: Count,
    /// Packets that arrived here and took the fast path.
    pub forwarded: PerFamily<Count>,
    /// Packets that the fast path sent out here.
    pub sent: PerFamily<Count>,
    /// Packets handed to the kernel.
    pub handed_up: Reasons,
    /// Packets dropped.
    pub dropped: Reasons,
}

impl PortRow {
    /// What a port has counted since `before`.
    pub fn between(before: &PortCounters, now: &PortReport) -> PortRow {
        let after = &now.counters;
        PortRow {
            name: now.link.name.clone(),
            link_layer: now.link.link_layer.map_or("unknown", LinkLayer::name),
            received: Count::between(before.received, after.received),
            forwarded: PerFamily {
                ipv4: Count::between(before.forwarded_ipv4, after.forwarded_ipv4),
                ipv6: Count::between(before.forwarded_ipv6, after.forwarded_ipv6),
            },
            sent: PerFamily {
                ipv4: Count::between(before.sent_ipv4, after.sent_ipv4),
                ipv6: Count::between(before.sent_ipv6, after.sent_ipv6),
            },
            handed_up: reasons(&before.handed_up, &after.handed_up),
            dropped: reasons(&before.dropped, &after.dropped),
        }
    }
}

fn reasons(before: &ReasonCounters, after: &ReasonCounters) -> Reasons {
    let before: Vec<(Reason, Counter)> = before.iter().collect();
    after
        .iter()
        .zip(before)
        .map(|((reason, now), (_, then))| (reason.name(), Count::between(then, now)))
        .filter(|(_, count)| *count != Count::default())
        .collect()
}

/// Packets and bytes by port, verdict and reason; at most `reasons` lines of reasons.
pub fn port_lines(ports: &[PortRow], reasons: usize) -> Vec<String> {
    let mut head = format!("{:<30}", "VERDICT    REASON");
    for port in ports {
        head += &format!("{:>14}{:>11}", format!("{} packets", port.name), "bytes");
    }
    let mut lines = vec![head];
    let mut push = |verdict: &str, reason: &str, count: &dyn Fn(&PortRow) -> Count| {
        let mut line = format!("{verdict:<11}{reason:<19}");
        for port in ports {
            let Count { packets, bytes } = count(port);
            line += &format!("{}{:>11}", text::column(packets, 14), text::bytes(bytes));
        }
        lines.push(line);
    };
    push("received", "", &|port| port.received);
    for family in Family::ALL {
        push("forwarded", family.text(), &|port| {
            port.forwarded.of(family)
        });
    }
    for family in Family::ALL {
        push("sent", family.text(), &|port| port.sent.of(family));
    }
    let rows = reason_rows(ports);
    let shown = if rows.len() > reasons {
        reasons.saturating_sub(1)
    } else {
        rows.len()
    };
    for &(dropped, reason) in &rows[..shown] {
        push(verdict(dropped), reason, &|port| of(port, dropped, reason));
    }
    if let rest @ [_, ..] = &rows[shown..] {
        push("others", &format!("({} reasons)", rest.len()), &|port| {
            rest.iter()
                .map(|&(dropped, reason)| of(port, dropped, reason))
                .fold(Count::default(), std::ops::Add::add)
        });
    }
    lines
}

fn verdict(dropped: bool) -> &'static str {
    if dropped { "dropped" } else { "handed up" }
}

fn of(port: &PortRow, dropped: bool, reason: &str) -> Count {
    let counts = if dropped {
        &port.dropped
    } else {
        &port.handed_up
    };
    counts.get(reason).copied().unwrap_or_default()
}

/// Every verdict and reason that happened on any port: drops first, then the most frequent.
fn reason_rows(ports: &[PortRow]) -> Vec<(bool, &'static str)> {
    let dropped = ports
        .iter()
        .flat_map(|port| port.dropped.keys().map(|&reason| (true, reason)));
    let handed = ports
        .iter()
        .flat_map(|port| port.handed_up.keys().map(|&reason| (false, reason)));
    let rows: BTreeSet<(bool, &str)> = dropped.chain(handed).collect();
    let mut rows: Vec<_> = rows.into_iter().collect();
    let packets = |&(dropped, reason): &(bool, &str)| -> u64 {
        ports
            .iter()
            .map(|port| of(port, dropped, reason).packets)
            .sum()
    };
    rows.sort_by_key(|row| std::cmp::Reverse((row.0, packets(row))));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::measurement::tests::example;

    #[test]
    fn reasons_without_room_are_summed() {
        let mut ports = example().ports;
        let count = |packets| Count {
            packets,
            bytes: packets,
        };
        ports[0].dropped.clear();
        ports[0].handed_up = [
            ("arp", count(5)),
            ("fragment", count(7)),
            ("multicast", count(1)),
        ]
        .into();
        let lines = port_lines(&ports, 2);
        let reasons: Vec<_> = lines[6..]
            .iter()
            .map(|line| line.split_whitespace().collect::<Vec<_>>())
            .collect();
        assert_eq!(reasons[0][..4], ["handed", "up", "fragment", "7"]);
        assert_eq!(reasons[1][..4], ["others", "(2", "reasons)", "6"]);
        assert_eq!(reasons.len(), 2);
    }
}
