//! Tables of the legacy iptables (x_tables). The nft variant's are nftables chains and found there.
//!
//! A table exists from the first time that anybody lists it, and one that is built into the kernel
//! never goes. So a table counts only if it holds more than it is made with: the built-in chains,
//! without rules, accepting (`ipt_alloc_initial_table()`).

use super::netlink::{bytes_at, u16_at, u32_at};
use super::{Error, Obstacle};
use ipoib_ebpf::wire::Family;
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::{fs, io};

/// Room for a table's name, with its NUL (`XT_TABLE_MAXNAMELEN`).
const NAME_LEN: usize = 32;
/// `IPT_SO_GET_INFO`, and the same for IPv6.
const GET_INFO: i32 = 64;
/// `IPT_SO_GET_ENTRIES`, and the same for IPv6.
const GET_ENTRIES: i32 = 65;
/// `struct ipt_getinfo`: name, valid hooks, an entry and an underflow per hook, number of entries,
/// their size.
const INFO_LEN: usize = 84;
/// `struct ipt_get_entries`: name, size, padding, and then the entries.
const ENTRIES_AT: usize = 40;
/// `NF_INET_NUMHOOKS`.
const HOOKS: usize = 5;
/// `struct xt_entry_target`, in front of a standard target's verdict.
const TARGET_LEN: usize = 32;
/// How a standard target says NF_ACCEPT.
const ACCEPT: i32 = -2;

/// The tables of both families that hold something.
pub(super) fn obstacles() -> Result<Vec<Obstacle>, Error> {
    let lists = [
        (Family::Ipv4, "/proc/thread-self/net/ip_tables_names"),
        (Family::Ipv6, "/proc/thread-self/net/ip6_tables_names"),
    ];
    let mut found = Vec::new();
    for (family, path) in lists {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            // The kernel has no legacy iptables, or its module is not loaded.
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(source) => {
                return Err(Error::Proc {
                    path: path.to_owned(),
                    source,
                });
            }
        };
        let names = text.split_whitespace();
        let tables: Vec<String> = names
            .filter(|table| !is_pristine(family, table).unwrap_or(false))
            .map(str::to_owned)
            .collect();
        if !tables.is_empty() {
            found.push(Obstacle::IptablesTables { family, tables });
        }
    }
    Ok(found)
}

/// Whether a table is as it was made. `None` where the kernel won't show it, or it changed while we
/// looked.
fn is_pristine(family: Family, table: &str) -> Option<bool> {
    let address_family = match family {
        Family::Ipv4 => AddressFamily::Inet,
        Family::Ipv6 => AddressFamily::Inet6,
    };
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket = socket(address_family, SockType::Raw, flags, SockProtocol::Raw).ok()?;
    let mut info = vec![0; INFO_LEN];
    info.get_mut(..NAME_LEN - 1)?
        .get_mut(..table.len())?
        .copy_from_slice(table.as_bytes());
    let mut entries = info[..NAME_LEN].to_vec();
    get(&socket, family, GET_INFO, &mut info)?;
    let size = u32_at(&info, 80)?;
    entries.extend(size.to_ne_bytes());
    entries.resize(ENTRIES_AT + size as usize, 0);
    get(&socket, family, GET_ENTRIES, &mut entries)?;
    only_accepts(family, &info, &entries[ENTRIES_AT..])
}

/// Whether the entries are one accepting policy per built-in chain, and the one that ends a table.
fn only_accepts(family: Family, info: &[u8], entries: &[u8]) -> Option<bool> {
    let hooks = u32_at(info, 32)?;
    if u32_at(info, 76)? != hooks.count_ones() + 1 {
        return Some(false);
    }
    // An entry begins with what it matches: `struct ipt_ip` or `struct ip6t_ip6`.
    let target_offset_at = match family {
        Family::Ipv4 => 88,
        Family::Ipv6 => 140,
    };
    for hook in (0..HOOKS).filter(|hook| hooks & 1 << hook != 0) {
        let policy = u32_at(info, 56 + 4 * hook)? as usize;
        let target = policy
            .saturating_add(u16_at(entries, policy.saturating_add(target_offset_at))? as usize);
        let is_standard = *entries.get(target.saturating_add(2))? == 0;
        let verdict =
            bytes_at(entries, target.saturating_add(TARGET_LEN)).map(i32::from_ne_bytes)?;
        if !is_standard || verdict != ACCEPT {
            return Some(false);
        }
    }
    Some(true)
}

/// getsockopt(2) on an option that reads its question from the buffer and fills it.
fn get(socket: &OwnedFd, family: Family, option: i32, buffer: &mut [u8]) -> Option<()> {
    let level = match family {
        Family::Ipv4 => libc::IPPROTO_IP,
        Family::Ipv6 => libc::IPPROTO_IPV6,
    };
    let mut len = buffer.len() as libc::socklen_t;
    // SAFETY: the kernel reads and writes at most `len` bytes of `buffer`, which has that many.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            option,
            buffer.as_mut_ptr().cast(),
            &mut len,
        )
    };
    (result == 0 && len as usize == buffer.len()).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::testing::{in_namespace, run};

    /// The tables that are found, sorted; those of IPv6 with a 6 in front.
    fn tables() -> Vec<String> {
        let mut found = Vec::new();
        for obstacle in obstacles().unwrap() {
            let Obstacle::IptablesTables { family, tables } = obstacle else {
                panic!("{obstacle}");
            };
            let mark = if family == Family::Ipv6 { "6 " } else { "" };
            found.extend(tables.iter().map(|table| format!("{mark}{table}")));
        }
        found.sort();
        found
    }

    fn iptables(arguments: &str) {
        run("iptables-legacy", arguments);
    }

    #[test]
    fn tables_are_found_that_hold_something() {
        in_namespace(|| {
            assert_eq!(tables(), [""; 0]);
            for table in ["filter", "nat", "mangle", "raw"] {
                iptables(&format!("-t {table} -L -n"));
            }
            let names = fs::read_to_string("/proc/thread-self/net/ip_tables_names").unwrap();
            assert_eq!(names.lines().count(), 4, "they exist now");
            assert_eq!(tables(), [""; 0], "empty and accepting");
            iptables("-A FORWARD -p tcp -j ACCEPT");
            assert_eq!(tables(), ["filter"]);
            iptables("-t nat -A POSTROUTING -j MASQUERADE");
            assert_eq!(tables(), ["filter", "nat"]);
            iptables("-F");
            iptables("-t nat -F");
            assert_eq!(tables(), [""; 0], "flushed");
            iptables("-P FORWARD DROP");
            assert_eq!(tables(), ["filter"]);
            iptables("-P FORWARD ACCEPT");
            iptables("-t raw -N sub");
            assert_eq!(tables(), ["raw"], "a chain of somebody's own");
            run("ip6tables-legacy", "-L -n");
            assert_eq!(tables(), ["raw"]);
            run("ip6tables-legacy", "-A FORWARD -j DROP");
            assert_eq!(tables(), ["6 filter", "raw"]);
        });
    }

    /// What the kernel says of a table that has the hooks 1 to 3 and the given policies.
    fn made(family: Family, policies: [i32; 3]) -> (Vec<u8>, Vec<u8>) {
        let (entry_len, target_offset_at) = match family {
            Family::Ipv4 => (112, 88),
            Family::Ipv6 => (168, 140),
        };
        let mut info = vec![0; INFO_LEN];
        info[32..36].copy_from_slice(&0b1110u32.to_ne_bytes());
        info[76..80].copy_from_slice(&4u32.to_ne_bytes());
        let mut entries = Vec::new();
        for (hook, policy) in (1..).zip(policies) {
            let at = entries.len();
            info[56 + 4 * hook..][..4].copy_from_slice(&(at as u32).to_ne_bytes());
            entries.resize(at + entry_len + TARGET_LEN + 8, 0);
            entries[at + target_offset_at..][..2]
                .copy_from_slice(&(entry_len as u16).to_ne_bytes());
            entries[at + entry_len + TARGET_LEN..][..4].copy_from_slice(&policy.to_ne_bytes());
        }
        (info, entries)
    }

    #[test]
    fn both_families_layouts_are_read() {
        for family in [Family::Ipv4, Family::Ipv6] {
            let (info, entries) = made(family, [ACCEPT; 3]);
            assert_eq!(only_accepts(family, &info, &entries), Some(true));
            let (info, entries) = made(family, [ACCEPT, -1, ACCEPT]);
            assert_eq!(only_accepts(family, &info, &entries), Some(false));
        }
    }

    #[test]
    fn what_is_cut_or_lies_is_never_pristine() {
        let (info, entries) = made(Family::Ipv4, [ACCEPT; 3]);
        let needed = entries.len() - 4;
        for len in 0..needed {
            assert_eq!(only_accepts(Family::Ipv4, &info, &entries[..len]), None);
        }
        for len in 0..80 {
            let read = only_accepts(Family::Ipv4, &info[..len], &entries);
            assert_ne!(read, Some(true), "{len} bytes");
        }
        let mut lying = info.clone();
        lying[60..64].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(only_accepts(Family::Ipv4, &lying, &entries), None);
    }
}
