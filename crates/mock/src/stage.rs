//! State of a running server: the script, a bounded log, and a cache of rendered answers.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, atomic::Ordering},
};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;

use crate::{
    Fault,
    chat::render::{UsageChunk, chunks, whole},
    play::{Play, Ready},
    refusal::Refusal,
    render::{Ending, Rendered, events, response::Frame},
    store::Store,
    transcript::Choice,
};

/// A request that the server received.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Request {
    /// Method, such as `POST`.
    pub method: String,
    /// Path with the query, such as `/v1/responses`.
    pub path: String,
    /// Headers in the order of arrival, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// Body; null if it is not JSON.
    pub body: Value,
}

impl Request {
    /// The first header with this name; case is ignored.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

/// A request that the server refused, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// Path, such as `/v1/responses`.
    pub path: String,
    /// Status that the client received.
    pub status: u16,
    /// Position in the request, such as `input[3].call_id`.
    pub param: Option<String>,
    /// Error code for programs.
    pub code: Option<String>,
    /// Message for users.
    pub message: String,
}

/// Format of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Form {
    Events,
    Json,
    ChatChunks(UsageChunk),
    ChatJson,
}

/// A logged request. Its body is parsed only when the request is read, because most requests are never read.
#[derive(Clone, Debug)]
pub(crate) struct Logged {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Bytes,
}

/// Limit of the log, in bytes.
const MOST_LOGGED: usize = 256 << 20;
/// Limit of the cache of rendered answers, in bytes.
const MOST_CACHED: usize = 128 << 20;

/// State that all connections share.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) play: Play,
    log_entries: usize,
    memory: Mutex<Memory>,
}

#[derive(Debug, Default)]
pub(crate) struct Memory {
    log: VecDeque<Logged>,
    logged: usize,
    problems: VecDeque<Problem>,
    cache: HashMap<(usize, usize, Form), (Frame, Arc<Rendered>)>,
    cached: usize,
    pub(crate) store: Store,
    requests: u64,
}

impl Stage {
    pub(crate) fn new(play: Play, log_entries: usize) -> Self {
        Self { play, log_entries, memory: Mutex::default() }
    }

    pub(crate) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock()
    }

    /// Logs a request and returns its number.
    pub(crate) fn log(&self, request: Logged) -> u64 {
        let mut memory = self.memory();
        memory.requests += 1;
        memory.logged += request.body.len();
        memory.log.push_back(request);
        while memory.log.len() > self.log_entries || memory.logged > MOST_LOGGED {
            let Some(oldest) = memory.log.pop_front() else { break };
            memory.logged -= oldest.body.len();
        }
        memory.requests
    }

    pub(crate) fn complain(&self, path: &str, refusal: &Refusal) {
        let mut memory = self.memory();
        memory.problems.push_back(Problem {
            path: path.to_owned(),
            status: refusal.status,
            param: refusal.param.clone(),
            code: refusal.code.map(str::to_owned),
            message: refusal.message.clone(),
        });
        if memory.problems.len() > self.log_entries {
            memory.problems.pop_front();
        }
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        let log: Vec<Logged> = self.memory().log.iter().cloned().collect();
        let parse = |logged: Logged| Request {
            method: logged.method,
            path: logged.path,
            headers: logged.headers,
            body: serde_json::from_slice(&logged.body).unwrap_or_default(),
        };
        log.into_iter().map(parse).collect()
    }

    pub(crate) fn problems(&self) -> Vec<Problem> {
        self.memory().problems.iter().cloned().collect()
    }

    /// Fault of this attempt at a turn.
    pub(crate) fn next_fault<'t>(&self, turn: &'t Ready) -> &'t Fault {
        let attempt = turn.attempts.fetch_add(1, Ordering::Relaxed);
        turn.faults.get(attempt).unwrap_or(&Fault::None)
    }

    /// The rendered answer. The same answer to the same request is rendered once.
    pub(crate) fn render(&self, choice: &Choice, frame: Frame, form: Form, ending: &Ending) -> Rendered {
        let Some(turn) = self.play.turn(choice.conversation, choice.turn) else { return Rendered::json(&Value::Null) };
        let key = (choice.conversation, choice.turn, form);
        let cacheable = *ending == Ending::Completed;
        if cacheable
            && let Some((known, rendered)) = self.memory().cache.get(&key)
            && *known == frame
        {
            return Rendered::clone(rendered);
        }
        let play = &self.play;
        let rendered = match form {
            Form::Events => events::render(&frame, turn, ending, play.events, play.delta_chars),
            Form::Json => Rendered::json(&frame.ended(&turn.output, &turn.usage, ending)),
            Form::ChatChunks(usage) => chunks(&frame, turn, ending, usage, play.delta_chars),
            Form::ChatJson => Rendered::json(&whole(&frame, turn, ending)),
        };
        if cacheable {
            self.memory().keep(key, frame, &rendered);
        }
        rendered
    }
}

impl Memory {
    fn keep(&mut self, key: (usize, usize, Form), frame: Frame, rendered: &Rendered) {
        let size = rendered.bytes.len() + rendered.ends.len() * size_of::<usize>();
        if self.cached + size > MOST_CACHED {
            self.cache.clear();
            self.cached = 0;
        }
        if size > MOST_CACHED {
            return;
        }
        self.cached += size;
        if let Some((_, old)) = self.cache.insert(key, (frame, Arc::new(rendered.clone()))) {
            self.cached -= old.bytes.len() + old.ends.len() * size_of::<usize>();
        }
    }
}
