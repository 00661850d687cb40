//! What a person is asked during a run, at the terminal, and what they may answer.

use std::io::{self, BufRead, IsTerminal};

use sandbar::{RunState, Signal};
use tokio::sync::oneshot;

use super::{Approver, keyboard::Keyboard};
use crate::{
    signals::Signals,
    view::{self, Decision, Mode, View},
};

/// What comes of asking.
pub(super) enum Verdict {
    /// Everything is decided.
    GoOn(Box<RunState>),
    /// There is nobody to ask.
    Nobody,
    /// The person wants to stop, perhaps by a signal.
    Cancelled(Option<Signal>),
}

/// What a person answered.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    Yes,
    /// To every call of the same tool.
    Always,
    /// With a reason for the model, perhaps.
    No(Option<String>),
    /// To be shown all of it first.
    View,
    /// To be told what can be answered.
    Help,
    Quit,
    /// Nothing that can be understood.
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

/// Who is asked, and how.
pub(super) struct Desk<'a> {
    pub(super) approver: Approver,
    pub(super) mode: Mode,
    pub(super) keyboard: Option<&'a Keyboard>,
}

impl Desk<'_> {
    /// Asks about every call that waits.
    pub(super) async fn decide(&self, mut state: RunState, view: &mut View, signals: &mut Signals) -> Verdict {
        // What is said about one call may settle another.
        while let Some(call) = state.interruptions().into_iter().next() {
            view.ask(&call);
            let answer = match self.approver {
                Approver::Itself => Answer::Yes,
                Approver::Person if self.mode != Mode::Terminal || !io::stdin().is_terminal() => {
                    return Verdict::Nobody;
                }
                Approver::Person => match self.ask(&call.tool, view, signals).await {
                    Typed::Answer(answer) => answer,
                    Typed::Nothing => return Verdict::Nobody,
                    Typed::Signal(signal) => return Verdict::Cancelled(Some(signal)),
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
                Approver::Person => "you",
                Approver::Itself => "the demo itself",
            };
            view.answered(&view::Verdict { call_id: &call.call_id, decision, by, reason });
        }
        Verdict::GoOn(Box::new(state))
    }

    /// One answer from the terminal.
    async fn ask(&self, tool: &str, view: &mut View, signals: &mut Signals) -> Typed {
        if let Err(signal) = self.listen(view, signals).await {
            return Typed::Signal(signal);
        }
        let typed = loop {
            view.prompt(&question(tool));
            match line(signals).await {
                Typed::Answer(Answer::Unclear) => {}
                Typed::Answer(Answer::Help) => view.explain(&answers(tool)),
                Typed::Answer(Answer::View) => {
                    view.show_all();
                    if let Err(signal) = self.listen(view, signals).await {
                        break Typed::Signal(signal);
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

    /// From here on what is typed counts: what was typed before all was shown is no answer to it.
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

/// What can be answered, and what it means.
fn answers(tool: &str) -> [String; 5] {
    [
        "y         this call, and no other".to_owned(),
        format!("a         this call, and every later call of {tool} in this run, whatever it is, without a question"),
        "n REASON  not this call; the model is told the reason".to_owned(),
        "v         shows all of what would be allowed".to_owned(),
        "q         stops the run".to_owned(),
    ]
}

/// What comes from the keyboard.
enum Typed {
    Answer(Answer),
    /// Nobody types any more.
    Nothing,
    /// A signal came first.
    Signal(Signal),
}

async fn line(signals: &mut Signals) -> Typed {
    let (sender, line) = oneshot::channel();
    // Reading a line cannot be given up; the thread ends with the process.
    let reader = std::thread::Builder::new().spawn(move || {
        let mut line = String::new();
        let read = io::stdin().lock().read_line(&mut line);
        let _nobody_waits = sender.send(read.ok().filter(|read| *read > 0).map(|_| line));
    });
    if reader.is_err() {
        return Typed::Nothing;
    }
    tokio::select! {
        line = line => line.ok().flatten().map_or(Typed::Nothing, |line| Typed::Answer(Answer::of(&line))),
        signal = signals.next() => Typed::Signal(signal),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_understood_in_any_case_and_nothing_counts_as_yes_by_accident() {
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
