//! (see later commits)
