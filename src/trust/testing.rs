//! Models for the tests of this room.
