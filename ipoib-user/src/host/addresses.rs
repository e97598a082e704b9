//! The addresses of this host, both families, by RTM_GETADDR.

use super::Error;
use super::netlink::{Question, ask, attributes_after, bytes_at};
use ipoib_ebpf::tables::LocalAddress;
use ipoib_ebpf::wire::{Address, Family};

/// `struct ifaddrmsg`: family, prefix length, flags, scope, index.
const IFADDRMSG_LEN: usize = 8;

/// The addresses of this host, both families, sorted and each once. Tentative and duplicate ones
/// are among them: as the source of a forwarded packet they are for the kernel to judge.
pub fn local_addresses() -> Result<Vec<LocalAddress>, Error> {
    let question = Question {
        protocol: libc::NETLINK_ROUTE as isize,
        what: "the addresses",
        ask: libc::RTM_GETADDR,
        answer: libc::RTM_NEWADDR,
        dump: true,
        body: &[0; IFADDRMSG_LEN],
    };
    let mut addresses = ask(&question, read)?;
    addresses.sort();
    addresses.dedup();
    Ok(addresses)
}

/// Reads an RTM_NEWADDR; `None` for other families than the two.
fn read(body: &[u8]) -> Option<LocalAddress> {
    let family = match *body.first()? as i32 {
        libc::AF_INET => Family::Ipv4,
        libc::AF_INET6 => Family::Ipv6,
        _ => return None,
    };
    let (mut local, mut address) = (None, None);
    for (attribute, value) in attributes_after(body, IFADDRMSG_LEN) {
        match attribute {
            libc::IFA_LOCAL => local = Some(value),
            libc::IFA_ADDRESS => address = Some(value),
            _ => {}
        }
    }
    // Where the interface has a peer, IFA_ADDRESS is the peer's and IFA_LOCAL our own.
    let own = local.or(address)?;
    Some(LocalAddress {
        family: family as u32,
        address: match family {
            Family::Ipv4 => Address::v4(bytes_at(own, 0)?),
            Family::Ipv6 => Address::v6(&bytes_at(own, 0)?),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::netlink::push_attribute;
    use crate::host::testing::{in_namespace, ip};
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn v4(text: &str) -> LocalAddress {
        LocalAddress {
            family: 2,
            address: Address::v4(text.parse::<Ipv4Addr>().unwrap().octets()),
        }
    }

    fn v6(text: &str) -> LocalAddress {
        LocalAddress {
            family: 10,
            address: Address::v6(&text.parse::<Ipv6Addr>().unwrap().octets()),
        }
    }

    fn message(family: i32, attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut body = vec![0; IFADDRMSG_LEN];
        body[0] = family as u8;
        for (kind, value) in attributes {
            push_attribute(&mut body, *kind, value);
        }
        body
    }

    #[test]
    fn the_own_address_is_taken_and_not_the_peers() {
        let peer = message(
            libc::AF_INET,
            &[
                (99, b"unknown"),
                (libc::IFA_ADDRESS, &[10, 0, 0, 2]),
                (libc::IFA_LOCAL, &[10, 0, 0, 1]),
            ],
        );
        assert_eq!(read(&peer), Some(v4("10.0.0.1")));
        let plain = message(libc::AF_INET6, &[(libc::IFA_ADDRESS, &[0xfd; 16])]);
        assert_eq!(
            read(&plain),
            Some(v6("fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd"))
        );
        for len in 0..peer.len() {
            read(&peer[..len]);
        }
    }

    #[test]
    fn foreign_families_and_short_addresses_are_ignored() {
        let mctp = message(45, &[(libc::IFA_ADDRESS, &[1, 2, 3, 4])]);
        assert_eq!(read(&mctp), None);
        let short = message(libc::AF_INET6, &[(libc::IFA_ADDRESS, &[1, 2, 3, 4])]);
        assert_eq!(read(&short), None);
        assert_eq!(read(&message(libc::AF_INET, &[])), None);
    }

    #[test]
    fn every_address_of_the_namespace_is_found_once() {
        in_namespace(|| {
            assert_eq!(local_addresses().unwrap(), []);
            ip("link set lo up");
            ip("link add v0 type veth peer name v1");
            ip("addr add 10.1.0.1/24 dev v0");
            ip("addr add 10.1.0.1/24 dev v1");
            ip("addr add 10.2.0.1 peer 10.2.0.9 dev v0");
            ip("addr add fd00::1/64 dev v0");
            ip("addr add fd00::a peer fd00::b dev v0");
            let mut expected = vec![
                v4("127.0.0.1"),
                v4("10.1.0.1"),
                v4("10.2.0.1"),
                v6("::1"),
                v6("fd00::1"),
                v6("fd00::a"),
            ];
            expected.sort();
            assert_eq!(local_addresses().unwrap(), expected);
        });
    }
}
