//! Attaching the program to a port: tcx where the kernel has it (6.6), a clsact filter below.
//!
//! Links are held by this process and not pinned: a daemon that dies takes its programs off, and
//! the kernel forwards alone, until the datapath can tell by itself that its facts are old.

use super::Order;
use super::error::Error;
use super::object::{chain, ingress, io_of};
use crate::host::{self, ForeignProgram, Link};
use aya::Ebpf;
use aya::programs::TcAttachType::Ingress;
use aya::programs::links::Link as _;
use aya::programs::tc::{
    NlOptions, SchedClassifierLink, TcAttachOptions, TcHandle, qdisc_add_clsact,
};
use aya::programs::{LinkOrder, ProgramError, SchedClassifier};

/// Priority of our clsact filter when nothing else is there; room on both sides.
const PRIORITY: u16 = 100;

/// How the program came to be on a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// A tcx link.
    Tcx,
    /// A filter on a clsact qdisc.
    Clsact,
}

impl Method {
    /// The word that people read.
    pub fn name(self) -> &'static str {
        match self {
            Method::Tcx => "tcx",
            Method::Clsact => "clsact",
        }
    }
}

/// Attaches the loaded program to a port, whose other programs the caller has found acceptable.
pub fn attach(
    ebpf: &mut Ebpf,
    port: &Link,
    order: Order,
    others: &[ForeignProgram],
) -> Result<(Method, SchedClassifierLink), Error> {
    let program = ingress(ebpf)?;
    let filters = priorities(others);
    // Every tcx program runs before every clsact filter: to stand behind a filter takes a filter.
    let behind_filters = order == Order::After && !filters.is_empty();
    let attached = if has_tcx(port) && !behind_filters {
        let order = if order == Order::Before {
            LinkOrder::first()
        } else {
            LinkOrder::last()
        };
        program
            .attach_with_options(&port.name, Ingress, TcAttachOptions::TcxOrder(order))
            .map(|id| (Method::Tcx, id))
    } else {
        let priority = match order {
            Order::Refuse => PRIORITY,
            Order::Before => filters.iter().min().map_or(PRIORITY, |p| (p - 1).max(1)),
            Order::After => filters
                .iter()
                .max()
                .map_or(PRIORITY, |p| p.saturating_add(1)),
        };
        add_clsact(port)?;
        let handle = TcHandle::new(0, 1);
        let options = NlOptions {
            priority,
            handle,
            classid: None,
        };
        program
            .attach_with_options(&port.name, Ingress, TcAttachOptions::Netlink(options))
            .map(|id| (Method::Clsact, id))
    };
    let failed = |error: ProgramError| Error::Attach {
        port: port.name.clone(),
        error: chain(&error),
    };
    let (method, id) = attached.map_err(failed)?;
    Ok((method, program.take_link(id).map_err(failed)?))
}

/// Takes off a clsact filter that a dead process of ours left behind: tcx links end with their
/// process, filters don't.
pub fn detach_leftover(port: &Link, filter: &ForeignProgram) -> Result<(), Error> {
    let Some((priority, handle)) = filter.filter else {
        return Ok(());
    };
    let failed = |error: String| Error::Attach {
        port: port.name.clone(),
        error,
    };
    let handle = TcHandle::from(handle);
    SchedClassifierLink::attached(&port.name, Ingress, priority, handle, None)
        .map_err(|error| failed(error.to_string()))?
        .detach()
        .map_err(|error| failed(chain(&error)))
}

fn has_tcx(port: &Link) -> bool {
    SchedClassifier::query_tcx(&port.name, Ingress).is_ok()
}

fn priorities(programs: &[ForeignProgram]) -> Vec<u16> {
    programs.iter().filter_map(|p| Some(p.filter?.0)).collect()
}

/// Adds the qdisc; one that is there already is as good.
fn add_clsact(port: &Link) -> Result<(), Error> {
    match qdisc_add_clsact(&port.name).map_err(ProgramError::from) {
        Ok(()) => Ok(()),
        Err(error) if io_of(&error).is_some_and(|e| e.raw_os_error() == Some(libc::EEXIST)) => {
            Ok(())
        }
        Err(error) => Err(Error::Attach {
            port: port.name.clone(),
            error: chain(&error),
        }),
    }
}

/// Programs of `port` that are in the way of `order`.
pub fn in_the_way(port: &Link, order: Order) -> Result<Vec<ForeignProgram>, Error> {
    let programs = host::foreign_programs(port)?;
    match order {
        Order::Refuse if !programs.is_empty() => Err(Error::PortTaken(programs)),
        _ => Ok(programs),
    }
}
