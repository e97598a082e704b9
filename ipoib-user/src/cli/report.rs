//! Ports and their counters as people and programs read them, for every verb that shows them.

use crate::datapath::PortReport;
use ipoib_ebpf::tables::Counter;
use ipoib_ebpf::verdict::{Reason, ReasonCounters};
use ipoib_ebpf::wire::link::LinkLayer;
use serde_json::{Map, Value, json};
use std::fmt::Write;

/// Version of every JSON object.
pub const VERSION: u32 = 1;

/// One line of a stream: what happened, and the ports with their counters.
pub fn event(event: &str, ports: &[PortReport]) -> Value {
    json!({ "v": VERSION, "event": event, "ports": ports.iter().map(port).collect::<Vec<_>>() })
}

/// A port as an object.
pub fn port(port: &PortReport) -> Value {
    let counters = &port.counters;
    json!({
        "name": port.link.name,
        "ifindex": port.link.ifindex,
        "link_layer": port.link.link_layer.map(LinkLayer::name),
        "mtu": port.link.mtu,
        "up": port.link.up,
        "present": port.present,
        "attached": port.method.name(),
        "received": counter(counters.received),
        "forwarded": {
            "ipv4": counter(counters.forwarded_ipv4),
            "ipv6": counter(counters.forwarded_ipv6),
        },
        "sent": {
            "ipv4": counter(counters.sent_ipv4),
            "ipv6": counter(counters.sent_ipv6),
        },
        "handed_up": reasons(&counters.handed_up),
        "dropped": reasons(&counters.dropped),
    })
}

/// Packets and bytes as an object.
pub fn counter(counter: Counter) -> Value {
    json!({ "packets": counter.packets, "bytes": counter.bytes })
}

/// The reasons that have counted anything.
fn reasons(counters: &ReasonCounters) -> Value {
    let counted = |(_, c): &(Reason, Counter)| c.packets > 0;
    let named = |(reason, c): (Reason, Counter)| (reason.name().to_owned(), counter(c));
    Value::Object(
        counters
            .iter()
            .filter(counted)
            .map(named)
            .collect::<Map<_, _>>(),
    )
}

/// A table: a line a port and verdict, with the reason where there is one.
pub fn table(ports: &[PortReport]) -> String {
    let mut text = format!(
        "{:<15} {:<28} {:>14} {:>18}\n",
        "port", "verdict", "packets", "bytes"
    );
    for port in ports {
        for (verdict, counter) in lines(port) {
            let name = &port.link.name;
            let Counter { packets, bytes } = counter;
            writeln!(text, "{name:<15} {verdict:<28} {packets:>14} {bytes:>18}")
                .expect("a String takes everything");
        }
    }
    text
}

fn lines(port: &PortReport) -> Vec<(String, Counter)> {
    let counters = &port.counters;
    let mut lines = vec![
        ("received".to_owned(), counters.received),
        ("forward ipv4".to_owned(), counters.forwarded_ipv4),
        ("forward ipv6".to_owned(), counters.forwarded_ipv6),
    ];
    for (verdict, by_reason) in [
        ("hand_up", &counters.handed_up),
        ("drop", &counters.dropped),
    ] {
        let counted = by_reason.iter().filter(|(_, c)| c.packets > 0);
        lines.extend(counted.map(|(reason, c)| (format!("{verdict} {}", reason.name()), c)));
    }
    lines
}
