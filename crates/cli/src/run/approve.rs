//! Asks for approvals at the terminal during a run.

use std::io::{self, BufRead, IsTerminal};

use sandbar::{RunState, Signal};
use tokio::sync::oneshot;

use super::{Approver, keyboard::Keyboard};
use crate::{
    streams::signals::Signals,
    view::{self, Decision, Mode, View},
};

/// Result of asking.
pub(super) enum Verdict {
    /// All calls are decided.
    GoOn(Box<RunState>),
    /// There is no terminal to ask on.
    NoTerminal,
    /// The user stopped the run, with an answer or with a signal.
    Cancelled(Option<Signal>),
}

/// Answer of the user.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    Yes,
    /// Yes to every call of the same tool.
    Always,
    /// No, with an optional reason for the model.
    No(Option<String>),
    /// Show the complete call first.
    View,
    /// Explain the answers.
    Help,
    Quit,
    /// An unknown answer.
    Unclear,
}

impl Answer {
    fn of(line: &str) -> Self {
        let line = line.trim();
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        match word.to_ascii_lowercase().as_str() {
            "y" | "yes" => Self::Yes,
            "a" | "all" | "always" => Self::Always,
            "n" | "no" => Self::No(Some(rest.trim().to_owned()).filter(|reason| !reason.is_empty())),
            "v" | "view" => Self::View,
            "?" | "h" | "help" => Self::Help,
            "q" | "quit" => Self::Quit,
            _ => Self::Unclear,
        }
    }
}

/// Source of the answers.
pub(super) struct ApprovalPrompt<'a> {
    pub(super) approver: Approver,
    pub(super) mode: Mode,
    pub(super) keyboard: Option<&'a Keyboard>,
}

impl ApprovalPrompt<'_> {
    /// Asks about every call that needs an approval.
    pub(super) async fn decide(&self, mut state: RunState, view: &mut View, signals: &mut Signals) -> Verdict {
        // An answer about one call may decide another.
        while let Some(call) = state.interruptions().into_iter().next() {
            view.ask(&call);
            let answer = match self.approver {
                Approver::Demo => Answer::Yes,
                Approver::Terminal if self.mode != Mode::Terminal || !io::stdin().is_terminal() => {
                    return Verdict::NoTerminal;
                }
                Approver::Terminal => match self.ask(&call.tool, view, signals).await {
                    Input::Answer(answer) => answer,
                    Input::Ended => return Verdict::NoTerminal,
                    Input::Signal(signal) => return Verdict::Cancelled(Some(signal)),
                },
            };
            let (decided, decision, reason) = match &answer {
                Answer::Yes => (state.approve(&call), Decision::Approved, None),
                Answer::Always => (state.approve_always(&call), Decision::ApprovedAlways, None),
                Answer::No(None) => (state.reject(&call), Decision::Rejected, None),
                Answer::No(Some(reason)) => {
                    (state.reject_with(&call, reason.as_str()), Decision::Rejected, Some(reason.as_str()))
                }
                Answer::Quit | Answer::View | Answer::Help | Answer::Unclear => return Verdict::Cancelled(None),
            };
            if let Err(error) = decided {
                view.notice(&error.to_string());
                return Verdict::Cancelled(None);
            }
            let by = match self.approver {
                Approver::Terminal => "you",
                Approver::Demo => "the demo itself",
            };
            view.answered(&view::Verdict { call_id: &call.call_id, decision, by, reason });
        }
        Verdict::GoOn(Box::new(state))
    }

    /// Asks until the user gives a valid answer.
    async fn ask(&self, tool: &str, view: &mut View, signals: &mut Signals) -> Input {
        if let Err(signal) = self.listen(view, signals).await {
            return Input::Signal(signal);
        }
        let typed = loop {
            view.prompt(&question(tool));
            match line(signals).await {
                Input::Answer(Answer::Unclear) => {}
                Input::Answer(Answer::Help) => view.explain(&answers(tool)),
                Input::Answer(Answer::View) => {
                    view.show_all();
                    if let Err(signal) = self.listen(view, signals).await {
                        break Input::Signal(signal);
                    }
                }
                typed => break typed,
            }
        };
        if let Some(keyboard) = self.keyboard {
            keyboard.quiet();
        }
        typed
    }

    /// Starts to accept input, after the call is shown and earlier input is discarded.
    async fn listen(&self, view: &View, signals: &mut Signals) -> Result<(), Signal> {
        tokio::select! {
            () = view.settle() => {}
            signal = signals.next() => return Err(signal),
        }
        if let Some(keyboard) = self.keyboard {
            keyboard.ask();
        }
        Ok(())
    }
}

fn question(tool: &str) -> String {
    format!("allow it? [y]es, [a]ll {tool} calls from now on, [n]o REASON, [v]iew, [q]uit, [?]: ")
}

/// Explanations of the answers.
fn answers(tool: &str) -> [String; 5] {
    [
        "y         allow this call only".to_owned(),
        format!("a         allow this call, and every later call of {tool} in this run, without a question"),
        "n REASON  reject this call; the model gets the reason".to_owned(),
        "v         show the complete call".to_owned(),
        "q         stop the run".to_owned(),
    ]
}

/// Input from the keyboard.
enum Input {
    Answer(Answer),
    /// Standard input ended.
    Ended,
    /// A signal came first.
    Signal(Signal),
}

async fn line(signals: &mut Signals) -> Input {
    let (sender, line) = oneshot::channel();
    // Reading a line cannot be cancelled; the thread ends with the process.
    let reader = std::thread::Builder::new().spawn(move || {
        let mut line = String::new();
        let read = io::stdin().lock().read_line(&mut line);
        let _receiver_gone = sender.send(read.ok().filter(|read| *read > 0).map(|_| line));
    });
    if reader.is_err() {
        return Input::Ended;
    }
    tokio::select! {
        line = line => line.ok().flatten().map_or(Input::Ended, |line| Input::Answer(Answer::of(&line))),
        signal = signals.next() => Input::Signal(signal),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_case_insensitive_and_only_exact_answers_are_a_yes() {
        let no = |reason: &str| Answer::No(Some(reason.to_owned()));
        for (line, answer) in [
            ("y\n", Answer::Yes),
            (" YES \n", Answer::Yes),
            ("a", Answer::Always),
            ("n", Answer::No(None)),
            ("no not on a Friday\n", no("not on a Friday")),
            ("all", Answer::Always),
            ("v\n", Answer::View),
            ("?", Answer::Help),
            ("q", Answer::Quit),
            ("", Answer::Unclear),
            ("yep", Answer::Unclear),
            ("yn", Answer::Unclear),
        ] {
            assert_eq!(Answer::of(line), answer, "{line:?}");
        }
    }
}
