//! Sources plus what was promised about them: the bytes one may serve.
//!
//! The one place where bytes are checked. Must not know names in the mount or views.
