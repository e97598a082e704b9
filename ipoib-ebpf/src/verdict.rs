//! What the datapath decided about a packet, and the closed list of reasons. One list makes the
//! enum, the words that people read, and the counters of a port.

use crate::tables::Counter;
use crate::wire::Address;

/// The outcome for one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The fast path sends it out.
    Forward(Forward),
    /// The kernel gets it, untouched.
    HandUp(Reason),
    /// It ends here.
    Drop(Reason),
}

/// A verdict that does not forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The kernel gets the packet, untouched.
    HandUp(Reason),
    /// It ends here.
    Drop(Reason),
}

/// In doubt the kernel gets the packet.
impl From<Reason> for Refusal {
    #[inline(always)]
    fn from(reason: Reason) -> Self {
        Refusal::HandUp(reason)
    }
}

impl From<Refusal> for Verdict {
    #[inline(always)]
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::HandUp(reason) => Verdict::HandUp(reason),
            Refusal::Drop(reason) => Verdict::Drop(reason),
        }
    }
}

/// Where a forwarded packet leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forward {
    /// Interface index of the port.
    pub ifindex: u32,
    /// The neighbour that the kernel resolves to write the link header, or [`NextHop::NONE`].
    pub next_hop: NextHop,
}

/// A neighbour's IP address, laid out as the kernel's `struct bpf_redir_neigh`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct NextHop {
    /// `AF_INET` or `AF_INET6`: an IPv4 route may have an IPv6 gateway (RFC 8950).
    pub family: u32,
    /// The address.
    pub address: Address,
}

impl Forward {
    /// Nowhere yet.
    pub const NOWHERE: Forward = Forward {
        ifindex: 0,
        next_hop: NextHop::NONE,
    };
}

impl NextHop {
    /// No neighbour (`AF_UNSPEC`): the port has no link header.
    pub const NONE: NextHop = NextHop {
        family: 0,
        address: Address::UNSPECIFIED,
    };
}

macro_rules! reasons {
    ($($variant:ident $field:ident $text:literal,)*) => {
        /// Why a packet did not take the fast path.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Reason { $(#[doc = $text] $variant,)* }

        impl Reason {
            /// Every reason, in the order of the counters.
            pub const ALL: [Reason; [$(Reason::$variant),*].len()] = [$(Reason::$variant),*];

            /// The word in JSON, metrics, events and `bpftool map dump`.
            pub const fn name(self) -> &'static str {
                match self { $(Reason::$variant => stringify!($field),)* }
            }

            /// One sentence for people.
            pub const fn text(self) -> &'static str {
                match self { $(Reason::$variant => $text,)* }
            }
        }

        /// A counter for each reason, by name.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[repr(C)]
        pub struct ReasonCounters { $(#[doc = $text] pub $field: Counter,)* }

        impl ReasonCounters {
            /// The counter of one reason.
            #[inline(always)]
            pub fn of(&mut self, reason: Reason) -> &mut Counter {
                const { assert!(size_of::<ReasonCounters>() == Reason::ALL.len() * size_of::<Counter>()) }
                // SAFETY: the struct is `repr(C)` and holds one `Counter` for each reason and
                // nothing else (asserted above), in the order of the enum's numbers.
                unsafe { &mut *(&raw mut *self).cast::<Counter>().add(reason as usize) }
            }

            /// Each reason with its counter.
            pub fn iter(&self) -> impl Iterator<Item = (Reason, Counter)> {
                [$((Reason::$variant, self.$field)),*].into_iter()
            }
        }
    };
}

reasons! {
    Held held "Accelerating is held: netfilter, IPsec or a mark rule would be passed by.",
    NotForHost not_for_host "The link layer did not address the frame to this host.",
    NotCarriedByIpoib not_carried_by_ipoib "A VLAN tag or an ethertype that IPoIB does not carry.",
    Arp arp "ARP belongs to the kernel's neighbour table.",
    Malformed malformed "The headers are cut short or contradict each other.",
    IpOptions ip_options "An IPv4 header with options.",
    ExtensionHeader extension_header "An IPv6 extension header.",
    Fragment fragment "A fragment of an IP packet.",
    Multicast multicast "A multicast or broadcast destination.",
    LinkLocal link_local "An IPv6 link-local address.",
    Martian martian "An address that must not appear on a wire.",
    OwnSource own_source "The source is an address of this host.",
    ReversePath reverse_path "The source is not reached through this port, or not at all (rp_filter).",
    HopLimit hop_limit "TTL or hop limit would reach 0.",
    ToThisHost to_this_host "The destination is an address of this host.",
    NoRoute no_route "No route, or one that does not forward.",
    RouteRefuses route_refuses "A blackhole, unreachable or prohibit route.",
    ForwardingOff forwarding_off "Forwarding, or IPv6, is off on this port.",
    RouteUnsupported route_unsupported "A route with encapsulation, or one that the lookup refuses.",
    TooBig too_big "Larger than the path's MTU.",
    NotAPort not_a_port "The route leaves through an interface that is not a port.",
    SamePort same_port "The route leaves through the port it came in by.",
    Resolving resolving "The neighbour's link-layer address is not known yet.",
    FabricToFabric fabric_to_fabric "IPoIB to IPoIB needs a cached neighbour.",
    TooShort too_short "Too few bytes for the kernel to change the link header.",
    ResizeRefused resize_refused "The kernel refused to change the link header.",
    RewriteFailed rewrite_failed "The frame was lost while its header was rewritten (dropped).",
    UnknownPort unknown_port "The interface has no port row.",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_counts_in_the_field_of_its_name() {
        for (number, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, number);
            let mut counters = ReasonCounters::default();
            counters.of(reason).add(100);
            let moved: Vec<_> = counters
                .iter()
                .filter(|(_, c)| *c != Counter::default())
                .collect();
            assert_eq!(
                moved,
                [(
                    reason,
                    Counter {
                        packets: 1,
                        bytes: 100
                    }
                )]
            );
        }
    }
}
