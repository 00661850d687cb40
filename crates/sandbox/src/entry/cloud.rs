//! Storage of others, mounted: read, kept and written losslessly, and refused with a reason when a session starts.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    Attributes, Credential, Kind, Shape,
    mount::{MountPoint, MountStrategy, Settings, point_faults, yes},
};
use crate::manifest::{At, Fault};

/// Writes one kind of mount: what it must have, what grants access, and what else can be said.
macro_rules! cloud {
    (
        #[doc = $doc:literal] $name:ident $called:literal
        needs { $($needed:ident $(| $alias:literal)*: $needed_doc:literal,)* }
        grants { $($grant:ident: $grant_doc:literal,)* }
        says { $($said:ident $(| $said_alias:literal)*: $said_doc:literal,)* }
        settings { $($setting:ident: $setting_doc:literal,)* }
    ) => {
        #[doc = $doc]
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            /// What every entry can say about itself.
            #[serde(skip)]
            pub attributes: Attributes,
            /// Where it shows up, if not at the entry's own path: relative to the root, or absolute.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub mount_path: Option<String>,
            /// Whether it may only be read.
            #[serde(default = "yes")]
            pub read_only: bool,
            /// How it is brought about.
            #[serde(default, skip_serializing_if = "Option::is_none", alias = "strategy")]
            pub mount_strategy: Option<MountStrategy>,
            $(#[doc = $needed_doc] $(#[serde(alias = $alias)])* pub $needed: String,)*
            $(#[doc = $grant_doc] #[serde(default, skip_serializing_if = "Option::is_none")]
            pub $grant: Option<Credential>,)*
            $(#[doc = $said_doc] #[serde(default, skip_serializing_if = "Option::is_none" $(, alias = $said_alias)*)]
            pub $said: Option<Said>,)*
            $(#[doc = $setting_doc] #[serde(default, skip_serializing_if = "Settings::is_empty")]
            pub $setting: Settings,)*
            /// The source, in the words of another sandbox.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub source: Option<String>,
            /// What the source is, in the words of another sandbox.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub provider: Option<String>,
            /// What another sandbox needs to know about the source.
            #[serde(default, skip_serializing_if = "Settings::is_empty")]
            pub config: Settings,
        }

        impl $name {
            /// A read-only mount with what it must have.
            #[allow(clippy::new_without_default, reason = "not every kind can do without")]
            pub fn new($($needed: impl Into<String>),*) -> Self {
                Self {
                    attributes: Attributes::of(Shape::Mount),
                    mount_path: None,
                    read_only: true,
                    mount_strategy: None,
                    $($needed: $needed.into(),)*
                    $($grant: None,)*
                    $($said: None,)*
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
                #[allow(unused_mut, reason = "not every kind has fields it must have")]
                let mut faults = point_faults(at, self.mount_path.as_deref());
                $(if self.$needed.is_empty() {
                    faults.push(Fault::mount(&at.field(stringify!($needed)), "is empty"));
                })*
                faults
            }

            fn refusal(&self) -> Option<String> {
                Some(format!("{} cannot be mounted yet; copy what you need with `remote_file` or `remote_dir`", $called))
            }

            fn forget(&mut self) -> bool {
                let mut gone = self.config.forget();
                $(gone |= self.$grant.take_if(|value| !value.is_secret()).is_some();)*
                $(gone |= self.$said.take_if(|said| said.grants()).is_some();)*
                $(gone |= self.$setting.forget();)*
                gone | self.mount_strategy.as_mut().is_some_and(MountStrategy::forget)
            }

            fn mount_point(&self) -> Option<MountPoint<'_>> {
                let strategy = self.mount_strategy.as_ref();
                Some(MountPoint { path: self.mount_path.as_deref(), read_only: self.read_only, strategy })
            }
        }
    };
}

/// Something said about a mount. Not printed when it is an address that opens what it names.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Said(String);

impl Said {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// An address with a user, a password or a query may open what it names.
    fn grants(&self) -> bool {
        self.0.contains("://") && self.0.contains(['@', '?'])
    }
}

impl fmt::Debug for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.grants() { f.write_str("[secret]") } else { write!(f, "{:?}", self.0) }
    }
}

impl<T: Into<String>> From<T> for Said {
    fn from(text: T) -> Self {
        Self(text.into())
    }
}

cloud! {
    /// A bucket of Amazon S3 or of anything that speaks its protocol.
    S3Mount "an S3 bucket"
    needs { bucket: "The bucket.", }
    grants {
        access_key_id: "Half of the key.",
        secret_access_key: "The other half.",
        session_token: "What goes with a temporary key.",
    }
    says {
        prefix: "The only part of the bucket to show.",
        region: "Where the bucket is.",
        endpoint_url: "Who serves it, if not Amazon.",
        s3_provider: "Whose dialect is spoken.",
    }
    settings {}
}

cloud! {
    /// A bucket of Cloudflare R2.
    R2Mount "an R2 bucket"
    needs { bucket: "The bucket.", account_id: "Whose it is.", }
    grants { access_key_id: "Half of the key.", secret_access_key: "The other half.", }
    says { custom_domain: "Who serves it, if not the usual host.", prefix: "The only part of the bucket to show.", }
    settings {}
}

cloud! {
    /// A bucket of Google Cloud Storage.
    GcsMount "a Google Cloud Storage bucket"
    needs { bucket: "The bucket.", }
    grants {
        access_id: "Half of the key.",
        secret_access_key: "The other half.",
        service_account_file: "A file with credentials.",
        service_account_credentials: "Such a file's content.",
        access_token: "A token.",
    }
    says {
        prefix: "The only part of the bucket to show.",
        region: "Where the bucket is.",
        endpoint_url: "Who serves it, if not Google.",
    }
    settings {}
}

cloud! {
    /// A container of Azure Blob Storage.
    AzureBlobMount "an Azure Blob Storage container"
    needs { account | "account_name": "Whose it is.", container: "The container.", }
    grants { identity_client_id: "Which managed identity to use.", account_key: "The account's key.", }
    says {
        endpoint | "endpoint_url": "Who serves it, if not Azure.",
        prefix: "The only part of the container to show.",
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
        token: "A token with what renews it.",
        box_config_file: "A file with credentials.",
        config_credentials: "Such a file's content.",
    }
    says {
        path: "The folder.",
        client_id: "Which application asks.",
        box_sub_type: "`user` or `enterprise`.",
        root_folder_id: "The folder that counts as the top.",
        impersonate: "On whose behalf.",
        owned_by: "Only what this user owns.",
    }
    settings {}
}

cloud! {
    /// A file system of Amazon S3 Files.
    S3FilesMount "an S3 Files file system"
    needs { file_system_id: "Which file system.", }
    grants {}
    says {
        subpath: "The only part of it to show.",
        mount_target_ip: "Where it is reached.",
        access_point: "Through what it is reached.",
        region: "Where it is.",
    }
    settings { extra_options: "More mount options; one without a value is a flag.", }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::Entry;

    #[test]
    fn what_grants_access_is_never_printed_and_can_be_forgotten() {
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
            assert!(entry.forget());
            assert!(!serde_json::to_string(&entry).unwrap().contains("hunter22"), "{given}");
            assert!(!entry.forget());
        }
    }

    #[test]
    fn a_credential_may_be_the_name_of_a_secret_and_then_it_stays() {
        let given = json!({"type": "s3_mount", "bucket": "b", "access_key_id": {"secret": "KEY"}});
        let mut entry: Entry = serde_json::from_value(given).unwrap();
        assert!(!entry.forget());
        assert_eq!(serde_json::to_value(&entry).unwrap()["access_key_id"], json!({"secret": "KEY"}));
    }
}
