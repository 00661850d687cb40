//! A model server that plays a script over real HTTP, and judges every request it gets.
//!
//! It is the honest other side of a harness: it shares no code with the client it tests. It speaks the Responses API
//! and Chat Completions, streams every event a real server sends, turns down whatever a real server would, and goes
//! wrong in every way you ask it to.
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
//! # Which turn comes next
//!
//! The transcript decides, and nothing else: the server looks for what its turns have left in the request (ids, call
//! ids, texts) and answers with the turn after the last one it finds. A run that is resumed, repeated or sent twice gets
//! the right answer. With `previous_response_id` the id says how far things are, with `conversation` the items the
//! server keeps, and after `/responses/compact` the compacted item. Past the last turn there is an error that says so,
//! or [`Script::closing`].
//!
//! A script can hold several [`Conversation`]s, each for the requests that meet its [`When`]; the first that fits answers.
//! So several agents can talk to one server.
//!
//! # What is judged
//!
//! Fields that do not exist, items that lack something, outputs without a call and calls without an output, tools with
//! the same name, schemas that break the strict rules, a choice of a tool that is not offered, and more. The client gets
//! the usual error with the `param` that is wrong; [`MockServer::problems`] has them all.
//!
//! # What goes wrong
//!
//! Each [`Turn`] has [`Fault`]s, one per attempt: statuses, delays, slow bytes, cut connections, failed responses,
//! malformed streams, silence.
//!
//! # As JSON
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
//! `cargo run -p sandbar-mock --example serve -- script.json` serves one until it is interrupted.

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
