//! Notice of changes to the host, from the kernel's rtnetlink multicast groups: something has
//! changed, read it again. What has changed is not said, so nothing can be missed or misread.

use super::Error;
use netlink_sys::{Socket, SocketAddr};
use std::io;
use std::os::fd::AsFd;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Links, addresses, routes and rules of both families, and the sysctls per interface and for all
/// (netconf: forwarding, rp_filter).
const GROUPS: [u32; 9] = [
    libc::RTNLGRP_LINK,
    libc::RTNLGRP_IPV4_IFADDR,
    libc::RTNLGRP_IPV6_IFADDR,
    libc::RTNLGRP_IPV4_ROUTE,
    libc::RTNLGRP_IPV6_ROUTE,
    libc::RTNLGRP_IPV4_RULE,
    libc::RTNLGRP_IPV6_RULE,
    libc::RTNLGRP_IPV4_NETCONF,
    libc::RTNLGRP_IPV6_NETCONF,
];
/// Notices taken for one change at most, so that a storm of them can't hold up the caller.
const DRAIN: usize = 4096;

/// Tells that something has changed since it was made, or since it last told.
///
/// Netfilter, xfrm policies and programs on the ports have no part in it: those have to be looked
/// at by the clock.
pub struct Changes {
    socket: Socket,
}

impl Changes {
    /// Listens in the network namespace of the calling thread, from now on; make it before reading
    /// the host. Needs no runtime.
    pub fn new() -> Result<Changes, Error> {
        let listen = || {
            let mut socket = Socket::new(libc::NETLINK_ROUTE as isize)?;
            socket.set_non_blocking(true)?;
            socket.bind(&SocketAddr::new(0, 0))?;
            for group in GROUPS {
                socket.add_membership(group)?;
            }
            Ok(socket)
        };
        let socket = listen().map_err(failed)?;
        Ok(Changes { socket })
    }

    /// Waits until something has changed. All that is queued by then is one change; a queue that
    /// overflowed is one too. Dropping the future loses nothing.
    ///
    /// # Panics
    /// Outside a tokio runtime with I/O enabled.
    pub async fn next(&mut self) -> Result<(), Error> {
        // SAFETY: the socket is open, and `self` keeps it so beyond the registration, which ends
        // with this call.
        let socket =
            unsafe { AsyncFd::register_with_interest(self.socket.as_fd(), Interest::READABLE) };
        let socket = socket.map_err(|e| failed(e.into()))?;
        loop {
            let mut ready = socket.readable().await.map_err(failed)?;
            if self.drain().map_err(failed)? {
                return Ok(());
            }
            ready.clear_ready();
        }
    }

    /// Takes what is queued; whether there was anything.
    fn drain(&self) -> io::Result<bool> {
        let mut changed = false;
        for _ in 0..DRAIN {
            // The message itself does not matter: the rest of it is cut off.
            let mut buffer = [0; 16];
            match self.socket.recv(&mut &mut buffer[..], 0) {
                Ok(_) => changed = true,
                Err(e) => match e.raw_os_error() {
                    Some(libc::ENOBUFS) => changed = true,
                    Some(libc::EINTR) => {}
                    Some(libc::EAGAIN) => break,
                    _ => return Err(e),
                },
            }
        }
        Ok(changed)
    }
}

fn failed(source: io::Error) -> Error {
    Error::Netlink {
        what: "the changes of the host",
        source,
        text: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::testing::{in_namespace, ip, sysctl};
    use std::time::Duration;
    use tokio::runtime::{Builder, Runtime};

    /// Whether something changes within `wait`.
    fn changes(runtime: &Runtime, changes: &mut Changes, wait: Duration) -> bool {
        runtime.block_on(async {
            match tokio::time::timeout(wait, changes.next()).await {
                Ok(result) => {
                    result.unwrap();
                    true
                }
                Err(_) => false,
            }
        })
    }

    const SOON: Duration = Duration::from_secs(5);
    const QUIET: Duration = Duration::from_millis(100);

    /// A namespace in which nothing happens by itself (IPv6 on the veths would: router
    /// solicitations, duplicate address detection).
    fn in_quiet_namespace(test: impl FnOnce(&Runtime) + Send + 'static) {
        in_namespace(|| {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            ip("link set lo up");
            ip("link add v0 type veth peer name v1");
            for link in ["v0", "v1"] {
                sysctl(&format!("ipv6/conf/{link}/accept_dad"), 0);
                sysctl(&format!("ipv6/conf/{link}/addr_gen_mode"), 1);
                sysctl(&format!("ipv6/conf/{link}/accept_ra"), 0);
                ip(&format!("link set {link} up"));
            }
            ip("addr add 10.1.0.1/24 dev v0");
            // The carrier's notice comes late.
            let mut settling = Changes::new().unwrap();
            while changes(&runtime, &mut settling, Duration::from_millis(500)) {}
            test(&runtime);
        });
    }

    #[test]
    fn nothing_changes_by_itself() {
        in_quiet_namespace(|runtime| {
            let mut watch = Changes::new().unwrap();
            assert!(!changes(runtime, &mut watch, Duration::from_secs(1)));
        });
    }

    #[test]
    fn every_kind_of_change_is_noticed_once() {
        in_quiet_namespace(|runtime| {
            let mut watch = Changes::new().unwrap();
            let commands = [
                "addr add 10.1.0.5/24 dev v0",
                "addr add fd00::5/64 dev v0 nodad",
                "addr del 10.1.0.5/24 dev v0",
                "route add 10.9.0.0/24 via 10.1.0.2",
                "route change 10.9.0.0/24 via 10.1.0.2 mtu 1400",
                "-6 route add fd09::/64 via fd00::9",
                "rule add pref 100 fwmark 1 lookup 50",
                "-6 rule add pref 100 fwmark 1 lookup 50",
                "link set v0 mtu 1400",
                "link set v0 down",
                "link set v0 name w0",
                "link del w0",
            ];
            for command in commands {
                ip(command);
                assert!(changes(runtime, &mut watch, SOON), "{command}");
                while changes(runtime, &mut watch, QUIET) {}
            }
        });
    }

    #[test]
    fn sysctls_that_forwarding_depends_on_are_noticed() {
        in_quiet_namespace(|runtime| {
            let mut watch = Changes::new().unwrap();
            let names = [
                "ipv4/conf/v0/rp_filter",
                "ipv4/conf/all/rp_filter",
                "ipv4/conf/v0/forwarding",
                "ipv6/conf/v0/forwarding",
                "ipv6/conf/all/forwarding",
            ];
            for name in names {
                let path = format!("/proc/sys/net/{name}");
                let old: u32 = std::fs::read_to_string(path)
                    .unwrap()
                    .trim()
                    .parse()
                    .unwrap();
                sysctl(name, old ^ 1);
                assert!(changes(runtime, &mut watch, SOON), "{name}");
                while changes(runtime, &mut watch, QUIET) {}
            }
        });
    }

    #[test]
    fn what_happens_before_it_is_waited_for_is_one_change() {
        in_quiet_namespace(|runtime| {
            let mut watch = Changes::new().unwrap();
            for host in 10..20 {
                ip(&format!("addr add 10.1.0.{host}/24 dev v0"));
            }
            assert!(changes(runtime, &mut watch, SOON));
            assert!(!changes(runtime, &mut watch, Duration::from_millis(500)));
        });
    }

    #[test]
    fn an_overflow_is_a_change_and_no_error() {
        in_quiet_namespace(|runtime| {
            let mut watch = Changes::new().unwrap();
            // The kernel takes the smallest size that it allows.
            watch.socket.set_rx_buf_sz(1).unwrap();
            for host in 10..60 {
                ip(&format!("addr add 10.1.0.{host}/24 dev v0"));
            }
            assert!(changes(runtime, &mut watch, SOON));
            assert!(!changes(runtime, &mut watch, Duration::from_millis(500)));
            ip("addr add 10.1.0.99/24 dev v0");
            assert!(changes(runtime, &mut watch, SOON));
        });
    }

    #[test]
    fn another_namespace_is_not_heard() {
        in_quiet_namespace(|runtime| {
            let mut watch = Changes::new().unwrap();
            in_namespace(|| ip("link set lo up"));
            assert!(!changes(runtime, &mut watch, Duration::from_millis(500)));
        });
    }
}
