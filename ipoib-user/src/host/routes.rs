//! What the routes say that `bpf_fib_lookup` does not heed, by RTM_GETROUTE.

use super::Error;
use super::netlink::{Question, ask, attributes, attributes_after, u32_at};

/// `struct rtmsg`: family, two prefix lengths, TOS, table, protocol, scope, type, flags.
const RTMSG_LEN: usize = 12;
/// Set on the per-destination exceptions that a dump shows among the routes.
const RTM_F_CLONED: u32 = 0x200;
/// Metric: a bit for each metric that is locked.
const RTAX_LOCK: u16 = 1;
/// Metric: the MTU.
const RTAX_MTU: u16 = 2;

/// What the routes of both families and all tables say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Routes {
    /// The smallest `mtu` that a route carries without a lock, or `u32::MAX`.
    ///
    /// The kernel's forwarding takes it (`ip_dst_mtu_maybe_forward()`,
    /// `ip6_dst_mtu_maybe_forward()`); `bpf_fib_lookup` takes a locked one only
    /// (`ip_mtu_from_fib_result()`, `ip6_mtu_from_fib6()`).
    pub smallest_mtu: u32,
    /// Whether IPv4 has local routes that somebody has added. From then on the kernel checks the
    /// source of every packet by a reverse lookup, rp_filter or not (`fib_validate_source()`).
    pub custom_local: bool,
}

/// Reads all routes, once.
pub fn routes() -> Result<Routes, Error> {
    let mut routes = Routes {
        smallest_mtu: u32::MAX,
        custom_local: false,
    };
    for (family, what) in [
        (libc::AF_INET, "the IPv4 routes"),
        (libc::AF_INET6, "the IPv6 routes"),
    ] {
        let mut body = [0; RTMSG_LEN];
        body[0] = family as u8;
        let question = Question {
            protocol: libc::NETLINK_ROUTE as isize,
            what,
            ask: libc::RTM_GETROUTE,
            answer: libc::RTM_NEWROUTE,
            dump: true,
            body: &body,
        };
        // Most routes say neither, and are not kept.
        let telling = |body: &[u8]| {
            let (mtu, local) = (mtu(body), is_custom_local(body));
            (mtu.is_some() || local).then_some((mtu, local))
        };
        for (mtu, local) in ask(&question, telling)? {
            routes.smallest_mtu = routes.smallest_mtu.min(mtu.unwrap_or(u32::MAX));
            routes.custom_local |= local;
        }
    }
    Ok(routes)
}

fn is_custom_local(body: &[u8]) -> bool {
    body.len() >= RTMSG_LEN
        && i32::from(body[0]) == libc::AF_INET
        && body[5] != libc::RTPROT_KERNEL
        && body[7] == libc::RTN_LOCAL
}

/// The unlocked MTU of an RTM_NEWROUTE, if it has one. An exception has none: it is a path MTU that
/// was learnt, which `bpf_fib_lookup` heeds.
fn mtu(body: &[u8]) -> Option<u32> {
    let family = *body.first()? as i32;
    if family != libc::AF_INET && family != libc::AF_INET6 || u32_at(body, 8)? & RTM_F_CLONED != 0 {
        return None;
    }
    let (mut mtu, mut locks) = (None, 0);
    for (attribute, metrics) in attributes_after(body, RTMSG_LEN) {
        if attribute != libc::RTA_METRICS {
            continue;
        }
        for (metric, value) in attributes(metrics) {
            match metric {
                RTAX_MTU => mtu = u32_at(value, 0),
                RTAX_LOCK => locks = u32_at(value, 0).unwrap_or(0),
                _ => {}
            }
        }
    }
    mtu.filter(|mtu| *mtu != 0 && locks & (1 << RTAX_MTU) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::netlink::push_attribute;
    use crate::host::testing::{in_namespace, ip};

    fn message(flags: u32, metrics: &[(u16, u32)]) -> Vec<u8> {
        let mut nested = Vec::new();
        push_attribute(&mut nested, 99, &[1]);
        for (metric, value) in metrics {
            push_attribute(&mut nested, *metric, &value.to_ne_bytes());
        }
        let mut body = vec![0; RTMSG_LEN];
        body[0] = libc::AF_INET as u8;
        body[8..12].copy_from_slice(&flags.to_ne_bytes());
        push_attribute(&mut body, 77, b"unknown");
        push_attribute(&mut body, libc::RTA_METRICS, &nested);
        body
    }

    #[test]
    fn only_an_mtu_without_a_lock_counts() {
        assert_eq!(mtu(&message(0, &[(RTAX_MTU, 1400)])), Some(1400));
        assert_eq!(mtu(&message(0, &[(RTAX_MTU, 0)])), None);
        assert_eq!(mtu(&message(0, &[(8, 1360)])), None);
        let locked = [(RTAX_MTU, 1400), (RTAX_LOCK, 1 << 2)];
        assert_eq!(mtu(&message(0, &locked)), None);
        let other_lock = [(RTAX_LOCK, 1 << 8), (RTAX_MTU, 1400)];
        assert_eq!(mtu(&message(0, &other_lock)), Some(1400));
        assert_eq!(mtu(&message(RTM_F_CLONED, &[(RTAX_MTU, 600)])), None);
    }

    #[test]
    fn a_cut_message_has_the_mtu_or_none() {
        let whole = message(0, &[(RTAX_MTU, 1400)]);
        for len in 0..whole.len() {
            assert_eq!(mtu(&whole[..len]), None);
        }
    }

    #[test]
    fn a_local_route_that_is_not_an_addresss_is_custom() {
        in_namespace(|| {
            ip("link set lo up");
            ip("addr add 10.1.0.1/24 dev lo");
            assert!(!routes().unwrap().custom_local);
            ip("route add local 10.9.0.0/24 dev lo");
            assert!(routes().unwrap().custom_local);
            ip("route del local 10.9.0.0/24 dev lo");
            assert!(!routes().unwrap().custom_local);
        });
    }

    #[test]
    fn the_smallest_unlocked_mtu_of_any_table_is_found() {
        in_namespace(|| {
            ip("link set lo up");
            ip("link add v0 type veth peer name v1");
            ip("link set v1 up");
            ip("link set v0 up");
            ip("addr add 10.1.0.1/24 dev v0");
            ip("route add 10.2.0.0/24 via 10.1.0.2");
            assert_eq!(routes().unwrap().smallest_mtu, u32::MAX);
            ip("route add 10.3.0.0/24 via 10.1.0.2 mtu lock 1300");
            assert_eq!(routes().unwrap().smallest_mtu, u32::MAX, "locked");
            ip("route add 10.4.0.0/24 via 10.1.0.2 mtu 1400");
            assert_eq!(routes().unwrap().smallest_mtu, 1400);
            ip("route add 10.5.0.0/24 via 10.1.0.2 mtu 1350 table 5000");
            assert_eq!(routes().unwrap().smallest_mtu, 1350);
            ip("route flush table 5000");
            ip("route del 10.4.0.0/24");
            assert_eq!(routes().unwrap().smallest_mtu, u32::MAX);
        });
    }
}
