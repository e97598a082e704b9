//! Link headers: Ethernet (14 bytes), IPoIB as the kernel presents it (24 bytes: 20-byte link-layer
//! address, ethertype, 2 reserved; RFC 4391 section 6 and `struct ipoib_header` behind the
//! pseudo header of `drivers/infiniband/ulp/ipoib`), or none (TUN).

/// Bytes of an Ethernet header.
pub const ETHERNET_LEN: usize = 14;
/// Bytes of an IPoIB frame's header as the kernel presents it.
pub const IPOIB_LEN: usize = 24;

/// Ethertypes (IEEE 802 numbers).
pub mod ethertype {
    /// Internet Protocol version 4.
    pub const IPV4: u16 = 0x0800;
    /// Address Resolution Protocol.
    pub const ARP: u16 = 0x0806;
    /// Internet Protocol version 6.
    pub const IPV6: u16 = 0x86dd;
}

/// The link layer of a port, read from its device and never from its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum LinkLayer {
    /// No link header (ARPHRD_NONE): TUN devices.
    None = 0,
    /// ARPHRD_ETHER.
    Ethernet = 1,
    /// ARPHRD_INFINIBAND.
    Ipoib = 2,
}

impl LinkLayer {
    /// The variant whose number a table row holds.
    #[inline(always)]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(LinkLayer::None),
            1 => Some(LinkLayer::Ethernet),
            2 => Some(LinkLayer::Ipoib),
            _ => None,
        }
    }

    /// From the kernel's hardware type (`/sys/class/net/*/type`, `ARPHRD_*`).
    pub const fn from_arphrd(arphrd: u16) -> Option<Self> {
        match arphrd {
            1 => Some(LinkLayer::Ethernet),
            32 => Some(LinkLayer::Ipoib),
            0xfffe => Some(LinkLayer::None),
            _ => None,
        }
    }

    /// The word that people read.
    pub const fn name(self) -> &'static str {
        match self {
            LinkLayer::None => "none",
            LinkLayer::Ethernet => "ethernet",
            LinkLayer::Ipoib => "ipoib",
        }
    }
}

/// A link header known at compile time, so that every offset in the program is a constant.
pub trait LinkHeader: Copy {
    /// The link layer it belongs to.
    const LAYER: LinkLayer;
    /// Bytes in front of the IP packet.
    const LEN: usize;
    /// Offset of the ethertype; `None` where the IP version has to tell.
    const ETHERTYPE: Option<usize>;
}

/// Ethernet: destination, source, ethertype.
#[derive(Clone, Copy, Debug)]
pub struct Ethernet;
/// IPoIB: 20-byte link-layer address (zero in received frames), ethertype, reserved.
#[derive(Clone, Copy, Debug)]
pub struct Ipoib;
/// No link header.
#[derive(Clone, Copy, Debug)]
pub struct NoLink;

impl LinkHeader for Ethernet {
    const LAYER: LinkLayer = LinkLayer::Ethernet;
    const LEN: usize = ETHERNET_LEN;
    const ETHERTYPE: Option<usize> = Some(12);
}
impl LinkHeader for Ipoib {
    const LAYER: LinkLayer = LinkLayer::Ipoib;
    const LEN: usize = IPOIB_LEN;
    const ETHERTYPE: Option<usize> = Some(20);
}
impl LinkHeader for NoLink {
    const LAYER: LinkLayer = LinkLayer::None;
    const LEN: usize = 0;
    const ETHERTYPE: Option<usize> = None;
}
