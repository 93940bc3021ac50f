//! GGUF and safetensors files from parts, written plainly.

use weightfs::dtype::DType;
use weightfs::format::gguf::types::tensor_type_id;

/// A metadata value, as GGUF numbers its type.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    /// Type and bytes of a number, little-endian.
    Number(u32, Vec<u8>),
    /// A string.
    Str(Vec<u8>),
    /// Element type and elements.
    Array(u32, Vec<Value>),
}

impl Value {
    /// A u32.
    pub(crate) fn u32(n: u32) -> Value {
        Value::Number(4, n.to_le_bytes().into())
    }

    /// A string.
    pub(crate) fn text(text: impl AsRef<[u8]>) -> Value {
        Value::Str(text.as_ref().into())
    }
}

/// A tensor with its bytes, numbers little-endian.
#[derive(Clone, Debug)]
pub(crate) struct Tensor {
    /// Its name.
    pub(crate) name: Vec<u8>,
    /// Its type.
    pub(crate) dtype: DType,
    /// Outermost first.
    pub(crate) shape: Vec<u64>,
    /// As many as type and shape ask for.
    pub(crate) data: Vec<u8>,
}

struct Writer {
    out: Vec<u8>,
    big: bool,
}

impl Writer {
    fn number(&mut self, little: &[u8]) {
        let at = self.out.len();
        self.out.extend(little);
        if self.big {
            self.out[at..].reverse();
        }
    }

    fn string(&mut self, text: &[u8]) {
        self.number(&(text.len() as u64).to_le_bytes());
        self.out.extend(text);
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::Number(_, bytes) => self.number(bytes),
            Value::Str(text) => self.string(text),
            Value::Array(elem, items) => {
                self.number(&elem.to_le_bytes());
                self.number(&(items.len() as u64).to_le_bytes());
                items.iter().for_each(|item| self.value(item));
            }
        }
    }
}

/// A GGUF of version 3.
pub(crate) fn gguf(big: bool, metadata: &[(Vec<u8>, Value)], tensors: &[Tensor]) -> Vec<u8> {
    let mut w = Writer { out: b"GGUF".to_vec(), big };
    w.number(&3u32.to_le_bytes());
    w.number(&(tensors.len() as u64).to_le_bytes());
    w.number(&(metadata.len() as u64).to_le_bytes());
    for (key, value) in metadata {
        w.string(key);
        let kind: u32 = match value {
            Value::Number(kind, _) => *kind,
            Value::Str(_) => 8,
            Value::Array(..) => 9,
        };
        w.number(&kind.to_le_bytes());
        w.value(value);
    }
    let mut offset = 0u64;
    for tensor in tensors {
        w.string(&tensor.name);
        w.number(&(tensor.shape.len() as u32).to_le_bytes());
        for dim in tensor.shape.iter().rev() {
            w.number(&dim.to_le_bytes());
        }
        let id = tensor_type_id(tensor.dtype).expect("a type that GGUF has");
        w.number(&id.to_le_bytes());
        w.number(&offset.to_le_bytes());
        offset += (tensor.data.len() as u64).next_multiple_of(32);
    }
    for tensor in tensors {
        w.out.resize(w.out.len().next_multiple_of(32), 0);
        let at = w.out.len();
        w.out.extend(&tensor.data);
        if big {
            turn(tensor.dtype, &mut w.out[at..]);
        }
    }
    w.out.resize(w.out.len().next_multiple_of(32), 0);
    w.out
}

/// As a big-endian file has it, where that is defined.
fn turn(dtype: DType, data: &mut [u8]) {
    for block in data.chunks_exact_mut(dtype.block().bytes as usize) {
        for &(at, width) in dtype.numbers().unwrap_or_default() {
            block[at..at + width].reverse();
        }
    }
}

/// A safetensors file. Names are UTF-8.
pub(crate) fn safetensors(tensors: &[Tensor]) -> Vec<u8> {
    let mut header = String::from("{");
    let mut at = 0;
    for (i, tensor) in tensors.iter().enumerate() {
        let end = at + tensor.data.len();
        let name = String::from_utf8_lossy(&tensor.name);
        header += &format!(
            "{}{name:?}:{{\"dtype\":\"{}\",\"shape\":{:?},\"data_offsets\":[{at},{end}]}}",
            if i == 0 { "" } else { "," },
            tensor.dtype.name(),
            tensor.shape,
        );
        at = end;
    }
    header += "}";
    let mut out = (header.len() as u64).to_le_bytes().to_vec();
    out.extend(header.bytes());
    tensors.iter().for_each(|tensor| out.extend(&tensor.data));
    out
}
