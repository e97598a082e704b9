//! InfiniBand for tests, in the VM of `cargo xtask lab`: two virtual HCAs under the kernel's own
//! ib_ipoib driver, both loaded afresh for each test, and a gateway over them.

use crate::gateway::{FabricLink, Gateway, Side, eventually};
use ipoib_user::netns::Namespace;
use nix::errno::Errno;
use nix::kmod::{DeleteModuleFlags, ModuleInitFlags, delete_module, finit_module};
use nix::net::if_::if_nametoindex;
use std::env;
use std::ffi::CString;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::Duration;

/// A partition that the virtual HCAs are members of, beside the default one.
pub const PKEY: u16 = 0x8001;

/// Deeper queues than usual: a receiver that is not scheduled for a while loses nothing. Each receive
/// buffer of connected mode is 68 KB, whether the mode is used or not.
const DRIVER: &str = "recv_queue_size=512 send_queue_size=512";

/// How the driver sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Unreliable datagrams (RFC 4391).
    Datagram,
    /// Reliable connections (RFC 4755).
    Connected,
}

/// A fabric to make.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Parameters of the module vhca, such as `mtu=4096 csum=1`.
    pub vhca: &'static str,
    /// The driver's mode, on both ends.
    pub mode: Mode,
    /// MTU to set on both ends, or the driver's own.
    pub mtu: Option<u32>,
    /// Whether the ends are children of the HCAs' interfaces, in the partition [`PKEY`].
    pub child: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Setup {
            vhca: "",
            mode: Mode::Datagram,
            mtu: None,
            child: false,
        }
    }
}

/// The virtual HCAs and the driver, loaded; one test at a time has them.
#[derive(Debug)]
pub struct Lab {
    _one: MutexGuard<'static, ()>,
}

impl Lab {
    /// Loads both modules afresh: interfaces ib0 and ib1, down, in the first namespace.
    pub fn load(vhca: &str) -> Lab {
        static ONE: Mutex<()> = Mutex::new(());
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        rest();
        for module in ["ib_ipoib", "vhca"] {
            unload(module);
        }
        load("IPOIB_LAB_VHCA", vhca);
        load("IPOIB_LAB_DRIVER", DRIVER);
        eventually("the driver makes ib0 and ib1", || {
            ["ib0", "ib1"]
                .iter()
                .all(|name| if_nametoindex(*name).is_ok())
        });
        Lab { _one: one }
    }

    /// Loads the modules and builds a gateway over them, with permanent neighbours.
    pub fn gateway(setup: Setup) -> (Lab, Gateway) {
        let lab = Lab::load(setup.vhca);
        if setup.child {
            for (parent, renamed) in [("ib0", "parent0"), ("ib1", "parent1")] {
                ip(&["link", "set", parent, "name", renamed]);
                ip(&["link", "set", renamed, "up"]);
                let pkey = format!("{PKEY:#x}");
                ip(&[
                    "link", "add", "link", renamed, "name", parent, "type", "ipoib", "pkey", &pkey,
                ]);
            }
        }
        let link = FabricLink::Ipoib {
            port: lladdr("ib0"),
            host: lladdr("ib1"),
        };
        let gateway = Gateway::namespaces(link);
        let ends = [
            (&gateway.gateway, Side::Fabric.port()),
            (&gateway.fabric, Side::Fabric.interface()),
        ];
        for (namespace, name) in ends {
            bring(namespace, name, &setup);
        }
        gateway.wire(Side::Ethernet);
        for side in [Side::Fabric, Side::Ethernet] {
            gateway.address(side);
        }
        (lab, gateway)
    }

    /// Writes a control of the module vhca, such as `vhca1/port1/link` with `0`.
    pub fn control(&self, name: &str, value: &str) {
        let file = Path::new("/sys/kernel/debug/vhca").join(name);
        fs::write(&file, value).unwrap_or_else(|e| panic!("{}: {value}: {e}", file.display()));
    }
}

/// Waits until the interfaces of the last test are back in the first namespace, which sets them
/// down, and the driver has closed their connections, which it does behind its own back: unloaded
/// earlier, 6.1 frees a completion queue that a connection still uses.
fn rest() {
    let made = fs::read_dir("/sys/class/infiniband").map_or(0, Iterator::count);
    let home = || {
        let entries = fs::read_dir("/sys/class/net")
            .into_iter()
            .flatten()
            .flatten();
        let kinds = entries.map(|entry| fs::read_to_string(entry.path().join("type")));
        kinds
            .filter(|kind| kind.as_ref().is_ok_and(|kind| kind.trim() == "32"))
            .count()
    };
    eventually("the interfaces come home", || home() >= made);
    sleep(Duration::from_millis(300));
}

/// Moves an interface from the first namespace into its own and brings it up.
pub fn bring(namespace: &Namespace, name: &str, setup: &Setup) {
    ip(&["link", "set", name, "netns", namespace.name()]);
    if setup.mode == Mode::Connected {
        let mode = ["link", "set", name, "type", "ipoib", "mode", "connected"];
        namespace.ip(&mode).unwrap();
    }
    if let Some(mtu) = setup.mtu {
        namespace
            .ip(&["link", "set", name, "mtu", &mtu.to_string()])
            .unwrap();
    }
    namespace.ip(&["link", "set", name, "up"]).unwrap();
    eventually("the interface joins the fabric", || {
        running(namespace, name)
    });
    // Connected mode limits what may be sent as datagrams; the MTU can be set once it is joined.
    if let Some(mtu) = setup.mtu {
        namespace
            .ip(&["link", "set", name, "mtu", &mtu.to_string()])
            .unwrap();
    }
}

/// Whether an interface is up and has its carrier.
pub fn running(namespace: &Namespace, name: &str) -> bool {
    namespace
        .ip(&["link", "show", name])
        .is_ok_and(|text| text.contains("LOWER_UP"))
}

/// The 20-byte address of an interface of the first namespace.
pub fn lladdr(name: &str) -> [u8; 20] {
    let file = format!("/sys/class/net/{name}/address");
    let text = fs::read_to_string(&file).unwrap_or_else(|e| panic!("{file}: {e}"));
    parse_lladdr(&text).unwrap_or_else(|| panic!("{file}: {text:?} is no 20-byte address"))
}

fn parse_lladdr(text: &str) -> Option<[u8; 20]> {
    let bytes: Option<Vec<u8>> = text
        .trim()
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16).ok())
        .collect();
    bytes?.try_into().ok()
}

/// `ip ...` in the first namespace.
pub fn ip(arguments: &[&str]) {
    let output = Command::new("ip").args(arguments).output().expect("ip");
    assert!(
        output.status.success(),
        "ip {}: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
}

fn load(variable: &str, parameters: &str) {
    let file = env::var_os(variable).unwrap_or_else(|| {
        panic!("no {variable}: this test runs in the lab's VM: cargo xtask test --lab")
    });
    let module = File::open(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let parameters = CString::new(parameters).expect("parameters without NUL");
    finit_module(&module, &parameters, ModuleInitFlags::empty())
        .unwrap_or_else(|e| panic!("loading {} {parameters:?}: {e}", file.display()));
}

/// Unloads a module; namespaces that are being taken down may hold it for a while.
fn unload(module: &str) {
    let name = CString::new(module).expect("a name without NUL");
    eventually("the module can be unloaded", || {
        match delete_module(&name, DeleteModuleFlags::O_NONBLOCK) {
            Ok(()) | Err(Errno::ENOENT) => true,
            Err(Errno::EAGAIN | Errno::EBUSY) => false,
            Err(e) => panic!("unloading {module}: {e}"),
        }
    });
}
