//! The `weightfs` command.

fn main() {}
