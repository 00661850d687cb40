//! Who makes the machine: this host itself, or a container engine.

use std::sync::Arc;

use sandbar::{
    SandboxClient,
    client::{
        Docker, UnixLocal,
        docker::{Engine, Progress},
    },
};

use crate::{
    args::SandboxArg,
    failure::Failure,
    render::{self, Render},
};

/// The client that an option names.
pub(crate) fn choose(sandbox: &SandboxArg, render: &Render) -> Result<Arc<dyn SandboxClient>, Failure> {
    match sandbox {
        SandboxArg::Local => Ok(Arc::new(UnixLocal::new())),
        SandboxArg::Docker(image) => Ok(Arc::new(containers(image, render)?)),
    }
}

/// The client that makes containers of an image.
pub(crate) fn containers(image: &str, render: &Render) -> Result<Docker, Failure> {
    let client = Docker::image(image).engine(Engine::from_env()?);
    Ok(if render.has_terminal() { client.on_progress(show) } else { client })
}

/// How far the image is, on one line that is written over.
fn show(progress: &Progress) {
    let Progress { layer, status, bytes } = progress;
    let far = match bytes {
        Some((so_far, all)) if *all > 0 => format!(" {}%", so_far.saturating_mul(100) / all),
        _ => String::new(),
    };
    let line: String = render::inert_line(&format!("image: {layer} {status}{far}")).chars().take(70).collect();
    render::status(&line);
}
