//! The sysctls that forwarding depends on, from `/proc/sys/net`, which shows the namespace of the
//! thread that looks.

use super::{Error, links};
use std::{fs, io};

/// Whether `net.ipv6.conf.all.forwarding` is on; a host without IPv6 forwards none.
pub fn ipv6_forwarding() -> Result<bool, Error> {
    let value = number("/proc/sys/net/ipv6/conf/all/forwarding")?;
    Ok(value.is_some_and(|value| value != 0))
}

/// Whether `net.ipv4.ip_forward_update_priority` is on; a host without the setting does it.
pub fn update_priority() -> Result<bool, Error> {
    let value = number("/proc/sys/net/ipv4/ip_forward_update_priority")?;
    Ok(value.is_none_or(|value| value != 0))
}

/// Whether IPv6 is off on a port (`net.ipv6.conf.PORT.disable_ipv6`); so it is where the port has
/// none.
pub fn ipv6_off(name: &str) -> Result<bool, Error> {
    check_name(name)?;
    match number(&format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"))? {
        Some(value) => Ok(value != 0),
        None => links::link(name).map(|_| true),
    }
}

/// Whether IPv4 packets that arrive on a port are forwarded (`net.ipv4.conf.PORT.forwarding`).
pub fn ipv4_forwarding(name: &str) -> Result<bool, Error> {
    check_name(name)?;
    let value = number(&format!("/proc/sys/net/ipv4/conf/{name}/forwarding"))?;
    Ok(value.is_some_and(|value| value != 0))
}

/// Effective `rp_filter` of a port for IPv4, the larger of its own and `all` (`IN_DEV_RPFILTER`):
/// 0 off, 1 strict, 2 loose.
pub fn rp_filter(name: &str) -> Result<u8, Error> {
    check_name(name)?;
    let own = match number(&format!("/proc/sys/net/ipv4/conf/{name}/rp_filter"))? {
        Some(own) => own,
        // No such interface, or one without IPv4 (its MTU is below 68), which has no setting.
        None => {
            links::link(name)?;
            0
        }
    };
    let all = number("/proc/sys/net/ipv4/conf/all/rp_filter")?.unwrap_or(0);
    // The kernel takes any number and treats all but 0 and 1 as loose.
    Ok(own.max(all).clamp(0, 2) as u8)
}

/// The directory has the interface's name as it is, dots included. What could climb out of the
/// directory, or is no interface's entry in it, is no name of an interface either.
fn check_name(name: &str) -> Result<(), Error> {
    if name.contains('/') || ["", ".", "..", "all", "default"].contains(&name) {
        links::link(name)?;
    }
    Ok(())
}

/// The number in a file, or `None` where there is no such file.
fn number(path: &str) -> Result<Option<i64>, Error> {
    match fs::read_to_string(path) {
        Ok(text) => match text.trim().parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(Error::NotANumber {
                path: path.to_owned(),
                text,
            }),
        },
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::Proc {
            path: path.to_owned(),
            source,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::testing::{in_namespace, ip, sysctl};

    #[test]
    fn rp_filter_is_the_larger_of_the_ports_and_all() {
        in_namespace(|| {
            ip("link add v0 type veth peer name v1");
            for (all, own, effective) in [
                (0, 0, 0),
                (0, 1, 1),
                (0, 2, 2),
                (1, 0, 1),
                (1, 2, 2),
                (2, 1, 2),
            ] {
                sysctl("ipv4/conf/all/rp_filter", all);
                sysctl("ipv4/conf/v0/rp_filter", own);
                assert_eq!(rp_filter("v0").unwrap(), effective, "all {all}, own {own}");
            }
            sysctl("ipv4/conf/all/rp_filter", 0);
            sysctl("ipv4/conf/v0/rp_filter", 1);
            sysctl("ipv4/conf/v1/rp_filter", 0);
            assert_eq!(rp_filter("v1").unwrap(), 0, "another port's is not asked");
        });
    }

    #[test]
    fn odd_names_are_found() {
        in_namespace(|| {
            for name in ["ib0.8001", "a..b", "-x", "ä@*", "v\\0"] {
                ip(&format!("link add name {name} type veth peer name p"));
                sysctl("ipv4/conf/all/rp_filter", 0);
                sysctl(&format!("ipv4/conf/{name}/rp_filter"), 1);
                assert_eq!(rp_filter(name).unwrap(), 1, "{name}");
                ip("link del p");
            }
        });
    }

    #[test]
    fn what_is_no_interface_is_an_error() {
        in_namespace(|| {
            sysctl("ipv4/conf/all/rp_filter", 1);
            for name in ["ib0", "all", "default", "", ".", "..", "../all", "lo/../lo"] {
                for error in [rp_filter(name).unwrap_err(), ipv6_off(name).unwrap_err()] {
                    assert!(matches!(error, Error::NoSuchLink { .. }), "{name}: {error}");
                    assert_eq!(error.exit_code(), 2);
                }
            }
        });
    }

    #[test]
    fn a_port_without_ipv4_has_the_setting_of_all() {
        in_namespace(|| {
            sysctl("ipv4/conf/all/rp_filter", 1);
            sysctl("ipv4/conf/lo/rp_filter", 2);
            assert_eq!(rp_filter("lo").unwrap(), 2);
            ip("link set lo mtu 67");
            assert_eq!(rp_filter("lo").unwrap(), 1);
        });
    }

    #[test]
    fn ipv4_forwarding_is_the_ports() {
        in_namespace(|| {
            ip("link add v0 type veth peer name v1");
            sysctl("ipv4/conf/v0/forwarding", 1);
            sysctl("ipv4/conf/v1/forwarding", 0);
            assert!(ipv4_forwarding("v0").unwrap());
            assert!(!ipv4_forwarding("v1").unwrap());
        });
    }

    #[test]
    fn ipv6_is_off_where_it_is_disabled_or_missing() {
        in_namespace(|| {
            ip("link add v0 type veth peer name v1");
            assert!(!ipv6_off("v0").unwrap());
            sysctl("ipv6/conf/v0/disable_ipv6", 1);
            assert!(ipv6_off("v0").unwrap());
            assert!(!ipv6_off("v1").unwrap());
            ip("link set v1 mtu 1279");
            assert!(ipv6_off("v1").unwrap(), "an MTU below 1280 ends IPv6");
        });
    }

    #[test]
    fn ipv6_forwarding_is_that_of_all() {
        in_namespace(|| {
            ip("link add v0 type veth peer name v1");
            sysctl("ipv6/conf/all/forwarding", 0);
            sysctl("ipv6/conf/v0/forwarding", 1);
            assert!(!ipv6_forwarding().unwrap());
            sysctl("ipv6/conf/all/forwarding", 1);
            assert!(ipv6_forwarding().unwrap());
        });
    }
}
