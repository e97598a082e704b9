//! What is measured: a row's name, unit and target, and how to get it.

use crate::show::Family;
use serde::Serialize;

/// How a figure comes about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Small packets, as many as go through.
    Packets,
    /// One bulk TCP connection.
    Stream,
    /// The program alone.
    Program,
}

/// The relation that a target asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Relation {
    /// Above the value.
    #[serde(rename = ">")]
    Above,
    /// At or above the value.
    #[serde(rename = ">=")]
    AtLeast,
}

impl Relation {
    /// As in JSON.
    pub fn sign(self) -> &'static str {
        match self {
            Relation::Above => ">",
            Relation::AtLeast => ">=",
        }
    }
}

/// What the ratio is to be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Target {
    /// The relation.
    pub op: Relation,
    /// The value.
    pub value: f64,
}

impl Target {
    /// Whether an interval of ratios meets the target: its worse end does.
    pub fn is_met_by(&self, low: f64) -> bool {
        match self.op {
            Relation::Above => low > self.value,
            Relation::AtLeast => low >= self.value,
        }
    }
}

/// A row before it is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// Its name.
    pub name: &'static str,
    /// Unit of its figures.
    pub unit: &'static str,
    /// How they come about.
    pub kind: Kind,
    /// Of which packets.
    pub family: Family,
    /// What the ratio is to be, if anything.
    pub target: Option<Target>,
}

/// Every row.
pub const PLANS: [Plan; 6] = [
    packets("forward_pps_ipv4", Family::Ipv4),
    packets("forward_pps_ipv6", Family::Ipv6),
    stream("forward_tcp_ipv4", Family::Ipv4),
    stream("forward_tcp_ipv6", Family::Ipv6),
    program("program_ns_ipv4", Family::Ipv4),
    program("program_ns_ipv6", Family::Ipv6),
];

const fn packets(name: &'static str, family: Family) -> Plan {
    let target = Target {
        op: Relation::AtLeast,
        value: 1.0,
    };
    Plan {
        name,
        unit: "packets/s",
        kind: Kind::Packets,
        family,
        target: Some(target),
    }
}

const fn stream(name: &'static str, family: Family) -> Plan {
    let target = Target {
        op: Relation::Above,
        value: 0.95,
    };
    Plan {
        name,
        unit: "Gbit/s",
        kind: Kind::Stream,
        family,
        target: Some(target),
    }
}

const fn program(name: &'static str, family: Family) -> Plan {
    Plan {
        name,
        unit: "ns",
        kind: Kind::Program,
        family,
        target: None,
    }
}
