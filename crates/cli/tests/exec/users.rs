//! `--user`: commands as a user of the machine, and the error on machines with a single user.

use super::rig::{Sandbar, each};

#[test]
fn a_command_runs_as_a_user_that_is_created_for_it() {
    each(|sandbar| {
        for (user, who) in [("ada", "ada 1001"), ("agent", "agent 1000"), ("1000", "agent 1000")] {
            let run = sandbar.run(&["exec", "--user", user, "--", "sh", "-c", "echo $(id -un) $(id -u)"]);
            assert_eq!((run.code, run.stdout.trim()), (0, who), "{user}: {run:?}");
        }
        let home = sandbar.run(&["exec", "--user", "ada", "--", "sh", "-c", "touch ~/x && stat -c %U ~/x && pwd"]);
        assert_eq!((home.code, home.stdout.as_str()), (0, "ada\n/workspace\n"), "{home:?}");
        assert_eq!(sandbar.left(), Vec::<String>::new(), "what ada made is gone too");
    });
}

#[test]
fn an_invalid_user_name_is_a_usage_mistake() {
    let sandbar = Sandbar::own();
    for (user, said) in [("a:b", "may not begin with"), ("", "a name is empty"), ("70000", "at most 65535")] {
        let run = sandbar.run(&["exec", "--user", user, "--", "true"]);
        assert_eq!((run.code, run.stdout.as_str()), (125, ""), "{user}: {run:?}");
        assert!(run.stderr.contains(said), "{user}: {run:?}");
    }
}

#[test]
fn users_need_full_isolation() {
    each(|sandbar| {
        let run = sandbar.run(&["exec", "--isolation", "landlock", "--user", "ada", "--", "true"]);
        assert_eq!(run.stdout, "", "{run:?}");
        assert_ne!(run.code, 0, "{run:?}");
        assert!(run.stderr.contains("ask for --isolation full"), "{run:?}");
    });
}

#[test]
fn a_session_has_the_users_of_its_manifest() {
    each(|sandbar| {
        sandbar.make_file("m.yaml", "users: [ada, bob]\nentries: {room: {type: dir, permissions: 'drwxrwxrwx'}}\n");
        let made = sandbar.run(&["session", "create", "--manifest", "m.yaml"]);
        assert_eq!(made.code, 0, "{made:?}");
        let id = made.stdout.trim();
        let sh =
            |user: &str, script: &str| sandbar.run(&["session", "exec", "--user", user, id, "--", "sh", "-c", script]);
        assert_eq!(sh("ada", "umask 077; echo secret > room/note; id -un").stdout, "ada\n");
        let peeped = sh("bob", "cat room/note");
        assert!(peeped.code != 0 && peeped.stderr.contains("Permission denied"), "{peeped:?}");
        assert_eq!(sh("ada", "cat room/note").stdout, "secret\n");
        let unknown = sh("eve", "true");
        assert!(unknown.code != 0 && unknown.stderr.contains("\"eve\" is no user of this machine"), "{unknown:?}");
        let shell = sandbar.feed(&["session", "shell", "--user", "bob", id], b"id -un\n");
        assert_eq!(String::from_utf8_lossy(&shell.stdout), "bob\n", "{shell:?}");
        let removed = sandbar.run(&["session", "rm", id]);
        assert_eq!((removed.code, sandbar.left()), (0, Vec::new()), "{removed:?}");
    });
}
