//! Number 69: ids that are paths, and saved sessions that were tampered with.

use std::{
    fs,
    net::TcpListener,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use sandbar_machine::{Lifetime, MachineSpec};
use sandbar_sandbox::{
    LocalDir, LocalFile, Manifest, Result, SandboxSession, Scope, SessionOptions, SessionState, SessionStore,
};
use tokio::{task::spawn_blocking, time::timeout};

use super::stage::{Canary, brief, client, prompt, refused, soon};
use crate::escape::{
    rig::{Rig, SOON},
    tally::Tally,
};

pub(super) async fn run(rig: &Rig, tally: &mut Tally) {
    let canary = Canary::new(rig.dir("stores-canary"));
    let dir = rig.dir("stores").join("sessions");
    let store = SessionStore::open(&dir).expect("a store");
    let session = detached(rig).await;
    store.save(&session.state()).expect("saved");
    ids(tally, &store, &dir, &session.state());
    strange_files(tally, &store, &dir).await;
    let changed = Tampered { rig, store, dir, canary, id: session.id().to_owned() };
    changed.documents(tally).await;
    changed.sources(tally).await;
    changed.ports(tally).await;
    changed.handles(tally, &session).await;
    copies(rig, tally).await;
    tally.expect("I69.canary-unchanged", changed.canary.untouched(), "the canary directory is as it was");
    soon(session.delete()).await.expect("delete");
}

/// A session that outlives its maker, with one entry of the host.
async fn detached(rig: &Rig) -> SandboxSession {
    let source = rig.dir("stores-source");
    fs::write(source.join("SOURCE"), "x").expect("a file");
    let manifest = Manifest::new().local_file("entry", LocalFile::new("SOURCE")).base_dir(&source);
    let spec = MachineSpec::default().lifetime(Lifetime::Detached);
    let options = SessionOptions::new(manifest).machine(spec).name("../../x");
    soon(SandboxSession::open(client(rig), options)).await.expect("a session")
}

/// Ids that lead out of the store.
fn ids(tally: &mut Tally, store: &SessionStore, dir: &Path, state: &SessionState) {
    let outside = dir.parent().expect("a parent").join("x.json");
    fs::write(&outside, "kept").expect("a file to lose");
    let naive = fs::remove_file(dir.join(format!("{}.json", "../x"))).is_ok() && !outside.exists();
    tally.control("I69", naive, "a store that joins ids to paths removes what it should not");
    fs::write(&outside, "kept").expect("a file to keep");
    let absolute = outside.with_extension("").display().to_string();
    for id in ["../x", "../../x", "./../x", &absolute, "..", ".", "", "a/b", "x\0", "..\\x", "x.json", &"a".repeat(65)]
    {
        let state = SessionState { session_id: id.to_owned(), ..state.clone() };
        let tried = [store.remove(id).is_err(), store.save(&state).is_err()];
        // A name may be any text, since it is never a path; an id may not.
        let found = store.find(id).is_ok_and(|found| found.name.as_deref() != Some(id));
        let kept = fs::read_to_string(&outside).is_ok_and(|text| text == "kept");
        let name = id.replace(&absolute, "ABSOLUTE").replace('\0', "NUL");
        tally.expect(&format!("I69.id-{name:?}"), tried == [true; 2] && !found && kept, format!("refused: {tried:?}"));
    }
    let named = store.find("../../x").is_ok_and(|found| found.session_id == state.session_id);
    tally.expect("I69.name-is-no-path", named, "a session with such a name is found by it, in the store");
}

/// Things in the store's directory that are no saved sessions.
async fn strange_files(tally: &mut Tally, store: &SessionStore, dir: &Path) {
    let fifo = dir.join("fifo.json");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status().is_ok_and(|status| status.success());
    let listing = store.clone();
    let listed = spawn_blocking(move || listing.list().map(|all| all.len()));
    let answer = timeout(SOON, listed).await;
    // A blocked reader gets a writer, and returns.
    let _released = fs::File::options().read(true).write(true).open(&fifo);
    fs::remove_file(&fifo).expect("it goes");
    tally.expect("I69.store-with-a-fifo", made && answer.is_ok(), format!("{answer:?}"));
    fs::write(dir.join("junk.json"), "[".repeat(1 << 20)).expect("junk");
    std::os::unix::fs::symlink("/dev/zero", dir.join("endless.json")).expect("a link");
    let listing = store.clone();
    let answer = timeout(SOON, spawn_blocking(move || listing.list().map(|all| all.len()))).await;
    for name in ["junk.json", "endless.json"] {
        fs::remove_file(dir.join(name)).expect("it goes");
    }
    tally.expect("I69.store-with-junk", matches!(answer, Ok(Ok(Ok(1)))), format!("{answer:?}"));
}

/// A saved session that the attacker rewrites.
struct Tampered<'r> {
    rig: &'r Rig,
    store: SessionStore,
    dir: PathBuf,
    canary: Canary,
    id: String,
}

impl Tampered<'_> {
    /// Loads the saved session with `to` in place of `from`, and restores the file.
    fn with(&self, from: &str, to: &str) -> Result<SessionState> {
        let path = self.dir.join(format!("{}.json", self.id));
        let text = fs::read_to_string(&path).expect("the saved session");
        assert!(text.contains(from), "{from} is not in {text}");
        fs::write(&path, text.replace(from, to)).expect("changed");
        let found = self.store.find(&self.id);
        fs::write(&path, text).expect("as it was");
        found
    }

    async fn attach(&self, state: SessionState) -> std::result::Result<Option<SandboxSession>, String> {
        prompt(SandboxSession::attach(client(self.rig), state, SessionOptions::default())).await
    }

    /// Documents that are refused as such.
    async fn documents(&self, tally: &mut Tally) {
        let grant = format!(r#""extra_path_grants": [{{"path": "/data", "host_path": "{}"}}]"#, self.canary.text());
        // Harmless changes of the same kind, so that the changes below are refused for their content.
        for (from, to) in [
            (r#""extra_path_grants": []"#, r#""extra_path_grants": [{"path": "/data"}]"#),
            (r#""root": "/workspace""#, r#""root": "/other""#),
            (r#""entry""#, r#""another""#),
        ] {
            self.with(from, to).expect("a saved session like any other");
        }
        let mut later = self.store.find(&self.id).expect("the saved session");
        later.version = 2;
        let got = self.attach(later).await.map(|found| found.is_some());
        tally.expect("I69.changed-version", refused(&got), brief(&got));
        for (name, from, to) in [
            ("host-path-of-a-grant", r#""extra_path_grants": []"#, grant.as_str()),
            ("client", r#""client": "local""#, r#""client": "other""#),
            ("entry-climbs", r#""entry""#, r#""../entry""#),
            ("root-climbs", r#""root": "/workspace""#, r#""root": "/workspace/../..""#),
        ] {
            let got = match self.with(from, to) {
                Err(error) => Err(error.full_message()),
                Ok(state) => self.attach(state).await.map(|found| found.is_some()),
            };
            tally.expect(&format!("I69.changed-{name}"), got != Ok(true), format!("{got:?}"));
        }
        // The whole machine as the workspace is still only the machine.
        let state = self.with(r#""root": "/workspace""#, r#""root": "/""#);
        let Ok(state) = state else {
            tally.expect("I69.changed-root", true, "it is refused");
            return;
        };
        let got = match self.attach(state).await {
            Ok(Some(session)) => prompt(session.read(format!("{}/f", self.canary.text()))).await,
            other => other.map(|_| bytes::Bytes::new()),
        };
        let reached = got.as_ref().is_ok_and(|bytes| self.canary.is_in(bytes));
        tally.expect("I69.changed-root", !reached, brief(&got));
    }

    /// The entry that was below the manifest's own directory is now anything of the host's: the saved session is forged.
    async fn sources(&self, tally: &mut Tally) {
        let secret = self.canary.dir.join("f").display().to_string();
        let climbing = format!("../../../../../../../..{secret}");
        // A saved manifest does not say where its sources began, so it matters where this process is.
        let innocent = self.rig.dir("innocent");
        for (place, cwd) in [("elsewhere", innocent.as_path()), ("the-root", Path::new("/"))] {
            std::env::set_current_dir(cwd).expect("a directory");
            for (name, source) in [("absolute", secret.as_str()), ("climbing", &climbing), ("relative", &secret[1..])] {
                let got = self.brought_in(source).await;
                let reached = got.as_ref().is_ok_and(|bytes| self.canary.is_in(bytes));
                let held = refused(&got) && !reached;
                tally.expect(&format!("I69.changed-source-{name}-from-{place}"), held, brief(&got));
            }
        }
    }

    /// What the entry is, made again from another source.
    async fn brought_in(&self, source: &str) -> std::result::Result<bytes::Bytes, String> {
        // A saved session names no source; an attacker who can write the file can add one.
        let forged = format!(r#""src": "{source}""#);
        let state = self.with(r#""redacted": true"#, &forged).map_err(|error| error.full_message())?;
        let Some(session) = self.attach(state).await? else { return Err("it is gone".to_owned()) };
        prompt(session.apply_manifest(Scope::All)).await?;
        prompt(session.read("entry")).await
    }

    /// A port that was never declared, on which the host itself listens.
    async fn ports(&self, tally: &mut Tally) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("its number").port();
        let got = match self.with(r#""exposed_ports": []"#, &format!(r#""exposed_ports": [{port}]"#)) {
            Err(error) => Err(error.full_message()),
            Ok(state) => match self.attach(state).await {
                Ok(Some(session)) => prompt(session.ports().resolve(port)).await,
                other => Err(format!("{other:?}")),
            },
        };
        let reached = got.as_ref().is_ok_and(|found| found.port() == Some(port));
        tally.expect("I69.changed-ports", refused(&got) && !reached, brief(&got));
    }

    /// What finds the machine again is changed.
    async fn handles(&self, tally: &mut Tally, session: &SandboxSession) {
        let precious = self.rig.dir("precious");
        let kept = precious.join("0123456789abcdef/home/file");
        let other = precious.join("fedcba9876543210/file");
        for file in [&kept, &other] {
            fs::create_dir_all(file.parent().expect("a parent")).expect("a directory");
            fs::write(file, "kept").expect("a file");
        }
        let text = precious.display().to_string();
        let changes: [(&str, &str, &str); 5] = [
            ("id-climbs", "id", "../../../../etc"),
            ("id-is-a-path", "id", "0123456789abcde/"),
            ("relative-directory", "dir", "state"),
            ("nonce", "nonce", "00000000000000000000000000000000"),
            ("no-nonce", "nonce", ""),
        ];
        for (name, field, value) in changes {
            let mut state = session.state();
            state.machine.state[field] = value.into();
            let got = self.attach(state.clone()).await.map(|found| found.is_some());
            let deleted = soon(self.rig.client.delete(&state.machine)).await;
            let lives = session.running().await.unwrap_or(false);
            tally.expect(
                &format!("I69.handle-{name}"),
                got != Ok(true) && lives,
                format!("attach {got:?}, delete {deleted:?}, the machine lives: {lives}"),
            );
        }
        let mut state = session.state();
        state.machine.state["dir"] = text.as_str().into();
        state.machine.state["id"] = "0123456789abcdef".into();
        let got = self.attach(state.clone()).await.map(|found| found.is_some());
        let stays = kept.exists() && other.exists();
        tally.expect("I69.handle-directory-attach", got != Ok(true) && stays, format!("{got:?}, both stay: {stays}"));
        let got = soon(self.rig.client.delete(&state.machine)).await;
        let stays = kept.exists() && other.exists();
        tally.expect("I69.handle-directory-delete", stays, format!("{got:?}, both stay: {stays}"));
    }
}

/// Number 70: what is inside is a copy, and never the host's own file by another name.
async fn copies(rig: &Rig, tally: &mut Tally) {
    let (source, workspace) = (rig.dir("originals"), rig.dir("originals-copied"));
    fs::create_dir_all(source.join("tree")).expect("a directory");
    for name in ["file", "tree/file"] {
        fs::write(source.join(name), "kept").expect("an original");
    }
    let linked = source.join("linked");
    let naive = fs::hard_link(source.join("file"), &linked).and_then(|()| fs::write(&linked, "changed"));
    let shown = naive.is_ok() && fs::read_to_string(source.join("file")).is_ok_and(|text| text == "changed");
    tally.control("I70", shown, "an import by hard link changes the original");
    fs::remove_file(linked).expect("it goes");
    fs::write(source.join("file"), "kept").expect("as it was");
    let manifest = Manifest::new()
        .local_file("file", LocalFile::new("file"))
        .local_dir("tree", LocalDir::new("tree"))
        .base_dir(&source);
    let session = super::stage::open(rig, manifest, &workspace).await.expect("a session");
    super::stage::plant(&session, "for f in file tree/file; do echo changed > $f; chmod 777 $f; done").await;
    for name in ["file", "tree/file"] {
        let original = fs::metadata(source.join(name)).expect("it stays");
        let kept = fs::read_to_string(source.join(name)).is_ok_and(|text| text == "kept");
        let held = kept && original.nlink() == 1 && original.mode() & 0o777 != 0o777;
        tally.expect(&format!("I70.change-a-copied-{}", name.replace('/', "-")), held, "the original is as it was");
    }
    soon(session.delete()).await.expect("delete");
}
