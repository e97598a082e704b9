//! What forbids accelerating: everything on the kernel's own forwarding road that a packet of the
//! fast path would miss. A closed enum, one text each: what, where, and the remedy.

use super::netfilter::{self, NftFamily, NftHook};
use super::{Error, Link, iptables, rules, xfrm};
use ipoib_ebpf::wire::Family;

/// Something that accelerated packets would miss. The text is the name of it, then the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    /// A base chain of nftables that has rules or does not accept.
    #[error(
        "nft chain {family} {table} {chain} (hook {hook}{}): delete it (`nft delete chain {family} \
         {table} {chain}`) if forwarded packets don't need it",
        of(.port)
    )]
    NftChain {
        /// Family of its table.
        family: NftFamily,
        /// Name of its table.
        table: String,
        /// Its name.
        chain: String,
        /// The hook it is at.
        hook: NftHook,
        /// The port it is bound to, for the hooks of devices.
        port: Option<String>,
    },
    /// A flowtable of nftables on a port.
    #[error(
        "nft flowtable {family} {table} {flowtable}{}: delete it (`nft delete flowtable {family} \
         {table} {flowtable}`), one accelerator is enough",
        on(.port)
    )]
    NftFlowtable {
        /// Family of its table.
        family: NftFamily,
        /// Name of its table.
        table: String,
        /// Its name.
        flowtable: String,
        /// The port it is bound to.
        port: Option<String>,
    },
    /// Tables of the legacy iptables.
    #[error(
        "legacy {0} tables ({1}): empty them (`{0}-legacy -t TABLE -F`, `-X`, `-P CHAIN ACCEPT`) if \
         forwarded packets don't need them",
        iptables(.family), .tables.join(", ")
    )]
    IptablesTables {
        /// `iptables` or `ip6tables`.
        family: Family,
        /// Names of the tables.
        tables: Vec<String>,
    },
    /// IPsec policies.
    #[error(
        "{count} IPsec policies: remove them (`ip xfrm policy flush`) if they are stale, or forward \
         on a host without IPsec"
    )]
    XfrmPolicies {
        /// How many, those of single sockets apart.
        count: u32,
    },
    /// A default that blocks what no IPsec policy covers.
    #[error(
        "IPsec's blocking of what no policy covers: lift it (`ip xfrm policy setdefault fwd accept \
         out accept`) if it is not meant"
    )]
    XfrmDefaultBlock,
    /// A routing rule by mark that is not ours.
    #[error(
        "{} rule {priority} (fwmark {mark:#x}/{mask:#x}): delete it (`{} rule del pref {priority}`), \
         or choose by address, interface or port in it",
        name(.family), ip(.family)
    )]
    MarkRule {
        /// Family of the rule.
        family: Family,
        /// Its priority, which is its name.
        priority: u32,
        /// The mark, after masking.
        mark: u32,
        /// The mask.
        mask: u32,
    },
    /// A routing rule by tunnel id.
    #[error(
        "{} rule {priority} (tun_id {tunnel}): delete it (`{} rule del pref {priority}`), or choose \
         by address or interface in it",
        name(.family), ip(.family)
    )]
    TunnelRule {
        /// Family of the rule.
        family: Family,
        /// Its priority.
        priority: u32,
        /// The tunnel id.
        tunnel: u64,
    },
    /// A routing rule by port for more than TCP or UDP.
    #[error(
        "{} rule {priority} (by port, of more than tcp or udp): delete it (`{} rule del pref \
         {priority}`) and add it again with ipproto tcp or ipproto udp",
        name(.family), ip(.family)
    )]
    PortRule {
        /// Family of the rule.
        family: Family,
        /// Its priority.
        priority: u32,
    },
}

impl Obstacle {
    /// The word for it in JSON and events.
    pub fn word(&self) -> &'static str {
        match self {
            Obstacle::NftChain { .. } => "nft_chain",
            Obstacle::NftFlowtable { .. } => "nft_flowtable",
            Obstacle::IptablesTables { .. } => "iptables_tables",
            Obstacle::XfrmPolicies { .. } => "xfrm_policies",
            Obstacle::XfrmDefaultBlock => "xfrm_default_block",
            Obstacle::MarkRule { .. } => "mark_rule",
            Obstacle::TunnelRule { .. } => "tunnel_rule",
            Obstacle::PortRule { .. } => "port_rule",
        }
    }

    /// Whether it is netfilter's, which a configuration may choose to bypass.
    pub fn is_netfilter(&self) -> bool {
        match self {
            Obstacle::NftChain { .. }
            | Obstacle::NftFlowtable { .. }
            | Obstacle::IptablesTables { .. } => true,
            Obstacle::XfrmPolicies { .. }
            | Obstacle::XfrmDefaultBlock
            | Obstacle::MarkRule { .. }
            | Obstacle::TunnelRule { .. }
            | Obstacle::PortRule { .. } => false,
        }
    }
}

/// What forbids accelerating between these ports: netfilter hooks, xfrm policies, and routing rules
/// that the fast path can't follow. Needs CAP_NET_ADMIN. Other programs on the ports are told by
/// [`super::foreign_programs`], ports that can't be any by [`super::port_problem`].
pub fn obstacles(ports: &[Link]) -> Result<Vec<Obstacle>, Error> {
    let mut found = netfilter::obstacles(ports)?;
    found.extend(iptables::obstacles()?);
    found.extend(xfrm::obstacles()?);
    found.extend(rules::obstacles()?);
    Ok(found)
}

fn of(port: &Option<String>) -> String {
    port.iter().map(|port| format!(" of {port}")).collect()
}

fn on(port: &Option<String>) -> String {
    port.iter().map(|port| format!(" on {port}")).collect()
}

fn name(family: &Family) -> &'static str {
    match family {
        Family::Ipv4 => "IPv4",
        Family::Ipv6 => "IPv6",
    }
}

fn ip(family: &Family) -> &'static str {
    match family {
        Family::Ipv4 => "ip -4",
        Family::Ipv6 => "ip -6",
    }
}

fn iptables(family: &Family) -> &'static str {
    match family {
        Family::Ipv4 => "iptables",
        Family::Ipv6 => "ip6tables",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::links;
    use crate::host::testing::{in_namespace, ip};

    #[test]
    fn a_fresh_namespace_has_none() {
        in_namespace(|| {
            ip("link set lo up");
            assert_eq!(obstacles(&links().unwrap()).unwrap(), []);
        });
    }

    #[test]
    fn every_text_names_what_and_where_and_a_command() {
        let (family, priority) = (Family::Ipv6, 50);
        let (table, port) = ("t".to_owned(), Some("ib0".to_owned()));
        let all = [
            (
                Obstacle::NftChain {
                    family: NftFamily::Netdev,
                    table: table.clone(),
                    chain: "c".to_owned(),
                    hook: NftHook::Egress,
                    port: port.clone(),
                },
                "nft chain netdev t c (hook egress of ib0): delete it (`nft delete chain netdev t \
                 c`) if forwarded packets don't need it",
            ),
            (
                Obstacle::NftFlowtable {
                    family: NftFamily::Inet,
                    table,
                    flowtable: "f".to_owned(),
                    port,
                },
                "nft flowtable inet t f on ib0: delete it (`nft delete flowtable inet t f`), one \
                 accelerator is enough",
            ),
            (
                Obstacle::IptablesTables {
                    family,
                    tables: vec!["filter".to_owned(), "nat".to_owned()],
                },
                "legacy ip6tables tables (filter, nat): empty them (`ip6tables-legacy -t TABLE -F`, \
                 `-X`, `-P CHAIN ACCEPT`) if forwarded packets don't need them",
            ),
            (
                Obstacle::XfrmPolicies { count: 3 },
                "3 IPsec policies: remove them (`ip xfrm policy flush`) if they are stale, or \
                 forward on a host without IPsec",
            ),
            (
                Obstacle::XfrmDefaultBlock,
                "IPsec's blocking of what no policy covers: lift it (`ip xfrm policy setdefault fwd \
                 accept out accept`) if it is not meant",
            ),
            (
                Obstacle::MarkRule {
                    family,
                    priority,
                    mark: 1,
                    mask: 255,
                },
                "IPv6 rule 50 (fwmark 0x1/0xff): delete it (`ip -6 rule del pref 50`), or choose \
                 by address, interface or port in it",
            ),
            (
                Obstacle::TunnelRule {
                    family,
                    priority,
                    tunnel: 9,
                },
                "IPv6 rule 50 (tun_id 9): delete it (`ip -6 rule del pref 50`), or choose by \
                 address or interface in it",
            ),
            (
                Obstacle::PortRule { family, priority },
                "IPv6 rule 50 (by port, of more than tcp or udp): delete it (`ip -6 rule del pref \
                 50`) and add it again with ipproto tcp or ipproto udp",
            ),
        ];
        for (obstacle, text) in all {
            assert_eq!(obstacle.to_string(), text);
        }
    }
}
