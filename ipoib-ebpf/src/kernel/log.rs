//! aya-log records, for debugging only: 70 to 380 ns a packet, and it drops silently when the
//! reader is slow.

use super::Skb;
use aya_log_ebpf::debug;
use ipoib_ebpf::packet::Packet;
use ipoib_ebpf::verdict::Verdict;

/// One record a packet.
#[inline(always)]
pub fn verdict(packet: &Skb, verdict: Verdict) {
    let ifindex = packet.ifindex();
    match verdict {
        Verdict::Forward(to) => debug!(
            packet.context(),
            "port {} forward to {}", ifindex, to.ifindex
        ),
        Verdict::HandUp(reason) => debug!(
            packet.context(),
            "port {} hand_up {}",
            ifindex,
            reason.name()
        ),
        Verdict::Drop(reason) => {
            debug!(packet.context(), "port {} drop {}", ifindex, reason.name())
        }
    }
}
