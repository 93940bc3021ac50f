//! weightfs mounts a model's weights as a directory: every tensor is a file,
//! read straight from the mapping and checked as it is read.
//!
//! One way for the data:
//!
//! ```text
//! paths -> load (source, format) -> Model -> naming -> layout        at mount
//! Ino -> layout -> Content -> Store (checked here) -> Source         each read
//! ```
//!
//! Everything is decided at mount; afterwards nothing changes, so reads share
//! plain references. Directories and inodes are computed, not stored: a tensor
//! costs its name, its shape and a few words, whatever the number of its views.

pub mod bytes;
pub mod content;
pub mod depot;
pub mod dtype;
pub mod format;
pub mod fs;
pub mod fuse;
pub mod grove;
pub mod hf;
pub mod layout;
pub mod load;
pub mod model;
pub mod naming;
mod ordered;
pub mod overrides;
pub mod quant;
pub mod scale;
pub mod seal;
pub mod source;
pub mod store;
pub mod survey;
pub mod trust;
pub mod view;
