//! What a file must be like beyond its types: everything but the policies, which have a file of
//! their own.

use super::at::At;
use super::cover;
use super::findings::{Findings, Problem, join};
use super::groups::Groups;
use super::model::{Class, Daemon, File, Peer};
use super::policies::{self, Names};
use super::values;
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

/// Most policies in the file, profiles included.
pub const MAX_POLICIES: usize = 100_000;
/// Most prefixes in the file.
pub const MAX_PREFIXES: usize = 100_000;
/// Most ports.
pub const MAX_PORTS: usize = ipoib_ebpf::tables::MAX_PORTS as usize;

/// The tenant of ports that name none.
pub const DEFAULT_TENANT: &str = "default";

/// Checks a whole file.
pub fn check(file: &File, findings: &mut Findings) {
    let starts_wrong = !findings.errors.is_empty();
    if let Some(daemon) = &file.daemon {
        check_daemon(&daemon.value, findings);
    }
    let tenants = check_ports(file, findings, starts_wrong);
    let groups = Groups::read(&file.groups, findings);
    for (name, class) in &file.classes {
        check_class(name, class, findings);
    }
    let peers = check_peers(file, findings);
    let names = Names {
        file,
        tenants: &tenants,
        groups: &groups,
        peers: &peers,
        any_ethernet: file.peers.values().any(|p| p.value.ethernet.is_some()),
    };
    let sets = sets(file);
    let total: usize = sets.iter().map(|set| set.1.len()).sum();
    if let Some(first) = sets.iter().find_map(|set| set.1.first()) {
        too_many("policies", total, MAX_POLICIES, first.offset, findings);
    }
    let mut kinds = HashMap::new();
    let mut matches = Vec::new();
    for (key, policies) in &sets {
        matches.push(policies::check(&names, key, policies, &mut kinds, findings));
    }
    // A file with errors may mean other matches than it says.
    if findings.errors.is_empty() {
        for ((key, policies), matches) in sets.iter().zip(&matches) {
            cover::check(&groups, key, policies, matches, findings);
        }
    }
}

/// Every list of policies in the file, with its key.
pub fn sets(file: &File) -> Vec<(String, &[At<super::model::Policy>])> {
    let mut sets = vec![("policies".to_owned(), file.policies.as_slice())];
    for (name, profile) in &file.profiles {
        let key = join(&join("profiles", name), "policies");
        sets.push((key, &profile.value.policies));
    }
    sets
}

/// An error where there is more of something than is possible.
pub fn too_many(
    what: &'static str,
    got: usize,
    most: usize,
    offset: usize,
    findings: &mut Findings,
) {
    if got > most {
        findings.error(offset, what, Problem::TooMany { what, got, most });
    }
}

/// Checks a name that people give to something.
pub fn check_name(name: &str, offset: usize, key: &str, findings: &mut Findings) {
    let length = name.chars().count();
    if !(1..=64).contains(&length) || name.trim() != name || name.contains(char::is_control) {
        findings.error(offset, key, Problem::Name(name.to_owned()));
    }
}

fn check_range(
    value: &Option<At<i64>>,
    (least, most): (i64, i64),
    key: String,
    findings: &mut Findings,
) {
    if let Some(At { offset, value }) = *value
        && !(least..=most).contains(&value)
    {
        let problem = Problem::OutOfRange { value, least, most };
        findings.error(offset, key, problem);
    }
}

fn check_daemon(daemon: &Daemon, findings: &mut Findings) {
    let u32_max = i64::from(u32::MAX);
    for (value, range, key) in [
        (&daemon.lease_ms, (500, 60_000), "lease_ms"),
        (&daemon.flows, (1024, 1 << 24), "flows"),
        (&daemon.mark_mask, (1, u32_max), "mark_mask"),
        (&daemon.rule_priority, (1, 32_765), "rule_priority"),
        (&daemon.table_base, (256, u32_max - 0xffff), "table_base"),
        (&daemon.route_protocol, (5, 255), "route_protocol"),
    ] {
        check_range(value, range, join("daemon", key), findings);
    }
    if let Some(At { offset, value }) = daemon.mark_mask
        && (1..=u32_max).contains(&value)
        && value >> value.trailing_zeros() & ((value >> value.trailing_zeros()) + 1) != 0
    {
        findings.error(offset, "daemon.mark_mask", Problem::MaskWithHoles(value));
    }
    if let Some(root) = &daemon.pin_root
        && !root.value.starts_with('/')
    {
        let problem = Problem::RelativePath(root.value.clone());
        findings.error(root.offset, "daemon.pin_root", problem);
    }
    if let Some(group) = &daemon.control_group {
        check_name(&group.value, group.offset, "daemon.control_group", findings);
    }
}

/// Checks the ports; the tenants that they belong to.
fn check_ports(file: &File, findings: &mut Findings, starts_wrong: bool) -> BTreeSet<String> {
    let mut tenants = BTreeSet::from([DEFAULT_TENANT.to_owned()]);
    // Where a section could not be read, that was said.
    if file.ports.is_empty() && !starts_wrong {
        findings.error(0, "ports", Problem::NoPorts);
    }
    if let Some(first) = file.ports.values().map(|port| port.offset).min() {
        too_many("ports", file.ports.len(), MAX_PORTS, first, findings);
    }
    for (name, port) in &file.ports {
        let key = join("ports", name);
        if !values::is_interface_name(name) {
            findings.error(port.offset, &*key, Problem::InterfaceName(name.clone()));
        }
        if let Some(tenant) = &port.value.tenant {
            let key = join(&key, "tenant");
            check_name(&tenant.value, tenant.offset, &key, findings);
            tenants.insert(tenant.value.clone());
        }
    }
    tenants
}

fn check_class(name: &str, class: &At<Class>, findings: &mut Findings) {
    let key = join("classes", name);
    check_name(name, class.offset, &key, findings);
    let class = &class.value;
    if let Some(dscp) = &class.dscp {
        findings.ok(dscp.offset, &join(&key, "dscp"), values::dscp(&dscp.value));
    }
    let priority = (0, i64::from(u32::MAX));
    check_range(&class.priority, priority, join(&key, "priority"), findings);
    check_range(&class.sl, (0, 15), join(&key, "sl"), findings);
}

/// Checks the peers; the addresses that each has.
fn check_peers(file: &File, findings: &mut Findings) -> HashMap<String, Vec<IpAddr>> {
    let mut owners: HashMap<IpAddr, (&str, usize)> = HashMap::new();
    let mut peers = HashMap::new();
    // In the order of the file, so that "already" means a line above.
    let mut sorted: Vec<_> = file.peers.iter().collect();
    sorted.sort_by_key(|peer| peer.1.offset);
    for (
        name,
        At {
            offset,
            value: peer,
        },
    ) in sorted
    {
        let key = join("peers", name);
        check_name(name, *offset, &key, findings);
        check_peer_words(peer, &key, findings);
        let mut addresses = Vec::new();
        if let Some(list) = &peer.addresses {
            let key = join(&key, "addresses");
            if list.value.is_empty() && !findings.is_unread(&key) {
                findings.error(list.offset, &*key, Problem::Empty("an address"));
            }
            for (index, text) in list.value.iter().enumerate() {
                let key = format!("{key}[{index}]");
                let address = values::unicast(&text.value);
                let Some(address) = findings.ok(text.offset, &key, address) else {
                    continue;
                };
                if let Some((owner, line)) = owners.get(&address) {
                    let name = format!("{address}, of peer {owner}");
                    let what = "address";
                    let line = *line;
                    findings.error(text.offset, key, Problem::Duplicate { what, name, line });
                }
                owners.insert(address, (name, findings.line(text.offset)));
                addresses.push(address);
            }
        } else if peer.key.is_none() && peer.ethernet.is_none() && peer.fabric.is_none() {
            let key = join(&key, "addresses");
            if !findings.is_unread(&key) {
                findings.error(*offset, key, Problem::Missing("addresses"));
            }
        }
        peers.insert(name.clone(), addresses);
    }
    peers
}

fn check_peer_words(peer: &Peer, key: &str, findings: &mut Findings) {
    if let Some(At { offset, value }) = &peer.key
        && !(value.len() == 64 && value.bytes().all(|b| b.is_ascii_hexdigit()))
    {
        findings.error(*offset, join(key, "key"), Problem::Key(value.clone()));
    }
    if let Some(At { offset, value }) = &peer.ethernet {
        findings.ok(*offset, &join(key, "ethernet"), values::ethernet(value));
    }
    if let Some(At { offset, value }) = &peer.fabric {
        findings.ok(*offset, &join(key, "fabric"), values::guid(value));
    }
}
