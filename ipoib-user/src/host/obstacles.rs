//! What forbids accelerating: everything on the kernel's own forwarding road that a packet of the
//! fast path would miss. A closed enum, one text each: what, where, and the remedy.

use super::netfilter::{self, NftFamily, NftHook};
use super::{Error, Link, iptables, rules, xfrm};
use ipoib_ebpf::wire::Family;

/// Something that accelerated packets would miss.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    /// A base chain of nftables that has rules or does not accept.
    #[error(
        "nft chain {family} {table} {chain} (hook {hook}{}) would not see accelerated packets: \
         delete it (nft delete chain {family} {table} {chain}) if it is not meant for them",
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
        "nft flowtable {family} {table} {flowtable}{} forwards on its own what it has learnt: \
         delete it (nft delete flowtable {family} {table} {flowtable}), one of the two is enough",
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
        "legacy {0} tables ({1}) would not see accelerated packets: if these need none of their \
         rules, empty them (for each: {0}-legacy -t TABLE -F, -X, and -P CHAIN ACCEPT)",
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
        "{count} IPsec policies would not be applied to accelerated packets: remove them if they \
         are stale (ip xfrm policy; ip xfrm policy flush), or forward on a host without them"
    )]
    XfrmPolicies {
        /// How many, those of single sockets apart.
        count: u32,
    },
    /// A default that blocks what no IPsec policy covers.
    #[error(
        "IPsec blocks forwarded packets that no policy covers, and accelerated ones would pass: \
         lift it (ip xfrm policy setdefault fwd accept out accept) if that is not meant"
    )]
    XfrmDefaultBlock,
    /// A routing rule by mark that is not ours.
    #[error(
        "{} rule {priority} (fwmark {mark:#x}/{mask:#x}) would not be followed by accelerated \
         packets, whose mark is not looked at: delete it ({} rule del pref {priority}), or choose \
         by address, interface or port instead",
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
        "{} rule {priority} (tun_id {tunnel}) would not be followed by accelerated packets: delete \
         it ({} rule del pref {priority}), or choose by address or interface instead",
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
        "{} rule {priority} (by port, for other protocols than tcp or udp too) would not be followed \
         by accelerated packets of those: say ipproto tcp or ipproto udp in it (delete it by {} \
         rule del pref {priority} and add it again)",
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
