"""The official client against a mock server: `openai_client.py CHECK BASE_URL`. Says `ok` if everything held."""

import asyncio
import json
import sys
import urllib.request

import openai
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.conversations import Conversation
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

CHECK, URL = sys.argv[1:3]
EVENT = TypeAdapter(ResponseStreamEvent)


def client(key="key", retries=0, **options):
    return openai.OpenAI(base_url=URL, api_key=key, max_retries=retries, timeout=60, **options)


def raw(path, body):
    """The answer as it is on the wire, without any help of the client."""
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(f"{URL}{path}", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as response:
        return response.read().decode()


def raw_events(body):
    for line in raw("/responses", {**body, "stream": True}).splitlines():
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))


TOOL = {
    "type": "function",
    "name": "f",
    "description": "d",
    "strict": True,
    "parameters": {"type": "object", "properties": {}, "required": [], "additionalProperties": False},
}


def items():
    """Every turn of the script holds every kind of item; each is parsed strictly, streamed and not."""
    body = {"model": "m", "input": "hi", "tools": [TOOL, {"type": "web_search"}], "metadata": {"a": "b"}}
    whole = client().responses.create(**body)
    Response.model_validate(whole.model_dump(by_alias=True, exclude_unset=True))
    strict = Response.model_validate_json(raw("/responses", body))
    assert strict.output == whole.output
    kinds = [item.type for item in whole.output]
    assert len(kinds) == len(set(kinds)) + 1, kinds

    seen = set()
    last = None
    for event in raw_events(body):
        last = EVENT.validate_python(event)
        assert last.type == event["type"] and last.sequence_number == event["sequence_number"]
        seen.add(last.type)
    assert last.type == "response.completed"
    assert last.response == strict

    streamed = list(client().responses.create(**body, stream=True))
    assert [event.type for event in streamed][-1] == "response.completed"
    assert streamed[-1].response == whole

    with client().responses.stream(**body) as stream:
        snapshots = {}
        for event in stream:
            if event.type in ("response.output_text.delta", "response.function_call_arguments.delta"):
                snapshots[event.output_index] = event.snapshot
        final = stream.get_final_response()
    assert snapshots[0] == "Grüße, 世界 🦀", snapshots
    assert final.output_text == whole.output_text
    assert plain(final) == plain(whole)

    async def asynchronous():
        async with openai.AsyncOpenAI(base_url=URL, api_key="key", max_retries=0) as remote:
            async with remote.responses.stream(**body) as stream:
                return await stream.get_final_response()

    assert plain(asyncio.run(asynchronous())) == plain(whole)
    for kind in kinds:
        print(kind, file=sys.stderr)
    return len(seen)


def plain(response):
    """What a response says, without what the client adds to it."""
    text = response.model_dump_json(exclude={"output": {"__all__": {"parsed_arguments", "content"}}}, exclude_none=True)
    return json.loads(text), response.output_text


def minimal():
    with client().responses.stream(model="m", input="hi") as stream:
        assert [event.type for event in stream][-1] == "response.completed"
    response = client().responses.create(model="m", input="hi")
    assert response.output_text == "hello" and response.usage.total_tokens == 7


def loop():
    """A run as a harness does it: calls, outputs, and the end; stateless, by response id, and in a conversation."""
    remote = client()
    items = [{"role": "user", "content": "hi"}]
    for _ in range(3):
        response = remote.responses.create(model="m", input=items, tools=[TOOL])
        items += response.output
        items += [
            {"type": "function_call_output", "call_id": item.call_id, "output": "ok"}
            for item in response.output
            if item.type == "function_call"
        ]
    assert response.output_text == "done", response

    previous, given = None, "hi"
    for _ in range(3):
        response = remote.responses.create(model="m", input=given, tools=[TOOL], previous_response_id=previous)
        calls = [item for item in response.output if item.type == "function_call"]
        given = [{"type": "function_call_output", "call_id": call.call_id, "output": "ok"} for call in calls]
        previous = response.id
    assert response.output_text == "done", response
    assert remote.responses.retrieve(previous).output_text == "done"

    conversation = remote.conversations.create(items=[{"role": "user", "content": "first", "type": "message"}])
    Conversation.model_validate(conversation.model_dump())
    given = "hi"
    for _ in range(3):
        response = remote.responses.create(model="m", input=given, tools=[TOOL], conversation=conversation.id)
        calls = [item for item in response.output if item.type == "function_call"]
        given = [{"type": "function_call_output", "call_id": call.call_id, "output": "ok"} for call in calls]
    assert response.output_text == "done", response
    kept = [item.type for item in remote.conversations.items.list(conversation.id, order="asc", limit=3)]
    round = ["function_call", "function_call_output"]
    assert kept == ["message", "message", *round, "reasoning", *round, "message"], kept
    assert remote.conversations.delete(conversation.id).deleted

    small = remote.responses.compact(model="m", input=items[:3])
    assert small.object == "response.compaction" and small.output[-1].type == "compaction"
    response = remote.responses.create(model="m", input=[item.to_dict() for item in small.output], tools=[TOOL])
    assert response.id == "resp_0_1" and response.output[1].call_id == "call_1_1", response
    assert [model.id for model in remote.models.list()] == ["mock"]


def chat():
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}],
    }
    strict = ChatCompletion.model_validate_json(raw("/chat/completions", body))
    whole = client().chat.completions.create(**body)
    assert strict == whole
    message = whole.choices[0].message
    assert message.content == "Grüße, 世界 🦀" and whole.choices[0].finish_reason == "tool_calls"
    assert [call.function.arguments for call in message.tool_calls] == ['{"a":1}', "{}"]

    chunks = list(client().chat.completions.create(**body, stream=True, stream_options={"include_usage": True}))
    for chunk in chunks:
        ChatCompletionChunk.model_validate(chunk.model_dump(exclude_unset=True))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == message.content and chunks[-1].usage == whole.usage

    with client().chat.completions.stream(**body, stream_options={"include_usage": True}) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    got = final.choices[0].message
    assert got.content == message.content and final.usage.total_tokens == whole.usage.total_tokens
    assert [(c.id, c.function.name, c.function.arguments) for c in got.tool_calls] == [
        (c.id, c.function.name, c.function.arguments) for c in message.tool_calls
    ]
    body["messages"] += [message.model_dump(exclude_none=True)]
    body["messages"] += [{"role": "tool", "tool_call_id": call.id, "content": "ok"} for call in message.tool_calls]
    assert client().chat.completions.create(**body).choices[0].message.content == "done"


EXPECTED = [
    (400, openai.BadRequestError),
    (401, openai.AuthenticationError),
    (403, openai.PermissionDeniedError),
    (404, openai.NotFoundError),
    (409, openai.ConflictError),
    (422, openai.UnprocessableEntityError),
    (429, openai.RateLimitError),
    (500, openai.InternalServerError),
    (503, openai.InternalServerError),
]


def errors():
    """Statuses become the client's own exceptions; what the server finds wrong names its place."""
    for status, kind in EXPECTED:
        try:
            client().responses.create(model="m", input="hi", stream=True)
            raise AssertionError(f"{status} was not noticed")
        except openai.APIStatusError as error:
            assert type(error) is kind and error.status_code == status, error
            assert error.request_id, error
    # Then a cut, a failure, an error in the stream, and two statuses the client retries by itself.
    events = []
    try:
        events.extend(client().responses.create(model="m", input="hi", stream=True))
        raise AssertionError("the cut was not noticed")
    except openai.APIConnectionError:
        assert len(events) == 3, events
    failed = list(client().responses.create(model="m", input="hi", stream=True))[-1]
    assert failed.type == "response.failed" and failed.response.error.code == "server_error", failed
    EVENT.validate_python(failed.model_dump(exclude_unset=True))
    incomplete = list(client().responses.create(model="m", input="hi", stream=True))[-1]
    assert incomplete.response.incomplete_details.reason == "max_output_tokens", incomplete
    events = list(client().responses.create(model="m", input="hi", stream=True))
    assert events[-1].type == "error" and events[-1].message == "no", events[-1]
    response = client(retries=2).responses.create(model="m", input="hi")
    assert response.output_text == "hello"

    for body, param in [
        ({"input": [{"type": "function_call_output", "call_id": "x", "output": ""}]}, "input[0]"),
        ({"input": "hi", "tools": [TOOL, TOOL]}, "tools[1].name"),
        ({"input": "hi", "extra_body": {"odd": 1}}, "odd"),
    ]:
        try:
            client().responses.create(model="m", **body)
            raise AssertionError(f"{body} was taken")
        except openai.BadRequestError as error:
            assert error.param == param and error.type == "invalid_request_error", error
    try:
        client(key="wrong").responses.create(model="m", input="hi")
        raise AssertionError("any key was taken")
    except openai.AuthenticationError as error:
        assert error.code == "invalid_api_key", error


def framing():
    """Streams that are odd but legal are read like any other."""
    for _ in range(int(sys.argv[3])):
        events = list(client().responses.create(model="m", input="hi", stream=True))
        assert events[-1].response.output_text == "Grüße, 世界 🦀", events[-1]


{"items": items, "minimal": minimal, "loop": loop, "chat": chat, "errors": errors, "framing": framing}[CHECK]()
print("ok")
