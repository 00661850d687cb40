//! Who thinks: the model that was named, the one the environment leads to, or one that answers on this host.

use std::{env, fs::File, io::Read as _, os::unix::fs::OpenOptionsExt as _, sync::Arc, time::Duration};

use sandbar::{
    Chat, Model, ModelSource as _, Models, ScriptedModel,
    agent::{Endpoint, ModelError},
};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use crate::{args::RunArgs, failure::Failure};

/// The longest script.
const SCRIPT_LIMIT: u64 = 64 << 20;

/// Servers that people have on their own host: Ollama, LM Studio, llama.cpp, vLLM.
const LOCAL: [(&str, u16); 4] = [("Ollama", 11434), ("LM Studio", 1234), ("llama.cpp", 8080), ("vLLM", 8000)];

/// How long one of them may take to say what it has.
const PATIENCE: Duration = Duration::from_millis(500);

/// The most of its answer that is read.
const ANSWER: u64 = 1 << 20;

const DEMO: &str = "`sandbar demo` shows everything without a key";

/// A model, and whether it only follows a script.
pub(crate) struct Thinker {
    pub(crate) model: Arc<dyn Model>,
    pub(crate) scripted: bool,
    /// Where it was found, if nobody said.
    pub(crate) address: Option<String>,
}

/// The model that the arguments, the agent file, the environment or this host name, in that order.
pub(super) async fn resolve(args: &RunArgs, in_file: Option<&str>) -> Result<Thinker, Failure> {
    let wanted = args.model.as_deref().or(in_file);
    if let Some(path) = wanted.and_then(|name| name.strip_prefix("script:")) {
        return Ok(Thinker { model: Arc::new(script(path)?), scripted: true, address: None });
    }
    let said = |name: &str| env::var(name).is_ok_and(|value| !value.trim().is_empty());
    let known = args.base_url.is_some() || said("OPENAI_API_KEY") || said("OPENAI_BASE_URL");
    if wanted.is_none() && !known {
        return match local().await {
            Some((model, address)) => Ok(Thinker { model: Arc::new(model), scripted: false, address: Some(address) }),
            None => Err(Failure::new("there is no model to ask").code("no_model").next(format!(
                "set OPENAI_API_KEY, start a local server such as Ollama, or name one with --model; {DEMO}"
            ))),
        };
    }
    let mut endpoint = Endpoint::from_env();
    if let Some(url) = &args.base_url {
        endpoint = endpoint.base_url(url);
    }
    let models = Models::from_env().openai(endpoint.clone()).chat("chat", endpoint);
    let model = models.model(wanted).map_err(|error| unusable(wanted, error))?;
    Ok(Thinker { model, scripted: false, address: None })
}

fn unusable(wanted: Option<&str>, error: ModelError) -> Failure {
    let what = match wanted {
        Some(name) => format!("cannot ask the model {name}"),
        None => "cannot ask a model".to_owned(),
    };
    Failure::new(what).because(error).code("no_model").next(DEMO)
}

fn script(path: &str) -> Result<ScriptedModel, Failure> {
    let failed = || {
        let next = "give a file like {\"turns\": [{\"output\": […]}]}; `sandbar demo` plays one";
        Failure::new(format!("cannot follow the script {path}")).next(next)
    };
    let mut text = String::new();
    // A pipe that nobody writes to is not waited for.
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path).map_err(|error| failed().because(error))?;
    if !file.metadata().is_ok_and(|found| found.is_file()) {
        return Err(failed().because(std::io::Error::other("it is not a file")));
    }
    file.take(SCRIPT_LIMIT).read_to_string(&mut text).map_err(|error| failed().because(error))?;
    ScriptedModel::from_json(&text).map_err(|error| failed().because(error))
}

/// The first model of the first server that answers.
async fn local() -> Option<(Chat, String)> {
    for (name, port) in LOCAL {
        if let Ok(Some(model)) = timeout(PATIENCE, first_model(port)).await {
            tracing::info!(server = name, port, model, "found a model on this host");
            let address = format!("http://127.0.0.1:{port}/v1");
            return Some((Chat::new(model, Endpoint::new(address.as_str())), address));
        }
    }
    None
}

async fn first_model(port: u16) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    // The old version of the protocol: its answers come in one piece, and end with the connection.
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
    async fn a_server_of_this_host_says_which_models_it_has() {
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
