//! Properties of the packet logic on any bytes: it never panics, it leaves alone what it hands up,
//! and of what it forwards it changes the hop limit, the header checksum and the link header only.

use ipoib_ebpf::frame::{Frame, HEADROOM};
use ipoib_ebpf::ingress::ingress;
use ipoib_ebpf::tables::{Port, PortCounters};
use ipoib_ebpf::verdict::{Reason, Verdict};
use ipoib_ebpf::wire::link::LinkLayer;
use ipoib_tests::model::{Entry, Model, To};
use ipoib_tests::packets::{Ip, checksum, link_header};
use proptest::prelude::*;
use std::net::IpAddr;

const LAYERS: [LinkLayer; 3] = [LinkLayer::None, LinkLayer::Ethernet, LinkLayer::Ipoib];

/// Everything goes from port 1 to port 2.
fn model(from: LinkLayer, to: LinkLayer) -> Model {
    let mut model = Model::default();
    for (ifindex, layer) in [(1, from), (2, to)] {
        let port = Port {
            slot: ifindex,
            link_layer: layer as u8,
            rp_filter: 0,
            ipv6_off: 0,
            reserved: 0,
        };
        model.ports.insert(ifindex, port);
        model.frame_limits.insert(ifindex, 65_535);
    }
    for prefix in ["0.0.0.0", "::"] {
        let to = To::Via {
            ifindex: 2,
            gateway: None,
            mtu: 65_535,
        };
        model.routes.push(Entry {
            prefix: prefix.parse().unwrap(),
            length: 0,
            to,
        });
    }
    model
}

fn header_len(layer: LinkLayer) -> usize {
    match layer {
        LinkLayer::None => 0,
        LinkLayer::Ethernet => 14,
        LinkLayer::Ipoib => 24,
    }
}

/// Runs a frame through the library; verdict, frame, counters of both ports.
fn run(
    model: &Model,
    frame: &[u8],
    linear: usize,
    change: impl FnOnce(&mut Frame<'_>),
) -> (Verdict, Vec<u8>, [PortCounters; 2]) {
    let mut buffer = vec![0; HEADROOM];
    buffer.extend(frame);
    let mut packet = Frame::new(&mut buffer, 1);
    packet.linear = linear;
    change(&mut packet);
    model.counters.borrow_mut().clear();
    let verdict = ingress(&mut packet, model);
    let row = |slot| {
        model
            .counters
            .borrow()
            .get(&slot)
            .copied()
            .unwrap_or_default()
    };
    (verdict, packet.data().to_vec(), [row(1), row(2)])
}

fn layers() -> impl Strategy<Value = (LinkLayer, LinkLayer)> {
    (0..3usize, 0..3usize).prop_map(|(from, to)| (LAYERS[from], LAYERS[to]))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn any_bytes_are_decided_counted_once_and_left_alone_when_handed_up(
        (from, to) in layers(),
        mut frame in proptest::collection::vec(any::<u8>(), 0..120),
        ethertype in prop_oneof![Just(0x0800u16), Just(0x86dd), any::<u16>()],
        linear in 0usize..140,
        gso_size in prop_oneof![4 => Just(0u32), 1 => 0u32..3000],
    ) {
        let at = match from {
            LinkLayer::None => None,
            LinkLayer::Ethernet => Some(12),
            LinkLayer::Ipoib => Some(20),
        };
        if let Some(place) = at.and_then(|at| frame.get_mut(at..at + 2)) {
            place.copy_from_slice(&ethertype.to_be_bytes());
        }
        let model = model(from, to);
        let (verdict, after, [row, _]) = run(&model, &frame, linear, |p| p.gso_size = gso_size);
        prop_assert_eq!(row.received.packets, 1);
        prop_assert_eq!(row.received.bytes, frame.len() as u64);
        let counted: u64 = row.handed_up.iter().chain(row.dropped.iter()).map(|(_, c)| c.packets).sum();
        let forwarded = row.forwarded_ipv4.packets + row.forwarded_ipv6.packets;
        prop_assert_eq!(counted + forwarded, 1);
        match verdict {
            Verdict::HandUp(_) => prop_assert_eq!(after, frame),
            Verdict::Forward(_) => prop_assert_eq!(forwarded, 1),
            Verdict::Drop(reason) => prop_assert!(false, "dropped: {}", reason.name()),
        }
    }

    #[test]
    fn a_good_packet_is_forwarded_with_nothing_else_changed(
        (from, to) in layers(),
        v4: bool,
        size in 0usize..300,
        hop_limit in 2u8..,
        padding in 0usize..46,
        linear in 0usize..400,
        seed: u8,
    ) {
        let (source, destination): (IpAddr, IpAddr) = if v4 {
            ([10, 1, 2, seed].into(), [10, 9, 8, 7].into())
        } else {
            ([0xfd00, 1, 2, 3, 0, 0, 0, u16::from(seed)].into(), [0xfd00, 9, 0, 0, 0, 0, 0, 7].into())
        };
        let data: Vec<u8> = (0..size).map(|i| (i as u8) ^ seed).collect();
        let packet = Ip { hop_limit, ..Ip::udp(source, destination, (1, 2), &data) };
        let bytes = packet.bytes();
        let mut frame = link_header(from, [2; 6], if v4 { 0x0800 } else { 0x86dd });
        frame.extend(&bytes);
        frame.extend(vec![0xaa; padding]);
        let model = model(from, to);
        let (verdict, after, [_, out]) = run(&model, &frame, linear, |_| {});
        if from == LinkLayer::Ipoib && to == LinkLayer::Ipoib {
            prop_assert_eq!(verdict, Verdict::HandUp(Reason::FabricToFabric));
            return Ok(());
        }
        let header = if v4 { 20 } else { 40 };
        if (from, to) == (LinkLayer::Ipoib, LinkLayer::Ethernet) && bytes.len() < header + 10 {
            prop_assert_eq!(verdict, Verdict::HandUp(Reason::TooShort));
            return Ok(());
        }
        prop_assert!(matches!(verdict, Verdict::Forward(f) if f.ifindex == 2), "{:?}", verdict);
        let link = match (from, to) {
            (LinkLayer::Ipoib, LinkLayer::Ethernet)
            | (LinkLayer::None, LinkLayer::Ethernet | LinkLayer::Ipoib) => 14,
            _ => header_len(from),
        };
        let expected = Ip { hop_limit: hop_limit - 1, ..packet }.bytes();
        prop_assert_eq!(&after[link..], &expected[..]);
        if v4 {
            prop_assert_eq!(checksum(&[&after[link..link + 20]]), 0);
        }
        let sent = if v4 { out.sent_ipv4 } else { out.sent_ipv6 };
        prop_assert_eq!((sent.packets, sent.bytes), (1, frame.len() as u64));
    }

    /// The sum that the kernel is told is the change of the packet's own sum.
    #[test]
    fn a_device_checksum_stays_right(v4: bool, hop_limit in 2u8.., size in 0usize..60) {
        let (source, destination): (IpAddr, IpAddr) = if v4 {
            ([10, 1, 2, 3].into(), [10, 9, 8, 7].into())
        } else {
            ("fd00::1".parse().unwrap(), "fd00:9::7".parse().unwrap())
        };
        let packet = Ip { hop_limit, ..Ip::udp(source, destination, (1, 2), &vec![7; size]) };
        let mut buffer = vec![0; HEADROOM];
        buffer.extend(link_header(LinkLayer::Ethernet, [2; 6], if v4 { 0x0800 } else { 0x86dd }));
        buffer.extend(packet.bytes());
        let mut frame = Frame::new(&mut buffer, 1);
        let before = !checksum(&[&frame.data()[14..]]);
        let verdict = ingress(&mut frame, &model(LinkLayer::Ethernet, LinkLayer::Ethernet));
        prop_assert!(matches!(verdict, Verdict::Forward(_)));
        let after = !checksum(&[&frame.data()[14..]]);
        let mut told = u32::from(before) + frame.checksum_delta;
        while told >> 16 != 0 {
            told = (told & 0xffff) + (told >> 16);
        }
        // 0x0000 and 0xffff are the same number to a one's complement sum.
        prop_assert_eq!(told % 0xffff, u32::from(after) % 0xffff);
    }
}

/// Case 2: a received IPoIB frame starts with 20 zero bytes; cut to 23 bytes it is malformed.
#[test]
fn an_ipoib_frame_is_read_at_offset_24_and_never_past_its_end() {
    let model = model(LinkLayer::Ipoib, LinkLayer::Ethernet);
    let packet = Ip::udp([10, 1, 0, 2].into(), [10, 2, 0, 2].into(), (1, 2), &[5; 20]);
    let mut frame = vec![0; 20];
    frame.extend([0x08, 0x00, 0x00, 0x00]);
    frame.extend(packet.bytes());
    let (verdict, after, _) = run(&model, &frame, usize::MAX, |_| {});
    assert!(matches!(verdict, Verdict::Forward(_)), "{verdict:?}");
    assert_eq!(
        after[14..],
        Ip {
            hop_limit: 63,
            ..packet
        }
        .bytes()
    );
    for length in 0..frame.len() {
        let (verdict, after, _) = run(&model, &frame[..length], usize::MAX, |_| {});
        assert_eq!(
            verdict,
            Verdict::HandUp(Reason::Malformed),
            "{length} bytes"
        );
        assert_eq!(after, frame[..length]);
    }
}

/// What only the link layer knows about a frame.
#[test]
fn tagged_frames_and_those_of_other_hosts_go_up() {
    let model = model(LinkLayer::Ethernet, LinkLayer::Ipoib);
    let packet = Ip::udp([10, 1, 0, 2].into(), [10, 2, 0, 2].into(), (1, 2), &[5; 20]);
    let mut frame = link_header(LinkLayer::Ethernet, [2; 6], 0x0800);
    frame.extend(packet.bytes());
    let (verdict, ..) = run(&model, &frame, usize::MAX, |p| p.vlan_tag = true);
    assert_eq!(verdict, Verdict::HandUp(Reason::NotCarriedByIpoib));
    let (verdict, ..) = run(&model, &frame, usize::MAX, |p| p.for_this_host = false);
    assert_eq!(verdict, Verdict::HandUp(Reason::NotForHost));
    let (verdict, ..) = run(&model, &frame, usize::MAX, |_| {});
    assert!(matches!(verdict, Verdict::Forward(_)));
}

/// A superpacket whose header can't say its length, or whose segments don't fit.
#[test]
fn superpackets_are_forwarded_only_when_every_segment_fits() {
    let mut small = model(LinkLayer::Ethernet, LinkLayer::Ipoib);
    let payload = [&[0u8; 12][..], &[0x50], &[0; 7], &[9; 4000]].concat();
    let tcp = |protocol| Ip {
        protocol,
        payload: payload.clone(),
        ..Ip::udp([10, 1, 0, 2].into(), [10, 2, 0, 2].into(), (1, 2), &[])
    };
    let frame = |packet: &Ip| {
        let mut frame = link_header(LinkLayer::Ethernet, [2; 6], 0x0800);
        frame.extend(packet.bytes());
        frame
    };
    let superpacket = frame(&tcp(6));
    let run_with =
        |model: &Model, gso_size| run(model, &superpacket, 14, |p| p.gso_size = gso_size).0;
    assert!(matches!(run_with(&small, 1460), Verdict::Forward(_)));
    // The route's MTU counts for a segment with its headers.
    small.routes[0].to = To::Via {
        ifindex: 2,
        gateway: None,
        mtu: 1500,
    };
    assert!(matches!(run_with(&small, 1460), Verdict::Forward(_)));
    assert_eq!(run_with(&small, 1461), Verdict::HandUp(Reason::TooBig));
    // Without segmentation it is one packet of 4040 bytes.
    assert_eq!(run_with(&small, 0), Verdict::HandUp(Reason::TooBig));
    // The interface's own limit, which the kernel checks.
    small.frame_limits.insert(2, 1000);
    assert_eq!(run_with(&small, 1460), Verdict::HandUp(Reason::TooBig));
    // GSO_BY_FRAGS.
    assert_eq!(run_with(&small, 0xffff), Verdict::HandUp(Reason::TooBig));
    // BIG TCP over IPv4: total length 0.
    let mut big = superpacket.clone();
    (big[16], big[17]) = (0, 0);
    let sum = {
        (big[24], big[25]) = (0, 0);
        checksum(&[&big[14..34]])
    };
    big[24..26].copy_from_slice(&sum.to_be_bytes());
    let (verdict, ..) = run(&small, &big, usize::MAX, |p| p.gso_size = 1460);
    assert_eq!(verdict, Verdict::HandUp(Reason::Malformed));
}
