//! The result of a call to the process table: as the text that models know, and as a JSON object.

use std::{fmt::Write, time::Duration};

use serde::{Serialize, Serializer};

use crate::{Op, SandboxError};

/// What happened to a process since the last call.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Update {
    /// Six hexadecimal digits that identify this update.
    pub chunk_id: String,
    /// Duration of the call.
    #[serde(rename = "wall_time_seconds", serialize_with = "seconds")]
    pub wall_time: Duration,
    /// Exit code, if the process has exited; it is then no longer in the table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Number of the process, while it runs.
    #[serde(rename = "session_id", skip_serializing_if = "Option::is_none")]
    pub process_id: Option<u64>,
    /// Number of printed tokens, if some are missing from `output`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub original_token_count: Option<u64>,
    /// Output of the process, truncated if necessary.
    pub output: String,
    /// Number of bytes that were dropped because no call read them in time.
    #[serde(skip)]
    pub omitted_bytes: u64,
    /// Number of input bytes that the process did not accept in time; `output` ends with a line about it.
    #[serde(skip)]
    pub unaccepted_bytes: usize,
    /// Processes that were evicted because the table was full; `output` ends with a line about each.
    #[serde(skip)]
    pub evicted: Vec<u64>,
}

fn seconds<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(time.as_secs_f64())
}

impl Update {
    /// The update as a model reads it.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = format!("Chunk ID: {}\nWall time: {:.4} seconds\n", self.chunk_id, self.wall_time.as_secs_f64());
        // Writing to a string cannot fail.
        let _infallible = self.exit_code.map(|code| writeln!(text, "Process exited with code {code}"));
        let _infallible = self.process_id.map(|id| writeln!(text, "Process running with session ID {id}"));
        let _infallible = self.original_token_count.map(|count| writeln!(text, "Original token count: {count}"));
        text + "Output:\n" + &self.output
    }

    /// An error as an update with exit code 1, for failures that a model can read and act on.
    pub(super) fn refusal(chunk_id: String, wall_time: Duration, error: &SandboxError) -> Self {
        let typed = matches!(error, SandboxError::Process { .. });
        let tool = if typed || error.op() == Op::PtyStdin { "write_stdin" } else { "exec_command" };
        Self {
            chunk_id,
            wall_time,
            exit_code: Some(1),
            process_id: None,
            original_token_count: None,
            output: format!("{tool} failed: {}", error.full_message()),
            omitted_bytes: 0,
            unaccepted_bytes: 0,
            evicted: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use sandbar_machine::MachineError;

    use super::*;

    fn update() -> Update {
        Update {
            chunk_id: "00beef".to_owned(),
            wall_time: Duration::from_micros(1_234_567),
            exit_code: None,
            process_id: None,
            original_token_count: None,
            output: "hello\n".to_owned(),
            omitted_bytes: 7,
            unaccepted_bytes: 0,
            evicted: Vec::new(),
        }
    }

    #[test]
    fn the_text_has_the_format_that_models_know() {
        let head = "Chunk ID: 00beef\nWall time: 1.2346 seconds\n";
        let table = [
            (update(), "Output:\nhello\n"),
            (Update { exit_code: Some(-1), ..update() }, "Process exited with code -1\nOutput:\nhello\n"),
            (Update { process_id: Some(1000), ..update() }, "Process running with session ID 1000\nOutput:\nhello\n"),
            (
                Update { exit_code: Some(0), original_token_count: Some(12), output: String::new(), ..update() },
                "Process exited with code 0\nOriginal token count: 12\nOutput:\n",
            ),
        ];
        for (update, rest) in table {
            assert_eq!(update.to_text(), format!("{head}{rest}"));
        }
    }

    #[test]
    fn json_contains_only_known_fields() {
        let json = |update: Update| serde_json::to_string(&update).unwrap();
        assert_eq!(json(update()), r#"{"chunk_id":"00beef","wall_time_seconds":1.234567,"output":"hello\n"}"#);
        assert_eq!(
            json(Update { process_id: Some(7), original_token_count: Some(3), ..update() }),
            r#"{"chunk_id":"00beef","wall_time_seconds":1.234567,"session_id":7,"original_token_count":3,"output":"hello\n"}"#
        );
    }

    #[test]
    fn a_refusal_names_the_tool_and_what_to_do() {
        let text = |error| Update::refusal("000000".to_owned(), Duration::ZERO, &error).to_text();
        let head = "Chunk ID: 000000\nWall time: 0.0000 seconds\nProcess exited with code 1\nOutput:\n";
        assert_eq!(
            text(SandboxError::pty_session_not_found(4242_u64)),
            format!("{head}write_stdin failed: PTY session not found: 4242")
        );
        assert!(text(SandboxError::pty_stdin_unavailable(4242_u64)).contains("tty=true"));
        let refused = SandboxError::exec_transport_error(vec!["x".to_owned()], "gone").because(MachineError::Gone);
        assert_eq!(text(refused), format!("{head}exec_command failed: cannot run x: the machine is gone"));
    }
}
