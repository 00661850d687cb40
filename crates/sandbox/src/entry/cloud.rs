//! Cloud storage mounts: read, stored and serialized without loss, but refused with a reason when a session starts.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    Attributes, Credential, Kind, Shape,
    mount::{MountPoint, MountStrategy, Settings, point_faults, yes},
};
use crate::manifest::{At, Fault};

/// Generates one kind of mount: required fields, credentials, optional fields and settings.
macro_rules! cloud {
    (
        #[doc = $doc:literal] $name:ident $called:literal
        needs { $($needed:ident $(| $alias:literal)*: $needed_doc:literal,)* }
        grants { $($grant:ident: $grant_doc:literal,)* }
        optional { $($optional:ident $(| $optional_alias:literal)*: $optional_doc:literal,)* }
        settings { $($setting:ident: $setting_doc:literal,)* }
    ) => {
        #[doc = $doc]
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            /// Fields that every entry has.
            #[serde(skip)]
            pub attributes: Attributes,
            /// Path of the mount, relative to the root or absolute; the entry's own path if not given.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub mount_path: Option<String>,
            /// Whether the mount is read-only.
            #[serde(default = "yes")]
            pub read_only: bool,
            /// How it is mounted.
            #[serde(default, skip_serializing_if = "Option::is_none", alias = "strategy")]
            pub mount_strategy: Option<MountStrategy>,
            $(#[doc = $needed_doc] $(#[serde(alias = $alias)])* pub $needed: String,)*
            $(#[doc = $grant_doc] #[serde(default, skip_serializing_if = "Option::is_none")]
            pub $grant: Option<Credential>,)*
            $(#[doc = $optional_doc]
            #[serde(default, skip_serializing_if = "Option::is_none" $(, alias = $optional_alias)*)]
            pub $optional: Option<MountText>,)*
            $(#[doc = $setting_doc] #[serde(default, skip_serializing_if = "Settings::is_empty")]
            pub $setting: Settings,)*
            /// Source, in the format of another sandbox.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub source: Option<String>,
            /// Kind of the source, in the format of another sandbox.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub provider: Option<String>,
            /// Settings of the source, in the format of another sandbox.
            #[serde(default, skip_serializing_if = "Settings::is_empty")]
            pub config: Settings,
        }

        impl $name {
            /// A read-only mount with its required fields.
            #[allow(clippy::new_without_default, reason = "not every kind can do without arguments")]
            pub fn new($($needed: impl Into<String>),*) -> Self {
                Self {
                    attributes: Attributes::of(Shape::Mount),
                    mount_path: None,
                    read_only: true,
                    mount_strategy: None,
                    $($needed: $needed.into(),)*
                    $($grant: None,)*
                    $($optional: None,)*
                    $($setting: Settings::default(),)*
                    source: None,
                    provider: None,
                    config: Settings::default(),
                }
            }
        }

        impl Kind for $name {
            const SHAPE: Shape = Shape::Mount;

            fn faults(&self, at: &At<'_>) -> Vec<Fault> {
                #[allow(unused_mut, reason = "not every kind has required fields")]
                let mut faults = point_faults(at, self.mount_path.as_deref());
                $(if self.$needed.is_empty() {
                    faults.push(Fault::mount(&at.field(stringify!($needed)), "is empty"));
                })*
                faults
            }

            fn refusal(&self) -> Option<String> {
                Some(format!("{} cannot be mounted yet; copy what you need with `remote_file` or `remote_dir`", $called))
            }

            fn redact(&mut self) -> bool {
                let mut removed = self.config.redact();
                $(removed |= self.$grant.take_if(|value| !value.is_secret()).is_some();)*
                $(removed |= self.$optional.take_if(|text| text.grants()).is_some();)*
                $(removed |= self.$setting.redact();)*
                removed | self.mount_strategy.as_mut().is_some_and(MountStrategy::redact)
            }

            fn mount_point(&self) -> Option<MountPoint<'_>> {
                let strategy = self.mount_strategy.as_ref();
                Some(MountPoint { path: self.mount_path.as_deref(), read_only: self.read_only, strategy })
            }
        }
    };
}

/// Text of an optional mount field. Not printed if it is an address that may grant access.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MountText(String);

impl MountText {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is an address with a user, password or query, which may grant access.
    fn grants(&self) -> bool {
        self.0.contains("://") && self.0.contains(['@', '?'])
    }
}

impl fmt::Debug for MountText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.grants() { f.write_str("[secret]") } else { write!(f, "{:?}", self.0) }
    }
}

impl<T: Into<String>> From<T> for MountText {
    fn from(text: T) -> Self {
        Self(text.into())
    }
}

cloud! {
    /// A bucket of Amazon S3 or of a compatible service.
    S3Mount "an S3 bucket"
    needs { bucket: "The bucket.", }
    grants {
        access_key_id: "Id of the access key.",
        secret_access_key: "Secret of the access key.",
        session_token: "Session token of a temporary key.",
    }
    optional {
        prefix: "Prefix of the objects to mount.",
        region: "Region of the bucket.",
        endpoint_url: "Endpoint, if not Amazon's.",
        s3_provider: "Name of the S3-compatible service.",
    }
    settings {}
}

cloud! {
    /// A bucket of Cloudflare R2.
    R2Mount "an R2 bucket"
    needs { bucket: "The bucket.", account_id: "Account that owns the bucket.", }
    grants { access_key_id: "Id of the access key.", secret_access_key: "Secret of the access key.", }
    optional { custom_domain: "Domain, if not the default one.", prefix: "Prefix of the objects to mount.", }
    settings {}
}

cloud! {
    /// A bucket of Google Cloud Storage.
    GcsMount "a Google Cloud Storage bucket"
    needs { bucket: "The bucket.", }
    grants {
        access_id: "Id of the access key.",
        secret_access_key: "Secret of the access key.",
        service_account_file: "A file with credentials.",
        service_account_credentials: "Content of such a file.",
        access_token: "A token.",
    }
    optional {
        prefix: "Prefix of the objects to mount.",
        region: "Region of the bucket.",
        endpoint_url: "Endpoint, if not Google's.",
    }
    settings {}
}

cloud! {
    /// A container of Azure Blob Storage.
    AzureBlobMount "an Azure Blob Storage container"
    needs { account | "account_name": "Account that owns the container.", container: "The container.", }
    grants { identity_client_id: "Managed identity to use.", account_key: "The account's key.", }
    optional {
        endpoint | "endpoint_url": "Endpoint, if not Azure's.",
        prefix: "Prefix of the blobs to mount.",
    }
    settings {}
}

cloud! {
    /// A folder of Box.
    BoxMount "a Box folder"
    needs {}
    grants {
        client_secret: "The application's secret.",
        access_token: "A token.",
        token: "A token with its refresh token.",
        box_config_file: "A file with credentials.",
        config_credentials: "Content of such a file.",
    }
    optional {
        path: "The folder.",
        client_id: "Id of the application.",
        box_sub_type: "`user` or `enterprise`.",
        root_folder_id: "Id of the folder that is the root.",
        impersonate: "User to impersonate.",
        owned_by: "Restricts the mount to items of this owner.",
    }
    settings {}
}

cloud! {
    /// A file system of Amazon S3 Files.
    S3FilesMount "an S3 Files file system"
    needs { file_system_id: "Id of the file system.", }
    grants {}
    optional {
        subpath: "Directory of the file system to mount.",
        mount_target_ip: "IP address of the mount target.",
        access_point: "Access point to use.",
        region: "Region of the file system.",
    }
    settings { extra_options: "More mount options; one without a value is a flag.", }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::Entry;

    #[test]
    fn credentials_are_never_printed_and_can_be_removed() {
        let entries = [
            json!({"type": "s3_mount", "bucket": "b", "access_key_id": "hunter22", "session_token": "hunter22"}),
            json!({"type": "r2_mount", "bucket": "b", "account_id": "a", "secret_access_key": "hunter22"}),
            json!({"type": "gcs_mount", "bucket": "b", "service_account_credentials": "hunter22"}),
            json!({"type": "azure_blob_mount", "account": "a", "container": "c", "account_key": "hunter22"}),
            json!({"type": "box_mount", "token": "hunter22", "path": "/x"}),
            json!({"type": "s3_files_mount", "file_system_id": "f", "extra_options": {"key": "hunter22"}}),
            json!({"type": "s3_mount", "bucket": "b", "endpoint_url": "https://u:hunter22@x"}),
            json!({"type": "s3_mount", "bucket": "b", "config": {"key": "hunter22"}}),
            json!({"type": "s3_mount", "bucket": "b", "mount_strategy":
                {"type": "in_container", "pattern": {"type": "rclone", "extra_args": ["hunter22"]}}}),
            json!({"type": "mount", "mount_strategy": {"type": "x_volume", "driver_options": {"key": "hunter22"}}}),
        ];
        for given in entries {
            let mut entry: Entry = serde_json::from_value(given.clone()).unwrap();
            assert!(!format!("{entry:?}").contains("hunter22"), "{entry:?}");
            assert!(serde_json::to_string(&entry).unwrap().contains("hunter22"), "{given}");
            assert!(entry.refusal().is_some());
            assert!(entry.redact());
            assert!(!serde_json::to_string(&entry).unwrap().contains("hunter22"), "{given}");
            assert!(!entry.redact());
        }
    }

    #[test]
    fn a_credential_that_names_a_secret_is_not_removed() {
        let given = json!({"type": "s3_mount", "bucket": "b", "access_key_id": {"secret": "KEY"}});
        let mut entry: Entry = serde_json::from_value(given).unwrap();
        assert!(!entry.redact());
        assert_eq!(serde_json::to_value(&entry).unwrap()["access_key_id"], json!({"secret": "KEY"}));
    }
}
