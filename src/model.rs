//! The neutral description of a model: tensors, metadata, files.
//!
//! Both formats end here and everything else starts here. Must not know bytes,
//! files or paths; sizes were checked against the files by whoever built it.

use crate::dtype::DType;

/// Which format the files have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// GGUF, any version.
    Gguf,
    /// safetensors, single or sharded.
    Safetensors,
}

impl Format {
    /// All formats.
    pub const ALL: [Format; 2] = [Format::Gguf, Format::Safetensors];

    /// The format whose [`Format::name`] is `name`, exactly.
    pub fn from_name(name: &[u8]) -> Option<Format> {
        Format::ALL.into_iter().find(|format| format.name().as_bytes() == name)
    }

    /// The lower-case name used in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Gguf => "gguf",
            Format::Safetensors => "safetensors",
        }
    }
}

/// The order of bytes in multi-byte numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteOrder {
    /// Least significant byte first.
    Little,
    /// Most significant byte first.
    Big,
}

impl ByteOrder {
    /// The name used in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            ByteOrder::Little => "little",
            ByteOrder::Big => "big",
        }
    }
}

/// A byte range in one of the model's files, absolute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extent {
    /// Index into [`Model::shards`].
    pub shard: u32,
    /// First byte, from the start of the file.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
}

impl Extent {
    /// One past the last byte. Extents of a [`Model`] lie inside their file, so this cannot wrap.
    pub const fn end(self) -> u64 {
        self.offset + self.len
    }

    /// The part of `len` bytes that starts `from` bytes into this extent; the caller keeps it
    /// inside.
    pub const fn slice(self, from: u64, len: u64) -> Extent {
        Extent { shard: self.shard, offset: self.offset + from, len }
    }
}

/// One tensor as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Stored name: any bytes, nominally UTF-8, unique in the model.
    pub name: Box<[u8]>,
    /// Element type.
    pub dtype: DType,
    /// Dimensions, row-major, outermost first. Empty for a scalar.
    pub shape: Box<[u64]>,
    /// Where its bytes lie; `len` fits shape and dtype.
    pub extent: Extent,
}

impl Tensor {
    /// Number of elements: the product of the shape.
    pub fn elements(&self) -> u64 {
        elements(&self.shape)
    }
}

/// Product of a shape that a format has checked; a zero anywhere gives 0 whatever the rest.
pub fn elements(shape: &[u64]) -> u64 {
    if shape.contains(&0) { 0 } else { shape.iter().product() }
}

/// One file that holds tensors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Name of the file beside its siblings, as bytes of the file system.
    pub file: Box<[u8]>,
    /// Size in bytes.
    pub len: u64,
    /// Where tensor data begins: everything before is header (and its padding).
    pub data_start: u64,
    /// GGUF: where the tensor infos begin, so that a sealed mount can skip the metadata.
    pub tensor_infos: u64,
}

/// The types a metadata value can have; discriminants are GGUF's ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
#[repr(u32)]
pub enum ValueType {
    U8 = 0,
    I8 = 1,
    U16 = 2,
    I16 = 3,
    U32 = 4,
    I32 = 5,
    F32 = 6,
    Bool = 7,
    Str = 8,
    Array = 9,
    U64 = 10,
    I64 = 11,
    F64 = 12,
}

impl ValueType {
    /// ggml's short name: `u8`, `str`, `arr`, ...
    pub const fn name(self) -> &'static str {
        match self {
            ValueType::U8 => "u8",
            ValueType::I8 => "i8",
            ValueType::U16 => "u16",
            ValueType::I16 => "i16",
            ValueType::U32 => "u32",
            ValueType::I32 => "i32",
            ValueType::F32 => "f32",
            ValueType::Bool => "bool",
            ValueType::Str => "str",
            ValueType::Array => "arr",
            ValueType::U64 => "u64",
            ValueType::I64 => "i64",
            ValueType::F64 => "f64",
        }
    }
}

/// A string: either still in the file or given by the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Text {
    /// The raw bytes of the string in a file, verbatim.
    Span(Extent),
    /// Bytes held here (safetensors metadata, overrides): short by nature.
    Inline(Box<[u8]>),
}

/// How numbers and lengths are written in a GGUF file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoding {
    /// Order of bytes.
    pub order: ByteOrder,
    /// Whether lengths and counts are u64 (versions 2 and 3) instead of u32 (version 1).
    pub wide: bool,
}

/// An array value: arrays in a file stay there and are decoded on demand.
#[derive(Clone, Debug, PartialEq)]
pub enum Array {
    /// `count` elements of type `elem` in GGUF's encoding fill `extent` exactly.
    Span {
        /// Type of each element.
        elem: ValueType,
        /// Number of elements.
        count: u64,
        /// The elements, without the array's own type and count.
        extent: Extent,
        /// How to read them.
        encoding: Encoding,
    },
    /// Elements held here (overrides): short by nature.
    Inline {
        /// Type of each element.
        elem: ValueType,
        /// The elements.
        items: Vec<Value>,
    },
}

impl Array {
    /// Type of each element.
    pub const fn elem(&self) -> ValueType {
        match self {
            Array::Span { elem, .. } | Array::Inline { elem, .. } => *elem,
        }
    }

    /// Number of elements.
    pub fn len(&self) -> u64 {
        match self {
            Array::Span { count, .. } => *count,
            Array::Inline { items, .. } => items.len() as u64,
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A metadata value.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    Str(Text),
    Array(Array),
    U64(u64),
    I64(i64),
    F64(f64),
}

impl Value {
    /// The type of this value.
    pub const fn value_type(&self) -> ValueType {
        match self {
            Value::U8(_) => ValueType::U8,
            Value::I8(_) => ValueType::I8,
            Value::U16(_) => ValueType::U16,
            Value::I16(_) => ValueType::I16,
            Value::U32(_) => ValueType::U32,
            Value::I32(_) => ValueType::I32,
            Value::F32(_) => ValueType::F32,
            Value::Bool(_) => ValueType::Bool,
            Value::Str(_) => ValueType::Str,
            Value::Array(_) => ValueType::Array,
            Value::U64(_) => ValueType::U64,
            Value::I64(_) => ValueType::I64,
            Value::F64(_) => ValueType::F64,
        }
    }

    /// The value as a count, when it is a non-negative integer of any width.
    pub fn as_u64(&self) -> Option<u64> {
        match *self {
            Value::U8(n) => Some(n.into()),
            Value::U16(n) => Some(n.into()),
            Value::U32(n) => Some(n.into()),
            Value::U64(n) => Some(n),
            Value::I8(n) => n.try_into().ok(),
            Value::I16(n) => n.try_into().ok(),
            Value::I32(n) => n.try_into().ok(),
            Value::I64(n) => n.try_into().ok(),
            _ => None,
        }
    }
}

/// One metadata key with its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Meta {
    /// The key: any bytes, nominally ASCII, unique in the model.
    pub key: Box<[u8]>,
    /// Its value.
    pub value: Value,
}

/// A whole model, whatever files it came from.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Format of the files.
    pub format: Format,
    /// GGUF: version of the first file. safetensors has none; 0.
    pub format_version: u32,
    /// Byte order of the files (of the first, where parts differ: a reader refuses that).
    pub byte_order: ByteOrder,
    /// `general.architecture`, when it is a string.
    pub architecture: Option<String>,
    /// `general.name`, when it is a string.
    pub name: Option<String>,
    /// Metadata in file order.
    pub metadata: Vec<Meta>,
    /// Files that hold tensors, in the order of the set.
    pub shards: Vec<Shard>,
    /// Tensors by (shard, offset): "tensor order".
    pub tensors: Vec<Tensor>,
    /// What a user should know although the model is served.
    pub warnings: Vec<String>,
}

impl Model {
    /// The metadata value under `key`.
    pub fn meta(&self, key: &str) -> Option<&Value> {
        self.metadata.iter().find(|m| *m.key == *key.as_bytes()).map(|m| &m.value)
    }

    /// Bytes of all tensors together.
    pub fn tensor_bytes(&self) -> u64 {
        self.tensors.iter().map(|t| t.extent.len).sum()
    }
}
