//! The loaded datapath: programs, maps, pins and the ports they are attached to.

mod attach;
mod error;
#[cfg(feature = "log")]
mod log;
mod maps;
mod object;
mod pins;

pub use attach::Method;
pub use error::Error;
pub use maps::Maps;
pub use object::{OBJECT, ingress, load};

use crate::host::{self, ForeignProgram, Link, Obstacle};
use aya::Ebpf;
use aya::programs::ProgramInfo;
use aya::programs::tc::SchedClassifierLink;
use ipoib_ebpf::tables::{Host, MAX_PORTS, PortCounters, names};
use object::chain;
use pins::Pins;
use std::path::{Path, PathBuf};

/// Where our program stands among others on a port.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    clap::ValueEnum,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Refuse to share the port.
    #[default]
    Refuse,
    /// In front of every other program: they don't see what we forward.
    Before,
    /// Behind every other program.
    After,
}

impl Order {
    /// The word on the command line and in the configuration file.
    pub fn name(self) -> &'static str {
        match self {
            Order::Refuse => "refuse",
            Order::Before => "before",
            Order::After => "after",
        }
    }
}

/// What to start.
#[derive(Clone, Debug)]
pub struct Options {
    /// Names of the interfaces that become ports.
    pub ports: Vec<String>,
    /// Where our program stands among others.
    pub order: Order,
    /// Directory on a bpffs; maps and programs are pinned below its `v1`.
    pub pin_root: PathBuf,
}

/// A port's interface and what it has counted.
#[derive(Clone, Debug)]
pub struct PortReport {
    /// The interface, as it was at the last refresh.
    pub link: Link,
    /// How the program is attached.
    pub method: Method,
    /// Whether the interface still exists.
    pub present: bool,
    /// Counters, summed over CPUs.
    pub counters: PortCounters,
}

struct Attached {
    link: Link,
    method: Method,
    present: bool,
    slot: u32,
    _program: SchedClassifierLink,
}

/// A running datapath. Dropping it detaches the programs, then removes the pins.
///
/// It belongs to the network namespace in which it was started: refresh it and drop it in a thread
/// that is there.
pub struct Datapath {
    ports: Vec<Attached>,
    /// What holds accelerating at present.
    obstacles: Vec<Obstacle>,
    maps: Maps,
    _ebpf: Ebpf,
    _pins: Pins,
}

impl Datapath {
    /// Loads, pins and attaches in the network namespace of the calling thread. After an error
    /// nothing stays attached or pinned.
    pub fn start(options: &Options) -> Result<Datapath, Error> {
        Self::start_object(options, OBJECT)
    }

    fn start_object(options: &Options, object: &[u8]) -> Result<Datapath, Error> {
        let links = ports(&options.ports)?;
        object::check_kernel()?;
        let mut leftover = None;
        let pins = Pins::take(&options.pin_root, |program| {
            leftover = ProgramInfo::from_pin(program).ok().map(|info| info.id());
        })?;
        let mut others = Vec::new();
        for link in &links {
            remove_leftover(link, leftover)?;
            others.push(attach::in_the_way(link, options.order)?);
        }
        let obstacles = host::obstacles(&links)?;
        if !obstacles.is_empty() {
            return Err(Error::Obstacles(obstacles));
        }
        let mut ebpf = object::load(object)?;
        #[cfg(feature = "log")]
        log::to_stderr(&mut ebpf)?;
        pin(&mut ebpf, &pins)?;
        let maps = Maps::of(&mut ebpf)?;
        let mut datapath = Datapath {
            ports: Vec::new(),
            obstacles: Vec::new(),
            maps,
            _ebpf: ebpf,
            _pins: pins,
        };
        let checks_sources = datapath.refresh_host()?;
        for (index, link) in links.iter().enumerate() {
            let row = host::port_row(link, index as u32 + 1, checks_sources)?;
            datapath.maps.set_port(link.ifindex, row)?;
        }
        for (index, (link, others)) in links.into_iter().zip(&others).enumerate() {
            let (method, program) =
                attach::attach(&mut datapath._ebpf, &link, options.order, others)?;
            let slot = index as u32 + 1;
            datapath.ports.push(Attached {
                link,
                method,
                present: true,
                slot,
                _program: program,
            });
        }
        Ok(datapath)
    }

    /// Every port with its counters, in the order of `Options::ports`.
    pub fn report(&self) -> Result<Vec<PortReport>, Error> {
        self.ports
            .iter()
            .map(|port| {
                Ok(PortReport {
                    link: port.link.clone(),
                    method: port.method,
                    present: port.present,
                    counters: self.maps.counters(port.slot)?,
                })
            })
            .collect()
    }

    /// Reads the host again (addresses, routes' MTU, sysctls, links) and brings the maps up to date.
    pub fn refresh(&mut self) -> Result<(), Error> {
        let checks_sources = self.refresh_host()?;
        let links = host::links()?;
        for port in &mut self.ports {
            let now = links.iter().find(|l| l.ifindex == port.link.ifindex);
            port.present = now.is_some();
            if let Some(now) = now {
                port.link = now.clone();
                let row = host::port_row(now, port.slot, checks_sources)?;
                self.maps.set_port(now.ifindex, row)?;
            }
        }
        Ok(())
    }

    /// Looks whether something has come up that packets would pass by, and holds accelerating for
    /// as long as it is there. `Some` where the answer has changed: what holds it now, or nothing.
    pub fn watch(&mut self) -> Result<Option<&[Obstacle]>, Error> {
        let links: Vec<Link> = self.ports.iter().map(|port| port.link.clone()).collect();
        let obstacles = host::obstacles(&links)?;
        if obstacles == self.obstacles {
            return Ok(None);
        }
        self.obstacles = obstacles;
        self.refresh_host()?;
        Ok(Some(&self.obstacles))
    }

    /// Writes what concerns the host; whether the kernel checks sources, for the ports' rows.
    fn refresh_host(&mut self) -> Result<bool, Error> {
        let held = u32::from(!self.obstacles.is_empty());
        let facts = host::facts()?;
        self.maps.set_addresses(host::local_addresses()?)?;
        self.maps.set_host(Host { held, ..facts.row })?;
        Ok(facts.checks_sources)
    }
}

/// What [`remove_leftovers`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// Ports that still had our clsact filter.
    pub filters: Vec<String>,
    /// Whether there were pins.
    pub pins: bool,
}

/// Removes what an ipoib that was killed left behind in `pin_root` and on the interfaces of this
/// namespace.
pub fn remove_leftovers(pin_root: &Path) -> Result<Leftovers, Error> {
    object::check_kernel()?;
    let mut found = Leftovers::default();
    let mut program = None;
    let pins = if pin_root.exists() {
        Some(Pins::take(pin_root, |pinned| {
            found.pins = true;
            program = ProgramInfo::from_pin(pinned).ok().map(|info| info.id());
        })?)
    } else {
        None
    };
    for link in host::links()? {
        if remove_leftover(&link, program)? {
            found.filters.push(link.name);
        }
    }
    drop(pins);
    Ok(found)
}

/// The interfaces of those names, each fit to be a port.
fn ports(names: &[String]) -> Result<Vec<Link>, Error> {
    if names.is_empty() {
        return Err(Error::NoPorts);
    }
    if names.len() > MAX_PORTS as usize {
        return Err(Error::TooManyPorts {
            got: names.len(),
            max: MAX_PORTS,
        });
    }
    let all = host::links()?;
    let mut links: Vec<Link> = Vec::new();
    for name in names {
        let link = host::link(name)?;
        if links.iter().any(|l| l.ifindex == link.ifindex) {
            return Err(Error::DuplicatePort(name.clone()));
        }
        if let Some(problem) = host::port_problem(&link, &all) {
            return Err(Error::PortProblem(problem));
        }
        links.push(link);
    }
    Ok(links)
}

/// A clsact filter outlives a process that was killed. It is ours to remove when its program is the
/// one that was pinned where nobody holds the lock any more, or when no process has it open.
fn remove_leftover(link: &Link, pinned: Option<u32>) -> Result<bool, Error> {
    let is_dead = |id| pinned == Some(id) || host::is_open(id) == Some(false);
    let is_leftover =
        |p: &&ForeignProgram| p.ours && p.filter.is_some() && p.id.is_some_and(is_dead);
    let mut removed = false;
    for program in host::foreign_programs(link)?.iter().filter(is_leftover) {
        attach::detach_leftover(link, program)?;
        removed = true;
    }
    Ok(removed)
}

fn pin(ebpf: &mut Ebpf, pins: &Pins) -> Result<(), Error> {
    let failed = |path: PathBuf, error: &dyn std::error::Error| Error::Pin {
        what: "pinning",
        path,
        error: chain(error),
    };
    for name in maps::NAMES {
        let path = pins.map(name);
        let map = ebpf
            .map(name)
            .ok_or_else(|| Error::Load(format!("it has no map {name}")))?;
        map.pin(&path)
            .map_err(|error| failed(path.clone(), &error))?;
    }
    let path = pins.program(names::INGRESS);
    object::ingress(ebpf)?
        .pin(&path)
        .map_err(|error| failed(path.clone(), &error))
}
