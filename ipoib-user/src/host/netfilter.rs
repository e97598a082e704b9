//! nftables on the road that forwarded packets take: base chains and flowtables, by nfnetlink.
//! What the fast path forwards never reaches them, so a chain that does anything is an obstacle.

use super::netlink::{
    Question, ask_if_present, attributes, attributes_after, be32, push_attribute, string,
};
use super::{Error, Link, Obstacle};
use std::collections::HashSet;
use std::fmt;

/// `struct nfgenmsg`: family, version, resource id.
const NFGENMSG_LEN: usize = 4;
const NFNL_SUBSYS_NFTABLES: u16 = 10;

/// Message types of nf_tables (`enum nf_tables_msg_types`).
mod message {
    pub const NEWTABLE: u16 = 0;
    pub const GETTABLE: u16 = 1;
    pub const NEWCHAIN: u16 = 3;
    pub const GETCHAIN: u16 = 4;
    pub const NEWRULE: u16 = 6;
    pub const GETRULE: u16 = 7;
    pub const NEWFLOWTABLE: u16 = 22;
    pub const GETFLOWTABLE: u16 = 23;
}

/// Attributes of nf_tables (`linux/netfilter/nf_tables.h`); numbers in them are big-endian.
mod attribute {
    pub const TABLE_NAME: u16 = 1;
    pub const TABLE_FLAGS: u16 = 2;
    pub const CHAIN_TABLE: u16 = 1;
    pub const CHAIN_NAME: u16 = 3;
    pub const CHAIN_HOOK: u16 = 4;
    pub const CHAIN_POLICY: u16 = 5;
    pub const CHAIN_USE: u16 = 6;
    pub const HOOK_NUMBER: u16 = 1;
    pub const HOOK_DEVICE: u16 = 3;
    pub const HOOK_DEVICES: u16 = 4;
    pub const DEVICE_NAME: u16 = 1;
    pub const DEVICE_PREFIX: u16 = 2;
    pub const RULE_TABLE: u16 = 1;
    pub const RULE_CHAIN: u16 = 2;
    pub const FLOWTABLE_TABLE: u16 = 1;
    pub const FLOWTABLE_NAME: u16 = 2;
    pub const FLOWTABLE_HOOK: u16 = 3;
    pub const FLOWTABLE_HOOK_DEVICES: u16 = 3;
}

/// `NFT_TABLE_F_DORMANT`: the table's chains are not registered at any hook.
const TABLE_DORMANT: u32 = 1;
/// `NF_ACCEPT`.
const POLICY_ACCEPT: u32 = 1;

/// A family of nftables whose hooks forwarded packets pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NftFamily {
    /// IPv4 and IPv6.
    Inet,
    /// IPv4.
    Ip,
    /// IPv6.
    Ip6,
    /// All packets of single devices.
    Netdev,
}

impl NftFamily {
    /// From `NFPROTO_*`; `None` for families (arp, bridge) that forwarded packets don't pass on a
    /// port.
    fn from_number(number: u8) -> Option<Self> {
        match number as i32 {
            libc::NFPROTO_INET => Some(NftFamily::Inet),
            libc::NFPROTO_IPV4 => Some(NftFamily::Ip),
            libc::NFPROTO_IPV6 => Some(NftFamily::Ip6),
            libc::NFPROTO_NETDEV => Some(NftFamily::Netdev),
            _ => None,
        }
    }

    fn number(self) -> u8 {
        let number = match self {
            NftFamily::Inet => libc::NFPROTO_INET,
            NftFamily::Ip => libc::NFPROTO_IPV4,
            NftFamily::Ip6 => libc::NFPROTO_IPV6,
            NftFamily::Netdev => libc::NFPROTO_NETDEV,
        };
        number as u8
    }
}

impl fmt::Display for NftFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NftFamily::Inet => "inet",
            NftFamily::Ip => "ip",
            NftFamily::Ip6 => "ip6",
            NftFamily::Netdev => "netdev",
        })
    }
}

/// A hook that forwarded packets pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NftHook {
    /// Before routing.
    Prerouting,
    /// Between the two ports.
    Forward,
    /// After routing.
    Postrouting,
    /// When a device has received.
    Ingress,
    /// When a device is about to send.
    Egress,
}

impl NftHook {
    /// From the number of a hook, whose meaning is the family's; `None` for hooks (input, output)
    /// that forwarded packets don't pass.
    fn from_number(family: NftFamily, number: u32) -> Option<Self> {
        match (family, number) {
            (NftFamily::Netdev, 0) => Some(NftHook::Ingress),
            (NftFamily::Netdev, 1) => Some(NftHook::Egress),
            (NftFamily::Netdev, _) => None,
            (_, 0) => Some(NftHook::Prerouting),
            (_, 2) => Some(NftHook::Forward),
            (_, 4) => Some(NftHook::Postrouting),
            (NftFamily::Inet, 5) => Some(NftHook::Ingress),
            _ => None,
        }
    }

    /// Whether its chains belong to devices that they name.
    fn is_of_devices(self) -> bool {
        matches!(self, NftHook::Ingress | NftHook::Egress)
    }
}

impl fmt::Display for NftHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NftHook::Prerouting => "prerouting",
            NftHook::Forward => "forward",
            NftHook::Postrouting => "postrouting",
            NftHook::Ingress => "ingress",
            NftHook::Egress => "egress",
        })
    }
}

/// The chains and flowtables that packets between these ports would miss. Needs CAP_NET_ADMIN.
/// Asking makes a modular kernel load nf_tables, as `nft list ruleset` does.
pub(super) fn obstacles(ports: &[Link]) -> Result<Vec<Obstacle>, Error> {
    let mut found = Vec::new();
    let chains = dump("the nft chains", CHAINS, NFPROTO_ALL, &[], read_chain)?;
    let dormant: HashSet<(NftFamily, String)> = dump(
        "the nft tables",
        TABLES,
        NFPROTO_ALL,
        &[],
        read_dormant_table,
    )?
    .into_iter()
    .collect();
    for chain in chains {
        let Some(on) = chain.devices.on(chain.hook.is_of_devices(), ports) else {
            continue;
        };
        if dormant.contains(&(chain.family, chain.table.clone())) || chain.is_harmless()? {
            continue;
        }
        found.push(Obstacle::NftChain {
            family: chain.family,
            table: chain.table,
            chain: chain.name,
            hook: chain.hook,
            port: on.map(str::to_owned),
        });
    }
    let flowtables = dump(
        "the nft flowtables",
        FLOWTABLES,
        NFPROTO_ALL,
        &[],
        read_flowtable,
    )?;
    for flowtable in flowtables {
        let Some(on) = flowtable.devices.on(true, ports) else {
            continue;
        };
        if dormant.contains(&(flowtable.family, flowtable.table.clone())) {
            continue;
        }
        found.push(Obstacle::NftFlowtable {
            family: flowtable.family,
            table: flowtable.table,
            flowtable: flowtable.name,
            port: on.map(str::to_owned),
        });
    }
    Ok(found)
}

/// Question and answer of a dump.
type Types = (u16, u16);
const TABLES: Types = (message::GETTABLE, message::NEWTABLE);
const CHAINS: Types = (message::GETCHAIN, message::NEWCHAIN);
const RULES: Types = (message::GETRULE, message::NEWRULE);
const FLOWTABLES: Types = (message::GETFLOWTABLE, message::NEWFLOWTABLE);
/// `NFPROTO_UNSPEC`: every family.
const NFPROTO_ALL: u8 = 0;

fn dump<T>(
    what: &'static str,
    (get, new): Types,
    family: u8,
    attributes: &[u8],
    read: impl FnMut(&[u8]) -> Option<T>,
) -> Result<Vec<T>, Error> {
    let mut body = vec![family, libc::NFNETLINK_V0 as u8, 0, 0];
    body.extend(attributes);
    let question = Question {
        protocol: libc::NETLINK_NETFILTER as isize,
        what,
        ask: NFNL_SUBSYS_NFTABLES << 8 | get,
        answer: NFNL_SUBSYS_NFTABLES << 8 | new,
        dump: true,
        body: &body,
    };
    ask_if_present(&question, read)
}

/// A base chain on the road.
#[derive(Debug, PartialEq, Eq)]
struct Chain {
    family: NftFamily,
    table: String,
    name: String,
    hook: NftHook,
    devices: Devices,
    accepts: bool,
    /// References to it, which for a base chain are its rules.
    uses: Option<u32>,
}

impl Chain {
    /// Whether packets that miss it miss nothing: no rules, and it accepts.
    fn is_harmless(&self) -> Result<bool, Error> {
        // While a transaction replaces its rules, a chain may count none although it has some: only
        // the rules themselves tell.
        if !self.accepts || self.uses.is_none_or(|uses| uses != 0) {
            return Ok(false);
        }
        let mut which = Vec::new();
        for (kind, name) in [
            (attribute::RULE_TABLE, &self.table),
            (attribute::RULE_CHAIN, &self.name),
        ] {
            let name = [name.as_bytes(), &[0]].concat();
            push_attribute(&mut which, kind, &name);
        }
        let family = self.family.number();
        let rules = dump("the nft rules", RULES, family, &which, |_| Some(()))?;
        Ok(rules.is_empty())
    }
}

/// The devices that a chain or flowtable names.
#[derive(Debug, Default, PartialEq, Eq)]
struct Devices {
    names: Vec<String>,
    /// Beginnings of names (`eth*`; Linux 6.16).
    prefixes: Vec<String>,
}

impl Devices {
    /// Reads a list of devices. Linux 6.16 and 6.17 tell the beginning of a name from a whole one
    /// by leaving out its NUL, later ones by its attribute.
    fn read_list(&mut self, list: &[u8]) {
        for (kind, value) in attributes(list) {
            match kind {
                attribute::DEVICE_NAME if value.ends_with(&[0]) => self.names.push(string(value)),
                attribute::DEVICE_NAME | attribute::DEVICE_PREFIX => {
                    self.prefixes.push(string(value));
                }
                _ => {}
            }
        }
    }

    /// The first of the ports that is among them (`Some(Some(name))`); `Some(None)` for what is not
    /// bound to devices or does not say to which; `None` for what only concerns others.
    fn on<'a>(&self, of_devices: bool, ports: &'a [Link]) -> Option<Option<&'a str>> {
        if !of_devices || self.names.is_empty() && self.prefixes.is_empty() {
            return Some(None);
        }
        let mut names = ports.iter().map(|port| port.name.as_str());
        let port = names.find(|name| {
            self.names.iter().any(|own| own == name)
                || self.prefixes.iter().any(|own| name.starts_with(own))
        })?;
        Some(Some(port))
    }
}

/// Reads an NFT_MSG_NEWCHAIN; `None` for what is no base chain or not on the road.
fn read_chain(body: &[u8]) -> Option<Chain> {
    let family = NftFamily::from_number(*body.first()?)?;
    let (mut table, mut name, mut hook, mut accepts, mut uses) = (None, None, None, false, None);
    let mut devices = Devices::default();
    for (kind, value) in attributes_after(body, NFGENMSG_LEN) {
        match kind {
            attribute::CHAIN_TABLE => table = Some(string(value)),
            attribute::CHAIN_NAME => name = Some(string(value)),
            attribute::CHAIN_POLICY => accepts = be32(value) == Some(POLICY_ACCEPT),
            attribute::CHAIN_USE => uses = be32(value),
            attribute::CHAIN_HOOK => {
                for (kind, value) in attributes(value) {
                    match kind {
                        attribute::HOOK_NUMBER => hook = be32(value),
                        attribute::HOOK_DEVICE => devices.names.push(string(value)),
                        attribute::HOOK_DEVICES => devices.read_list(value),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    Some(Chain {
        family,
        table: table?,
        name: name?,
        hook: NftHook::from_number(family, hook?)?,
        devices,
        accepts,
        uses,
    })
}

/// Reads an NFT_MSG_NEWTABLE; `None` for one that is not dormant.
fn read_dormant_table(body: &[u8]) -> Option<(NftFamily, String)> {
    let family = NftFamily::from_number(*body.first()?)?;
    let (mut name, mut flags) = (None, 0);
    for (kind, value) in attributes_after(body, NFGENMSG_LEN) {
        match kind {
            attribute::TABLE_NAME => name = Some(string(value)),
            attribute::TABLE_FLAGS => flags = be32(value).unwrap_or(0),
            _ => {}
        }
    }
    (flags & TABLE_DORMANT != 0).then_some((family, name?))
}

/// A flowtable, which takes packets off the road of its devices.
#[derive(Debug, PartialEq, Eq)]
struct Flowtable {
    family: NftFamily,
    table: String,
    name: String,
    devices: Devices,
}

/// Reads an NFT_MSG_NEWFLOWTABLE.
fn read_flowtable(body: &[u8]) -> Option<Flowtable> {
    let family = NftFamily::from_number(*body.first()?)?;
    let (mut table, mut name) = (None, None);
    let mut devices = Devices::default();
    for (kind, value) in attributes_after(body, NFGENMSG_LEN) {
        match kind {
            attribute::FLOWTABLE_TABLE => table = Some(string(value)),
            attribute::FLOWTABLE_NAME => name = Some(string(value)),
            attribute::FLOWTABLE_HOOK => attributes(value)
                .filter(|(kind, _)| *kind == attribute::FLOWTABLE_HOOK_DEVICES)
                .for_each(|(_, list)| devices.read_list(list)),
            _ => {}
        }
    }
    Some(Flowtable {
        family,
        table: table?,
        name: name?,
        devices,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::link;
    use crate::host::testing::{in_namespace, ip, nft};

    fn nested(attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut out = Vec::new();
        for (kind, value) in attributes {
            push_attribute(&mut out, *kind, value);
        }
        out
    }

    fn body(family: i32, attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut body = vec![family as u8, 0, 0, 0];
        body.extend(nested(attributes));
        body
    }

    fn chain(family: i32, hook: u32, policy: u32, devices: &[(u16, &[u8])]) -> Vec<u8> {
        let devices = nested(devices);
        let number = hook.to_be_bytes();
        let mut hook: Vec<(u16, &[u8])> = vec![(99, b"?"), (attribute::HOOK_NUMBER, &number)];
        if !devices.is_empty() {
            hook.push((attribute::HOOK_DEVICES, &devices));
        }
        body(
            family,
            &[
                (77, b"from the future"),
                (attribute::CHAIN_TABLE, b"filter\0"),
                (attribute::CHAIN_NAME, b"fw\0"),
                (attribute::CHAIN_HOOK, &nested(&hook)),
                (attribute::CHAIN_POLICY, &policy.to_be_bytes()),
                (attribute::CHAIN_USE, &[0, 0, 0, 3]),
            ],
        )
    }

    fn port(name: &str) -> Link {
        Link {
            ifindex: 1,
            name: name.to_owned(),
            arphrd: 1,
            kind: None,
            link_layer: None,
            mtu: 1500,
            up: true,
            master: None,
        }
    }

    #[test]
    fn hooks_on_the_road_are_told_from_others() {
        let hook = |family, number| read_chain(&chain(family, number, 1, &[])).map(|c| c.hook);
        for family in [libc::NFPROTO_INET, libc::NFPROTO_IPV4, libc::NFPROTO_IPV6] {
            assert_eq!(hook(family, 0), Some(NftHook::Prerouting));
            assert_eq!(hook(family, 1), None, "input");
            assert_eq!(hook(family, 2), Some(NftHook::Forward));
            assert_eq!(hook(family, 3), None, "output");
            assert_eq!(hook(family, 4), Some(NftHook::Postrouting));
        }
        assert_eq!(hook(libc::NFPROTO_INET, 5), Some(NftHook::Ingress));
        assert_eq!(hook(libc::NFPROTO_NETDEV, 0), Some(NftHook::Ingress));
        assert_eq!(hook(libc::NFPROTO_NETDEV, 1), Some(NftHook::Egress));
        assert_eq!(hook(libc::NFPROTO_BRIDGE, 2), None);
        assert_eq!(hook(libc::NFPROTO_ARP, 0), None);
    }

    #[test]
    fn a_chain_without_a_hook_is_no_base_chain() {
        let plain = body(
            libc::NFPROTO_IPV4,
            &[
                (attribute::CHAIN_TABLE, b"filter\0"),
                (attribute::CHAIN_NAME, b"sub\0"),
            ],
        );
        assert_eq!(read_chain(&plain), None);
    }

    #[test]
    fn a_chain_is_read_past_what_is_unknown_and_cut() {
        let whole = chain(libc::NFPROTO_IPV4, 2, 0, &[]);
        assert_eq!(
            read_chain(&whole),
            Some(Chain {
                family: NftFamily::Ip,
                table: "filter".to_owned(),
                name: "fw".to_owned(),
                hook: NftHook::Forward,
                devices: Devices::default(),
                accepts: false,
                uses: Some(3),
            })
        );
        for len in 0..whole.len() {
            if let Some(cut) = read_chain(&whole[..len]) {
                assert!(!cut.is_harmless().unwrap(), "{len} bytes");
            }
        }
    }

    #[test]
    fn devices_are_matched_by_name_and_by_prefix() {
        let on = |devices: &[(u16, &[u8])], ports: &[Link]| {
            let chain = read_chain(&chain(libc::NFPROTO_NETDEV, 0, 1, devices)).unwrap();
            chain.devices.on(true, ports).map(|p| p.map(str::to_owned))
        };
        let ports = [port("eth0"), port("ib0")];
        let found = |name: &str| Some(Some(name.to_owned()));
        let name = |name: &'static [u8]| (attribute::DEVICE_NAME, name);
        let exact = name(b"ib0\0");
        assert_eq!(on(&[exact], &ports), found("ib0"));
        assert_eq!(on(&[exact], &[port("ib01")]), None);
        assert_eq!(on(&[name(b"x\0"), exact], &ports), found("ib0"));
        assert_eq!(on(&[name(b"ib")], &ports), found("ib0"), "no NUL: prefix");
        assert_eq!(on(&[name(b"x")], &ports), None);
        let prefix: (u16, &[u8]) = (attribute::DEVICE_PREFIX, b"eth\0");
        assert_eq!(on(&[prefix], &ports), found("eth0"));
        assert_eq!(on(&[prefix], &[port("ib0")]), None);
        assert_eq!(on(&[], &ports), Some(None), "none named: all");
    }

    #[test]
    fn a_flowtable_is_read_past_what_is_unknown_and_cut() {
        let devices = nested(&[(attribute::DEVICE_NAME, b"eth0\0"), (9, b"?")]);
        let hook = nested(&[
            (1, &[0, 0, 0, 0]),
            (attribute::FLOWTABLE_HOOK_DEVICES, &devices),
        ]);
        let whole = body(
            libc::NFPROTO_INET,
            &[
                (attribute::FLOWTABLE_TABLE, b"filter\0"),
                (attribute::FLOWTABLE_NAME, b"fast\0"),
                (attribute::FLOWTABLE_HOOK, &hook),
            ],
        );
        let read = read_flowtable(&whole).unwrap();
        assert_eq!(read.name, "fast");
        assert_eq!(read.devices.on(true, &[port("eth1")]), None);
        assert_eq!(read.devices.on(true, &[port("eth0")]), Some(Some("eth0")));
        for len in 0..whole.len() {
            read_flowtable(&whole[..len]);
            read_dormant_table(&whole[..len]);
        }
    }

    /// What is found between v0 and w0, as text.
    fn found() -> Vec<String> {
        let ports = [link("v0").unwrap(), link("w0").unwrap()];
        let obstacles = obstacles(&ports).unwrap();
        obstacles.iter().map(|o| o.to_string()).collect()
    }

    fn in_gateway(test: impl FnOnce() + Send + 'static) {
        in_namespace(|| {
            ip("link add v0 type veth peer name v1");
            ip("link add w0 type veth peer name w1");
            assert_eq!(found(), [""; 0]);
            test();
        });
    }

    #[test]
    fn every_hook_on_the_road_is_found_with_rules_and_not_without() {
        in_gateway(|| {
            for family in ["ip", "ip6", "inet"] {
                for hook in ["prerouting", "forward", "postrouting"] {
                    nft(&format!(
                        "table {family} t {{ chain c {{ type filter hook {hook} priority 0; }}; }}"
                    ));
                    assert_eq!(found(), [""; 0], "{family} {hook}: empty and accepting");
                    nft(&format!("add rule {family} t c counter"));
                    let text = found();
                    assert_eq!(text.len(), 1, "{text:?}");
                    let start = format!("nft chain {family} t c (hook {hook}): ");
                    assert!(text[0].starts_with(&start), "{text:?}");
                    nft(&format!("flush chain {family} t c"));
                    assert_eq!(found(), [""; 0], "{family} {hook}: flushed");
                    nft(&format!("delete table {family} t"));
                }
            }
        });
    }

    #[test]
    fn an_empty_chain_that_drops_is_found() {
        in_gateway(|| {
            nft("table ip t { chain c { type filter hook forward priority 0; policy drop; }; }");
            assert_eq!(found().len(), 1);
            nft("add chain ip t c { policy accept; }");
            assert_eq!(found(), [""; 0]);
        });
    }

    #[test]
    fn nat_is_found() {
        in_gateway(|| {
            nft(
                "table ip nat { chain post { type nat hook postrouting priority srcnat; \
                 oifname v0 masquerade; }; }",
            );
            let text = found();
            assert_eq!(text.len(), 1);
            assert!(text[0].contains("ip nat post (hook postrouting)"));
        });
    }

    #[test]
    fn hooks_beside_the_road_plain_chains_and_other_families_are_not_found() {
        in_gateway(|| {
            nft("table inet t { \
                 chain i { type filter hook input priority 0; policy drop; counter; }; \
                 chain o { type filter hook output priority 0; policy drop; counter; }; \
                 chain plain { counter; }; }");
            nft("table bridge t { chain f { type filter hook forward priority 0; counter; }; }");
            nft("table arp t { chain i { type filter hook input priority 0; counter; }; }");
            assert_eq!(found(), [""; 0]);
        });
    }

    #[test]
    fn a_dormant_table_is_found_when_it_wakes() {
        in_gateway(|| {
            nft("table ip t { flags dormant; \
                 chain c { type filter hook forward priority 0; counter; }; }");
            assert_eq!(found(), [""; 0]);
            nft("add table ip t { ; }");
            assert_eq!(found().len(), 1);
        });
    }

    #[test]
    fn device_hooks_are_found_on_ports_and_not_elsewhere() {
        in_gateway(|| {
            nft("table netdev t { chain c { \
                 type filter hook ingress device v1 priority 0; counter; }; }");
            assert_eq!(found(), [""; 0], "v1 is no port");
            nft("delete table netdev t");
            nft("table netdev t { chain c { \
                 type filter hook ingress devices = { v1, w0 } priority 0; counter; }; }");
            let text = found();
            assert_eq!(text.len(), 1);
            assert!(
                text[0].contains("netdev t c (hook ingress of w0)"),
                "{text:?}"
            );
            nft("delete table netdev t");
            nft("table inet t { chain c { \
                 type filter hook ingress device v0 priority 0; policy drop; }; }");
            assert!(found()[0].contains("inet t c (hook ingress of v0)"));
        });
    }

    #[test]
    fn an_egress_hook_is_found_on_a_port() {
        in_gateway(|| {
            nft("table netdev t { chain c { \
                 type filter hook egress device v0 priority 0; counter; }; }");
            assert!(found()[0].contains("netdev t c (hook egress of v0)"));
        });
    }

    /// Needs a kernel with nft flowtables, as the lab's.
    #[cfg(feature = "lab")]
    #[test]
    fn a_flowtable_is_found_on_a_port_and_not_elsewhere() {
        in_gateway(|| {
            nft("table inet t { flowtable f { hook ingress priority 0; devices = { v1 }; }; }");
            assert_eq!(found(), [""; 0]);
            nft("delete table inet t");
            nft("table inet t { flowtable f { hook ingress priority 0; devices = { v1, v0 }; }; }");
            assert!(found()[0].starts_with("nft flowtable inet t f on v0: "));
            nft("add table inet t { flags dormant; }");
            assert_eq!(found(), [""; 0]);
        });
    }
}
