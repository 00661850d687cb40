//! The floor of a start: a C program that is built here and measures on request.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

/// The running C program.
pub(crate) struct Floor {
    program: PathBuf,
    dir: PathBuf,
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Floor {
    /// Builds and starts the program. Its machines are in a directory below this one.
    pub(crate) fn new(place: &Path) -> Self {
        let (program, dir) = (place.join("floor"), place.join("floor-machines"));
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/start/floor.c");
        let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
        let built = Command::new(compiler).args(["-O2", "-Wall", "-o"]).arg(&program).arg(source).status();
        assert!(built.expect("a C compiler").success(), "the floor can be built");
        fs::create_dir_all(&dir).unwrap();
        for shown in [place, &dir] {
            fs::set_permissions(shown, fs::Permissions::from_mode(0o711)).unwrap();
        }
        let mut command = Command::new(&program);
        command.arg(&dir).arg("serve").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the floor starts");
        let (stdin, stdout) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Self { program, dir, child, stdin, stdout }
    }

    /// The time of `one`, `many COUNT` or `row COUNT`.
    pub(crate) fn time(&mut self, work: &str) -> Duration {
        writeln!(self.stdin.as_mut().unwrap(), "{work}").unwrap();
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        Duration::from_nanos(line.trim().parse().expect("the floor works: it needs root"))
    }

    /// A command that makes one start and exits.
    pub(crate) fn once(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.arg(&self.dir).arg("once");
        command
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ended = self.child.wait();
    }
}
