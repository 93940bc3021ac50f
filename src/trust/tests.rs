//! Anchors against one another and against what is known.
