//! A TC program of a few instructions that counts what reaches it and lets it go on: the witness of
//! what our own program handed on. It leaves out link-layer multicast and broadcast, which hosts
//! send by themselves. Assembled here, so that it shares nothing with ours.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const MAP_CREATE: libc::c_long = 0;
const MAP_LOOKUP: libc::c_long = 1;
const PROG_LOAD: libc::c_long = 5;
const OBJ_PIN: libc::c_long = 6;
const LINK_CREATE: libc::c_long = 28;
const MAP_TYPE_ARRAY: u32 = 2;
const PROG_TYPE_SCHED_CLS: u32 = 3;
const TCX_INGRESS: u32 = 46;
/// `PACKET_BROADCAST` and `PACKET_MULTICAST` of `linux/if_packet.h`.
const BROADCAST: i32 = 1;
const MULTICAST: i32 = 2;

/// A counting program on a port's tcx ingress, attached until it is dropped.
#[derive(Debug)]
pub struct Witness {
    map: OwnedFd,
    program: OwnedFd,
    _link: Option<OwnedFd>,
}

impl Witness {
    /// Loads the program and attaches it behind all others on the tcx ingress of `ifindex`.
    pub fn attach(ifindex: u32) -> io::Result<Self> {
        let mut witness = Self::load()?;
        let mut attributes = [0u32; 16];
        attributes[0] = witness.program.as_raw_fd() as u32;
        attributes[1] = ifindex;
        attributes[2] = TCX_INGRESS;
        witness._link = Some(bpf(LINK_CREATE, &mut attributes)?);
        Ok(witness)
    }

    /// Loads the program without attaching it.
    pub fn load() -> io::Result<Self> {
        let mut attributes = [0u32; 16];
        // An array of one 8-byte value.
        attributes[..4].copy_from_slice(&[MAP_TYPE_ARRAY, 4, 8, 1]);
        let map = bpf(MAP_CREATE, &mut attributes)?;
        let instructions: [u64; 14] = [
            instruction(0x61, 2, 1, 4, 0),               // r2 = skb->pkt_type
            instruction(0x15, 2, 0, 10, BROADCAST),      // if r2 == BROADCAST go to the end
            instruction(0x15, 2, 0, 9, MULTICAST),       // if r2 == MULTICAST go to the end
            instruction(0x62, 10, 0, -4, 0),             // *(u32 *)(r10 - 4) = 0
            instruction(0xbf, 2, 10, 0, 0),              // r2 = r10
            instruction(0x07, 2, 0, 0, -4),              // r2 += -4
            instruction(0x18, 1, 1, 0, map.as_raw_fd()), // r1 = map
            0,                                           // (its second half)
            instruction(0x85, 0, 0, 0, 1),               // r0 = map_lookup_elem(r1, r2)
            instruction(0x15, 0, 0, 2, 0),               // if r0 == NULL go to the end
            instruction(0xb7, 1, 0, 0, 1),               // r1 = 1
            instruction(0xdb, 0, 1, 0, 0),               // *(u64 *)r0 += r1, atomically
            instruction(0xb7, 0, 0, 0, -1),              // r0 = TC_ACT_UNSPEC
            instruction(0x95, 0, 0, 0, 0),               // exit
        ];
        let program = load_program(PROG_TYPE_SCHED_CLS, &instructions)?;
        Ok(Witness {
            map,
            program,
            _link: None,
        })
    }

    /// Pins the program, for `tc` to attach it.
    pub fn pin(&self, path: &str) -> io::Result<()> {
        let path = CString::new(path)?;
        let mut attributes = [0u32; 16];
        attributes[..2].copy_from_slice(&split(path.as_ptr() as u64));
        attributes[2] = self.program.as_raw_fd() as u32;
        // SAFETY: the path and the attributes outlive the call.
        let result = unsafe {
            libc::syscall(
                libc::SYS_bpf,
                OBJ_PIN,
                attributes.as_mut_ptr(),
                size_of_val(&attributes),
            )
        };
        if result == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// Packets that have reached the program.
    pub fn packets(&self) -> u64 {
        let (key, mut value) = (0u32, 0u64);
        let mut attributes = [0u32; 16];
        attributes[0] = self.map.as_raw_fd() as u32;
        attributes[2..4].copy_from_slice(&split(&raw const key as u64));
        attributes[4..6].copy_from_slice(&split(&raw mut value as u64));
        // SAFETY: key and value outlive the call and have the map's sizes.
        let result = unsafe {
            libc::syscall(
                libc::SYS_bpf,
                MAP_LOOKUP,
                attributes.as_mut_ptr(),
                size_of_val(&attributes),
            )
        };
        assert_eq!(
            result,
            0,
            "reading the witness: {}",
            io::Error::last_os_error()
        );
        value
    }
}

fn instruction(code: u8, to: u8, from: u8, offset: i16, immediate: i32) -> u64 {
    u64::from(code)
        | u64::from(from << 4 | to) << 8
        | u64::from(offset as u16) << 16
        | u64::from(immediate as u32) << 32
}

fn load_program(kind: u32, instructions: &[u64]) -> io::Result<OwnedFd> {
    let license = c"GPL";
    let mut attributes = [0u32; 16];
    attributes[0] = kind;
    attributes[1] = instructions.len() as u32;
    attributes[2..4].copy_from_slice(&split(instructions.as_ptr() as u64));
    attributes[4..6].copy_from_slice(&split(license.as_ptr() as u64));
    // prog_name
    attributes[12..14]
        .copy_from_slice(&[u32::from_ne_bytes(*b"witn"), u32::from_ne_bytes(*b"ess\0")]);
    bpf(PROG_LOAD, &mut attributes)
}

fn split(pointer: u64) -> [u32; 2] {
    [pointer as u32, (pointer >> 32) as u32]
}

/// A bpf command that answers with a descriptor.
fn bpf(command: libc::c_long, attributes: &mut [u32; 16]) -> io::Result<OwnedFd> {
    // SAFETY: the attributes outlive the call, their size is given, and what they point to is alive
    // in the callers.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            attributes.as_mut_ptr(),
            size_of_val(attributes),
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

const XDP: u32 = 37;
const PROG_TYPE_XDP: u32 = 6;
/// `XDP_FLAGS_SKB_MODE` and `XDP_FLAGS_DRV_MODE` of `linux/if_link.h`.
const SKB_MODE: u32 = 1 << 1;
const DRV_MODE: u32 = 1 << 2;

/// Attaches an XDP program that passes everything, by the driver or by the kernel's generic way,
/// until the descriptor is dropped. The interface is one of the calling thread's namespace.
pub fn attach_xdp(ifindex: u32, native: bool) -> io::Result<OwnedFd> {
    let instructions: [u64; 2] = [
        instruction(0xb7, 0, 0, 0, 2), // r0 = XDP_PASS
        instruction(0x95, 0, 0, 0, 0), // exit
    ];
    let program = load_program(PROG_TYPE_XDP, &instructions)?;
    let mut attributes = [0u32; 16];
    attributes[0] = program.as_raw_fd() as u32;
    attributes[1] = ifindex;
    attributes[2] = XDP;
    attributes[3] = if native { DRV_MODE } else { SKB_MODE };
    bpf(LINK_CREATE, &mut attributes)
}
