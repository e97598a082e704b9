//! Helpers of this room's tests: a thread in a fresh network namespace, and the means to change it.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::thread;

use nix::sched::{CloneFlags, unshare};
use nix::unistd::geteuid;

/// Runs `test` on a thread of its own in a fresh network namespace, which goes with the thread.
pub fn in_namespace(test: impl FnOnce() + Send + 'static) {
    assert!(
        geteuid().is_root(),
        "this test makes network namespaces and must run as root: use `cargo xtask test`"
    );
    let thread = thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET).expect("a fresh network namespace");
        test();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Runs a program in the calling thread's namespace; it must succeed.
pub fn command<'a>(program: &str, arguments: impl IntoIterator<Item = &'a str>) {
    let mut command = Command::new(program);
    let output = command
        .args(arguments)
        .output()
        .unwrap_or_else(|e| panic!("{program} can't be run ({e}): is it installed?"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
}

/// Runs a program with arguments that are split at spaces.
pub fn run(program: &str, arguments: &str) {
    command(program, arguments.split_whitespace());
}

/// `ip ...`
pub fn ip(arguments: &str) {
    run("ip", arguments);
}

/// Runs `nft` on a ruleset.
pub fn nft(ruleset: &str) {
    command("nft", [ruleset]);
}

/// Writes a number below `/proc/sys/net`.
pub fn sysctl(path: &str, value: u32) {
    let path = format!("/proc/sys/net/{path}");
    fs::write(&path, value.to_string()).unwrap_or_else(|e| panic!("{path}: {e}"));
}

/// Makes a TUN device, with a hardware type of its own where one is given; it lasts as long as the
/// file.
pub fn tun(name: &str, arphrd: Option<u16>) -> File {
    const TUNSETIFF: libc::Ioctl = 0x4004_54ca;
    const TUNSETLINK: libc::Ioctl = 0x4004_54cd;
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/net/tun")
        .expect("TUN devices");
    // SAFETY: `ifreq` is plain data, valid when zero.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let name = CString::new(name).unwrap();
    for (to, from) in request.ifr_name.iter_mut().zip(name.as_bytes()) {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as i16;
    // SAFETY: TUNSETIFF reads and writes an `ifreq`, and `request` is one.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), TUNSETIFF, &mut request) };
    assert_eq!(result, 0, "TUNSETIFF: {}", std::io::Error::last_os_error());
    if let Some(arphrd) = arphrd {
        // SAFETY: TUNSETLINK takes the number itself as its argument.
        let result = unsafe { libc::ioctl(file.as_raw_fd(), TUNSETLINK, arphrd as libc::c_ulong) };
        assert_eq!(result, 0, "TUNSETLINK: {}", std::io::Error::last_os_error());
    }
    file
}
