//! `weightfs verify`: every byte against the seal, a list of digests or one digest.

use super::args::VerifyArgs;
use super::exit::{self, Exit, Failure};
use anyhow::{Result, bail};
use std::path::Path;

pub(crate) fn run(args: &VerifyArgs) -> Result<Exit> {
    if args.expect_sha256.is_some() && args.models.len() > 1 {
        return Err(Failure::usage(
            "--expect-sha256 is the digest of one file, but several models were given",
        ));
    }
    let mut ends = Vec::new();
    for model in &args.models {
        ends.push(exit::finish(verify_one(args, model)));
    }
    Ok(Exit::of_several(&ends))
}

fn verify_one(_args: &VerifyArgs, model: &Path) -> Result<Exit> {
    bail!("{}: verifying is not built yet", model.display())
}
