//! The network interfaces, by RTM_GETLINK: which link layer each has (never by its name), and
//! whether it can be a port at all.

use super::Error;
use super::netlink::{
    Question, ask, attributes, attributes_after, push_attribute, string, u16_at, u32_at,
};
use ipoib_ebpf::wire::link::LinkLayer;

/// `struct ifinfomsg`: family, pad, type, index, flags, change.
const IFINFOMSG_LEN: usize = 16;
/// `ARPHRD_LOOPBACK`.
const ARPHRD_LOOPBACK: u16 = 772;
/// Kind of an IPoIB child interface (`ipoib_link_ops`).
const KIND_IPOIB: &str = "ipoib";
/// Kind of a VRF, the only master that leaves its members' packets on the usual road.
const KIND_VRF: &str = "vrf";

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its index.
    pub ifindex: u32,
    /// Its name.
    pub name: String,
    /// The kernel's hardware type (`ARPHRD_*`).
    pub arphrd: u16,
    /// The kind that rtnetlink reports (`veth`, `ipoib`, ...), if any.
    pub kind: Option<String>,
    /// Link layer, or `None` where it is one that we don't know.
    pub link_layer: Option<LinkLayer>,
    /// MTU in bytes of IP packet.
    pub mtu: u32,
    /// Administratively up.
    pub up: bool,
    /// Index of the bond, bridge or VRF that it belongs to.
    pub master: Option<u32>,
}

/// Why an interface can't be a port.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortProblem {
    /// It is the loopback interface.
    #[error("{name} is the loopback interface, which no forwarded packet crosses: name another")]
    Loopback {
        /// Its name.
        name: String,
    },
    /// Its link layer is none that the datapath can read.
    #[error(
        "{name} has a link layer that the datapath can't read (ARPHRD {arphrd}): only IPoIB (32), \
         Ethernet (1) and devices without a link header (65534) can be ports"
    )]
    UnknownLinkLayer {
        /// Its name.
        name: String,
        /// The kernel's number of it.
        arphrd: u16,
    },
    /// It hands its packets to a bond, bridge, team or the like.
    #[error("{name} belongs to the {kind} {master}: attach to {master} instead")]
    Enslaved {
        /// Its name.
        name: String,
        /// Name of the master.
        master: String,
        /// Kind of the master.
        kind: String,
    },
}

/// Every link of the namespace, in the order of their indexes.
pub fn links() -> Result<Vec<Link>, Error> {
    let mut body = vec![0; IFINFOMSG_LEN];
    // The statistics are the larger part of each message, and nobody reads them here.
    let filter = libc::RTEXT_FILTER_SKIP_STATS as u32;
    push_attribute(&mut body, libc::IFLA_EXT_MASK, &filter.to_ne_bytes());
    let question = Question {
        protocol: libc::NETLINK_ROUTE as isize,
        what: "the links",
        ask: libc::RTM_GETLINK,
        answer: libc::RTM_NEWLINK,
        dump: true,
        body: &body,
    };
    let mut links = ask(&question, read)?;
    links.sort_by_key(|link| link.ifindex);
    Ok(links)
}

/// The link of that name. [`Error::NoSuchLink`] says which names would do.
pub fn link(name: &str) -> Result<Link, Error> {
    let links = links()?;
    match links.iter().find(|link| link.name == name) {
        Some(link) => Ok(link.clone()),
        None => Err(no_such_link(name, &links)),
    }
}

/// Why `link` can't be a port, if it can't; `links` are those of its namespace. A link that is down
/// can be one: it will come up.
pub fn port_problem(link: &Link, links: &[Link]) -> Option<PortProblem> {
    let name = link.name.clone();
    if link.arphrd == ARPHRD_LOOPBACK {
        return Some(PortProblem::Loopback { name });
    }
    if let Some(master) = link.master {
        // The receive handler of a bond or bridge takes a member's packets behind its ingress hook:
        // what is decided there would be decided for packets that are not the member's. A VRF only
        // changes the table. A master that has gone since is for the next reading to show.
        let master = links.iter().find(|other| other.ifindex == master);
        let kind = master.and_then(|master| master.kind.as_deref());
        if let Some(master) = master
            && kind != Some(KIND_VRF)
        {
            return Some(PortProblem::Enslaved {
                name,
                master: master.name.clone(),
                kind: kind.unwrap_or("interface").to_owned(),
            });
        }
    }
    if link.link_layer.is_none() {
        return Some(PortProblem::UnknownLinkLayer {
            name,
            arphrd: link.arphrd,
        });
    }
    None
}

fn no_such_link(name: &str, links: &[Link]) -> Error {
    let usable: Vec<String> = links
        .iter()
        .filter(|link| port_problem(link, links).is_none())
        .filter_map(|link| Some(format!("{} ({})", link.name, link.link_layer?.name())))
        .collect();
    let remedy = match usable.is_empty() {
        true => "this network namespace has none that could be a port".to_owned(),
        false => format!("these could be ports: {}", usable.join(", ")),
    };
    Error::NoSuchLink {
        name: name.to_owned(),
        remedy,
    }
}

/// Reads an RTM_NEWLINK; `None` where its header or name is missing.
fn read(body: &[u8]) -> Option<Link> {
    let arphrd = u16_at(body, 2)?;
    let ifindex = u32_at(body, 4)?;
    let flags = u32_at(body, 8)?;
    let (mut name, mut kind, mut mtu, mut master) = (None, None, 0, None);
    for (attribute, value) in attributes_after(body, IFINFOMSG_LEN) {
        match attribute {
            libc::IFLA_IFNAME => name = Some(string(value)),
            libc::IFLA_MTU => mtu = u32_at(value, 0).unwrap_or(mtu),
            libc::IFLA_MASTER => master = u32_at(value, 0).filter(|index| *index != 0),
            libc::IFLA_LINKINFO => {
                kind = attributes(value)
                    .find(|(attribute, _)| *attribute == libc::IFLA_INFO_KIND)
                    .map(|(_, value)| string(value));
            }
            _ => {}
        }
    }
    let link_layer = match kind.as_deref() {
        Some(KIND_IPOIB) => Some(LinkLayer::Ipoib),
        _ => LinkLayer::from_arphrd(arphrd),
    };
    Some(Link {
        ifindex,
        name: name?,
        arphrd,
        kind,
        link_layer,
        mtu,
        up: flags & libc::IFF_UP as u32 != 0,
        master,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::testing::{in_namespace, ip, tun};

    fn message(arphrd: u16, kind: Option<&str>) -> Vec<u8> {
        let mut body = vec![0; IFINFOMSG_LEN];
        body[2..4].copy_from_slice(&arphrd.to_ne_bytes());
        body[4..8].copy_from_slice(&7u32.to_ne_bytes());
        body[8..12].copy_from_slice(&1u32.to_ne_bytes());
        push_attribute(&mut body, 0x3ffe, b"from the future");
        push_attribute(&mut body, libc::IFLA_IFNAME, b"net7\0");
        push_attribute(&mut body, libc::IFLA_MTU, &2044u32.to_ne_bytes());
        push_attribute(&mut body, libc::IFLA_MASTER, &3u32.to_ne_bytes());
        if let Some(kind) = kind {
            let mut info = Vec::new();
            push_attribute(&mut info, 99, &[0; 3]);
            push_attribute(&mut info, libc::IFLA_INFO_KIND, kind.as_bytes());
            push_attribute(&mut body, libc::IFLA_LINKINFO, &info);
        }
        body
    }

    #[test]
    fn the_link_layer_is_the_devices() {
        let layer = |arphrd, kind| read(&message(arphrd, kind)).unwrap().link_layer;
        assert_eq!(layer(32, None), Some(LinkLayer::Ipoib));
        assert_eq!(layer(32, Some("tun")), Some(LinkLayer::Ipoib));
        assert_eq!(layer(32, Some("ipoib")), Some(LinkLayer::Ipoib));
        assert_eq!(layer(1, None), Some(LinkLayer::Ethernet));
        assert_eq!(layer(1, Some("veth")), Some(LinkLayer::Ethernet));
        assert_eq!(layer(0xfffe, Some("tun")), Some(LinkLayer::None));
        assert_eq!(layer(ARPHRD_LOOPBACK, None), None);
        assert_eq!(layer(512, Some("ppp")), None);
    }

    #[test]
    fn a_message_is_read_past_what_is_unknown() {
        assert_eq!(
            read(&message(32, Some("ipoib"))),
            Some(Link {
                ifindex: 7,
                name: "net7".to_owned(),
                arphrd: 32,
                kind: Some("ipoib".to_owned()),
                link_layer: Some(LinkLayer::Ipoib),
                mtu: 2044,
                up: true,
                master: Some(3),
            })
        );
    }

    #[test]
    fn a_cut_message_is_read_as_far_as_it_goes() {
        let whole = message(32, Some("ipoib"));
        for len in 0..whole.len() {
            if let Some(link) = read(&whole[..len]) {
                assert_eq!(link.name, "net7");
            }
        }
    }

    #[test]
    fn short_values_are_ignored() {
        let mut body = vec![0; IFINFOMSG_LEN];
        push_attribute(&mut body, libc::IFLA_IFNAME, b"a");
        push_attribute(&mut body, libc::IFLA_MTU, &[1, 2, 3]);
        push_attribute(&mut body, libc::IFLA_MASTER, &[]);
        push_attribute(&mut body, libc::IFLA_LINKINFO, &[1]);
        let link = read(&body).unwrap();
        assert_eq!((link.mtu, link.master, link.kind), (0, None, None));
    }

    fn plain(name: &str, ifindex: u32, kind: Option<&str>, master: Option<u32>) -> Link {
        Link {
            ifindex,
            name: name.to_owned(),
            arphrd: 1,
            kind: kind.map(str::to_owned),
            link_layer: Some(LinkLayer::Ethernet),
            mtu: 1500,
            up: false,
            master,
        }
    }

    #[test]
    fn members_of_anything_but_a_vrf_are_refused_in_favour_of_their_master() {
        for kind in ["bond", "bridge", "team", "openvswitch"] {
            let links = [
                plain("m0", 1, Some(kind), None),
                plain("eth0", 2, None, Some(1)),
            ];
            assert_eq!(port_problem(&links[0], &links), None);
            assert_eq!(
                port_problem(&links[1], &links).unwrap().to_string(),
                format!("eth0 belongs to the {kind} m0: attach to m0 instead")
            );
        }
        let links = [
            plain("red", 1, Some("vrf"), None),
            plain("eth0", 2, None, Some(1)),
        ];
        assert_eq!(port_problem(&links[1], &links), None);
    }

    #[test]
    fn an_unknown_link_layer_is_named_by_its_number() {
        let mut ppp = plain("ppp0", 1, None, None);
        (ppp.arphrd, ppp.link_layer) = (512, None);
        let problem = port_problem(&ppp, std::slice::from_ref(&ppp)).unwrap();
        assert!(problem.to_string().contains("(ARPHRD 512)"), "{problem}");
    }

    #[test]
    fn ports_are_recognised_whatever_their_names_are() {
        in_namespace(|| {
            ip("link add ib5 type veth peer name ib6");
            ip("link set ib5 mtu 1400 up");
            let infiniband = tun("tun0", Some(32));
            ip("link set tun0 name foo0");
            let plain = tun("eth0", None);

            let ib5 = link("ib5").unwrap();
            assert_eq!(ib5.link_layer, Some(LinkLayer::Ethernet));
            assert_eq!(ib5.kind.as_deref(), Some("veth"));
            assert_eq!((ib5.mtu, ib5.up, ib5.master), (1400, true, None));
            let foo0 = link("foo0").unwrap();
            assert_eq!((foo0.arphrd, foo0.up), (32, false));
            assert_eq!(foo0.link_layer, Some(LinkLayer::Ipoib));
            assert_eq!(link("eth0").unwrap().link_layer, Some(LinkLayer::None));

            let links = links().unwrap();
            let names: Vec<&str> = links.iter().map(|link| link.name.as_str()).collect();
            assert_eq!(names, ["lo", "ib6", "ib5", "foo0", "eth0"]);
            assert!(matches!(
                port_problem(&links[0], &links),
                Some(PortProblem::Loopback { .. })
            ));
            assert!(links[1..].iter().all(|l| port_problem(l, &links).is_none()));
            drop((infiniband, plain));
        });
    }

    #[test]
    fn a_wrong_name_is_answered_with_those_that_would_do() {
        in_namespace(|| {
            let error = link("ib0").unwrap_err();
            assert_eq!(error.exit_code(), 2);
            assert_eq!(
                error.to_string(),
                "no interface is called \"ib0\": this network namespace has none that could be a port"
            );
            ip("link add v0 type veth peer name v1");
            let _infiniband = tun("net7", Some(32));
            assert_eq!(
                link("ib0").unwrap_err().to_string(),
                "no interface is called \"ib0\": these could be ports: v1 (ethernet), \
                 v0 (ethernet), net7 (ipoib)"
            );
        });
    }

    #[test]
    fn a_bridge_port_is_refused_and_its_bridge_is_not() {
        in_namespace(|| {
            ip("link add v0 type veth peer name v1");
            ip("link add br0 type bridge");
            ip("link set v0 master br0");
            let links = links().unwrap();
            let problem = |name| port_problem(&link(name).unwrap(), &links);
            assert_eq!(
                problem("v0").unwrap().to_string(),
                "v0 belongs to the bridge br0: attach to br0 instead"
            );
            assert_eq!(problem("br0"), None);
            assert_eq!(problem("v1"), None);
        });
    }

    /// Needs a kernel with bonds, VRFs and VLANs, as the lab's.
    #[cfg(feature = "lab")]
    #[test]
    fn bond_masters_vrf_members_and_vlans_can_be_ports_and_bond_members_can_not() {
        in_namespace(|| {
            ip("link add v0 type veth peer name v1");
            ip("link add b0 type bond");
            ip("link set v0 master b0");
            ip("link add red type vrf table 10");
            ip("link set v1 master red");
            ip("link add link v1 name v1.5 type vlan id 5");
            let links = links().unwrap();
            let problem = |name| port_problem(&link(name).unwrap(), &links);
            assert_eq!(
                problem("v0").unwrap().to_string(),
                "v0 belongs to the bond b0: attach to b0 instead"
            );
            assert_eq!(problem("b0"), None);
            assert_eq!(problem("v1"), None);
            assert_eq!(problem("v1.5"), None);
            assert_eq!(link("v1.5").unwrap().link_layer, Some(LinkLayer::Ethernet));
        });
    }
}
