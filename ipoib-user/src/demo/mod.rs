//! The `demo` verb's work.
