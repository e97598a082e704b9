//! Network namespaces of our own: made, entered, and removed with their guard.
