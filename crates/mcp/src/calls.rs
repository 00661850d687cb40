//! The four tools of the Codex harness: exec_command, write_stdin, apply_patch and view_image.

use std::time::Instant;

use rmcp::model::{CallToolResult, ContentBlock, JsonObject};
use sandbar::{
    SandboxError,
    sandbox::{
        image::{ImageOutcome, ViewImageArgs},
        patch::{self, Applied, Invocation, PatchOptions, Profile},
        processes::{ExecCommandArgs, Update, WriteStdinArgs},
    },
};
use serde_json::Value;

use super::server::{Answer, Server, read, refused, text_result};

impl Server {
    pub(crate) async fn exec_command(&self, arguments: JsonObject) -> Answer {
        let args: ExecCommandArgs = read(arguments)?;
        let begun = Instant::now();
        // The machine has no program named apply_patch: apply the patch instead of running the command.
        if let Some(invocation) = patch::from_script(&args.cmd) {
            let applied = self.invoked(invocation, args.directory()).await;
            return self.updated(
                applied.map(|applied| self.session.processes().report(applied.codex_text(), begun.elapsed())),
                begun,
            );
        }
        self.updated(self.session.processes().exec_command(args).await, begun)
    }

    pub(crate) async fn write_stdin(&self, arguments: JsonObject) -> Answer {
        let args: WriteStdinArgs = read(arguments)?;
        let begun = Instant::now();
        self.updated(self.session.processes().write_stdin(args).await, begun)
    }

    fn updated(&self, update: Result<Update, SandboxError>, begun: Instant) -> Answer {
        match update {
            Ok(update) => Ok(text_result(update.to_text())),
            Err(error) => Err(self.session.processes().refusal(&error, begun.elapsed()).to_text()),
        }
    }

    pub(crate) async fn apply_patch(&self, arguments: JsonObject) -> Answer {
        if let Some(invocation) = commanded(&arguments) {
            return Ok(text_result(self.invoked(invocation, None).await.map_err(refused)?.codex_text()));
        }
        let is_text = ["patch", "input"].iter().any(|name| arguments.get(*name).is_some_and(Value::is_string));
        let profile = if is_text { Profile::Codex } else { Profile::Sdk };
        let options = PatchOptions { profile, ..PatchOptions::default() };
        let applied =
            self.session.apply_patch(&Value::Object(arguments).to_string(), options).await.map_err(refused)?;
        Ok(text_result(if is_text { applied.codex_text() } else { applied.sdk_text() }))
    }

    /// Applies a patch that was written as a command, in the working directory of the command.
    async fn invoked(&self, invocation: Invocation, workdir: Option<String>) -> Result<Applied, SandboxError> {
        let cwd = invocation.directory(workdir.as_deref());
        self.session.apply_patch(&invocation.patch, PatchOptions { cwd, ..PatchOptions::default() }).await
    }

    pub(crate) async fn view_image(&self, arguments: JsonObject) -> Answer {
        let args: ViewImageArgs = read(arguments)?;
        match self.session.view_image(&args).await.map_err(refused)? {
            ImageOutcome::Image(image) => {
                let url = image.data_url();
                let data = url.split_once(',').map_or("", |(_, data)| data);
                Ok(CallToolResult::success(vec![ContentBlock::image(data, image.format.mime())]))
            }
            ImageOutcome::Refused(refusal) => Err(refusal.to_string()),
        }
    }
}

/// Finds an apply_patch invocation in `command`.
fn commanded(arguments: &JsonObject) -> Option<Invocation> {
    let words = arguments.get("command")?.as_array()?.iter().map(Value::as_str);
    patch::from_command(&words.collect::<Option<Vec<_>>>()?)
}
