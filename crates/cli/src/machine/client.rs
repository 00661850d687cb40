//! The providers that this command knows, and the client that an option names.

use std::{ffi::OsString, sync::Arc};

use sandbar::{
    MachineSpec, SandboxClient,
    client::{
        Registry, Source,
        registry::{ClientContext, Unenforced},
    },
};

use crate::{
    failure::Failure,
    render::{self, Render},
};

/// The providers, the default first.
pub(crate) fn registry() -> Registry {
    Registry::builtin()
}

/// Lets the default provider prepare its first machine while arguments are read. If they name another provider, the
/// preparation is not used.
pub(crate) fn prepare(mut words: impl Iterator<Item = OsString>) {
    let makes_a_machine = words.nth(1).is_some_and(|task| task == "exec" || task == "run" || task == "demo");
    if let (true, Ok(provider)) = (makes_a_machine, registry().default_provider()) {
        provider.prepare();
    }
}

/// Reads `--sandbox`.
pub(crate) fn source(text: &str) -> Result<Source, String> {
    let registry = registry();
    registry.parse(text).map_err(|_unknown| format!("it must be {}", registry.forms()))
}

/// Reads the name of a provider.
pub(crate) fn provider(text: &str) -> Result<String, String> {
    let registry = registry();
    let names: Vec<&str> = registry.providers().map(|provider| provider.name()).collect();
    if names.contains(&text) { Ok(text.to_owned()) } else { Err(format!("it must be one of {}", names.join(", "))) }
}

/// The help text of `--sandbox`.
pub(crate) fn help() -> String {
    let forms: Vec<String> = registry()
        .providers()
        .map(|provider| format!("`{}`, {}", provider.argument().form(provider.name()), provider.summary()))
        .collect();
    format!("Where the machine comes from: {}", forms.join("; or "))
}

/// The client that an option names.
pub(crate) fn choose(source: &Source, render: &Render) -> Result<Arc<dyn SandboxClient>, Failure> {
    Ok(registry().client(source, &context(render))?)
}

/// The context of every client: its progress is one line on the terminal.
pub(crate) fn context(render: &Render) -> ClientContext {
    let context = ClientContext::default();
    if !render.has_terminal() {
        return context;
    }
    context.progress(|line| {
        let line: String = render::inert_line(line).chars().take(70).collect();
        render::status(&line);
    })
}

/// Refuses a limit that was set explicitly and cannot be enforced.
pub(crate) fn refuse_unenforced(source: &Source, spec: &MachineSpec) -> Result<(), Failure> {
    let registry = registry();
    let Some(Unenforced { limit, reason, fix }) = registry.provider(source.provider())?.unenforced(spec) else {
        return Ok(());
    };
    let what = format!("--{limit} cannot be held here: {reason}");
    Err(Failure::new(what).next(format!("leave --{limit} out, or {fix}")))
}
