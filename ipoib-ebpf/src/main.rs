//! The eBPF programs: thin entry points over the library, and the one place that turns a verdict
//! into an action code.
#![no_std]
#![no_main]
#![allow(
    missing_docs,
    reason = "the entry points that the macro makes carry no documentation"
)]

mod kernel;

use aya_ebpf::bindings::{TC_ACT_SHOT, TC_ACT_UNSPEC};
use aya_ebpf::helpers::{bpf_redirect, bpf_redirect_neigh};
use aya_ebpf::macros::classifier;
use aya_ebpf::programs::TcContext;
use ipoib_ebpf::ingress;
use ipoib_ebpf::verdict::{NextHop, Verdict};
use kernel::{Kernel, Skb};

/// What arrives on a port, at tcx ingress or a clsact filter.
#[classifier]
pub fn ipoib_ingress(context: TcContext) -> i32 {
    let mut packet = Skb::new(context);
    let verdict = ingress::ingress(&mut packet, &Kernel);
    #[cfg(feature = "log")]
    kernel::log::verdict(&packet, verdict);
    action(verdict)
}

/// `TC_ACT_UNSPEC` (= `TCX_NEXT`) and not `TC_ACT_OK` for the slow road: OK would skip every later
/// program and clsact filter (`include/linux/bpf_mprog.h`, `tcx_run()`).
#[inline(always)]
fn action(verdict: Verdict) -> i32 {
    match verdict {
        Verdict::HandUp(_) => TC_ACT_UNSPEC,
        Verdict::Drop(_) => TC_ACT_SHOT,
        // SAFETY: the helper has no memory argument.
        Verdict::Forward(forward) if forward.next_hop.family == NextHop::NONE.family => unsafe {
            bpf_redirect(forward.ifindex, 0) as i32
        },
        Verdict::Forward(mut forward) => {
            const { assert!(size_of::<NextHop>() == 20) }
            // SAFETY: `NextHop` has the layout of `struct bpf_redir_neigh` and its length is given;
            // the helper copies it.
            unsafe {
                bpf_redirect_neigh(
                    forward.ifindex,
                    (&raw mut forward.next_hop).cast(),
                    size_of::<NextHop>() as i32,
                    0,
                ) as i32
            }
        }
    }
}

#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    // Nothing panics: the verifier would refuse a program that could reach this.
    loop {}
}
