//! Devices that tests need beside veth: TUN (no link header), and an interface's offloads.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};

const TUNSETIFF: libc::Ioctl = 0x4004_54ca;
const IFF_TUN: i16 = 1;
const IFF_NO_PI: i16 = 0x1000;
const SIOCETHTOOL: libc::Ioctl = 0x8946;

/// An offload of an interface, by the ethtool command that sets it (`linux/ethtool.h`).
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub enum Offload {
    /// Checksums of what is sent.
    TxChecksum = 0x17,
    /// TCP segmentation.
    Tso = 0x1f,
    /// Software segmentation.
    Gso = 0x24,
}

#[repr(C)]
struct InterfaceRequest {
    name: [u8; 16],
    data: [u8; 24],
}

fn request(name: &str) -> InterfaceRequest {
    let mut request = InterfaceRequest {
        name: [0; 16],
        data: [0; 24],
    };
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    request
}

/// Switches an offload of an interface of the calling thread's namespace.
pub fn set_offload(interface: &str, offload: Offload, on: bool) -> io::Result<()> {
    let value: [u32; 2] = [offload as u32, u32::from(on)];
    let mut request = request(interface);
    request.data[..8].copy_from_slice(&(&raw const value as u64).to_ne_bytes());
    let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
    // SAFETY: the request and the value that it points to outlive the call.
    match unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A TUN device: packets without link header, read and written here.
#[derive(Debug)]
pub struct Tun {
    file: File,
}

impl Tun {
    /// Makes a device of that name in the calling thread's namespace.
    pub fn create(name: &str) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/net/tun")?;
        let mut request = request(name);
        request.data[..2].copy_from_slice(&(IFF_TUN | IFF_NO_PI).to_ne_bytes());
        // SAFETY: the request outlives the call.
        match unsafe { libc::ioctl(file.as_raw_fd(), TUNSETIFF, &raw mut request) } {
            0 => Ok(Tun { file }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Lets a packet arrive on the device.
    pub fn send(&mut self, packet: &[u8]) -> io::Result<()> {
        self.file.write_all(packet)
    }

    /// The next packet that left by the device and that `wanted` accepts.
    pub fn receive(
        &mut self,
        patience: Duration,
        mut wanted: impl FnMut(&[u8]) -> bool,
    ) -> Option<Vec<u8>> {
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            let mut buffer = vec![0; 70_000];
            match self.file.read(&mut buffer) {
                Ok(read) if wanted(&buffer[..read]) => {
                    buffer.truncate(read);
                    return Some(buffer);
                }
                Ok(_) => {}
                Err(_) => std::thread::sleep(Duration::from_millis(2)),
            }
        }
        None
    }
}
