//! Routing rules that `bpf_fib_lookup` can't follow, by RTM_GETRULE.
//!
//! The lookup (`bpf_ipv4_fib_lookup()`, `bpf_ipv6_fib_lookup()` in net/core/filter.c) goes through
//! the host's own rules, with a flow that it fills from what the program tells it. What it leaves
//! at zero, compared with the kernel's own forwarding (`ip_route_input_slow()`,
//! `ip6_route_input()`):
//! - the mark, without BPF_FIB_LOOKUP_MARK (Linux 6.10) always, with it unless the program passes
//!   skb->mark: rules by `fwmark`;
//! - the tunnel id, which the kernel takes from a tunnel's metadata: rules by `tun_id`;
//! - the ports of what is neither TCP nor UDP, because the datapath reads none, while the kernel's
//!   dissector finds those of SCTP, DCCP, UDP-Lite, and calls an SPI ports: rules by `sport` or
//!   `dport` that are not for TCP or UDP alone.
//!
//! The rest is the same in both: addresses, TOS or DSCP, flow label, protocol, incoming interface,
//! VRF, suppression, and the user (of a forwarded packet it is root's).

use super::netlink::{Question, ask_if_present, attributes_after, bytes_at, u32_at};
use super::{Error, Obstacle};
use ipoib_ebpf::wire::{Family, protocol};

/// `struct fib_rule_hdr`: family, two prefix lengths, TOS, table, two reserved, action, flags.
const FIB_RULE_HDR_LEN: usize = 12;
/// Routing protocol number of the rules and routes that we make ourselves.
pub const ROUTE_PROTOCOL: u8 = 73;

/// Attributes of a rule (`linux/fib_rules.h`).
mod attribute {
    pub const PRIORITY: u16 = 6;
    pub const FWMARK: u16 = 10;
    pub const TUN_ID: u16 = 12;
    pub const FWMASK: u16 = 16;
    pub const PROTOCOL: u16 = 21;
    pub const IP_PROTO: u16 = 22;
    pub const SPORT_RANGE: u16 = 23;
    pub const DPORT_RANGE: u16 = 24;
}

/// The rules of both families that accelerated packets would not follow; our own are not among
/// them.
pub(super) fn obstacles() -> Result<Vec<Obstacle>, Error> {
    dump(libc::AF_UNSPEC, read)
}

/// Whether IPv4 has rules beside the three that every host has. From then on the kernel checks the
/// source of every packet by a reverse lookup, rp_filter or not (`fib_validate_source()`).
pub(super) fn ipv4_has_more() -> Result<bool, Error> {
    let more = dump(libc::AF_INET, |body| (!is_default(body)).then_some(()))?;
    Ok(!more.is_empty())
}

/// What `read` makes of the rules of a family, or of all.
fn dump<T>(family: i32, read: impl FnMut(&[u8]) -> Option<T>) -> Result<Vec<T>, Error> {
    let mut body = [0; FIB_RULE_HDR_LEN];
    body[0] = family as u8;
    let question = Question {
        protocol: libc::NETLINK_ROUTE as isize,
        what: "the routing rules",
        ask: libc::RTM_GETRULE,
        answer: libc::RTM_NEWRULE,
        dump: true,
        body: &body,
    };
    ask_if_present(&question, read)
}

/// The kernel's own rules for the tables local, main and default.
fn is_default(body: &[u8]) -> bool {
    let (mut priority, mut kernel) = (0, false);
    for (kind, value) in attributes_after(body, FIB_RULE_HDR_LEN) {
        match kind {
            attribute::PRIORITY => priority = u32_at(value, 0).unwrap_or(0),
            attribute::PROTOCOL => kernel = value == [libc::RTPROT_KERNEL],
            _ => {}
        }
    }
    kernel && [0, 32766, 32767].contains(&priority)
}

/// Reads an RTM_NEWRULE; `None` for one that the lookup follows, or that is ours.
fn read(body: &[u8]) -> Option<Obstacle> {
    let family = match *body.first()? as i32 {
        libc::AF_INET => Family::Ipv4,
        libc::AF_INET6 => Family::Ipv6,
        // Multicast forwarding has rules of its own.
        _ => return None,
    };
    // A rule without a priority attribute has priority 0.
    let (mut priority, mut mark, mut mask, mut tunnel) = (0, 0, None, 0);
    let (mut ip_protocol, mut by_port) = (None, false);
    for (kind, value) in attributes_after(body, FIB_RULE_HDR_LEN) {
        match kind {
            attribute::PRIORITY => priority = u32_at(value, 0).unwrap_or(0),
            attribute::FWMARK => mark = u32_at(value, 0).unwrap_or(0),
            attribute::FWMASK => mask = u32_at(value, 0),
            attribute::TUN_ID => tunnel = bytes_at(value, 0).map_or(0, u64::from_be_bytes),
            attribute::PROTOCOL if value == [ROUTE_PROTOCOL] => return None,
            attribute::IP_PROTO => ip_protocol = value.first().copied(),
            attribute::SPORT_RANGE | attribute::DPORT_RANGE => by_port = true,
            _ => {}
        }
    }
    // The mask stands alone in a rule for packets whose masked mark is 0.
    let mask = mask.unwrap_or(if mark == 0 { 0 } else { u32::MAX });
    if mask != 0 {
        return Some(Obstacle::MarkRule {
            family,
            priority,
            mark,
            mask,
        });
    }
    if tunnel != 0 {
        return Some(Obstacle::TunnelRule {
            family,
            priority,
            tunnel,
        });
    }
    if by_port && !matches!(ip_protocol, Some(protocol::TCP | protocol::UDP)) {
        return Some(Obstacle::PortRule { family, priority });
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::netlink::push_attribute;
    use crate::host::testing::{in_namespace, ip};

    fn message(family: i32, attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut body = vec![0; FIB_RULE_HDR_LEN];
        body[0] = family as u8;
        push_attribute(&mut body, 200, b"unknown");
        push_attribute(&mut body, attribute::PRIORITY, &100u32.to_ne_bytes());
        for (kind, value) in attributes {
            push_attribute(&mut body, *kind, value);
        }
        body
    }

    fn marked(mark: u32, mask: u32) -> Option<Obstacle> {
        Some(Obstacle::MarkRule {
            family: Family::Ipv4,
            priority: 100,
            mark,
            mask,
        })
    }

    #[test]
    fn a_rule_by_mark_or_by_mask_alone_is_found() {
        let mark = (attribute::FWMARK, &7u32.to_ne_bytes()[..]);
        let mask = (attribute::FWMASK, &15u32.to_ne_bytes()[..]);
        let none = (attribute::FWMASK, &0u32.to_ne_bytes()[..]);
        assert_eq!(read(&message(libc::AF_INET, &[mark, mask])), marked(7, 15));
        assert_eq!(read(&message(libc::AF_INET, &[mask])), marked(0, 15));
        assert_eq!(read(&message(libc::AF_INET, &[mark])), marked(7, u32::MAX));
        assert_eq!(read(&message(libc::AF_INET, &[none])), None);
        assert_eq!(read(&message(libc::AF_INET, &[])), None);
        assert_eq!(read(&message(128, &[mark, mask])), None, "ipmr's");
    }

    #[test]
    fn our_own_rules_are_not() {
        let mark = (attribute::FWMARK, &7u32.to_ne_bytes()[..]);
        let ours = (attribute::PROTOCOL, &[ROUTE_PROTOCOL][..]);
        let other = (attribute::PROTOCOL, &[3][..]);
        assert_eq!(read(&message(libc::AF_INET, &[mark, ours])), None);
        assert_eq!(read(&message(libc::AF_INET, &[ours, mark])), None);
        assert!(read(&message(libc::AF_INET, &[mark, other])).is_some());
    }

    #[test]
    fn any_rule_but_the_three_of_every_host_is_more() {
        in_namespace(|| {
            assert!(!ipv4_has_more().unwrap());
            ip("-6 rule add pref 100 lookup 50");
            assert!(!ipv4_has_more().unwrap(), "IPv6 has its own");
            ip("rule add pref 100 lookup 50");
            assert!(ipv4_has_more().unwrap());
            ip("rule del pref 100");
            ip("rule add pref 32766 to 10.0.0.0/8 lookup 50");
            assert!(ipv4_has_more().unwrap(), "not the kernel's");
            ip("rule del pref 32766 to 10.0.0.0/8 lookup 50");
            assert!(!ipv4_has_more().unwrap());
        });
    }

    #[test]
    fn a_cut_message_is_read_as_far_as_it_goes() {
        let whole = message(
            libc::AF_INET6,
            &[
                (attribute::FWMARK, &[1, 0, 0, 0]),
                (attribute::TUN_ID, &[1; 8]),
                (attribute::IP_PROTO, &[]),
                (attribute::DPORT_RANGE, &[]),
            ],
        );
        for len in 0..whole.len() {
            read(&whole[..len]);
        }
    }

    #[test]
    fn rules_that_the_lookup_follows_are_not_found() {
        in_namespace(|| {
            assert_eq!(obstacles().unwrap(), [], "the kernel's own");
            for family in ["-4", "-6"] {
                ip(&format!("{family} rule add pref 100 lookup main"));
                ip(&format!("{family} rule add pref 101 iif lo lookup 50"));
                ip(&format!(
                    "{family} rule add pref 102 uidrange 1-9 lookup 50"
                ));
                ip(&format!("{family} rule add pref 103 tos 0x10 lookup 50"));
                ip(&format!("{family} rule add pref 104 ipproto gre lookup 50"));
                ip(&format!(
                    "{family} rule add pref 105 ipproto tcp dport 80 lookup 50"
                ));
                ip(&format!(
                    "{family} rule add pref 106 ipproto udp sport 1-9 lookup 50"
                ));
                ip(&format!(
                    "{family} rule add pref 107 lookup main suppress_prefixlength 0"
                ));
                ip(&format!(
                    "{family} rule add pref 108 fwmark 1 lookup 50 protocol 73"
                ));
                ip(&format!("{family} rule add pref 109 unreachable"));
            }
            assert_eq!(obstacles().unwrap(), []);
        });
    }

    #[test]
    fn rules_that_it_can_t_follow_are_found_in_both_families() {
        for (flag, family) in [("-4", Family::Ipv4), ("-6", Family::Ipv6)] {
            in_namespace(move || {
                let add = |rule: &str| ip(&format!("{flag} rule add {rule}"));
                add("pref 50 fwmark 0x10/0xf0 lookup 50");
                add("pref 51 not fwmark 0xca6c lookup 51");
                add("pref 52 fwmark 0/0x1 lookup 52");
                add("pref 53 tun_id 9 lookup 53");
                add("pref 54 dport 80 lookup 54");
                add("pref 55 ipproto sctp sport 9 lookup 55");
                let mark = |priority, mark, mask| Obstacle::MarkRule {
                    family,
                    priority,
                    mark,
                    mask,
                };
                assert_eq!(
                    obstacles().unwrap(),
                    [
                        mark(50, 0x10, 0xf0),
                        mark(51, 0xca6c, u32::MAX),
                        mark(52, 0, 1),
                        Obstacle::TunnelRule {
                            family,
                            priority: 53,
                            tunnel: 9
                        },
                        Obstacle::PortRule {
                            family,
                            priority: 54
                        },
                        Obstacle::PortRule {
                            family,
                            priority: 55
                        },
                    ]
                );
            });
        }
    }
}
