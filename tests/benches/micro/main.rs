//! What the rooms cost one by one, without a mount.
//!
//! ```text
//! cargo bench --bench micro                          all
//! cargo bench --bench micro -- parse                 one group
//! cargo bench --bench micro -- --save-baseline old   and later: --baseline old
//! ```

mod checking;
mod decode;
mod files;
mod parse;
mod planning;
mod tree;

use criterion::Criterion;
use std::time::Duration;

fn main() {
    // A room is in the cache or it is not; long runs only gather what else the machine does.
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .sample_size(20)
        .configure_from_args();
    parse::bench(&mut criterion);
    checking::bench(&mut criterion);
    decode::bench(&mut criterion);
    tree::bench(&mut criterion);
    planning::bench(&mut criterion);
    criterion.final_summary();
}
