//! What of a file `ipoib run` can do in this version. The rest is refused by name: a key that does
//! nothing would be a promise.

use super::at::At;
use super::check::{DEFAULT_TENANT, sets};
use super::findings::{Findings, Problem, join};
use super::model::File;
use crate::datapath::Order;

/// What to run, as the file says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Names of the ports, in the order of the file.
    pub ports: Vec<String>,
    /// The order of all of them.
    pub order: Order,
    /// The pin root, where the file gives one.
    pub pin_root: Option<String>,
}

/// The plan; what can't be done yet is an error in `findings`. Groups and classes alone ask for
/// nothing: only policies use them.
pub fn plan(file: &File, findings: &mut Findings) -> Plan {
    daemon(file, findings);
    let mut ports: Vec<_> = file.ports.iter().collect();
    ports.sort_by_key(|port| port.1.offset);
    let order =
        |port: &super::model::Port| port.order.as_ref().map(|o| o.value).unwrap_or_default();
    let first = ports
        .first()
        .map(|port| (port.0.clone(), order(&port.1.value)));
    for (
        name,
        At {
            offset,
            value: port,
        },
    ) in &ports
    {
        let key = join("ports", name);
        if let Some(guard) = &port.guard
            && guard.value
        {
            let problem = Problem::NotYet("the guard is");
            findings.error(guard.offset, join(&key, "guard"), problem);
        }
        if let Some(tenant) = &port.tenant
            && tenant.value != DEFAULT_TENANT
        {
            let problem = Problem::NotYet("tenants other than \"default\" are");
            findings.error(tenant.offset, join(&key, "tenant"), problem);
        }
        if let Some((first, of_first)) = &first
            && order(port) != *of_first
        {
            let offset = port.order.as_ref().map_or(*offset, |o| o.offset);
            let problem = Problem::MixedOrder {
                port: first.clone(),
                order: of_first.name(),
            };
            findings.error(offset, join(&key, "order"), problem);
        }
    }
    for (key, policies) in sets(file) {
        if let Some(policy) = policies.first() {
            findings.error(policy.offset, key, Problem::NotYet("policies are"));
        }
    }
    for (name, peer) in &file.peers {
        let problem = Problem::NotYet("peers are");
        findings.error(peer.offset, join("peers", name), problem);
    }
    for (name, profile) in &file.profiles {
        let problem = Problem::NotYet("profiles are");
        findings.error(profile.offset, join("profiles", name), problem);
    }
    let daemon = file.daemon.as_ref();
    Plan {
        ports: ports.iter().map(|port| port.0.clone()).collect(),
        order: first.map(|first| first.1).unwrap_or_default(),
        pin_root: daemon.and_then(|d| d.value.pin_root.as_ref().map(|root| root.value.clone())),
    }
}

fn daemon(file: &File, findings: &mut Findings) {
    let Some(At { value: daemon, .. }) = &file.daemon else {
        return;
    };
    let at = |value: &Option<At<i64>>| value.as_ref().map(|value| value.offset);
    for (key, offset) in [
        (
            "control_group",
            daemon.control_group.as_ref().map(|v| v.offset),
        ),
        ("lease_ms", at(&daemon.lease_ms)),
        ("flows", at(&daemon.flows)),
        ("mark_mask", at(&daemon.mark_mask)),
        ("rule_priority", at(&daemon.rule_priority)),
        ("table_base", at(&daemon.table_base)),
        ("route_protocol", at(&daemon.route_protocol)),
        ("netfilter", daemon.netfilter.as_ref().map(|v| v.offset)),
        (
            "unclassifiable",
            daemon.unclassifiable.as_ref().map(|v| v.offset),
        ),
    ] {
        if let Some(offset) = offset {
            let problem = Problem::NotYet("this setting is");
            findings.error(offset, join("daemon", key), problem);
        }
    }
}
