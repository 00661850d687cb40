//! A model server that follows a script over real HTTP, and checks every request.
//!
//! The server shares no code with the client that it tests. It supports the Responses API and Chat Completions, streams
//! every event that a real server sends, refuses every request that a real server would refuse, and injects faults on
//! demand.
//!
//! ```
//! use sandbar_mock::{Fault, MockServer, Script, Turn, item};
//! use serde_json::json;
//!
//! let script = Script::new()
//!     .turn(item::function_call("add", json!({"a": 1, "b": 2})))
//!     .turn(Turn::new([item::text("The sum is 3.")]).fault(Fault::status(429).header("retry-after-ms", "5")));
//! let server = MockServer::start(script)?;
//! assert!(server.base_url().starts_with("http://127.0.0.1:"));
//! // … run the client against `server.base_url()` …
//! assert_eq!(server.problems(), []);
//! # Ok::<(), sandbar_mock::MockError>(())
//! ```
//!
//! # Choice of the next turn
//!
//! Only the transcript decides: the server searches the request for traces of its turns (ids, call ids, texts) and answers
//! with the turn after the last one that it finds. A run that is resumed or repeated gets the right answer. The progress is
//! also encoded in a `previous_response_id`, in the stored items of a `conversation`, and in the item of
//! `/responses/compact`. A request after the last turn gets an error, or [`Script::closing`].
//!
//! A script can contain several [`Conversation`]s, each for the requests that match its [`When`]; the first match answers.
//! Several agents can thus use one server.
//!
//! # Checks
//!
//! The server refuses unknown fields, incomplete items, outputs without a call, calls without an output, several tools with
//! one name, schemas that violate the strict rules, a choice of a tool that is not offered, and more. The client receives an
//! error with the invalid `param`; [`MockServer::problems`] lists all refusals.
//!
//! # Faults
//!
//! Each [`Turn`] has [`Fault`]s, one per attempt: statuses, delays, slow bytes, cut connections, failed responses,
//! malformed streams, silence.
//!
//! # Scripts in JSON
//!
//! ```
//! # use sandbar_mock::Script;
//! let script = Script::from_json(r#"{
//!     "turns": [
//!         {"output": [{"type": "function_call", "name": "add", "arguments": {"a": 1}}]},
//!         {"output": [{"type": "message", "content": "Done."}],
//!          "usage": {"input_tokens": 12, "output_tokens": 3},
//!          "faults": [{"type": "cut_after_events", "events": 3}, {"type": "status", "status": 503}]}
//!     ],
//!     "closing": "There is nothing more to say."
//! }"#)?;
//! # drop(script);
//! # Ok::<(), sandbar_mock::MockError>(())
//! ```
//!
//! Keys of a script: `turns` or `conversations` (each `name`, `when`, `turns`), `closing`, `authorization` (true, or the
//! key), `events` (`full`, `minimal`), `delta_chars`. Keys of `when`: `last_user`, `tool`, `model`, `instructions`. Types
//! of faults: `none`, `status` (`status`, `headers`, `body`), `delay` (`ms`), `slow` (`bytes`, `every_ms`),
//! `cut_after_events` (`events`), `cut_after_bytes` (`bytes`), `failed` and `error_event` (`code`, `message`),
//! `incomplete` (`reason`), `empty`, `content_type` (`value`), `hang`, `garbage_line`, `invalid_json`, `invalid_utf8`,
//! `split`, `crlf`, `comments`, `no_final_blank`, `oversized_line` (`bytes`).
//!
//! `cargo run -p sandbar-mock --example serve -- script.json` serves a script until it is interrupted.

mod answer;
mod chain;
mod chat;
mod check;
mod delivery;
mod error;
mod fault;
pub mod item;
mod play;
mod refusal;
mod render;
mod script;
mod server;
mod stage;
mod store;
mod transcript;

pub use error::MockError;
pub use fault::{Fault, Malformed};
pub use script::{Authorization, Conversation, Events, Script, Turn, When};
pub use server::MockServer;
pub use stage::{Problem, Request};
