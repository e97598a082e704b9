//! What a list of policies must be like.

use super::at::{At, Scalar};
use super::check::check_name;
use super::findings::{Findings, Problem, join};
use super::groups::Groups;
use super::model::{Action, File, OnDegraded, Policy};
use super::values::{self, Family, When};
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

/// The names that policies may use.
pub struct Names<'a> {
    /// The file, for ports and classes.
    pub file: &'a File,
    /// The tenants of its ports.
    pub tenants: &'a BTreeSet<String>,
    /// Its groups.
    pub groups: &'a Groups<'a>,
    /// Its peers with their addresses.
    pub peers: &'a HashMap<String, Vec<IpAddr>>,
    /// Whether any peer has an Ethernet address.
    pub any_ethernet: bool,
}

/// What packets a policy matches; `None` is any.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Match {
    /// Group of the source, by number.
    pub from: Option<usize>,
    /// Group of the destination.
    pub to: Option<usize>,
    /// Protocol.
    pub protocol: Option<u8>,
    /// Destination ports: ranges in order, without overlap.
    pub ports: Option<Vec<(u16, u16)>>,
    /// Source ports, likewise.
    pub source_ports: Option<Vec<(u16, u16)>>,
    /// DSCP.
    pub dscp: Option<u8>,
    /// Name of the ingress port.
    pub ingress: Option<String>,
    /// Tenant.
    pub tenant: Option<String>,
    /// Whether it holds only at times.
    pub sometimes: bool,
}

/// What each port is in the ladders: a fabric port or not, and where that was said first.
pub type Kinds = HashMap<String, (bool, usize)>;

/// Checks a list of policies; what each of them matches.
pub fn check(
    names: &Names,
    key: &str,
    policies: &[At<Policy>],
    kinds: &mut Kinds,
    findings: &mut Findings,
) -> Vec<Match> {
    let mut lines: HashMap<&str, usize> = HashMap::new();
    let mut matches = Vec::with_capacity(policies.len());
    for (index, At { offset, value }) in policies.iter().enumerate() {
        let key = format!("{key}[{index}]");
        match &value.name {
            None => {
                let key = join(&key, "name");
                if !findings.is_unread(&key) {
                    findings.error(*offset, key, Problem::Missing("name"));
                }
            }
            Some(name) => {
                let key = join(&key, "name");
                check_name(&name.value, name.offset, &key, findings);
                match lines.get(name.value.as_str()) {
                    Some(line) => {
                        let problem = Problem::Duplicate {
                            what: "policy",
                            name: name.value.clone(),
                            line: *line,
                        };
                        findings.error(name.offset, key, problem);
                    }
                    None => {
                        lines.insert(&name.value, findings.line(name.offset));
                    }
                }
            }
        }
        let mut one = One {
            names,
            key,
            policy: value,
            findings,
        };
        let matched = one.matched();
        let families = one.families(*offset, &matched);
        one.action(*offset);
        one.path(kinds);
        one.next_hop(&families);
        matches.push(matched);
    }
    matches
}

/// One policy under check.
struct One<'a, 'f, 't> {
    names: &'a Names<'a>,
    key: String,
    policy: &'a Policy,
    findings: &'f mut Findings<'t>,
}

impl<'a> One<'a, '_, '_> {
    /// A key of the policy, or an element of one.
    fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.key)
    }

    fn is_unread(&self, key: &str) -> bool {
        self.findings.is_unread(&self.key(key))
    }

    fn error(&mut self, offset: usize, key: &str, problem: Problem) {
        let key = self.key(key);
        self.findings.error(offset, key, problem);
    }

    fn read<T, U>(
        &mut self,
        value: &Option<At<T>>,
        key: &str,
        read: impl Fn(&T) -> Result<U, Problem>,
    ) -> Option<U> {
        let At { offset, value } = value.as_ref()?;
        let key = join(&self.key, key);
        self.findings.ok(*offset, &key, read(value))
    }

    /// A name that must be one of `known`.
    fn known<'n>(
        &mut self,
        name: &Option<At<String>>,
        key: &str,
        what: &'static str,
        is_known: bool,
        known: impl Iterator<Item = &'n str>,
        add: String,
    ) {
        if let Some(At { offset, value }) = name
            && !is_known
        {
            let problem = Problem::Unknown {
                what,
                name: value.clone(),
                hint: self.findings.hint(value, known),
                add,
            };
            self.error(*offset, key, problem);
        }
    }

    fn matched(&mut self) -> Match {
        let (names, policy) = (self.names, self.policy);
        let protocol = self.read(&policy.protocol, "protocol", values::protocol);
        let ports = self.ports(&policy.ports, "ports", protocol);
        let source_ports = self.ports(&policy.source_ports, "source_ports", protocol);
        let dscp = self.read(&policy.dscp, "dscp", values::dscp);
        let when = self.read(&policy.when, "when", |text| values::when(text));
        let file = names.file;
        let has = |name: &Option<At<String>>, has: &dyn Fn(&str) -> bool| {
            name.as_ref().is_none_or(|name| has(&name.value))
        };
        let is_port = has(&policy.ingress, &|name| file.ports.contains_key(name));
        let known = file.ports.keys().map(String::as_str);
        let add = "it to [ports]".to_owned();
        self.known(&policy.ingress, "ingress", "port", is_port, known, add);
        let is_tenant = has(&policy.tenant, &|name| names.tenants.contains(name));
        let known = names.tenants.iter().map(String::as_str);
        let add = "it as `tenant` of a port".to_owned();
        self.known(&policy.tenant, "tenant", "tenant", is_tenant, known, add);
        let is_class = has(&policy.class, &|name| file.classes.contains_key(name));
        let known = file.classes.keys().map(String::as_str);
        let add = "it to [classes]".to_owned();
        self.known(&policy.class, "class", "class", is_class, known, add);
        Match {
            from: self.group(&policy.from, "from"),
            to: self.group(&policy.to, "to"),
            protocol,
            ports,
            source_ports,
            dscp,
            ingress: policy.ingress.as_ref().map(|name| name.value.clone()),
            tenant: policy.tenant.as_ref().map(|name| name.value.clone()),
            sometimes: when.is_some_and(|when| when != When::Always),
        }
    }

    fn group(&mut self, name: &Option<At<String>>, key: &str) -> Option<usize> {
        let At { offset, value } = name.as_ref()?;
        let number = self.names.groups.number(value);
        if number.is_none() && values::Prefix::parse(value).is_ok() {
            self.error(*offset, key, Problem::PrefixForGroup(value.clone()));
        } else {
            let known = self.names.file.groups.keys().map(String::as_str);
            let add = "it to [groups]".to_owned();
            self.known(name, key, "group", number.is_some(), known, add);
        }
        number
    }

    fn ports(
        &mut self,
        list: &Option<At<Vec<At<Scalar>>>>,
        key: &str,
        protocol: Option<u8>,
    ) -> Option<Vec<(u16, u16)>> {
        let At { offset, value } = list.as_ref()?;
        match protocol {
            None if self.policy.protocol.is_none() && !self.is_unread("protocol") => {
                self.error(*offset, key, Problem::PortsWithoutProtocol);
            }
            Some(protocol) if !values::has_ports(protocol) => {
                self.error(*offset, key, Problem::PortsOfPortless(protocol));
            }
            _ => {}
        }
        if value.is_empty() && !self.is_unread(key) {
            self.error(*offset, key, Problem::Empty("a port"));
        }
        let mut ranges = Vec::new();
        for (index, item) in value.iter().enumerate() {
            let key = format!("{}[{index}]", join(&self.key, key));
            let range = values::ports(&item.value);
            ranges.extend(self.findings.ok(item.offset, &key, range));
        }
        Some(merged(ranges))
    }

    /// The families that can match; an error where there is none.
    fn families(&mut self, offset: usize, matched: &Match) -> Vec<Family> {
        let groups = self.names.groups;
        let mut families = vec![Family::V4, Family::V6];
        let mut said: Option<String> = None;
        let mut narrow = |words: String, can: &dyn Fn(Family) -> bool| {
            let left: Vec<_> = families.iter().copied().filter(|f| can(*f)).collect();
            if left.is_empty() && !families.is_empty() {
                let one = said.clone().unwrap_or_default();
                families = left;
                return Some(Problem::NeverMatches { one, other: words });
            }
            if left.len() < families.len() {
                said = Some(words);
            }
            families = left;
            None
        };
        let only = |can: &dyn Fn(Family) -> bool| match (can(Family::V4), can(Family::V6)) {
            (true, false) => Some("IPv4"),
            (false, true) => Some("IPv6"),
            _ => None,
        };
        let mut problem = None;
        for (key, group) in [("from", matched.from), ("to", matched.to)] {
            let Some(group) = group else { continue };
            let can = |family| groups.has(group, family);
            // A group without a prefix has its own error.
            if let Some(family) = only(&can) {
                problem = problem.or(narrow(format!("`{key}` has {family} prefixes only"), &can));
            }
        }
        if let Some(protocol) = matched.protocol
            && let Some(family) = values::family_of_protocol(protocol)
        {
            let words = format!("protocol {protocol} travels in {} only", family.name());
            problem = problem.or(narrow(words, &|f| f == family));
        }
        if let Some(problem) = problem {
            let key = self.key.clone();
            self.findings.error(offset, key, problem);
        }
        families
    }

    fn action(&mut self, offset: usize) {
        let policy = self.policy;
        let action = policy.action.as_ref().map_or(Action::Allow, |a| a.value);
        self.read(&policy.rate, "rate", |text| values::rate(text));
        self.read(&policy.burst, "burst", |text| values::burst(text));
        if self.is_unread("action") {
            return;
        }
        if action == Action::Police {
            if policy.rate.is_none() && !self.is_unread("rate") {
                let offset = policy.action.as_ref().map_or(offset, |a| a.offset);
                self.error(offset, "rate", Problem::PoliceWithoutRate);
            }
        } else {
            for (word, key) in [(&policy.rate, "rate"), (&policy.burst, "burst")] {
                if let Some(word) = word {
                    self.error(word.offset, key, Problem::OnlyPolice(key));
                }
            }
        }
        if action == Action::Drop {
            for (offset, key) in [
                (policy.class.as_ref().map(|v| v.offset), "class"),
                (policy.path.as_ref().map(|v| v.offset), "path"),
                (policy.next_hop.as_ref().map(|v| v.offset), "next_hop"),
                (policy.on_degraded.as_ref().map(|v| v.offset), "on_degraded"),
            ] {
                if let Some(offset) = offset {
                    self.error(offset, key, Problem::DropWith(key));
                }
            }
        }
    }

    fn path(&mut self, kinds: &mut Kinds) {
        let policy = self.policy;
        let ladder = policy.path.as_ref().map_or(&[][..], |path| &path.value);
        if let Some(path) = &policy.path
            && ladder.is_empty()
            && !self.is_unread("path")
        {
            self.error(path.offset, "path", Problem::Empty("a rung"));
        }
        let mut rungs: Vec<(values::Kind, &str)> = Vec::new();
        for (index, At { offset, value }) in ladder.iter().enumerate() {
            let key = format!("path[{index}]");
            let (kind, port) = match values::rung(value) {
                Ok(rung) => rung,
                Err(problem) => {
                    self.error(*offset, &key, problem);
                    continue;
                }
            };
            if rungs.contains(&(kind, port)) {
                self.error(*offset, &key, Problem::DuplicateRung);
                continue;
            }
            rungs.push((kind, port));
            let ports = &self.names.file.ports;
            if !ports.contains_key(port) {
                let problem = Problem::Unknown {
                    what: "port",
                    name: port.to_owned(),
                    hint: self.findings.hint(port, ports.keys().map(String::as_str)),
                    add: "it to [ports]".to_owned(),
                };
                self.error(*offset, &key, problem);
                continue;
            }
            let line = self.findings.line(*offset);
            let (is_fabric, first) = *kinds
                .entry(port.to_owned())
                .or_insert((kind.is_fabric(), line));
            if is_fabric != kind.is_fabric() {
                let port = port.to_owned();
                let line = first;
                self.error(*offset, &key, Problem::TwoKinds { port, line });
            }
        }
        if let [.., before, (values::Kind::Ethernet, _)] = rungs[..]
            && before.0.is_fabric()
            && let Some(path) = &policy.path
            && !self.names.any_ethernet
        {
            let key = join(&self.key, "path");
            let problem = Problem::NoEthernetAddress;
            self.findings.warning(path.offset, key, problem);
        }
        if let Some(At {
            offset,
            value: OnDegraded::Next,
        }) = policy.on_degraded
            && ladder.len() < 2
            && !self.is_unread("path")
            && policy
                .action
                .as_ref()
                .is_none_or(|a| a.value != Action::Drop)
        {
            self.error(offset, "on_degraded", Problem::NoNextRung);
        }
    }

    fn next_hop(&mut self, families: &[Family]) {
        let Some(At { offset, value }) = &self.policy.next_hop else {
            return;
        };
        let hops: Vec<Family> = match self.names.peers.get(value) {
            Some(addresses) if addresses.is_empty() => {
                let problem = Problem::PeerWithoutAddress(value.clone());
                return self.error(*offset, "next_hop", problem);
            }
            Some(addresses) => addresses.iter().map(Family::of).collect(),
            // What looks like an address is meant as one.
            None if value.contains([':', '.', '/']) => match values::unicast(value) {
                Ok(address) => vec![Family::of(&address)],
                Err(problem) => return self.error(*offset, "next_hop", problem),
            },
            None => {
                let known = self.names.peers.keys().map(String::as_str);
                let add = "it to [peers]".to_owned();
                let next_hop = &self.policy.next_hop;
                return self.known(next_hop, "next_hop", "peer", false, known, add);
            }
        };
        let served = |family: &&Family| hops.contains(family);
        match (
            families.iter().find(served),
            families.iter().find(|f| !served(f)),
        ) {
            (None, Some(packets)) => {
                let problem = Problem::NextHopFamily {
                    next_hop: hops[0].name(),
                    packets: packets.name(),
                };
                self.error(*offset, "next_hop", problem);
            }
            (Some(one), Some(other)) => {
                let problem = Problem::NextHopOneFamily {
                    next_hop: one.name(),
                    other: other.name(),
                };
                let key = join(&self.key, "next_hop");
                self.findings.warning(*offset, key, problem);
            }
            _ => {}
        }
    }
}

/// Ranges in order, those that touch joined.
fn merged(mut ranges: Vec<(u16, u16)>) -> Vec<(u16, u16)> {
    ranges.sort_unstable();
    let mut merged: Vec<(u16, u16)> = Vec::new();
    for (first, last) in ranges {
        match merged.last_mut() {
            Some(end) if u32::from(first) <= u32::from(end.1) + 1 => end.1 = end.1.max(last),
            _ => merged.push((first, last)),
        }
    }
    merged
}
