//! The GGUF reader.
