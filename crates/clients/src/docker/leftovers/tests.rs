//! Which resources are removed and which are retained, as tables.

use super::*;

fn observer() -> Observer {
    let process = |pid| match pid {
        7 => Process::Began(700),
        8 => Process::Hidden,
        _ => Process::None,
    };
    let text = str::to_owned;
    Observer { owner: text("5@box"), host: text("h1"), boot: text("b1"), namespaces: text("n1"), process }
}

fn with(changes: &[(&str, &str)]) -> HashMap<String, String> {
    let whole = [
        (labels::SESSION, "s"),
        (labels::OWNER, "5@box"),
        (labels::HOST, "h1"),
        (labels::BOOT, "b1"),
        (labels::NAMESPACES, "n1"),
        (labels::PID, "7"),
        (labels::PID_STARTED, "700"),
    ];
    whole.iter().chain(changes).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn only_resources_of_dead_processes_of_this_user_are_leftovers() {
    let dead: &[&[(&str, &str)]] = &[
        &[(labels::PID, "9")],
        &[(labels::PID_STARTED, "701")],
        &[(labels::BOOT, "b0")],
        // After a restart, process ids and namespaces have no meaning.
        &[(labels::BOOT, "b0"), (labels::NAMESPACES, "n0")],
        &[(labels::PID, "9"), (labels::HOST, "")],
    ];
    for changes in dead {
        assert!(matches!(judge(&with(changes), &observer()), Verdict::Dead(_)), "{changes:?}");
    }
    let kept: &[&[(&str, &str)]] = &[
        &[],
        &[(labels::PID, "8")],
        &[(labels::PID, "9"), (labels::OWNER, "6@box")],
        &[(labels::PID, "9"), (labels::OWNER, "5@other")],
        &[(labels::PID, "9"), (labels::NAMESPACES, "n2")],
        &[(labels::BOOT, "b0"), (labels::HOST, "h2")],
        &[(labels::BOOT, "b0"), (labels::HOST, "")],
        &[(labels::PID, "x")],
        &[(labels::PID, "0")],
        &[(labels::PID, "-9")],
        &[(labels::PID, "4294967305")],
        &[(labels::PID, "9"), (labels::PID_STARTED, "")],
        &[(labels::PID, "9"), (labels::BOOT, "")],
        &[(labels::PID, "9"), (labels::SESSION, "")],
    ];
    for changes in kept {
        assert!(matches!(judge(&with(changes), &observer()), Verdict::Kept(_)), "{changes:?}");
    }
    for missing in [labels::SESSION, labels::OWNER, labels::BOOT, labels::NAMESPACES, labels::PID, labels::PID_STARTED]
    {
        let mut some = with(&[(labels::PID, "9")]);
        some.remove(missing);
        assert!(matches!(judge(&some, &observer()), Verdict::Kept(_)), "{missing}");
    }
    // Without a machine id, the other boot could be one of any host.
    let nameless = Observer { host: String::new(), ..observer() };
    assert!(matches!(judge(&with(&[(labels::BOOT, "b0"), (labels::HOST, "")]), &nameless), Verdict::Kept(_)));
}

#[test]
fn a_detached_container_is_removed_only_if_it_does_not_run() {
    let fate = |lifetime: Option<&str>, state: State| {
        let mut all = with(&[(labels::PID, "9")]);
        all.extend(lifetime.map(|lifetime| (labels::LIFETIME.to_owned(), lifetime.to_owned())));
        let summary = ContainerSummary {
            id: Some("c".to_owned()),
            labels: Some(all),
            state: Some(state),
            ..ContainerSummary::default()
        };
        let (found, fate) = container(summary, &observer()).expect("a container");
        (fate, found.removal)
    };
    for state in [State::CREATED, State::RUNNING, State::PAUSED, State::EXITED, State::DEAD] {
        for bound in [None, Some("bound")] {
            assert_eq!(fate(bound, state), (Fate::Remove, Removal::Forced), "{bound:?} {state:?}");
        }
    }
    for other in ["detached", "leased", "", "whatever comes"] {
        for state in [State::RUNNING, State::PAUSED, State::RESTARTING, State::STOPPING, State::EMPTY] {
            assert_eq!(fate(Some(other), state).0, Fate::Keep, "{other} {state:?}");
        }
        for state in [State::CREATED, State::EXITED, State::DEAD] {
            assert_eq!(fate(Some(other), state), (Fate::Remove, Removal::Idle), "{other} {state:?}");
        }
    }
    assert_eq!(fate(None, State::REMOVING).0, Fate::Keep);
}

#[test]
fn a_named_volume_is_never_a_leftover() {
    let fate = |name: &str| {
        let labels = with(&[(labels::PID, "9")]);
        volume(Volume { name: name.to_owned(), labels, ..Volume::default() }, &observer()).1
    };
    assert_eq!(fate(&"0a".repeat(32)), Fate::Remove);
    for named in ["data", "", &"0A".repeat(32), &"0a".repeat(31), &"xy".repeat(32)] {
        assert_eq!(fate(named), Fate::Keep, "{named}");
    }
}

#[test]
fn this_very_process_lives_and_others_do_not() {
    let own = std::process::id();
    assert_eq!(Some(process(own)), labels::started("self").map(Process::Began));
    let mut child = std::process::Command::new("true").spawn().expect("a child");
    let pid = child.id();
    // The child has ended, and its parent has not reaped it.
    let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while process(pid) != Process::None {
        assert!(std::time::Instant::now() < until, "{:?}", process(pid));
        std::thread::yield_now();
    }
    child.wait().expect("its end");
    // Another process may have the child's id by now; it started later than this process.
    assert!(match process(pid) {
        Process::None => true,
        Process::Began(at) => Some(at) >= labels::started("self"),
        Process::Hidden => false,
    });
    assert_eq!(process(u32::MAX), Process::None);
    let mine = labels::owned("s", None, None);
    assert!(matches!(judge(&mine, &Observer::current()), Verdict::Kept(_)), "{mine:?}");
}
