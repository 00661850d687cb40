//! The MCP server: lists the tools, and runs calls concurrently.

use std::{borrow::Cow, error::Error, time::Duration};

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, JsonObject,
        ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig,
    },
    service::{RequestContext, ServerInitializeError, ServiceExt},
};
use sandbar::{Network, SandboxError, SandboxSession, machine::Endpoint, sandbox::processes};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::{sync::Semaphore, time::timeout};

use super::{
    instructions::{WorkspaceAccess, instructions},
    tools::{self, ToolName},
    transport::Connection,
    window::ANSWER,
};

/// Maximum number of concurrent calls. Each may hold a message of the maximum size.
const CALLS: usize = 64;

/// Time limit for writing the last responses.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);

/// Result of a call; the text of a failure is for the model too.
pub(crate) type Answer = Result<CallToolResult, String>;

/// Why a client could not be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The handshake failed.
    #[error("cannot serve the MCP client")]
    Handshake(#[source] Box<dyn Error + Send + Sync>),
    /// The server failed after the handshake.
    #[error("the MCP server failed")]
    Failed(#[source] Box<dyn Error + Send + Sync>),
}

/// An MCP server for one session: its tools run commands, apply patches, show images, and read and write files there.
#[derive(Debug)]
pub struct Server {
    pub(crate) session: SandboxSession,
    workspace: WorkspaceAccess,
    network: Network,
    ports: Vec<(u16, Endpoint)>,
    calls: Semaphore,
}

impl Server {
    /// Serves this session, as the user that the session acts as.
    pub fn new(session: SandboxSession) -> Self {
        Self {
            session,
            workspace: WorkspaceAccess::default(),
            network: Network::Off,
            ports: Vec::new(),
            calls: Semaphore::new(CALLS),
        }
    }

    /// Tells the client what it may do with the workspace.
    #[must_use]
    pub fn workspace(self, workspace: WorkspaceAccess) -> Self {
        Self { workspace, ..self }
    }

    /// Tells the client which network commands have.
    #[must_use]
    pub fn network(self, network: Network) -> Self {
        Self { network, ..self }
    }

    /// Tells the client where the user reaches ports of the machine.
    #[must_use]
    pub fn ports(self, ports: Vec<(u16, Endpoint)>) -> Self {
        Self { ports, ..self }
    }

    /// Answers the client until it closes the connection, and sends what is still to be sent.
    pub async fn serve(self, mut connection: Connection) -> Result<(), ServeError> {
        let writer = connection.take_writer();
        match ServiceExt::serve(self, connection).await {
            Ok(running) => {
                running.waiting().await.map_err(|error| ServeError::Failed(error.into()))?;
            }
            // The client closed the connection before the handshake, which is not an error.
            Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::TransportError { .. }) => {}
            Err(error) => return Err(ServeError::Handshake(error.into())),
        }
        if let Some(writer) = writer {
            let _unread = timeout(WRITE_TIMEOUT, writer).await;
        }
        Ok(())
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
        let mut info = ServerConfig::new(capabilities).with_instructions(instructions(
            &self.session,
            self.workspace,
            &self.network,
            &self.ports,
        ));
        info.server_info = Implementation::new("sandbar", env!("CARGO_PKG_VERSION"));
        info
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _request: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools::all(&self.network)))
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
        let Ok(_place) = self.calls.try_acquire() else {
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
pub(crate) fn text_result(text: impl Into<String>) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text)])
}

/// A failed result. The text may quote arguments of the client, and is not yet shortened.
fn failed(text: impl AsRef<str>) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(processes::truncate_bytes(text.as_ref(), ANSWER))])
}

/// Error text for the model.
#[expect(clippy::needless_pass_by_value, reason = "it maps errors")]
pub(crate) fn refused(error: SandboxError) -> String {
    let text = error.full_message();
    match text.split_once(" (os error ") {
        // The number that the standard library adds to errors of the system.
        Some((words, rest)) if rest.ends_with(')') => words.to_owned(),
        _ => text,
    }
}

/// Parses the arguments of a tool.
pub(crate) fn read<T: DeserializeOwned>(arguments: JsonObject) -> Result<T, String> {
    serde_json::from_value(Value::Object(arguments)).map_err(|error| format!("invalid arguments: {error}"))
}
