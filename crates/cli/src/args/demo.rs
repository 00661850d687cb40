//! The options of `sandbar demo`.

use sandbar::client::Source;

use super::UsageArgs;
use crate::machine::client;

#[derive(Debug, clap::Args)]
pub(crate) struct DemoArgs {
    #[arg(long, value_name = "WHERE", default_value = "local", value_parser = client::source,
        help = format!("{}. The machine needs a C compiler", client::help()))]
    pub(crate) sandbox: Source,

    #[command(flatten)]
    pub(crate) usage: UsageArgs,

    /// Print events as JSON lines; the last line holds the result.
    #[arg(long)]
    pub(crate) json: bool,
}
