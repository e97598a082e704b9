//! The live table: every number of a measurement in 80 columns and at most 23 lines, so that it
//! fits a terminal of 80 by 24.

use super::duration;
use super::measurement::{FlowRow, Measurement};
use super::topology::SIDES;
use super::traffic::flow::Protocol;
use crate::show::{Family, port_lines, text};
use std::time::Duration;

/// Columns that the table takes.
pub const WIDTH: usize = 80;
/// Lines that the table takes at most.
pub const HEIGHT: usize = 23;
/// Lines for what was handed up or dropped.
const REASONS: usize = 6;

/// The whole table. `before` is the last one that was shown, for the rates.
pub fn lines(now: &Measurement, before: &Measurement, limit: Option<Duration>) -> Vec<String> {
    let mut lines = vec![title(now, limit)];
    lines.extend(port_lines(&now.ports, REASONS));
    lines.extend(family_lines(now, before));
    lines.extend(flow_lines(&now.flows, "missing"));
    lines
}

/// One line, for an output that isn't a terminal.
pub fn line(now: &Measurement) -> String {
    let family = |family| {
        let fast = now.fast_path(family);
        format!(
            "{} {} packets {} ({})",
            family.text(),
            text::count(fast.packets),
            text::bytes(fast.bytes),
            text::share(now.share(family))
        )
    };
    format!(
        "{}  fast path: {}, {}; kernel: {} packets; missing: {}",
        clock(now),
        family(Family::Ipv4),
        family(Family::Ipv6),
        text::count(now.kernel.ipv4 + now.kernel.ipv6),
        text::count(now.lost())
    )
}

fn clock(measurement: &Measurement) -> String {
    duration::clock(Duration::from_secs_f64(measurement.seconds))
}

fn title(now: &Measurement, limit: Option<Duration>) -> String {
    let time = match limit {
        Some(limit) => format!("{} of {}", clock(now), duration::clock(limit)),
        None => clock(now),
    };
    let left = format!("ipoib demo   {time}");
    let width = WIDTH.saturating_sub(left.len());
    format!("{left}{:>width$}", "Ctrl-C ends it")
}

/// The fast path against the kernel.
fn family_lines(now: &Measurement, before: &Measurement) -> Vec<String> {
    let mut lines = vec![format!(
        "{:<11}{:>19}{:>10}{:>14}{:>15}{:>11}",
        "FORWARDED", "fast path packets", "bytes", "now", "kernel packets", "fast share"
    )];
    for family in Family::ALL {
        let fast = now.fast_path(family);
        let new_bytes = fast.bytes.saturating_sub(before.fast_path(family).bytes);
        let time = now.seconds - before.seconds;
        let rate = if time > 0.0 {
            (new_bytes * 8) as f64 / time
        } else {
            0.0
        };
        lines.push(format!(
            "{:<11}{}{:>10}{:>14}{}{:>11}",
            family.text(),
            text::column(fast.packets, 19),
            text::bytes(fast.bytes),
            text::rate(rate as u64),
            text::column(now.kernel.of(family), 15),
            text::share(now.share(family))
        ));
    }
    lines
}

/// One line a protocol and family, both directions beside each other. What was sent and has not
/// arrived is called `lost` by one who has waited for it, and `missing` before.
pub fn flow_lines(flows: &[FlowRow], lost: &str) -> Vec<String> {
    let directions = [
        (SIDES[0].host, SIDES[1].host),
        (SIDES[1].host, SIDES[0].host),
    ];
    let mut head = format!("{:<11}", "FLOW");
    for (from, to) in directions {
        head += &format!(
            "{:>13}{:>12}{:>9}",
            format!("{from}>{to} sent"),
            "received",
            lost
        );
    }
    let mut lines = vec![head];
    for protocol in Protocol::ALL {
        for family in Family::ALL {
            let mut line = format!("{:<5}{:<6}", protocol.name(), family.text());
            for direction in directions {
                let is_it = |flow: &&FlowRow| {
                    (flow.protocol, flow.family) == (protocol.name(), family)
                        && (flow.from, flow.to) == direction
                };
                line += &match flows.iter().find(is_it) {
                    Some(flow) => [(flow.sent, 13), (flow.received, 12), (flow.lost, 9)]
                        .map(|(number, width)| text::column(number, width))
                        .concat(),
                    None => format!("{:>13}{:>12}{:>9}", "-", "-", "-"),
                };
            }
            lines.push(line);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::super::measurement::tests::example;
    use super::*;
    use crate::show::Count;
    use ipoib_ebpf::verdict::Reason;

    #[test]
    fn it_fits_a_small_terminal_whatever_happened() {
        let mut now = example();
        let huge = Count {
            packets: u64::MAX / 100,
            bytes: u64::MAX / 100,
        };
        for port in &mut now.ports {
            port.received = huge;
            port.handed_up = Reason::ALL.into_iter().map(|r| (r.name(), huge)).collect();
            port.dropped = port.handed_up.clone();
        }
        for flow in &mut now.flows {
            (flow.sent, flow.received, flow.lost) = (u64::MAX, u64::MAX, u64::MAX);
        }
        now.seconds = 360_000.0;
        let lines = lines(&now, &example(), Some(Duration::from_secs(400_000)));
        assert!(lines.len() <= HEIGHT, "{} lines", lines.len());
        for line in lines {
            assert!(
                line.chars().count() <= WIDTH,
                "{} columns: {line}",
                line.len()
            );
        }
    }

    #[test]
    fn it_shows_ports_verdicts_reasons_families_and_flows() {
        let before = Measurement {
            seconds: 1.5,
            ..Measurement::default()
        };
        let text = lines(&example(), &before, Some(Duration::from_secs(10))).join("\n");
        for part in [
            "0:02 of 0:10",
            "ib0 packets",
            "eth0 packets",
            "handed up  too_big                         1     2.0 kB             0        0 B",
            "dropped    rewrite_failed                  1       70 B             0        0 B",
            "IPv6                        19   38.0 kB  304.0 kbit/s              1    95.00 %",
            "udp  IPv6             20          19        1            -           -        -",
        ] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
    }

    #[test]
    fn without_a_terminal_it_is_one_line() {
        assert_eq!(
            line(&example()),
            "0:02  fast path: IPv4 30 packets 30.0 kB (100.00 %), IPv6 19 packets 38.0 kB \
             (95.00 %); kernel: 1 packets; missing: 1"
        );
    }
}
