//! Everything that is true of packets and tables, once: the same code runs in the kernel (as the
//! programs of this package's binary) and on the host (tests, dry runs).
//!
//! A packet travels through [`ingress::ingress`]: `wire` reads it, [`tables::Tables`] answers what
//! lies outside the packet (ports, routes, counters), `rewrite` changes it, and the outcome is a
//! [`verdict::Verdict`] that is counted and never discarded.
#![cfg_attr(not(test), no_std)]

pub mod frame;
pub mod ingress;
pub mod packet;
pub mod rewrite;
pub mod tables;
pub mod verdict;
pub mod wire;
