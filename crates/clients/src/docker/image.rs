//! The image of a machine: present, pulled or built, and checked for this host's platform.

use std::time::Duration;

use bollard::{errors::Error, models::ImageInspect, query_parameters::CreateImageOptions};
use futures::{Stream, TryStreamExt};
use sandbar_machine::{MachineError, Result};
use tokio::time::timeout;

use super::{Docker, Progress, Pull, Source, engine::Engine};

/// How long an engine may be silent while it pulls or builds.
const SILENCE: Duration = Duration::from_secs(300);

/// What is needed from an image's configuration.
#[derive(Clone, Debug, Default)]
pub(super) struct Image {
    /// Id of the image, which does not change when its name does.
    pub(super) id: String,
    pub(super) user: String,
    pub(super) env: Vec<String>,
}

impl Docker {
    /// Finds the image, and pulls or builds it first if necessary.
    pub(super) async fn find_image(&self, docker: &bollard::Docker) -> Result<Image> {
        match &self.source {
            Source::Build(build) => {
                let built = self.shared.built.get_or_try_init(|| build.run(self, docker)).await?;
                let found = self.inspect(docker, built).await?;
                let found = found
                    .ok_or_else(|| MachineError::invalid(format!("image {built}"), "was removed since it was built"));
                checked(built, found?)
            }
            Source::Image(name, pull) => {
                if *pull == Pull::Always {
                    self.pull_image(docker, name).await?;
                } else if let Some(found) = self.inspect(docker, name).await? {
                    return checked(name, found);
                } else if *pull == Pull::Never {
                    let fix = format!(
                        "is not on the engine and is not to be pulled; run `docker pull {name}` or `docker build -t {name} .` \
                         first"
                    );
                    return Err(MachineError::invalid(format!("image {name:?}"), fix));
                } else {
                    self.pull_image(docker, name).await?;
                }
                let found = self.inspect(docker, name).await?;
                checked(name, found.ok_or_else(|| self.engine.failed("pull the image", "it is not there afterwards"))?)
            }
        }
    }

    async fn inspect(&self, docker: &bollard::Docker, name: &str) -> Result<Option<ImageInspect>> {
        let action = "look at the image";
        match self.engine.within(action, docker.inspect_image(name)).await? {
            Ok(found) => Ok(Some(found)),
            Err(Error::DockerResponseServerError { status_code: 404, .. }) => Ok(None),
            Err(Error::DockerResponseServerError { status_code: 400, message }) => {
                Err(MachineError::invalid(format!("image {name:?}"), message))
            }
            Err(error) => Err(self.engine.api_error(action, error)),
        }
    }

    async fn pull_image(&self, docker: &bollard::Docker, name: &str) -> Result<()> {
        let options = CreateImageOptions {
            from_image: Some(name.to_owned()),
            // Without a tag, an engine would pull every tag.
            tag: is_untagged(name).then(|| "latest".to_owned()),
            platform: self.options.platform.clone().unwrap_or_default(),
            ..CreateImageOptions::default()
        };
        let stream = docker.create_image(Some(options), None, None);
        let heard = listen(&self.engine, "pull the image", stream, |info| {
            let detail = info.progress_detail.unwrap_or_default();
            let bytes = Option::zip(detail.current, detail.total);
            let bytes = bytes.and_then(|(now, all)| Some((u64::try_from(now).ok()?, u64::try_from(all).ok()?)));
            let (layer, status) = (info.id.unwrap_or_default(), info.status.unwrap_or_default());
            self.report_progress(&Progress { layer, status, bytes });
        });
        heard.await.map_err(|error| match error {
            MachineError::Start { source, .. } => MachineError::Start {
                stage: format!(
                    "the image {name:?} is not on the engine and cannot be pulled; check its name, pull it with `docker pull \
                     {name}`, which can log in, or build it with `docker build -t {name} .`"
                ),
                source,
            },
            other => other,
        })
    }
}

/// Reads the progress messages of an engine until the end.
pub(super) async fn listen<T>(
    engine: &Engine,
    action: &str,
    stream: impl Stream<Item = Result<T, Error>>,
    mut hear: impl FnMut(T),
) -> Result<()> {
    let mut stream = std::pin::pin!(stream);
    loop {
        match timeout(SILENCE, stream.try_next()).await {
            Ok(Ok(Some(message))) => hear(message),
            Ok(Ok(None)) => return Ok(()),
            Ok(Err(error)) => return Err(engine.api_error(action, error)),
            Err(_late) => return Err(engine.failed(action, format!("it was silent for {} seconds", SILENCE.as_secs()))),
        }
    }
}

/// Whether a name has neither a tag nor a digest.
fn is_untagged(name: &str) -> bool {
    !name.rsplit('/').next().unwrap_or_default().contains([':', '@'])
}

/// Refuses an image in which the guest cannot run.
fn checked(name: &str, found: ImageInspect) -> Result<Image> {
    let bad = |reason: String| Err(MachineError::invalid(format!("image {name:?}"), reason));
    let os = found.os.unwrap_or_default();
    if !os.is_empty() && os != "linux" {
        return bad(format!("is for {os}, and machines are Linux"));
    }
    let (own, made_for) = (processor(std::env::consts::ARCH), found.architecture.unwrap_or_default());
    if !made_for.is_empty() && made_for != own {
        return bad(format!("is for {made_for}, and this program brings a guest for {own}; use its {own} variant"));
    }
    let config = found.config.unwrap_or_default();
    Ok(Image {
        id: found.id.unwrap_or_else(|| name.to_owned()),
        user: config.user.unwrap_or_default(),
        env: config.env.unwrap_or_default(),
    })
}

/// The engines' name of a processor architecture.
pub(super) fn processor(arch: &str) -> &str {
    match arch {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_without_tag_and_digest_mean_the_latest() {
        for name in ["debian", "me/tools", "localhost:5000/tools"] {
            assert!(is_untagged(name), "{name}");
        }
        for name in ["debian:12", "me/tools:1", "localhost:5000/tools:1", "debian@sha256:ab"] {
            assert!(!is_untagged(name), "{name}");
        }
    }

    #[test]
    fn an_image_for_another_processor_is_refused_with_the_reason() {
        let image = |os: &str, architecture: &str| ImageInspect {
            os: Some(os.to_owned()),
            architecture: Some(architecture.to_owned()),
            ..ImageInspect::default()
        };
        checked("x", image("linux", processor(std::env::consts::ARCH))).expect("the same");
        checked("x", image("", "")).expect("unknown");
        let other = checked("x", image("linux", "s390x")).expect_err("another").to_string();
        assert!(other.contains("is for s390x"), "{other}");
        assert!(checked("x", image("windows", "amd64")).is_err());
    }
}
