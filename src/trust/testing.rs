//! Models for the tests of this room: real files, small.

use crate::bytes::hex::hex;
use crate::dtype::DType;
use crate::model::{ByteOrder, Extent, Format, Model, Shard, Tensor};
use crate::source::{IoMode, Source};
use sha2::{Digest, Sha256};
use std::path::PathBuf;

/// Files `m0`, `m1`, ... of 16 bytes of header, then the tensors, then 4 bytes of padding.
pub(super) struct Case {
    pub(super) dir: tempfile::TempDir,
    pub(super) root: PathBuf,
    pub(super) model: Model,
    pub(super) bytes: Vec<Vec<u8>>,
}

impl Case {
    /// One file per list of tensor names; each tensor has 40 bytes.
    pub(super) fn new(files: &[&[&str]]) -> Case {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (mut shards, mut tensors, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
        for (number, names) in files.iter().enumerate() {
            let mut data = vec![number as u8; 16];
            for (at, name) in names.iter().enumerate() {
                tensors.push(Tensor {
                    name: name.as_bytes().into(),
                    dtype: DType::F32,
                    shape: [10][..].into(),
                    extent: Extent { shard: number as u32, offset: data.len() as u64, len: 40 },
                });
                data.extend((0..40).map(|i| (number * 64 + at * 7 + i) as u8));
            }
            data.extend([0xAA; 4]);
            let file = format!("m{number}");
            std::fs::write(root.join(&file), &data).unwrap();
            shards.push(Shard {
                file: file.as_bytes().into(),
                len: data.len() as u64,
                data_start: 16,
                tensor_infos: 0,
            });
            bytes.push(data);
        }
        let model = Model {
            format: Format::Gguf,
            format_version: 3,
            byte_order: ByteOrder::Little,
            architecture: None,
            name: None,
            metadata: Vec::new(),
            shards,
            tensors,
            warnings: Vec::new(),
        };
        Case { dir, root, model, bytes }
    }

    pub(super) fn put(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.root.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    pub(super) fn sources(&self) -> Vec<Source> {
        let open = |i| Source::open(&self.root.join(format!("m{i}")), IoMode::Auto).unwrap();
        (0..self.bytes.len()).map(open).collect()
    }

    /// The bytes of a tensor.
    pub(super) fn tensor(&self, index: usize) -> &[u8] {
        let extent = self.model.tensors[index].extent;
        &self.bytes[extent.shard as usize][extent.offset as usize..][..extent.len as usize]
    }

    pub(super) fn sha_of_file(&self, shard: usize) -> String {
        sha(&self.bytes[shard])
    }

    pub(super) fn sha_of_tensor(&self, index: usize) -> String {
        sha(self.tensor(index))
    }

    /// Writes a file again with one byte changed.
    pub(super) fn damage(&mut self, shard: usize, at: usize) {
        self.bytes[shard][at] ^= 1;
        std::fs::write(self.root.join(format!("m{shard}")), &self.bytes[shard]).unwrap();
    }
}

pub(super) fn sha(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}
