//! The maps of a loaded datapath: rows in, counters out.

use super::error::Error;
use super::object::chain;
use aya::maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray};
use aya::{Ebpf, Pod};
use ipoib_ebpf::tables::{
    CachedPort, Counter, Host, LocalAddress, MAX_LOCAL_ADDRESSES, Port, PortCounters, names,
};
use std::collections::HashSet;

macro_rules! pod {
    ($($wrapper:ident($row:ty)),* $(,)?) => {$(
        #[derive(Clone, Copy)]
        #[repr(transparent)]
        struct $wrapper($row);
        // SAFETY: the row is `repr(C)`, made of integers, without padding (sizes are asserted
        // where it is defined).
        unsafe impl Pod for $wrapper {}
    )*};
}
pod!(
    PortRow(Port),
    CachedRow(CachedPort),
    HostRow(Host),
    AddressKey(LocalAddress),
    CounterRow(PortCounters)
);

/// The maps.
pub struct Maps {
    ports: HashMap<MapData, u32, PortRow>,
    port_cache: Array<MapData, CachedRow>,
    addresses: HashMap<MapData, AddressKey, u32>,
    host: Array<MapData, HostRow>,
    counters: PerCpuArray<MapData, CounterRow>,
    /// What the address set holds.
    known: HashSet<LocalAddress>,
}

/// All maps of an object by name, to pin them.
pub const NAMES: [&str; 5] = [
    names::PORTS,
    names::PORT_CACHE,
    names::ADDRESSES,
    names::HOST,
    names::COUNTERS,
];

impl Maps {
    /// Takes the maps out of a loaded object.
    pub fn of(ebpf: &mut Ebpf) -> Result<Self, Error> {
        Ok(Maps {
            ports: take(ebpf, names::PORTS)?,
            port_cache: take(ebpf, names::PORT_CACHE)?,
            addresses: take(ebpf, names::ADDRESSES)?,
            host: take(ebpf, names::HOST)?,
            counters: take(ebpf, names::COUNTERS)?,
            known: HashSet::new(),
        })
    }

    /// Writes a port's row, and the same in the cache where its place there is not another port's.
    pub fn set_port(&mut self, ifindex: u32, port: Port) -> Result<(), Error> {
        self.ports
            .insert(ifindex, PortRow(port), 0)
            .map_err(failed(names::PORTS))?;
        let failed = failed(names::PORT_CACHE);
        let row = CachedPort::row(ifindex);
        let CachedRow(held) = self.port_cache.get(&row, 0).map_err(&failed)?;
        if held.ifindex != 0 && held.ifindex != ifindex {
            return Ok(());
        }
        let cached = CachedPort {
            ifindex,
            reserved: 0,
            port,
        };
        self.port_cache
            .set(row, CachedRow(cached), 0)
            .map_err(failed)
    }

    /// Writes the host's row, whose `own` is made from the addresses that were set last.
    pub fn set_host(&mut self, host: Host) -> Result<(), Error> {
        let own = self.known.iter().fold(0, |bits, a| bits | a.bit());
        self.host
            .set(0, HostRow(Host { own, ..host }), 0)
            .map_err(failed(names::HOST))
    }

    /// Makes the set of local addresses what `addresses` says. New ones go in before old ones go
    /// out.
    pub fn set_addresses(&mut self, addresses: Vec<LocalAddress>) -> Result<(), Error> {
        let wanted: HashSet<_> = addresses.into_iter().collect();
        if wanted.len() > MAX_LOCAL_ADDRESSES as usize {
            return Err(Error::TooManyAddresses {
                max: MAX_LOCAL_ADDRESSES,
            });
        }
        let old: Vec<_> = self.known.difference(&wanted).copied().collect();
        let new: Vec<_> = wanted.difference(&self.known).copied().collect();
        // A full map has no room for the new ones beside the old ones.
        if self.known.len() + new.len() > MAX_LOCAL_ADDRESSES as usize {
            self.forget(&old)?;
        }
        for address in new {
            self.addresses
                .insert(AddressKey(address), 1, 0)
                .map_err(failed(names::ADDRESSES))?;
            self.known.insert(address);
        }
        self.forget(&old)
    }

    fn forget(&mut self, old: &[LocalAddress]) -> Result<(), Error> {
        for address in old {
            if self.known.remove(address) {
                self.addresses
                    .remove(&AddressKey(*address))
                    .map_err(failed(names::ADDRESSES))?;
            }
        }
        Ok(())
    }

    /// A counter row, summed over CPUs.
    pub fn counters(&self, slot: u32) -> Result<PortCounters, Error> {
        let rows = self
            .counters
            .get(&slot, 0)
            .map_err(failed(names::COUNTERS))?;
        let mut sum = PortCounters::default();
        for row in rows.iter() {
            for (total, part) in sum.as_array_mut().iter_mut().zip(row.0.as_array()) {
                *total = Counter {
                    packets: total.packets + part.packets,
                    bytes: total.bytes + part.bytes,
                };
            }
        }
        Ok(sum)
    }
}

fn take<M: TryFrom<Map, Error = MapError>>(
    ebpf: &mut Ebpf,
    name: &'static str,
) -> Result<M, Error> {
    let map = ebpf
        .take_map(name)
        .ok_or_else(|| Error::Load(format!("it has no map {name}")))?;
    M::try_from(map).map_err(failed(name))
}

fn failed(name: &'static str) -> impl Fn(MapError) -> Error {
    move |error| Error::Map {
        name,
        error: chain(&error),
    }
}
