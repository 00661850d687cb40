//! `--git rw` works only on the command line: no file and no client can set it.

use super::{
    play::{run, say, script, shell},
    repository::Repository,
    rig::each,
};

#[test]
fn no_file_makes_a_repository_writable() {
    each(|sandbar| {
        let repository = Repository::make(sandbar, "directory");
        let model = script(sandbar, "attack.json", [vec![shell(&repository.attack)], vec![say("done")]]);
        let words = ["--model", &model, "--workspace", "work", "--in-place"];
        let git = repository.work.join(".git").display().to_string();
        for (name, text, option) in [
            ("agent.toml", "git = \"rw\"\n".to_owned(), "--agent"),
            ("agent.toml", "[manifest]\ngit = \"rw\"\n".to_owned(), "--agent"),
            ("manifest.yaml", "git: rw\n".to_owned(), "--manifest"),
            ("config.toml", "git = \"rw\"\n".to_owned(), "--config"),
            ("config.toml", format!("rw = [\"{git}:/workspace/.git\"]\n"), "--config"),
            ("config.toml", format!("grant = [\"{git}:/workspace/.git:rw\"]\n"), "--config"),
        ] {
            sandbar.make_file(name, &text);
            let told = run(sandbar, &[&words[..], &[option, name]].concat());
            let is_held = told.run.code != 0 || told.outputs().contains("Read-only file system");
            assert!(is_held && !repository.is_taken_over(sandbar), "{text}: {told:?}");
        }
        let told = run(sandbar, &[&words[..], &["--git", "rw"]].concat());
        assert_eq!(told.run.code, 0, "{told:?}");
        assert!(repository.is_taken_over(sandbar), "the control");
    });
}
