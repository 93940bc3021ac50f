//! The safetensors reader.
