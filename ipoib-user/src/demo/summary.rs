//! What a demo found, at its end: in words, as one JSON object, and as yes or no.

use super::measurement::Measurement;
use super::table;
use crate::show::{Family, PerFamily, VERSION, port_lines, text};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Share of each family's forwarded packets that has to take the fast path.
pub const WANTED_SHARE: f64 = 0.9;

/// A demo's result.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// What was measured; empty where the demo was stopped before any traffic.
    pub measurement: Measurement,
    /// Path MTU from the fabric host to the Ethernet host, as the gateway's kernel told it.
    pub path_mtu: PerFamily<Option<u32>>,
    /// Names of the network namespaces by role.
    pub namespaces: BTreeMap<&'static str, String>,
    /// Where the maps were pinned.
    pub pin_root: PathBuf,
}

impl Summary {
    /// Everything that is not as it should be; empty for a success.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for flow in &self.measurement.flows {
            if let Some(error) = &flow.error {
                problems.push(format!("{}: {error}", flow.name));
            }
            if flow.lost > 0 {
                problems.push(format!(
                    "{}: {} of {} {} were lost",
                    flow.name,
                    text::count(flow.lost),
                    text::count(flow.sent),
                    flow.unit
                ));
            }
            if flow.corrupt > 0 {
                problems.push(format!(
                    "{}: {} {} came with other content than was sent",
                    flow.name,
                    text::count(flow.corrupt),
                    flow.unit
                ));
            }
        }
        for family in Family::ALL {
            match self.measurement.share(family) {
                None => problems.push(format!("{}: nothing was forwarded", family.text())),
                Some(share) if share < WANTED_SHARE => problems.push(format!(
                    "{}: {} of the forwarded packets took the fast path, {} are wanted",
                    family.text(),
                    text::share(Some(share)),
                    text::share(Some(WANTED_SHARE))
                )),
                Some(_) => {}
            }
        }
        problems
    }

    /// Whether everything that was sent arrived and enough of it took the fast path.
    pub fn ok(&self) -> bool {
        self.problems().is_empty()
    }

    /// One object; what the rows' fields mean is said at [`Measurement`]'s types.
    pub fn json(&self) -> Value {
        let measurement = &self.measurement;
        let fast = |family| {
            let count = measurement.fast_path(family);
            json!({
                "packets": count.packets,
                "bytes": count.bytes,
                "share": measurement.share(family),
            })
        };
        let kernel = measurement.kernel;
        json!({
            "v": VERSION,
            "ok": self.ok(),
            "problems": self.problems(),
            "seconds": measurement.seconds,
            "lost": measurement.lost(),
            "fast_path": { "ipv4": fast(Family::Ipv4), "ipv6": fast(Family::Ipv6) },
            "kernel": {
                "packets": kernel.ipv4 + kernel.ipv6,
                "ipv4": { "packets": kernel.ipv4 },
                "ipv6": { "packets": kernel.ipv6 },
            },
            "path_mtu": self.path_mtu,
            "flows": measurement.flows,
            "ports": measurement.ports,
            "namespaces": self.namespaces,
            "pin_root": self.pin_root,
        })
    }

    /// The same for people.
    pub fn text(&self) -> String {
        let measurement = &self.measurement;
        let mut lines = Vec::new();
        if measurement.flows.is_empty() {
            lines.push("stopped before there was any traffic".to_owned());
        } else {
            lines.push(format!(
                "{:.1} s of traffic through the gateway",
                measurement.seconds
            ));
            lines.push(String::new());
            lines.extend(port_lines(&measurement.ports, usize::MAX));
            lines.push(String::new());
            lines.extend(table::flow_lines(&measurement.flows, "lost"));
            lines.push(String::new());
            for family in Family::ALL {
                let fast = measurement.fast_path(family);
                lines.push(format!(
                    "{}: {} packets ({}) on the fast path, {} by the kernel: {}",
                    family.text(),
                    text::count(fast.packets),
                    text::bytes(fast.bytes),
                    text::count(measurement.kernel.of(family)),
                    text::share(measurement.share(family))
                ));
            }
            let mtu = |mtu: Option<u32>| mtu.map_or("not learnt".to_owned(), |mtu| mtu.to_string());
            lines.push(format!(
                "path MTU that the fabric host learnt from the gateway: IPv4 {}, IPv6 {}",
                mtu(self.path_mtu.ipv4),
                mtu(self.path_mtu.ipv6)
            ));
        }
        let problems = self.problems();
        if problems.is_empty() {
            lines.push("everything that was sent arrived".to_owned());
        }
        lines.extend(
            problems
                .into_iter()
                .map(|problem| format!("PROBLEM: {problem}")),
        );
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::super::measurement::tests::example;
    use super::*;

    fn summary() -> Summary {
        Summary {
            measurement: example(),
            path_mtu: PerFamily {
                ipv4: Some(1500),
                ipv6: None,
            },
            namespaces: [("gateway", "ipoib-demo-1-gateway".to_owned())].into(),
            pin_root: "/sys/fs/bpf/ipoib-demo-1".into(),
        }
    }

    fn good() -> Summary {
        let mut good = summary();
        for flow in &mut good.measurement.flows {
            (flow.received, flow.lost) = (flow.sent, 0);
        }
        good
    }

    #[test]
    fn all_arrived_and_fast_is_a_success() {
        assert_eq!(good().problems(), [""; 0]);
        assert!(good().text().ends_with("everything that was sent arrived"));
    }

    #[test]
    fn one_lost_unit_is_a_failure_that_names_its_flow() {
        assert_eq!(
            summary().problems(),
            ["udp-ipv6-n1-n2: 1 of 20 datagrams were lost"]
        );
        assert!(!summary().ok());
    }

    #[test]
    fn less_than_nine_tenths_of_a_family_is_a_failure() {
        let mut summary = good();
        summary.measurement.kernel.ipv4 = 3;
        assert!(summary.ok(), "30 of 33");
        summary.measurement.kernel.ipv4 = 4;
        assert_eq!(
            summary.problems(),
            ["IPv4: 88.23 % of the forwarded packets took the fast path, 90.00 % are wanted"]
        );
    }

    #[test]
    fn a_flow_that_broke_or_brought_rubbish_is_a_failure() {
        let mut summary = good();
        summary.measurement.flows[0].error = Some("sending: Network is unreachable".to_owned());
        summary.measurement.flows[1].corrupt = 2;
        assert_eq!(
            summary.problems(),
            [
                "udp-ipv4-n1-n2: sending: Network is unreachable",
                "udp-ipv6-n1-n2: 2 datagrams came with other content than was sent",
            ]
        );
    }

    #[test]
    fn a_demo_without_traffic_is_no_success() {
        let nothing = Summary::default();
        assert_eq!(
            nothing.problems(),
            ["IPv4: nothing was forwarded", "IPv6: nothing was forwarded"]
        );
        let json = nothing.json();
        assert_eq!(
            json["fast_path"]["ipv4"],
            json!({"packets": 0, "bytes": 0, "share": null})
        );
        assert_eq!((&json["lost"], &json["ok"]), (&json!(0), &json!(false)));
    }

    #[test]
    fn the_object_has_the_promised_shape() {
        let json = summary().json();
        assert_eq!(
            json,
            json!({
                "v": VERSION,
                "ok": false,
                "problems": ["udp-ipv6-n1-n2: 1 of 20 datagrams were lost"],
                "seconds": 2.5,
                "lost": 1,
                "fast_path": {
                    "ipv4": {"packets": 30, "bytes": 30_000, "share": 1.0},
                    "ipv6": {"packets": 19, "bytes": 38_000, "share": 0.95},
                },
                "kernel": {"packets": 1, "ipv4": {"packets": 0}, "ipv6": {"packets": 1}},
                "path_mtu": {"ipv4": 1500, "ipv6": null},
                "flows": [
                    {
                        "name": "udp-ipv4-n1-n2", "family": "ipv4", "protocol": "udp",
                        "from": "n1", "to": "n2", "unit": "datagrams",
                        "sent": 30, "received": 30, "lost": 0, "duplicates": 0, "corrupt": 0,
                        "bytes": 3000,
                    },
                    {
                        "name": "udp-ipv6-n1-n2", "family": "ipv6", "protocol": "udp",
                        "from": "n1", "to": "n2", "unit": "datagrams",
                        "sent": 20, "received": 19, "lost": 1, "duplicates": 0, "corrupt": 0,
                        "bytes": 1900,
                    },
                ],
                "ports": [
                    {
                        "name": "ib0", "link_layer": "ethernet",
                        "received": {"packets": 50, "bytes": 70_014},
                        "forwarded": {
                            "ipv4": {"packets": 30, "bytes": 30_000},
                            "ipv6": {"packets": 19, "bytes": 38_000},
                        },
                        "sent": {
                            "ipv4": {"packets": 0, "bytes": 0},
                            "ipv6": {"packets": 0, "bytes": 0},
                        },
                        "handed_up": {"too_big": {"packets": 1, "bytes": 2014}},
                        "dropped": {"rewrite_failed": {"packets": 1, "bytes": 70}},
                    },
                    {
                        "name": "eth0", "link_layer": "ethernet",
                        "received": {"packets": 0, "bytes": 0},
                        "forwarded": {
                            "ipv4": {"packets": 0, "bytes": 0},
                            "ipv6": {"packets": 0, "bytes": 0},
                        },
                        "sent": {
                            "ipv4": {"packets": 30, "bytes": 30_000},
                            "ipv6": {"packets": 0, "bytes": 0},
                        },
                        "handed_up": {},
                        "dropped": {},
                    },
                ],
                "namespaces": {"gateway": "ipoib-demo-1-gateway"},
                "pin_root": "/sys/fs/bpf/ipoib-demo-1",
            })
        );
        assert!(!json.to_string().contains('\n'), "one line");
    }
}
