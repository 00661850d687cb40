//! The local client keeps every promise of the suite: as the user who runs the tests, as an ordinary user, and with the
//! POSIX fallbacks instead of the guest's own operations.
#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, reason = "a test")]

use sandbar_clients::UnixLocal;
use sandbar_machine::{
    Accounts, BareClient, MachineSpec, SandboxClient as _,
    conformance::{STRANGER, as_ordinary_user, as_stranger},
};

mod native {
    use super::*;
    sandbar_machine::conformance!(UnixLocal::new(), complete);
}

mod fallbacks {
    use super::*;
    sandbar_machine::conformance!(BareClient::new(UnixLocal::new()));
}

#[test]
fn an_ordinary_user_has_every_promise_kept() {
    as_ordinary_user(&["native::"]);
}

#[test]
fn an_ordinary_user_has_every_promise_kept_by_fallbacks() {
    as_ordinary_user(&["fallbacks::"]);
}

mod stranger {
    use super::*;

    #[tokio::test]
    async fn learns_what_several_users_need() {
        if rustix::process::geteuid().as_raw() != STRANGER {
            return;
        }
        let spec = MachineSpec::default().accounts(Accounts::default().user("ada"));
        let refused = UnixLocal::new().create(spec).await.expect_err("one id cannot be several users");
        assert_eq!(refused.code(), "users");
        let said = refused.to_string();
        assert!(said.contains("65,536 ids for 64321 in /etc/subuid"), "{said}");
        assert!(said.contains("usermod --add-subuids"), "{said}");
        assert_eq!(UnixLocal::several_users().expect_err("the same").to_string(), said);
        let one = MachineSpec::default().accounts(Accounts::default().user("agent"));
        let machine = UnixLocal::new().create(one).await.expect("every machine has one user");
        machine.stop().await.expect("stop");
    }
}

#[test]
fn a_user_without_subordinate_ids_is_told_what_to_do() {
    as_stranger(&["stranger::"]);
}
