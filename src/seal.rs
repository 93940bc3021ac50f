//! The seal: what was promised about the bytes. Knows extents, not formats' insides or views.
