//! The choice of the model: named by an option or the agent file, by the environment, or found on this host.

use std::{env, fs::File, io::Read as _, os::unix::fs::OpenOptionsExt as _, sync::Arc, time::Duration};

use sandbar::{
    Chat, Model, Models, ScriptedModel,
    agent::{ModelEndpoint, ModelError, ModelSource as _},
};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use crate::{args::RunArgs, failure::Failure};

/// Maximum size of a script.
const SCRIPT_LIMIT: u64 = 64 << 20;

/// Common local model servers, with their ports.
const LOCAL: [(&str, u16); 4] = [("Ollama", 11434), ("LM Studio", 1234), ("llama.cpp", 8080), ("vLLM", 8000)];

/// Time limit for the answer of a local server.
const PATIENCE: Duration = Duration::from_millis(500);

/// Maximum size of the answer of a local server.
const ANSWER: u64 = 1 << 20;

const DEMO: &str = "`sandbar demo` shows everything without a key";

/// A model, and where it comes from.
pub(crate) struct ModelChoice {
    pub(crate) model: Arc<dyn Model>,
    pub(crate) scripted: bool,
    /// Address of a server that was found on this host.
    pub(crate) address: Option<String>,
}

/// Chooses the model from the arguments, the agent file, the environment or this host, in that order.
pub(super) async fn resolve(args: &RunArgs, in_file: Option<&str>) -> Result<ModelChoice, Failure> {
    let wanted = args.model.as_deref().or(in_file);
    if let Some(path) = wanted.and_then(|name| name.strip_prefix("script:")) {
        return Ok(ModelChoice { model: Arc::new(script(path)?), scripted: true, address: None });
    }
    let said = |name: &str| env::var(name).is_ok_and(|value| !value.trim().is_empty());
    let known = args.base_url.is_some() || said("OPENAI_API_KEY") || said("OPENAI_BASE_URL");
    if wanted.is_none() && !known {
        return match local().await {
            Some((model, address)) => {
                Ok(ModelChoice { model: Arc::new(model), scripted: false, address: Some(address) })
            }
            None => Err(Failure::new("no model is configured").code("no_model").next(format!(
                "set OPENAI_API_KEY, start a local server such as Ollama, or name one with --model; {DEMO}"
            ))),
        };
    }
    let mut endpoint = ModelEndpoint::from_env();
    if let Some(url) = &args.base_url {
        endpoint = endpoint.base_url(url);
    }
    let models = Models::from_env().openai(endpoint.clone()).chat("chat", endpoint);
    let model = models.model(wanted).map_err(|error| unusable(wanted, error))?;
    Ok(ModelChoice { model, scripted: false, address: None })
}

fn unusable(wanted: Option<&str>, error: ModelError) -> Failure {
    let what = match wanted {
        Some(name) => format!("cannot use the model {name}"),
        None => "cannot use a model".to_owned(),
    };
    Failure::new(what).because(error).code("no_model").next(DEMO)
}

fn script(path: &str) -> Result<ScriptedModel, Failure> {
    let failed = || {
        let next = "name a file like {\"turns\": [{\"output\": […]}]}; `sandbar demo` runs such a script";
        Failure::new(format!("cannot use the script {path}")).next(next)
    };
    let mut text = String::new();
    // Opening a pipe without a writer must not block.
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path).map_err(|error| failed().because(error))?;
    if !file.metadata().is_ok_and(|found| found.is_file()) {
        return Err(failed().because(std::io::Error::other("not a regular file")));
    }
    file.take(SCRIPT_LIMIT).read_to_string(&mut text).map_err(|error| failed().because(error))?;
    ScriptedModel::from_json(&text).map_err(|error| failed().because(error))
}

/// Finds the first model of the first local server that answers.
async fn local() -> Option<(Chat, String)> {
    for (name, port) in LOCAL {
        if let Ok(Some(model)) = timeout(PATIENCE, first_model(port)).await {
            tracing::info!(server = name, port, model, "found a model on this host");
            let address = format!("http://127.0.0.1:{port}/v1");
            return Some((Chat::new(model, ModelEndpoint::new(address.as_str())), address));
        }
    }
    None
}

async fn first_model(port: u16) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    // HTTP/1.0: responses are not chunked, and end with the connection.
    stream.write_all(b"GET /v1/models HTTP/1.0\r\nHost: localhost\r\nAccept: application/json\r\n\r\n").await.ok()?;
    let mut answer = Vec::new();
    stream.take(ANSWER).read_to_end(&mut answer).await.ok()?;
    let text = String::from_utf8_lossy(&answer);
    let (head, body) = text.split_once("\r\n\r\n")?;
    if head.split_whitespace().nth(1) != Some("200") {
        return None;
    }
    let models: Value = serde_json::from_str(body).ok()?;
    let name = models["data"].as_array()?.iter().find_map(|model| model["id"].as_str())?;
    Some(name.to_owned()).filter(|name| !name.is_empty() && name.len() < 256)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    async fn answered(answer: &'static str) -> Option<String> {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a guest");
            let mut request = [0; 1024];
            let _some = stream.read(&mut request).await;
            stream.write_all(answer.as_bytes()).await.expect("answered");
        });
        let found = first_model(port).await;
        server.await.expect("served");
        found
    }

    #[tokio::test]
    async fn the_first_model_of_a_local_server_is_found() {
        let ok = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{\"data\":[{\"id\":\"qwen3:8b\"},{\"id\":\"b\"}]}";
        assert_eq!(answered(ok).await.as_deref(), Some("qwen3:8b"));
        for other in [
            "HTTP/1.1 404 Not Found\r\n\r\n{\"data\":[{\"id\":\"a\"}]}",
            "HTTP/1.1 200 OK\r\n\r\n<html>",
            "HTTP/1.1 200 OK\r\n\r\n{\"data\":[]}",
            "SSH-2.0-OpenSSH\r\n",
            "",
        ] {
            assert_eq!(answered(other).await, None, "{other}");
        }
    }
}
