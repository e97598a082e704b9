//! Numbers as people and programs read them, the same in every verb.

mod ports;
pub mod text;

pub use ports::{Count, Family, PerFamily, PortRow, Reasons, port_lines};

/// Version of every JSON object (`"v"`).
pub const VERSION: u32 = 1;
