//! `BPF_PROG_TEST_RUN` as the tests need it: with a context (interface, GSO size) and with the
//! kernel's own check that the program keeps `skb->csum` right. aya's wrapper has no flags.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `BPF_PROG_TEST_RUN` of `enum bpf_cmd`.
const COMMAND: libc::c_long = 10;
/// Linux 6.13: the skb carries CHECKSUM_COMPLETE, and the run fails with EBADMSG where the program
/// left a wrong sum behind.
pub const CHECKSUM_COMPLETE: u32 = 1 << 2;

/// The `test` part of `union bpf_attr`.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    prog_fd: u32,
    retval: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    ctx_size_in: u32,
    ctx_size_out: u32,
    ctx_in: u64,
    ctx_out: u64,
    flags: u32,
    cpu: u32,
    batch_size: u32,
    reserved: u32,
}

/// Bytes of `struct __sk_buff`.
const CONTEXT: usize = 192;
const PRIORITY: usize = 32;
const IFINDEX: usize = 40;
const GSO_SEGS: usize = 164;
const GSO_SIZE: usize = 176;

/// What one run did.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The program's return value: a TC action.
    pub action: i32,
    /// The frame as the program left it.
    pub frame: Vec<u8>,
    /// `skb->priority` as the program left it.
    pub priority: u32,
}

/// Runs a TC program once on `frame`, as if it had arrived on `ifindex` of the calling thread's
/// network namespace.
pub fn run(
    program: BorrowedFd<'_>,
    frame: &[u8],
    ifindex: u32,
    gso_size: u32,
    flags: u32,
) -> io::Result<Outcome> {
    let mut context = [0u8; CONTEXT];
    context[IFINDEX..][..4].copy_from_slice(&ifindex.to_ne_bytes());
    context[GSO_SIZE..][..4].copy_from_slice(&gso_size.to_ne_bytes());
    context[GSO_SEGS..][..4].copy_from_slice(&u32::from(gso_size != 0).to_ne_bytes());
    let mut out = vec![0u8; frame.len() + 256];
    let mut context_out = [0u8; CONTEXT];
    let mut attributes = Attributes {
        prog_fd: program.as_raw_fd() as u32,
        data_size_in: frame.len() as u32,
        data_size_out: out.len() as u32,
        data_in: frame.as_ptr() as u64,
        data_out: out.as_mut_ptr() as u64,
        repeat: 1,
        ctx_size_in: CONTEXT as u32,
        ctx_in: context.as_ptr() as u64,
        ctx_size_out: CONTEXT as u32,
        ctx_out: context_out.as_mut_ptr() as u64,
        flags,
        ..Attributes::default()
    };
    // SAFETY: every pointer is to a live buffer of the length beside it, and the kernel writes only
    // to `out`, `context_out` and `attributes`.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            COMMAND,
            &raw mut attributes,
            size_of::<Attributes>(),
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    out.truncate(attributes.data_size_out as usize);
    let priority = &context_out[PRIORITY..PRIORITY + 4];
    Ok(Outcome {
        action: attributes.retval as i32,
        frame: out,
        priority: u32::from_ne_bytes(priority.try_into().expect("four bytes")),
    })
}
