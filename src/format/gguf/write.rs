//! The other direction: values as a little-endian file of version 3 has them.

use crate::model::{Text, Value, ValueType};

/// Appends the length and the bytes of a string.
pub fn string(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend((bytes.len() as u64).to_le_bytes());
    out.extend(bytes);
}

/// Appends the type and the number of an array's elements.
pub fn array_head(elem: ValueType, count: u64, out: &mut Vec<u8>) {
    out.extend((elem as u32).to_le_bytes());
    out.extend(count.to_le_bytes());
}

/// Appends a value that is held in memory, without its type; what lies in a file adds nothing.
pub fn fixed(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::U8(n) => out.push(*n),
        Value::I8(n) => out.extend(n.to_le_bytes()),
        Value::U16(n) => out.extend(n.to_le_bytes()),
        Value::I16(n) => out.extend(n.to_le_bytes()),
        Value::U32(n) => out.extend(n.to_le_bytes()),
        Value::I32(n) => out.extend(n.to_le_bytes()),
        Value::U64(n) => out.extend(n.to_le_bytes()),
        Value::I64(n) => out.extend(n.to_le_bytes()),
        Value::F32(n) => out.extend(n.to_le_bytes()),
        Value::F64(n) => out.extend(n.to_le_bytes()),
        Value::Bool(b) => out.push((*b).into()),
        Value::Str(Text::Inline(bytes)) => string(bytes, out),
        Value::Str(Text::Span(_)) | Value::Array(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_little_endian_and_strings_counted_in_64_bits() {
        let mut out = Vec::new();
        fixed(&Value::U16(0x0102), &mut out);
        fixed(&Value::I32(-2), &mut out);
        fixed(&Value::F32(1.0), &mut out);
        fixed(&Value::Bool(true), &mut out);
        fixed(&Value::Str(Text::Inline((*b"ab").into())), &mut out);
        array_head(ValueType::F64, 3, &mut out);
        let expected = [
            &[2, 1][..],
            &[0xfe, 0xff, 0xff, 0xff],
            &[0, 0, 0x80, 0x3f],
            &[1],
            &[2, 0, 0, 0, 0, 0, 0, 0, b'a', b'b'],
            &[12, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(out, expected.concat());
    }
}
