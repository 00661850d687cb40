//! The endpoints of the server and their answers.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::{
    Authorization, Fault,
    chat::{render::UsageChunk, request},
    check,
    delivery::Reply,
    refusal::Refusal,
    render::{
        Ending,
        response::{CREATED_AT, Frame},
    },
    script::usage,
    stage::{Form, Stage},
    store::{Page, identified, list},
    transcript::{Ask, COMPACTED, Choice, ItemPosition, role},
};

/// A received request.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) authorization: Option<String>,
    pub(crate) body: Bytes,
}

/// Answers a request. A refusal is logged as a problem.
pub(crate) fn answer(stage: &Stage, incoming: &Incoming) -> Reply {
    route(stage, incoming).unwrap_or_else(|refusal| {
        stage.complain(&incoming.path, &refusal);
        Reply::refusal(&refusal)
    })
}

fn route(stage: &Stage, incoming: &Incoming) -> Result<Reply, Refusal> {
    let path = incoming.path.strip_prefix("/v1/").map(|path| path.split('/').collect::<Vec<_>>()).unwrap_or_default();
    let unknown = || {
        let url = format!("Invalid URL ({} {})", incoming.method, incoming.path);
        Err(Refusal::missing(url).code("unknown_url"))
    };
    if path.is_empty() {
        return unknown();
    }
    authorize(&stage.play.authorization, incoming.authorization.as_deref())?;
    let found = |value: Value| Ok(Reply::json(200, &value));
    match (incoming.method.as_str(), path.as_slice()) {
        ("POST", ["responses"]) => respond(stage, &incoming.json()?),
        ("POST", ["responses", "compact"]) => found(compact(stage, &incoming.json()?)?),
        ("GET", ["responses", id]) => found(retrieve(stage, id)?),
        ("POST", ["chat", "completions"]) => complete(stage, &incoming.json()?),
        ("GET", ["models"]) => found(list(vec![model("mock")], false)),
        ("GET", ["models", id]) => found(model(id)),
        ("POST", ["conversations"]) => found(create_conversation(stage, &incoming.json()?)?),
        ("GET", ["conversations", id]) => found(stage.memory().store.describe(id)?),
        ("DELETE", ["conversations", id]) => found(stage.memory().store.delete(id)?),
        ("GET", ["conversations", id, "items"]) => {
            found(stage.memory().store.page(id, &Page::from_query(&incoming.query))?)
        }
        ("POST", ["conversations", id, "items"]) => {
            let items = check::stored_items("conversation_items", &incoming.json()?, &stage.play)?;
            found(list(stage.memory().store.add(id, items)?, false))
        }
        ("GET", ["conversations", id, "items", item]) => found(stage.memory().store.item(id, item)?),
        ("DELETE", ["conversations", id, "items", item]) => found(stage.memory().store.delete_item(id, item)?),
        _ => unknown(),
    }
}

impl Incoming {
    fn json(&self) -> Result<Value, Refusal> {
        let body = if self.body.is_empty() { b"{}" } else { &self.body[..] };
        serde_json::from_slice(body).map_err(|error| {
            let message = format!("We could not parse the JSON body of your request: {error}.");
            Refusal::bare(400, message).code("invalid_json")
        })
    }
}

fn authorize(wanted: &Authorization, given: Option<&str>) -> Result<(), Refusal> {
    let key = given.and_then(|given| given.strip_prefix("Bearer ")).filter(|key| !key.is_empty());
    let refuse = |message: &str| Err(Refusal::bare(401, message).code("invalid_api_key"));
    match (wanted, key) {
        (Authorization::Optional, _) | (Authorization::AnyKey, Some(_)) => Ok(()),
        (Authorization::Key(wanted), Some(key)) if wanted == key => Ok(()),
        (_, None) => refuse("You didn't provide an API key."),
        (_, Some(_)) => refuse("Incorrect API key provided."),
    }
}

/// `POST /responses`.
fn respond(stage: &Stage, body: &Value) -> Result<Reply, Refusal> {
    let stored = |id: &str| stage.memory().store.items(id);
    let ask = check::responses(body, &stage.play, &stored)?;
    check::pairs(&ask, &stage.play)?;
    let choice = ask.choose(&stage.play)?;
    let form = if is_set(body, "/stream") { Form::Events } else { Form::Json };
    let frame = Frame::new(format!("resp_{}", choice.chain.write()), body);
    let fault = fault(stage, &choice);
    if let Some(id) = check::conversation_id(body)
        && fault.is_harmless()
    {
        remember(stage, id, &ask, &choice)?;
    }
    send(stage, &choice, frame, form, fault)
}

/// `POST /chat/completions`.
fn complete(stage: &Stage, body: &Value) -> Result<Reply, Refusal> {
    let ask = request::read(body, &stage.play)?;
    let choice = ask.choose(&stage.play)?;
    let usage = if is_set(body, "/stream_options/include_usage") { UsageChunk::Sent } else { UsageChunk::Left };
    let form = if is_set(body, "/stream") { Form::ChatChunks(usage) } else { Form::ChatJson };
    // A completion repeats only the model of the request.
    let frame = Frame::new(format!("chatcmpl-{}", choice.chain.write()), &json!({"model": body["model"]}));
    send(stage, &choice, frame, form, fault(stage, &choice))
}

fn fault<'s>(stage: &'s Stage, choice: &Choice) -> &'s Fault {
    stage.play.turn(choice.conversation, choice.turn).map_or(&Fault::None, |turn| stage.next_fault(turn))
}

fn send(stage: &Stage, choice: &Choice, frame: Frame, form: Form, fault: &Fault) -> Result<Reply, Refusal> {
    let ending = match fault {
        Fault::Failed { code, message } => Ending::Failed { code: code.clone(), message: message.clone() },
        Fault::ErrorEvent { code, message } => Ending::Error { code: code.clone(), message: message.clone() },
        Fault::Incomplete { reason } => Ending::Incomplete { reason: reason.clone() },
        _ => Ending::Completed,
    };
    let rendered = stage.render(choice, frame, form, &ending);
    let mut reply = Reply::faulty(rendered, fault);
    // Without a stream, the error is the whole answer.
    match (form, &ending) {
        (Form::Json | Form::ChatJson, Ending::Error { .. }) | (Form::ChatJson, Ending::Failed { .. }) => {
            reply.status = 500
        }
        _ => {}
    }
    Ok(reply)
}

fn is_set(body: &Value, pointer: &str) -> bool {
    body.pointer(pointer) == Some(&Value::Bool(true))
}

/// Adds the input and the output to the stored conversation.
fn remember(stage: &Stage, id: &str, ask: &Ask<'_>, choice: &Choice) -> Result<(), Refusal> {
    let asked = ask.entries.iter().filter(|entry| !matches!(entry.place, ItemPosition::Stored(_)));
    let answered = stage.play.turn(choice.conversation, choice.turn).into_iter().flat_map(|turn| &turn.output);
    let items = asked.map(|entry| entry.item.clone().into_owned()).chain(answered.cloned()).collect();
    stage.memory().store.add(id, items).map(|_| ())
}

/// `POST /responses/compact`: the messages of the user, and an opaque item for all others.
fn compact(stage: &Stage, body: &Value) -> Result<Value, Refusal> {
    let ask = check::compact(body, &stage.play)?;
    check::pairs(&ask, &stage.play)?;
    let chain = ask.seen(&stage.play).write();
    let mut output: Vec<Value> = Vec::new();
    for entry in &ask.entries {
        let item = entry.item.as_ref();
        if matches!(role(item), Some("user" | "system" | "developer")) {
            let kept = identified(item.clone(), &format!("kept_{}", output.len()));
            output.push(kept);
        }
    }
    output.push(
        json!({"id": format!("cmp_{chain}"), "type": "compaction", "encrypted_content": format!("{COMPACTED}{chain}")}),
    );
    let id = format!("resp_cmp_{chain}");
    Ok(
        json!({"id": id, "object": "response.compaction", "created_at": CREATED_AT, "output": output, "usage": usage(100, 10)}),
    )
}

/// `GET /responses/{id}`: the id contains all data of the response.
fn retrieve(stage: &Stage, id: &str) -> Result<Value, Refusal> {
    let chain = id.strip_prefix("resp_").and_then(|text| crate::chain::Chain::read(text, &stage.play));
    let turn =
        chain.and_then(|chain| chain.last()).and_then(|(conversation, turn)| stage.play.turn(conversation, turn));
    let turn = turn.ok_or_else(|| Refusal::missing(format!("Response with id '{id}' not found.")))?;
    Ok(Frame::new(id.to_owned(), &Value::Null).ended(&turn.output, &turn.usage, &Ending::Completed))
}

fn create_conversation(stage: &Stage, body: &Value) -> Result<Value, Refusal> {
    let items = check::stored_items("conversation", body, &stage.play)?;
    let mut memory = stage.memory();
    let id = memory.store.create(body.get("metadata").cloned().unwrap_or_else(|| json!({})))?;
    memory.store.add(&id, items)?;
    memory.store.describe(&id)
}

fn model(id: &str) -> Value {
    json!({"id": id, "object": "model", "created": CREATED_AT, "owned_by": "mock"})
}
