//! Why a `config.json` cannot be written.

use std::io;

/// Something in the file that config.json cannot say, or that is not there to be said.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub(super) enum ConfigError {
    #[error("the file does not name its architecture")]
    NoArchitecture,
    #[error("the fields of architecture {arch:?} are not known")]
    Architecture { arch: String },
    #[error("{key} is missing")]
    Missing { key: String },
    #[error("{key} is {found}, expected {expected}")]
    Value { key: String, expected: String, found: String },
    #[error(
        "{key} is {first} in one layer and {other} in layer {layer}: config.json has one for all"
    )]
    PerLayer { key: String, layer: usize, first: u64, other: u64 },
    #[error("tensor {name:?} has shape {found:?}, expected {expected}")]
    Shape { name: String, expected: String, found: Vec<u64> },
    #[error("tensor {name:?} is missing")]
    NoTensor { name: String },
    #[error("tensor {name:?}, element {index}: {found}, expected a positive number")]
    Element { name: String, index: usize, found: f32 },
    #[error("{0}")]
    Unsupported(String),
    #[error("{what}: {source}")]
    Read {
        what: String,
        #[source]
        source: io::Error,
    },
}

impl From<ConfigError> for io::Error {
    fn from(error: ConfigError) -> io::Error {
        let kind = match &error {
            ConfigError::Read { source, .. } => source.kind(),
            _ => io::ErrorKind::InvalidData,
        };
        io::Error::new(kind, error)
    }
}
