//! The whole configuration file as types. The JSON schema is made from them, and so are the lists
//! of known keys; what a value must be like beyond its type is in the checks.

use super::at::{At, Scalar};
use crate::datapath::Order;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;

/// The configuration of ipoib: ports, and the policies by which packets cross them.
#[derive(Clone, Debug, Default, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct File {
    /// Settings of the daemon itself.
    #[schemars(default)]
    pub daemon: Option<At<Daemon>>,
    /// The interfaces that become ports, by name. The link layer is read from the device.
    pub ports: BTreeMap<String, At<Port>>,
    /// Named lists of prefixes, of one or both families, which may overlap: "10.10.0.0/16".
    #[schemars(default)]
    pub groups: BTreeMap<String, At<Vec<At<String>>>>,
    /// Named classes of traffic: each has counters, and may set DSCP, priority and service level.
    #[schemars(default)]
    pub classes: BTreeMap<String, At<Class>>,
    /// The policies, in order: the first that matches a packet decides.
    #[schemars(default)]
    pub policies: Vec<At<Policy>>,
    /// Hosts that need more than their address to be reached.
    #[schemars(default)]
    pub peers: BTreeMap<String, At<Peer>>,
    /// Other sets of policies, put in force as a whole.
    #[schemars(default)]
    pub profiles: BTreeMap<String, At<Profile>>,
}

/// Settings of the daemon itself.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Daemon {
    /// Directory on a bpffs for maps and programs; "/sys/fs/bpf/ipoib" if not given.
    pub pin_root: Option<At<String>>,
    /// Group of users that may use the control socket.
    pub control_group: Option<At<String>>,
    /// After so many milliseconds without a living daemon, what came from the kernel's routing is
    /// asked anew; 1000 if not given.
    #[schemars(range(min = 500, max = 60000))]
    pub lease_ms: Option<At<i64>>,
    /// Most flows whose verdict is kept; 1048576 if not given.
    #[schemars(range(min = 1024, max = 16777216))]
    pub flows: Option<At<i64>>,
    /// Bits of the packet mark that are ipoib's; 0x0ff00000 if not given.
    #[schemars(range(min = 1, max = 4294967295u32))]
    pub mark_mask: Option<At<i64>>,
    /// Priority of the first `ip rule` that ipoib adds; 10000 if not given.
    #[schemars(range(min = 1, max = 32765))]
    pub rule_priority: Option<At<i64>>,
    /// Number of the first routing table that ipoib uses; 10000 if not given.
    #[schemars(range(min = 256, max = 4294901760u32))]
    pub table_base: Option<At<i64>>,
    /// Protocol number of the routes that ipoib adds; 73 if not given.
    #[schemars(range(min = 5, max = 255))]
    pub route_protocol: Option<At<i64>>,
    /// Whether policies pass netfilter by, where they don't say it themselves; "honour" if not given.
    pub netfilter: Option<At<Netfilter>>,
    /// What becomes of a packet that a drop or police policy could match but that can't be read;
    /// "drop" if not given.
    pub unclassifiable: Option<At<Unclassifiable>>,
}

/// A packet that can't be read far enough to be judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unclassifiable {
    /// It is dropped.
    Drop,
    /// The kernel decides.
    HandUp,
}

/// An interface that becomes a port.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Port {
    /// Where our program stands when another is attached; "refuse" if not given.
    pub order: Option<At<Order>>,
    /// Whether the early guard (XDP) is put on this port; false if not given.
    pub guard: Option<At<bool>>,
    /// Whose port it is; "default" if not given. Between tenants nothing is forwarded.
    pub tenant: Option<At<String>>,
}

/// A class of traffic.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Class {
    /// DSCP that its packets leave with: 0 to 63, or a name such as "ef", "af41", "cs3".
    pub dscp: Option<At<Scalar>>,
    /// skb->priority, which queueing disciplines read.
    #[schemars(range(min = 0, max = 4294967295u32))]
    pub priority: Option<At<i64>>,
    /// Service level of connected mode.
    #[schemars(range(min = 0, max = 15))]
    pub sl: Option<At<i64>>,
}

/// What packets are meant, and what becomes of them. A key that is not given matches everything.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["name"]))]
pub struct Policy {
    /// A name of its own, shown in counters and explanations. Required.
    pub name: Option<At<String>>,
    /// Group of the source address.
    pub from: Option<At<String>>,
    /// Group of the destination address.
    pub to: Option<At<String>>,
    /// "tcp", "udp", "udplite", "sctp", "dccp", "icmp", "icmpv6", "gre", "esp", "ah", or a number.
    pub protocol: Option<At<Scalar>>,
    /// Destination ports: numbers and ranges such as "4420-4430".
    pub ports: Option<At<Vec<At<Scalar>>>>,
    /// Source ports, likewise.
    pub source_ports: Option<At<Vec<At<Scalar>>>>,
    /// DSCP of the packet: 0 to 63, or a name such as "ef".
    pub dscp: Option<At<Scalar>>,
    /// Port of ours by which the packet came.
    pub ingress: Option<At<String>>,
    /// Tenant of the port by which the packet came.
    pub tenant: Option<At<String>>,
    /// "allow" if not given.
    pub action: Option<At<Action>>,
    /// For "police": bits per second with a unit: "500mbit", "10gbit".
    pub rate: Option<At<String>>,
    /// For "police": bytes with a unit: "64kb", "1mb"; 10 ms of the rate if not given.
    pub burst: Option<At<String>>,
    /// Class of the packets.
    pub class: Option<At<String>>,
    /// The ladder of paths, best first: "connected:PORT", "datagram:PORT", "ethernet:PORT".
    pub path: Option<At<Vec<At<String>>>>,
    /// Where the packets go next: an address or the name of a peer; routing decides if not given.
    pub next_hop: Option<At<String>>,
    /// Whether these packets pass netfilter by; [daemon] decides if not given.
    pub netfilter: Option<At<Netfilter>>,
    /// What to do while a path works badly; "stay" if not given.
    pub on_degraded: Option<At<OnDegraded>>,
    /// When the policy is in force: "always", "rdma:DEVICE up" or "rdma:DEVICE down".
    pub when: Option<At<String>>,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// It travels.
    Allow,
    /// It is dropped.
    Drop,
    /// It travels unless it comes too fast.
    Police,
}

/// How to live with netfilter rules on the road.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Netfilter {
    /// Don't accelerate while there are any.
    Honour,
    /// Pass them by.
    Bypass,
}

/// What to do while a path works badly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnDegraded {
    /// Stay until it is down.
    Stay,
    /// Take the next rung.
    Next,
}

/// A host that needs more than its address to be reached.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Peer {
    /// Its public key: 64 hexadecimal digits.
    pub key: Option<At<String>>,
    /// Its addresses.
    pub addresses: Option<At<Vec<At<String>>>>,
    /// Its Ethernet address, for the Ethernet rung.
    pub ethernet: Option<At<String>>,
    /// Its 20-byte link-layer address, or the 8-byte GUID of its port.
    pub fabric: Option<At<String>>,
}

/// A set of policies that replaces the others as a whole.
#[derive(Clone, Debug, Default, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Profile {
    /// The policies, in order.
    pub policies: Vec<At<Policy>>,
}
