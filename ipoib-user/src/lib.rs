//! The user-space half of ipoib-ebpf: loads and watches the datapath, reads the host it runs on,
//! and shows what it does. The binary `ipoib` is [`cli::main`].

pub mod bench;
pub mod cli;
pub mod config;
pub mod datapath;
pub mod demo;
pub mod host;
pub mod netns;
pub mod show;
