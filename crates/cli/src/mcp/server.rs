//! The MCP server: lists the tools, and runs calls concurrently.

use std::borrow::Cow;

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, JsonObject,
        ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig,
    },
    service::RequestContext,
};
use sandbar::{SandboxError, SandboxSession, processes};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::Semaphore;

use super::{
    tools::{self, ToolName},
    window::ANSWER,
};
use crate::{args::NetworkArg, failure::without_number};

/// Maximum number of concurrent calls. Each may hold a message of the maximum size.
const CALLS: usize = 64;

/// Result of a call; the text of a failure is for the model too.
pub(super) type Answer = Result<CallToolResult, String>;

/// A live sandbox with the state of its tools.
pub(super) struct Server {
    pub(super) session: SandboxSession,
    instructions: String,
    reaches: Option<NetworkArg>,
    places: Semaphore,
}

impl Server {
    pub(super) fn new(session: SandboxSession, instructions: String, reaches: Option<NetworkArg>) -> Self {
        Self { session, instructions, reaches, places: Semaphore::new(CALLS) }
    }

    /// Masks the values of secrets; every result passes through this function. Failures are shortened after masking, because
    /// a cut could leave half a value.
    fn hidden(&self, answer: Answer) -> CallToolResult {
        let mask = self.session.secrets().mask();
        let mut answer = match answer {
            Ok(answer) => answer,
            Err(text) => return failed(mask.as_ref().map_or(Cow::Borrowed(text.as_str()), |mask| mask.hide(&text))),
        };
        let Some(mask) = mask else { return answer };
        for block in &mut answer.content {
            if let ContentBlock::Text(text) = block
                && let Cow::Owned(hidden) = mask.hide(&text.text)
            {
                text.text = hidden;
            }
        }
        answer
    }

    async fn call(&self, tool: ToolName, arguments: JsonObject) -> Answer {
        match tool {
            ToolName::ExecCommand => self.exec_command(arguments).await,
            ToolName::WriteStdin => self.write_stdin(arguments).await,
            ToolName::ApplyPatch => self.apply_patch(arguments).await,
            ToolName::ViewImage => self.view_image(arguments).await,
            ToolName::ReadFile => self.read_file(arguments).await,
            ToolName::WriteFile => self.write_file(arguments).await,
            ToolName::ListDirectory => self.list_directory(arguments).await,
        }
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        let mut info = ServerConfig::new(capabilities).with_instructions(self.instructions.clone());
        info.server_info = Implementation::new("sandbar", env!("CARGO_PKG_VERSION"));
        info
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _request: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools::all(self.reaches)))
    }

    /// Errors of a known tool are results for the model, not protocol errors. A cancelled call is dropped, which ends a
    /// command that it was starting.
    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        request: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(tool) = ToolName::parse(&call.name) else {
            let known = ToolName::ALL.map(ToolName::name).join(", ");
            let asked: String = call.name.chars().take(64).collect();
            return Err(ErrorData::invalid_params(format!("unknown tool {asked:?}; use {known}"), None));
        };
        let Ok(_place) = self.places.try_acquire() else {
            return Ok(failed(format!("{CALLS} calls are already running; wait until one of them ends")).into());
        };
        tokio::select! {
            answer = self.call(tool, call.arguments.unwrap_or_default()) => {
                Ok(self.hidden(answer).into())
            }
            () = request.ct.cancelled() => Ok(failed("cancelled").into()),
        }
    }
}

/// A text result for the model.
pub(super) fn text_result(text: impl Into<String>) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text)])
}

/// A failed result. The text may quote arguments of the client, and is not yet shortened.
fn failed(text: impl AsRef<str>) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(processes::truncate_bytes(text.as_ref(), ANSWER))])
}

/// Error text for the model.
#[expect(clippy::needless_pass_by_value, reason = "it maps errors")]
pub(super) fn refused(error: SandboxError) -> String {
    without_number(&error.full_message())
}

/// Parses the arguments of a tool.
pub(super) fn read<T: DeserializeOwned>(arguments: JsonObject) -> Result<T, String> {
    serde_json::from_value(Value::Object(arguments)).map_err(|error| format!("invalid arguments: {error}"))
}
