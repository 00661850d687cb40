//! A tool call: its headline, its arguments and its outcome.

use std::time::Duration;

use sandbar::{
    Item, RunItem, ToolOutput,
    agent::View as Kind,
    sandbox::{
        image::ViewImageArgs,
        patch,
        processes::{ExecCommandArgs, WriteStdinArgs},
    },
};
use sandbar_runs::format_size;
use serde_json::{Map, Value};

use super::{
    diff::{self, Diff},
    line::{self, Line},
    picture, sanitize,
    surface::Glyphs,
    units,
};
use crate::render::Style;

/// Maximum number of characters of a command in a row.
const SHORT: usize = 300;

/// A tool call by kind.
pub(super) enum CallKind {
    Command { args: ExecCommandArgs },
    Typing { args: WriteStdinArgs },
    Patch { diff: Diff, via: Option<String> },
    Image { path: String },
    Other { tool: String, arguments: String },
}

/// Maximum number of rows of a command, of rows of the arguments of an unknown tool, and of lines of a patch.
pub(super) const COMMAND_ROWS: usize = 6;
const ARGUMENT_ROWS: usize = 2;
const PATCH_LINES: usize = 40;

/// Tool and raw arguments of a call.
pub(super) fn request(item: &Item) -> (String, String) {
    match item.view() {
        Kind::FunctionCall(call) => (call.name.to_owned(), call.arguments.to_owned()),
        Kind::CustomCall(call) => (call.name.to_owned(), call.input.to_owned()),
        _ => {
            let tool = item.text_field("name").or_else(|| item.kind().strip_suffix("_call"));
            let rest = item.clone().without(&["type", "id", "call_id", "status", "name"]);
            let rest = serde_json::to_string(rest.fields()).unwrap_or_default();
            (tool.unwrap_or(item.kind()).to_owned(), rest)
        }
    }
}

impl CallKind {
    pub(super) fn read(tool: &str, arguments: &str, glyphs: &Glyphs) -> Self {
        let known = match tool {
            "exec_command" => serde_json::from_str(arguments).ok().map(|args| Self::command(args, glyphs)),
            "write_stdin" => serde_json::from_str(arguments).ok().map(|args| Self::Typing { args }),
            "apply_patch" => Diff::read(arguments, glyphs, diff::PASSING).map(|diff| Self::Patch { diff, via: None }),
            "view_image" => serde_json::from_str(arguments).ok().map(|ViewImageArgs { path, .. }| Self::Image { path }),
            _ => None,
        };
        known.unwrap_or_else(|| Self::Other { tool: tool.to_owned(), arguments: arguments.to_owned() })
    }

    fn command(args: ExecCommandArgs, glyphs: &Glyphs) -> Self {
        let typed = patch::from_script(&args.cmd).and_then(|found| {
            let diff = Diff::read(&found.patch, glyphs, diff::PASSING)?;
            Some(Self::Patch { diff, via: found.directory(args.directory().as_deref()) })
        });
        typed.unwrap_or(Self::Command { args })
    }

    /// Maximum number of rows of the headline.
    pub(super) fn rows(&self) -> usize {
        if matches!(self, Self::Other { .. }) { ARGUMENT_ROWS } else { COMMAND_ROWS }
    }

    /// Short form for one row.
    pub(super) fn short(&self) -> String {
        match self {
            Self::Command { args } => format!("$ {}", sanitize::visible(line::prefix(&args.cmd, SHORT)).join(" ")),
            Self::Typing { args } => format!("~ write_stdin {}", args.session_id),
            Self::Patch { .. } => "apply_patch".to_owned(),
            Self::Image { path } => format!("view_image {}", sanitize::visible_line(path)),
            Self::Other { tool, .. } => sanitize::visible_line(tool),
        }
    }

    /// The headline, which may have several lines.
    pub(super) fn headlines(&self, glyphs: &Glyphs) -> Vec<Line> {
        match self {
            Self::Command { args } => command(args, glyphs),
            Self::Typing { args } => {
                let line = Line::styled(Style::Strong, format!("~ write_stdin {}", args.session_id));
                let typed = if args.chars.is_empty() { String::new() } else { format!(" {:?}", args.chars) };
                vec![line.then(sanitize::visible_line(&typed))]
            }
            Self::Patch { diff, via } => {
                let files = units::plural(diff.files.len() as u64, "file");
                let line =
                    Line::styled(Style::Strong, format!("{} apply_patch", glyphs.patch)).then(format!(" {files}"));
                vec![faintly(line, via.as_deref().map(|dir| format!("in {dir}")))]
            }
            Self::Image { path } => {
                let line = Line::styled(Style::Strong, format!("{} view_image", glyphs.image));
                vec![line.then(format!(" {}", sanitize::visible_line(path)))]
            }
            Self::Other { tool, arguments } => {
                let line = Line::styled(Style::Strong, format!("{} {}", glyphs.tool, sanitize::visible_line(tool)));
                let arguments = arguments.trim();
                let arguments = if matches!(arguments, "" | "{}") { "" } else { arguments };
                let mut lines: Vec<Line> = capped(sanitize::visible(arguments), ARGUMENT_ROWS, glyphs);
                match lines.len() {
                    0 => vec![line],
                    1 => vec![line.then(format!(" {}", sanitize::visible_line(arguments)))],
                    _ => {
                        lines.insert(0, line);
                        lines
                    }
                }
            }
        }
    }

    /// Lines below the headline.
    pub(super) fn body(&self, glyphs: &Glyphs) -> Vec<Line> {
        let Self::Patch { diff, .. } = self else { return Vec::new() };
        let mut lines: Vec<Line> = diff.lines.iter().take(PATCH_LINES).cloned().collect();
        let rest = diff.lines.len().saturating_sub(PATCH_LINES) as u64;
        if rest > 0 {
            lines.push(Line::styled(Style::Faint, format!("{} {}", glyphs.more, units::plural(rest, "more line"))));
        }
        lines
    }
}

fn command(args: &ExecCommandArgs, glyphs: &Glyphs) -> Vec<Line> {
    let mut lines = capped(sanitize::visible(&args.cmd), COMMAND_ROWS, glyphs);
    let first = if lines.is_empty() { Line::default() } else { lines.remove(0) };
    let mut notes = Vec::new();
    notes.extend(args.directory().map(|dir| format!("in {dir}")));
    notes.extend(args.shell.as_ref().map(|shell| format!("by {shell}")));
    notes.extend(args.tty.then(|| "tty".to_owned()));
    let notes = (!notes.is_empty()).then(|| notes.join(", "));
    let dollar = Line::styled(Style::Strong, "$ ").and(first);
    lines.insert(0, faintly(dollar, notes));
    lines
}

fn faintly(line: Line, note: Option<String>) -> Line {
    match note {
        Some(note) => line.then_styled(Style::Faint, format!("  ({})", sanitize::visible_line(&note))),
        None => line,
    }
}

/// Limits the number of lines, and adds the number of hidden ones.
fn capped(lines: Vec<String>, most: usize, glyphs: &Glyphs) -> Vec<Line> {
    let rest = lines.len().saturating_sub(most) as u64;
    let shown = lines.into_iter().take(most).enumerate();
    let mut shown: Vec<Line> = shown
        .map(|(at, text)| if at == 0 { Line::styled(Style::Strong, text) } else { Line::plain(text).indented(2) })
        .collect();
    if rest > 0 {
        let words = format!("{} {}", glyphs.more, units::plural(rest, "more line"));
        shown.push(Line::styled(Style::Faint, words).indented(2));
    }
    shown
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallStatus {
    Succeeded,
    Failed,
    /// The command still runs.
    Running,
}

/// Outcome of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub ended: CallStatus,
    /// Short description; empty if the output is sufficient.
    pub words: String,
    /// Output, for calls without live output.
    pub output: String,
}

impl Outcome {
    pub(super) fn read(item: &RunItem, glyphs: &Glyphs) -> Self {
        let told = |ended, output: &str| Self { ended, words: String::new(), output: output.to_owned() };
        match &item.output {
            Some(ToolOutput::Failure(text)) => told(CallStatus::Failed, text),
            Some(ToolOutput::Text(text)) => {
                Self::of_process(text, glyphs).unwrap_or_else(|| told(CallStatus::Succeeded, text))
            }
            Some(ToolOutput::Json(value)) => told(CallStatus::Succeeded, &value.to_string()),
            Some(ToolOutput::Parts(_)) | None => {
                let badly = item.raw.text_field("status").is_some_and(|status| status == "failed");
                let ended = if badly { CallStatus::Failed } else { CallStatus::Succeeded };
                match item.raw.fields().get("output") {
                    Some(Value::String(text)) => Self::of_process(text, glyphs).unwrap_or_else(|| told(ended, text)),
                    Some(Value::Array(parts)) => of_parts(parts, glyphs),
                    Some(other) => told(ended, &other.to_string()),
                    None => told(ended, ""),
                }
            }
        }
    }

    /// Parses a result of the process table.
    fn of_process(text: &str, glyphs: &Glyphs) -> Option<Self> {
        let (head, output) = text.strip_prefix("Chunk ID: ")?.split_once("Output:\n")?;
        let after = |label: &str| head.lines().find_map(|line| line.strip_prefix(label));
        let seconds = after("Wall time: ").and_then(|rest| rest.strip_suffix(" seconds")?.parse::<f64>().ok());
        let time = Duration::try_from_secs_f64(seconds.unwrap_or_default()).unwrap_or_default();
        let (ended, what) = match (after("Process exited with code "), after("Process running with session ID ")) {
            (Some("0"), _) => (CallStatus::Succeeded, "exit 0".to_owned()),
            (Some(code), _) => (CallStatus::Failed, format!("exit {code}")),
            (None, Some(id)) => (CallStatus::Running, format!("still running as {id}")),
            (None, None) => (CallStatus::Succeeded, "done".to_owned()),
        };
        let words = format!("{what} {} {}", glyphs.dot, units::duration(time));
        Some(Self { ended, words: sanitize::visible_line(&words), output: output.to_owned() })
    }
}

fn of_parts(parts: &[Value], glyphs: &Glyphs) -> Outcome {
    let mut words = Vec::new();
    let mut output = String::new();
    for part in parts {
        match (part["type"].as_str(), part["text"].as_str()) {
            (_, Some(text)) => {
                output += text;
                output += "\n";
            }
            (Some("input_image"), _) => {
                let url = part["image_url"].as_str().unwrap_or_default();
                words.extend(picture::dimensions(url).map(|(x, y)| format!("{x}{}{y}", glyphs.times)));
                words.extend(picture::bytes(url).map(format_size));
            }
            _ => words.extend(picture::bytes(part["file_data"].as_str().unwrap_or_default()).map(format_size)),
        }
    }
    Outcome { ended: CallStatus::Succeeded, words: words.join(&format!(" {} ", glyphs.dot)), output }
}

impl Outcome {
    /// Removes the parts that the call has already shown.
    pub(super) fn below(mut self, called: &CallKind) -> Self {
        let is_patch = matches!(called, CallKind::Patch { .. });
        let output = self.output.trim_end();
        match self.ended {
            CallStatus::Succeeded if is_patch => {
                if self.words.is_empty() {
                    "applied".clone_into(&mut self.words);
                }
                self.output.clear();
            }
            CallStatus::Failed if self.words.is_empty() && !output.contains('\n') => {
                self.words = sanitize::visible_line(output);
                self.output.clear();
            }
            CallStatus::Failed if self.words.is_empty() => "failed".clone_into(&mut self.words),
            CallStatus::Succeeded | CallStatus::Failed | CallStatus::Running => {}
        }
        self
    }
}

/// The output of a call for JSON, without base64 data.
pub(super) fn without_base64(output: &Value) -> Value {
    let Value::Array(parts) = output else { return output.clone() };
    let lightened = parts.iter().map(|part| {
        let kind = part["type"].as_str().unwrap_or_default();
        let field = if kind == "input_file" { "file_data" } else { "image_url" };
        match part[field].as_str().and_then(picture::bytes) {
            Some(bytes) => Value::Object(Map::from_iter([
                ("type".to_owned(), Value::from(kind)),
                ("bytes".to_owned(), Value::from(bytes)),
            ])),
            None => part.clone(),
        }
    });
    Value::Array(lightened.collect())
}
