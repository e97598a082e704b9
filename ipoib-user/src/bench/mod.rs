//! The `bench` verb's work.
