//! The engine's own calls for the same work, without sandbar.

use bollard::{
    body_full,
    models::{ContainerCreateBody, HostConfig},
    query_parameters::{
        CreateContainerOptions, DownloadFromContainerOptions, RemoveContainerOptions, UploadToContainerOptions,
    },
};
use futures::TryStreamExt;
use sandbar_clients::GUEST;
use sandbar_machine::tar::{self, Kind, Member};

use super::rows::IMAGE;

pub(crate) struct Raw(bollard::Docker);

impl Raw {
    pub(crate) fn connect() -> Self {
        Self(bollard::Docker::connect_with_defaults().expect("an engine"))
    }

    /// A container with a volume, and the same uploads as a machine.
    pub(crate) async fn up(&self, name: &str) {
        let body = ContainerCreateBody {
            image: Some(IMAGE.to_owned()),
            entrypoint: Some(vec!["/bin/sleep".to_owned(), "1000".to_owned()]),
            volumes: Some(vec!["/workspace".to_owned()]),
            host_config: Some(HostConfig { network_mode: Some("none".to_owned()), ..HostConfig::default() }),
            ..ContainerCreateBody::default()
        };
        let named = CreateContainerOptions { name: Some(name.to_owned()), ..CreateContainerOptions::default() };
        self.0.create_container(Some(named), body).await.expect("create");
        let root = UploadToContainerOptions { path: "/".to_owned(), ..UploadToContainerOptions::default() };
        let archive = archive([("guest".to_owned(), GUEST.to_vec())]);
        self.0.upload_to_container(name, Some(root), body_full(archive.into())).await.expect("upload");
        self.0.start_container(name, None).await.expect("start");
    }

    pub(crate) async fn down(&self, name: &str) {
        let force = RemoveContainerOptions { force: true, v: true, ..RemoveContainerOptions::default() };
        self.0.remove_container(name, Some(force)).await.expect("remove");
    }

    /// Length of the archive that the engine makes from a directory.
    pub(crate) async fn pack(&self, name: &str, path: &str) -> usize {
        let from = DownloadFromContainerOptions { path: path.to_owned() };
        let stream = self.0.download_from_container(name, Some(from));
        stream.try_fold(0, |sum, bytes| async move { Ok(sum + bytes.len()) }).await.expect("download")
    }
}

pub(crate) fn archive(files: impl IntoIterator<Item = (String, Vec<u8>)>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, contents) in files {
        let size = contents.len() as u64;
        bytes.extend_from_slice(&Member { size, ..Member::new(Kind::File, name.as_bytes(), 0o644) }.encode());
        bytes.extend_from_slice(&contents);
        bytes.resize(bytes.len() + tar::padding(size), 0);
    }
    bytes.extend_from_slice(&tar::end());
    bytes
}
