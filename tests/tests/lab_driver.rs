//! The kernel's own IPoIB driver on the lab's virtual HCAs: that it is the real thing, down to its
//! sizes and addresses, and what it refuses.

use ipoib_tests::exchange::{ipoib_header, udp};
use ipoib_tests::gateway::{Gateway, PATIENCE, Side};
use ipoib_tests::lab::{Lab, Mode, Setup, running};
use ipoib_tests::raw_program::attach_xdp;
use ipoib_user::netns::Namespace;

/// The MTU of an interface.
fn mtu(namespace: &Namespace, name: &str) -> u32 {
    let text = namespace.ip(&["link", "show", name]).unwrap();
    let mut words = text.split_whitespace().skip_while(|word| *word != "mtu");
    words
        .nth(1)
        .and_then(|mtu| mtu.parse().ok())
        .expect("an MTU")
}

/// Whether a ping that fills `size` bytes of IP packet and must not be fragmented is answered.
fn ping(gateway: &Gateway, size: u32) -> bool {
    gateway
        .fabric
        .sysctl("net.ipv4.ping_group_range", "0 0")
        .unwrap();
    let address = Side::Fabric.gateway_address(true).to_string();
    let answered = gateway
        .fabric
        .run(|| echo(&address, size as usize - 28))
        .unwrap();
    answered.is_ok()
}

/// One echo request of `size` bytes of payload with DF set; fails where the answer is not its like.
fn echo(address: &str, size: usize) -> std::io::Result<()> {
    use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};
    use std::io::{Error, ErrorKind};
    use std::net::UdpSocket;
    use std::os::fd::AsRawFd;
    let socket = socket(
        AddressFamily::Inet,
        SockType::Datagram,
        SockFlag::empty(),
        SockProtocol::Icmp,
    )?;
    let value: libc::c_int = libc::IP_PMTUDISC_DO;
    // SAFETY: the value outlives the call and its length is given.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_MTU_DISCOVER,
            (&raw const value).cast(),
            4,
        )
    };
    if set != 0 {
        return Err(Error::last_os_error());
    }
    let socket = UdpSocket::from(socket);
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.connect((address, 0))?;
    let mut packet = vec![8, 0, 0, 0, 0, 0, 0, 1];
    packet.extend((0..size).map(|i| i as u8));
    socket.send(&packet)?;
    let mut answer = vec![0; 70_000];
    let length = socket.recv(&mut answer)?;
    if answer[8..length] != packet[8..] {
        return Err(ErrorKind::InvalidData.into());
    }
    Ok(())
}

#[test]
fn ports_have_link_type_32_and_20_byte_addresses_with_their_ports_guid() {
    let (_lab, gateway) = Lab::gateway(Setup::default());
    let kind = gateway.gateway.ip(&["link", "show", "ib0"]).unwrap();
    assert!(kind.contains("link/infiniband"), "{kind}");
    let address = gateway.port_lladdr(Side::Fabric);
    assert_eq!(address.len(), 20);
    // Connected mode on offer, QPN, subnet prefix, GUID (RFC 4391 section 9.1.1, RFC 4755).
    assert_eq!(address[0] & 0x80, 0x80);
    assert_eq!(address[4..12], [0xfe, 0x80, 0, 0, 0, 0, 0, 0]);
    assert_eq!(address[12..], [0, 2, 0xc9, 3, 0, 0, 0, 0x11]);
    let other = gateway.host_lladdr(Side::Fabric);
    assert_ne!(address[12..], other[12..]);
}

#[test]
fn datagram_mode_carries_its_mtu_to_the_byte() {
    for (vhca, size) in [("", 2044), ("mtu=4096", 4092)] {
        let (_lab, gateway) = Lab::gateway(Setup {
            vhca,
            ..Setup::default()
        });
        for namespace in [&gateway.gateway, &gateway.fabric] {
            let name = if std::ptr::eq(namespace, &gateway.gateway) {
                "ib0"
            } else {
                "ib1"
            };
            assert_eq!(mtu(namespace, name), size, "{vhca}");
        }
        assert!(ping(&gateway, size), "{size}");
        assert!(!ping(&gateway, size + 1), "{size} + 1");
    }
}

#[test]
fn connected_mode_carries_65520_bytes_to_the_byte() {
    let (_lab, gateway) = Lab::gateway(Setup {
        mode: Mode::Connected,
        mtu: Some(65520),
        ..Setup::default()
    });
    assert_eq!(mtu(&gateway.gateway, "ib0"), 65520);
    // The connection is set up while the first packet waits.
    assert!(ping(&gateway, 1000));
    assert!(ping(&gateway, 65520));
    assert!(!ping(&gateway, 65521));
}

#[test]
fn neighbours_are_resolved_to_20_byte_addresses() {
    let (_lab, gateway) = Lab::gateway(Setup::default());
    gateway.neighbours(Side::Fabric, "del");
    assert!(ping(&gateway, 100));
    let address = Side::Fabric.address(true).to_string();
    let text = gateway
        .gateway
        .ip(&["neighbour", "show", &address])
        .unwrap();
    let lladdr = gateway.host_lladdr(Side::Fabric);
    let lladdr: Vec<_> = lladdr.iter().map(|b| format!("{b:02x}")).collect();
    assert!(text.contains(&lladdr.join(":")), "{text}");
}

#[test]
fn a_received_frame_begins_with_twenty_zero_bytes_and_a_sent_one_with_the_neighbour() {
    let (_lab, gateway) = Lab::gateway(Setup::default());
    let packet = udp(Side::Fabric, true, 100, 1).bytes();
    let wanted = |frame: &[u8]| frame.ends_with(&packet);
    let at_gateway = gateway
        .gateway
        .run(|| ipoib_tests::raw_socket::RawSocket::open("ib0"))
        .unwrap()
        .unwrap();
    // A socket does not see what it sent itself.
    let (sender, tap) = (gateway.socket(Side::Fabric), gateway.socket(Side::Fabric));
    let to = gateway.port_lladdr(Side::Fabric);
    sender.send(&[ipoib_header(&to, 0x0800), packet.clone()].concat());
    let sent = tap.sent(PATIENCE, wanted).expect("it leaves");
    assert_eq!(sent[..24], ipoib_header(&to, 0x0800));
    let received = at_gateway.receive(PATIENCE, wanted).expect("it arrives");
    assert_eq!(received[..24], ipoib_header(&[0; 20], 0x0800));
    assert_eq!(received.len(), 24 + packet.len());
}

/// Case 7.
#[test]
fn native_xdp_is_refused_and_generic_xdp_is_not() {
    let (_lab, gateway) = Lab::gateway(Setup::default());
    let index = gateway.index("ib0");
    let native = gateway.gateway.run(|| attach_xdp(index, true)).unwrap();
    assert_eq!(
        native.unwrap_err().raw_os_error(),
        Some(libc::EOPNOTSUPP),
        "native"
    );
    let generic = gateway.gateway.run(|| attach_xdp(index, false)).unwrap();
    assert!(generic.is_ok(), "{generic:?}");
    assert!(ping(&gateway, 500));
}

#[test]
fn a_child_of_another_partition_has_its_p_key_in_its_broadcast_address() {
    let (_lab, gateway) = Lab::gateway(Setup {
        child: true,
        ..Setup::default()
    });
    let text = gateway.gateway.ip(&["-d", "link", "show", "ib0"]).unwrap();
    assert!(
        text.contains("pkey  0x8001") || text.contains("pkey 0x8001"),
        "{text}"
    );
    assert!(text.contains("brd 00:ff:ff:ff:ff:12:40:1b:80:01"), "{text}");
    assert!(running(&gateway.gateway, "ib0"));
    assert!(ping(&gateway, 2044));
}
