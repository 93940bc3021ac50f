//! The GGUF reader.
pub mod array;
