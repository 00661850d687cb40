//! A hundred thousand files, there and back.

use std::time::Instant;

use super::*;

#[test]
fn a_hundred_thousand_files_are_copied_and_compared_in_time() {
    let shared = Path::new("/dev/shm");
    let temp = if shared.is_dir() { tempfile::tempdir_in(shared) } else { tempfile::tempdir() };
    let world = World::on(temp.unwrap());
    world.write(".gitignore", "*.o\n/target\n");
    for dir in 0..100 {
        let path = world.source().join(format!("dir{dir}/sub"));
        fs::create_dir_all(&path).unwrap();
        for file in 0..1000 {
            fs::write(path.join(format!("file{file}.txt")), format!("{dir} {file}\n")).unwrap();
        }
    }
    let begun = Instant::now();
    let run = world.run();
    let copied = begun.elapsed();
    write(&run.workspace(), "dir7/sub/file7.txt", "changed\n");
    let begun = Instant::now();
    let changes = run.changes(Scope::NotIgnored).unwrap();
    println!("copied in {copied:?}, compared in {:?}", begun.elapsed());
    assert_eq!(verbs(&changes), ["modified dir7/sub/file7.txt"]);
    assert!(copied.as_secs() < 240 && begun.elapsed().as_secs() < 240);
}
