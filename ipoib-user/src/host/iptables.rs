//! Tables of the legacy iptables (x_tables), by the lists of those that the namespace has. The nft
//! variant's are nftables chains and found there.

use super::{Error, Obstacle};
use ipoib_ebpf::wire::Family;
use std::{fs, io};

/// The tables of both families. Whether they hold more than the accepting policies they are made
/// with, the list does not tell.
pub(super) fn obstacles() -> Result<Vec<Obstacle>, Error> {
    let lists = [
        (Family::Ipv4, "/proc/thread-self/net/ip_tables_names"),
        (Family::Ipv6, "/proc/thread-self/net/ip6_tables_names"),
    ];
    let mut found = Vec::new();
    for (family, path) in lists {
        let tables = match fs::read_to_string(path) {
            Ok(text) => text.split_whitespace().map(str::to_owned).collect(),
            // The kernel has no legacy iptables, or its module is not loaded.
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(source) => {
                return Err(Error::Proc {
                    path: path.to_owned(),
                    source,
                });
            }
        };
        if !tables.is_empty() {
            found.push(Obstacle::IptablesTables { family, tables });
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::testing::{in_namespace, run};

    #[test]
    fn tables_are_found_once_they_are_loaded() {
        in_namespace(|| {
            assert_eq!(obstacles().unwrap(), []);
            run("iptables-legacy", "-A FORWARD -j ACCEPT");
            run("iptables-legacy", "-t nat -A POSTROUTING -j MASQUERADE");
            let found = obstacles().unwrap();
            let [Obstacle::IptablesTables { family, tables }] = &found[..] else {
                panic!("{found:?}");
            };
            assert_eq!(*family, Family::Ipv4);
            let mut tables = tables.clone();
            tables.sort();
            assert_eq!(tables, ["filter", "nat"]);
        });
    }
}
