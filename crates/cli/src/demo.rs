//! `sandbar demo`: an agent fixes a small C project on an isolated machine; a script replaces the model.

use std::{sync::Arc, time::Duration};

use sandbar::{
    Budget, Exec, File, MachineSpec, Manifest, RunConfig, SandboxSession, ScriptedModel, SessionOptions,
    agent::Prices,
    agent_file::{AgentFile, Asking},
    sandbox::{
        Content,
        processes::{Ids, TableOptions},
    },
};

use sandbar_runs::RunStatus;

use crate::{
    args::DemoArgs,
    failure::Failure,
    machine::{client, plan, provision},
    render::Render,
    run::{self, Approver, Job, ModelChoice, RunOrder, WorkspaceChoice},
    runs,
    streams::signals::Signals,
    view::View,
};

const PROMPT: &str = "Do what task.md says.";

/// Files of the project before the run.
const PROJECT: [(&str, &[u8], u32); 8] = [
    ("AGENTS.md", include_bytes!("demo/project/AGENTS.md"), 0o644),
    ("task.md", include_bytes!("demo/project/task.md"), 0o644),
    ("count.c", include_bytes!("demo/project/count.c"), 0o644),
    ("count.h", include_bytes!("demo/project/count.h"), 0o644),
    ("test.c", include_bytes!("demo/project/test.c"), 0o644),
    ("live.c", include_bytes!("demo/project/live.c"), 0o644),
    ("publish.sh", include_bytes!("demo/project/publish.sh"), 0o755),
    ("words.png", include_bytes!("demo/project/words.png"), 0o644),
];

pub(crate) async fn run(args: DemoArgs, render: &Render) -> Result<u8, (Failure, u8)> {
    match play(&args, render).await {
        Err((failure, code)) if args.json => {
            run::never_began(&failure.to_string(), RunStatus::Failed, render);
            Ok(code)
        }
        other => other,
    }
}

async fn play(args: &DemoArgs, render: &Render) -> Result<u8, (Failure, u8)> {
    let failed = |failure: Failure| (failure, 1);
    let mut signals = Signals::listen().map_err(failed)?;
    let job = job().map_err(failed)?;
    let mode = run::mode(render, args.json);
    let view = View::new(render, mode);
    client::refuse_unenforced(&args.sandbox, &machine(args)).map_err(failed)?;
    let begun = match run::make(order(args), PROMPT, &mut signals, render).await {
        Ok(begun) => begun,
        Err(halt) => return run::halted(halt, mode, render),
    };
    if let Err(halt) = provision::unless_signalled(can_compile(&begun.session), &mut signals).await {
        let id = begun.run.id().to_owned();
        provision::discard(&begun.session).await;
        drop(begun);
        runs::store().and_then(|store| Ok(store.remove(&id)?)).map_err(failed)?;
        return run::halted(halt, mode, render);
    }
    Ok(job.work(begun, view, &mut signals, render).await)
}

fn machine(args: &DemoArgs) -> MachineSpec {
    MachineSpec::default().limits(plan::using(&args.usage))
}

fn order(args: &DemoArgs) -> RunOrder {
    RunOrder {
        client: args.sandbox.clone(),
        options: options().machine(machine(args)),
        wanted: WorkspaceChoice::Empty,
        git: None,
    }
}

/// Checks for a C compiler, which the script needs.
async fn can_compile(session: &SandboxSession) -> Result<(), Failure> {
    match session.exec(Exec::new(["cc", "--version"])).await?.success() {
        true => Ok(()),
        false => Err(Failure::new("cannot run the demo; its project is written in C, and there is no C compiler here")
            .next("install one, for example with `apt install gcc`")),
    }
}

fn job() -> Result<Job, Failure> {
    let model = ScriptedModel::from_json(include_str!("demo/script.json"));
    let model = model.map_err(|error| Failure::new("cannot read the script of the demo").because(error))?;
    let model = Arc::new(model.named("script"));
    let agent = AgentFile::from_toml(include_str!("demo/agent.toml"))?.agent(Asking::ByRule)?;
    let config = RunConfig::new().model(Arc::clone(&model) as Arc<dyn sandbar::Model>).budget(Budget::new());
    Ok(Job {
        agent,
        config: config.max_turns(Some(20)),
        model_choice: ModelChoice { model, scripted: true, address: None },
        prompt: PROMPT.to_owned(),
        approver: Approver::Demo,
        prices: Prices::default(),
    })
}

fn options() -> SessionOptions {
    let manifest = PROJECT.iter().fold(Manifest::new(), |manifest, (path, content, mode)| {
        manifest.entry(path, File::new(Content::from(content.to_vec())).mode(*mode))
    });
    // The script must know the number of the process that it types to, and cannot poll for a second part of the output.
    let silence = Duration::from_millis(300);
    let table = TableOptions { ids: Ids::Sequential, silence, ..TableOptions::default() };
    SessionOptions::new(manifest).processes(table)
}
