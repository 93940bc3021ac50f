//! Extended attributes of tensor files: what `getfattr` shows without opening a JSON.

use super::{FsError, WeightFs};
use crate::layout::{Ino, Node, View};
use crate::store::hex;
use crate::view::{self, Repr, document};

const PREFIX: &[u8] = b"user.weightfs.";

/// One attribute.
#[derive(Clone, Copy, Debug)]
enum Name {
    DType,
    Shape,
    Crc32,
    Sha256,
    State,
    Trust,
}

const NAMES: [(&[u8], Name); 6] = [
    (b"dtype", Name::DType),
    (b"shape", Name::Shape),
    (b"crc32", Name::Crc32),
    (b"sha256", Name::Sha256),
    (b"state", Name::State),
    (b"trust", Name::Trust),
];

impl WeightFs {
    /// The value of attribute `name` of a tensor's or source's file.
    pub fn xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>, FsError> {
        let name = name.strip_prefix(PREFIX).ok_or(FsError::NoAttribute)?;
        let &(_, name) = NAMES.iter().find(|(n, _)| *n == name).ok_or(FsError::NoAttribute)?;
        let value = self.attribute(self.node(ino)?, name);
        value.map(String::into_bytes).ok_or(FsError::NoAttribute)
    }

    /// Names of the attributes that have a value, each ended by NUL.
    pub fn xattrs(&self, ino: Ino) -> Result<Vec<u8>, FsError> {
        let node = self.node(ino)?;
        let mut list = Vec::new();
        for (text, name) in NAMES {
            if self.attribute(node, name).is_some() {
                list.extend([PREFIX, text, b"\0"].concat());
            }
        }
        Ok(list)
    }

    fn attribute(&self, node: Node, name: Name) -> Option<String> {
        let store = &self.parts.store;
        match (node, name) {
            (Node::Tensor(..) | Node::Source(_), Name::Trust) => Some(store.trust().name().into()),
            (Node::Tensor(index, repr, view), _) => self.tensor_attribute(index, repr, view, name),
            (Node::Source(shard), Name::Sha256) => {
                store.source_sha256(shard as usize).map(|digest| hex(&digest))
            }
            _ => None,
        }
    }

    fn tensor_attribute(&self, index: u32, repr: Repr, view: View, name: Name) -> Option<String> {
        let model = &self.parts.model;
        let mounted = self.parts.catalog.get(model, index as usize);
        let store = &self.parts.store;
        // A checksum is that of the file it is asked of: the stored bytes and no other view.
        let checksum = || {
            let stored = (repr, view) == (Repr::Stored, View::Bin)
                && document::is_stored_tensor(model, &mounted);
            stored.then(|| store.tensor_checksum(mounted.source as usize)).flatten()
        };
        Some(match name {
            Name::DType => view::shown(self.parts.stock(), &mounted, repr)?.name().into(),
            Name::Shape => {
                let shape = view::shape(self.parts.stock(), &mounted, repr);
                let dims: Vec<String> = shape.iter().map(u64::to_string).collect();
                format!("[{}]", dims.join(", "))
            }
            Name::Crc32 => format!("{:08x}", checksum()?.crc32),
            Name::Sha256 => hex(&checksum()?.sha256?),
            Name::State => {
                let all = [Some(mounted.source), mounted.transform.other()];
                all.into_iter().flatten().for_each(|index| store.glance_at(index as usize));
                let own = store.tensor_state(mounted.source as usize);
                let other = mounted.transform.other().map(|i| store.tensor_state(i as usize));
                own.worse(other.unwrap_or(own)).name().into()
            }
            Name::Trust => store.trust().name().into(),
        })
    }
}
