//! eBPF programs of a few instructions, put together by hand: what makes, counts and compares the
//! benchmark's traffic shares neither code nor compiler with the program that is measured. Straight
//! over `bpf(2)`, because aya has no live frames.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `enum bpf_cmd`.
mod command {
    pub const MAP_CREATE: libc::c_long = 0;
    pub const MAP_LOOKUP_ELEM: libc::c_long = 1;
    pub const PROG_LOAD: libc::c_long = 5;
    pub const PROG_TEST_RUN: libc::c_long = 10;
    pub const LINK_CREATE: libc::c_long = 28;
}

/// `BPF_MAP_TYPE_ARRAY`.
const ARRAY: u32 = 2;
/// `BPF_XDP`, the attach type.
const XDP: u32 = 37;
/// `XDP_FLAGS_SKB_MODE`.
const SKB_MODE: u32 = 1 << 1;
/// `BPF_F_TEST_XDP_LIVE_FRAMES`.
const LIVE_FRAMES: u32 = 1 << 1;
/// Bytes of `struct __sk_buff` up to and with `ifindex`, which ends the part that is set here.
const SKB_CONTEXT: usize = 44;
const SKB_IFINDEX: usize = 40;

/// A register; `R10` is the frame pointer.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
#[allow(missing_docs, reason = "they are numbered")]
pub enum Register {
    R0 = 0,
    R1 = 1,
    R2 = 2,
    R3 = 3,
    R4 = 4,
    R6 = 6,
}

/// One instruction of the kernel's set (`struct bpf_insn`), or one half of a wide one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: u32,
}

/// Widths of memory accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// Two bytes.
    Half,
    /// Four bytes.
    Word,
}

impl Width {
    /// Bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Width::Half => 2,
            Width::Word => 4,
        }
    }

    const fn bits(self) -> u8 {
        match self {
            Width::Half => 0x08,
            Width::Word => 0x00,
        }
    }
}

impl Instruction {
    const fn new(code: u8, to: Register, from: Register, offset: i16, immediate: u32) -> Self {
        Instruction {
            code,
            registers: (from as u8) << 4 | to as u8,
            offset,
            immediate,
        }
    }

    /// `to = value`.
    pub const fn set(to: Register, value: i32) -> Self {
        Self::new(0xb7, to, Register::R0, 0, value as u32)
    }

    /// `to = from`.
    pub const fn copy(to: Register, from: Register) -> Self {
        Self::new(0xbf, to, from, 0, 0)
    }

    /// `to += value`.
    pub const fn add(to: Register, value: i32) -> Self {
        Self::new(0x07, to, Register::R0, 0, value as u32)
    }

    /// `to &= mask`, the upper half of the register cleared.
    pub const fn and(to: Register, mask: u32) -> Self {
        Self::new(0x54, to, Register::R0, 0, mask)
    }

    /// `to ^= mask`, the upper half of the register cleared.
    pub const fn xor(to: Register, mask: u32) -> Self {
        Self::new(0xa4, to, Register::R0, 0, mask)
    }

    /// `to = *(base + offset)`.
    pub const fn load(width: Width, to: Register, base: Register, offset: i16) -> Self {
        Self::new(0x61 | width.bits(), to, base, offset, 0)
    }

    /// `*(base + offset) = value`.
    pub const fn store(width: Width, base: Register, offset: i16, value: u32) -> Self {
        Self::new(0x62 | width.bits(), base, Register::R0, offset, value)
    }

    /// `*(base + offset) = from`.
    pub const fn store_register(width: Width, base: Register, offset: i16, from: Register) -> Self {
        Self::new(0x63 | width.bits(), base, from, offset, 0)
    }

    /// `*(u64 *)base += from`, atomically.
    pub const fn add_to_memory(base: Register, from: Register) -> Self {
        Self::new(0xdb, base, from, 0, 0)
    }

    /// Skips `count` instructions if `a > b`.
    pub const fn skip_if_greater(a: Register, b: Register, count: i16) -> Self {
        Self::new(0x2d, a, b, count, 0)
    }

    /// Skips `count` instructions if `a != b`.
    pub const fn skip_if_different(a: Register, b: Register, count: i16) -> Self {
        Self::new(0x5d, a, b, count, 0)
    }

    /// Skips `count` instructions if the lower half of `a` is not `value`.
    pub const fn skip_unless(a: Register, value: u32, count: i16) -> Self {
        Self::new(0x56, a, Register::R0, count, value)
    }

    /// Calls a helper of the kernel: `R1` to `R5` are lost, `R0` is the answer.
    pub const fn call(helper: u32) -> Self {
        Self::new(0x85, Register::R0, Register::R0, 0, helper)
    }

    /// Ends the program; `R0` is its verdict.
    pub const fn exit() -> Self {
        Self::new(0x95, Register::R0, Register::R0, 0, 0)
    }

    /// `to =` address of a counter.
    pub fn address(to: Register, counter: &Counter) -> [Self; 2] {
        let map = counter.map.as_raw_fd() as u32;
        // BPF_PSEUDO_MAP_VALUE (2) stands in the place of the source register.
        [
            Self::new(0x18, to, Register::R2, 0, map),
            Self::new(0, Register::R0, Register::R0, 0, 0),
        ]
    }
}

/// What kind of program to load (`enum bpf_prog_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// For TC.
    Classifier = 3,
    /// For XDP.
    Xdp = 6,
}

/// Loads a program; the verifier's refusal is the error. `name` is what `bpftool` shows.
pub fn load(kind: Kind, name: &str, instructions: &[Instruction]) -> io::Result<OwnedFd> {
    #[repr(C)]
    #[derive(Default)]
    struct Attributes {
        kind: u32,
        count: u32,
        instructions: u64,
        license: u64,
        log: [u32; 4],
        kernel_version: u32,
        flags: u32,
        name: [u8; 16],
    }
    let mut attributes = Attributes {
        kind: kind as u32,
        count: instructions.len() as u32,
        instructions: instructions.as_ptr() as u64,
        license: c"Dual MIT/GPL".as_ptr() as u64,
        ..Attributes::default()
    };
    // The last byte stays 0.
    for (to, from) in attributes.name[..15].iter_mut().zip(name.bytes()) {
        *to = from;
    }
    // SAFETY: the instructions, of which there are `count`, and the license outlive the call.
    unsafe { bpf_fd(command::PROG_LOAD, &mut attributes) }
}

/// An XDP program on an interface of the calling thread's namespace, until it is dropped. Generic
/// mode: native XDP changes how a veth pair hands packets over.
pub fn attach_xdp(program: &OwnedFd, ifindex: u32) -> io::Result<OwnedFd> {
    let mut attributes = [program.as_raw_fd() as u32, ifindex, XDP, SKB_MODE];
    // SAFETY: nothing here points anywhere.
    unsafe { bpf_fd(command::LINK_CREATE, &mut attributes) }
}

/// A number that programs count up and this process reads: an array map of one.
#[derive(Debug)]
pub struct Counter {
    map: OwnedFd,
}

impl Counter {
    /// Makes one, at 0.
    pub fn new() -> io::Result<Counter> {
        // Type, key size, value size, entries.
        let mut attributes = [ARRAY, 4, 8, 1];
        // SAFETY: nothing here points anywhere.
        let map = unsafe { bpf_fd(command::MAP_CREATE, &mut attributes) }?;
        Ok(Counter { map })
    }

    /// What has been counted so far.
    pub fn value(&self) -> io::Result<u64> {
        #[repr(C)]
        struct Attributes {
            map: u32,
            padding: u32,
            key: u64,
            value: u64,
            flags: u64,
        }
        let (key, mut value) = (0u32, 0u64);
        let mut attributes = Attributes {
            map: self.map.as_raw_fd() as u32,
            padding: 0,
            key: &raw const key as u64,
            value: &raw mut value as u64,
            flags: 0,
        };
        // SAFETY: key and value have the map's sizes and outlive the call.
        unsafe { bpf(command::MAP_LOOKUP_ELEM, &mut attributes) }?;
        Ok(value)
    }
}

/// The `test` part of `union bpf_attr`.
#[repr(C)]
#[derive(Default)]
struct TestRun {
    program: u32,
    verdict: u32,
    size_in: u32,
    size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    context_size_in: u32,
    context_size_out: u32,
    context_in: u64,
    context_out: u64,
    flags: u32,
    cpu: u32,
    batch_size: u32,
    padding: u32,
}

/// Runs an XDP program `repeat` times on a frame, each time as if one had arrived on `ifindex` of
/// the calling thread's namespace; what it passes goes on into the stack. Returns when all have
/// been handed over. The kernel doesn't restore a frame that it uses again.
pub fn live_frames(program: &OwnedFd, frame: &[u8], ifindex: u32, repeat: u32) -> io::Result<()> {
    // struct xdp_md: data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex.
    let context = [0, frame.len() as u32, 0, ifindex, 0, 0];
    let mut run = TestRun {
        program: program.as_raw_fd() as u32,
        size_in: frame.len() as u32,
        data_in: frame.as_ptr() as u64,
        repeat,
        context_size_in: size_of_val(&context) as u32,
        context_in: context.as_ptr() as u64,
        flags: LIVE_FRAMES,
        ..TestRun::default()
    };
    // SAFETY: frame and context have the sizes given, are only read, and outlive the call.
    unsafe { bpf(command::PROG_TEST_RUN, &mut run) }.map(drop)
}

/// What a test run brought.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What the last run returned.
    pub action: i32,
    /// Nanoseconds a run, rounded down.
    pub nanoseconds: u32,
    /// The frame as the last run left it.
    pub frame: Vec<u8>,
}

/// Runs a program `repeat` times over one and the same frame; what it says is to be done with the
/// frame is not done. A TC program finds the frame arrived on `ifindex`, if given, of the calling
/// thread's namespace.
pub fn test_run(
    program: BorrowedFd<'_>,
    frame: &[u8],
    ifindex: Option<u32>,
    repeat: u32,
) -> io::Result<Outcome> {
    let mut context = [0u8; SKB_CONTEXT];
    context[SKB_IFINDEX..].copy_from_slice(&ifindex.unwrap_or(0).to_ne_bytes());
    // Programs may make a link header longer.
    let mut out = vec![0u8; frame.len() + 64];
    let mut run = TestRun {
        program: program.as_raw_fd() as u32,
        size_in: frame.len() as u32,
        data_in: frame.as_ptr() as u64,
        size_out: out.len() as u32,
        data_out: out.as_mut_ptr() as u64,
        repeat,
        context_size_in: ifindex.map_or(0, |_| SKB_CONTEXT as u32),
        context_in: ifindex.map_or(0, |_| context.as_ptr() as u64),
        ..TestRun::default()
    };
    // SAFETY: all three buffers have the sizes given and outlive the call; the kernel writes to
    // `out` alone.
    unsafe { bpf(command::PROG_TEST_RUN, &mut run) }?;
    out.truncate(run.size_out as usize);
    Ok(Outcome {
        action: run.verdict as i32,
        nanoseconds: run.duration,
        frame: out,
    })
}

/// A command that answers with a descriptor.
///
/// # Safety
/// As for [`bpf`].
unsafe fn bpf_fd<A>(command: libc::c_long, attributes: &mut A) -> io::Result<OwnedFd> {
    // SAFETY: the caller's promise.
    let fd = unsafe { bpf(command, attributes) }?;
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// # Safety
/// `A` is laid out as the command's part of `union bpf_attr`, without padding, and what it points
/// to is alive, as large as it says, and writable where the command writes.
unsafe fn bpf<A>(command: libc::c_long, attributes: &mut A) -> io::Result<libc::c_long> {
    // SAFETY: the attributes outlive the call and their size is given; the rest is the caller's
    // promise.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attributes, size_of::<A>()) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}
