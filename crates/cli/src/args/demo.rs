//! The options of `sandbar demo`.

use super::UsageArgs;
use crate::values::{self, SandboxArg};

#[derive(Debug, clap::Args)]
pub(crate) struct DemoArgs {
    /// Where the machine comes from: `local`, the namespaces of this host, or `docker:IMAGE`, a container with a C compiler.
    #[arg(long, value_name = "WHERE", default_value = "local", value_parser = values::sandbox)]
    pub(crate) sandbox: SandboxArg,

    #[command(flatten)]
    pub(crate) usage: UsageArgs,

    /// Print what happens as JSON lines, the last one with the result.
    #[arg(long)]
    pub(crate) json: bool,
}
