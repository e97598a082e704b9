//! A port without link header (TUN) beside an Ethernet one: the same program, and the right bytes
//! both ways.

use ipoib_ebpf::wire::link::LinkLayer;
use ipoib_tests::device::Tun;
use ipoib_tests::gateway::{Gateway, PATIENCE, Side, counters};
use ipoib_tests::packets::{Ip, link_header};
use ipoib_user::datapath::Datapath;
use std::net::IpAddr;

#[test]
fn packets_cross_between_a_tun_device_and_ethernet() {
    let gateway = Gateway::build();
    let mut tun = gateway
        .gateway
        .run(|| Tun::create("ibc9"))
        .unwrap()
        .unwrap();
    for arguments in [
        &["link", "set", "ibc9", "up"][..],
        &["address", "add", "10.8.0.1/24", "dev", "ibc9"],
        &["address", "add", "fd00:8::1/64", "dev", "ibc9"],
    ] {
        gateway.gateway.ip(arguments).unwrap();
    }
    let mut options = gateway.options();
    options.ports = vec!["ibc9".to_owned(), "eth0".to_owned()];
    let datapath = gateway
        .gateway
        .run(|| Datapath::start(&options))
        .unwrap()
        .expect("it starts");
    let layers: Vec<_> = datapath
        .report()
        .unwrap()
        .into_iter()
        .map(|port| port.link.link_layer)
        .collect();
    assert_eq!(layers, [Some(LinkLayer::None), Some(LinkLayer::Ethernet)]);
    for v4 in [true, false] {
        let far: IpAddr = if v4 { "10.8.0.2" } else { "fd00:8::2" }.parse().unwrap();
        let host = Side::Ethernet.address(v4);
        for size in [0, 1, 64, 1400] {
            let data = vec![size as u8; size];
            // From Ethernet to the bare port.
            let packet = Ip::udp(host, far, (7, 8), &data);
            let ethertype = if v4 { 0x0800 } else { 0x86dd };
            let mut frame = link_header(LinkLayer::Ethernet, Side::Ethernet.port_mac(), ethertype);
            frame.extend(packet.bytes());
            gateway.socket(Side::Ethernet).send(&frame);
            let is_ours = |p: &[u8]| {
                p.first().is_some_and(|b| b >> 4 == if v4 { 4 } else { 6 })
                    && p.get(if v4 { 9 } else { 6 }) == Some(&17)
            };
            let arrived = tun
                .receive(PATIENCE, is_ours)
                .expect("nothing on the TUN device");
            assert_eq!(
                arrived,
                Ip {
                    hop_limit: 63,
                    ..packet
                }
                .bytes()
            );
            // And back.
            let packet = Ip::udp(far, host, (8, 7), &data);
            let receiver = gateway.socket(Side::Ethernet);
            tun.send(&packet.bytes()).unwrap();
            let arrived = receiver
                .receive(PATIENCE, |f| {
                    f[12..14] == ethertype.to_be_bytes() && is_ours(&f[14..])
                })
                .expect("nothing on Ethernet");
            assert_eq!(arrived[..6], Side::Ethernet.mac());
            assert_eq!(arrived[6..12], Side::Ethernet.port_mac());
            assert_eq!(
                arrived[14..],
                Ip {
                    hop_limit: 63,
                    ..packet
                }
                .bytes()
            );
        }
    }
    for port in ["ibc9", "eth0"] {
        assert_eq!(
            counters(&datapath, port).forwarded_ipv4.packets,
            4,
            "{port}"
        );
        assert_eq!(
            counters(&datapath, port).forwarded_ipv6.packets,
            4,
            "{port}"
        );
    }
}
