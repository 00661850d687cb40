//! Images, and patches in their three transports.

use sandbar::{Manifest, capability::PatchTransport, mock::item, prelude::*};
use serde_json::{Value, json};

use crate::rig::{Rig, call, done, exec, exited, news, workspace};

/// One red pixel.
const PNG: &[u8] = &[
    0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, 0, 0, 0, 0x0d, b'I', b'H', b'D', b'R', 0, 0, 0, 1, 0, 0, 0, 1, 8,
    2, 0, 0, 0, 0x90, 0x77, 0x53, 0xde, 0, 0, 0, 0x0c, b'I', b'D', b'A', b'T', 0x08, 0xd7, 0x63, 0xf8, 0xcf, 0xc0, 0,
    0, 3, 1, 1, 0, 0x18, 0xdd, 0x8d, 0xb0, 0, 0, 0, 0, b'I', b'E', b'N', b'D', 0xae, 0x42, 0x60, 0x82,
];

pub(crate) fn png_file() -> File {
    File::new(PNG.to_vec())
}

fn view(path: &str) -> Value {
    call("view_image", json!({ "path": path }))
}

#[tokio::test]
async fn an_image_is_shown_and_other_files_are_refused_with_a_reason() {
    let rig = Rig::turns([
        exec("head -c 11000000 /dev/zero > huge.png; echo text > note.png; mkdir dir.png; ln -s /etc/passwd out.png"),
        view("red.txt"),
        view("missing.png"),
        view("huge.png"),
        view("note.png"),
        view("dir.png"),
        view("../../etc/passwd"),
        view("/etc/passwd"),
        view("out.png"),
        view(&format!("{}/red.txt", workspace())),
        done(),
    ]);
    run(rig.agent().manifest(Manifest::new().entry("red.txt", png_file())), "Go.")
        .sandbox(rig.sandbox())
        .max_turns(20)
        .await
        .expect("it ends well");
    let answers = rig.answers();
    for shown in [&answers[1], &answers[9]] {
        let parts = shown["output"].as_array().expect("parts");
        assert_eq!(parts.len(), 1);
        assert_eq!(parts[0]["type"], "input_image");
        assert!(parts[0]["image_url"].as_str().expect("a URL").starts_with("data:image/png;base64,iVBOR"), "{shown}");
    }
    for (index, expected) in [
        (2, &["missing.png", "not found"][..]),
        (3, &["huge.png", "10MB"]),
        (4, &["note.png", "not a supported image"]),
        (5, &["dir.png", "not a file"]),
        (6, &["../../etc/passwd"]),
        (7, &["/etc/passwd"]),
        (8, &["out.png"]),
    ] {
        let message = answers[index]["output"].as_str().unwrap_or_else(|| panic!("{} is not text", answers[index]));
        for word in expected {
            assert!(message.contains(word), "{message}");
        }
        assert!(!message.contains("root:"), "{message}");
    }
    rig.leaves_nothing().await;
}

#[tokio::test]
async fn a_chat_model_gets_the_image_in_the_message_after_the_tool_output() {
    let rig = Rig::turns([view("red.png"), done()]);
    let agent = rig.agent().model(rig.chat()).manifest(Manifest::new().entry("red.png", png_file()));
    rig.run(&agent).await;
    let messages = rig.body(1)["messages"].clone();
    let last = messages.as_array().and_then(|messages| messages.last()).expect("messages");
    assert_eq!(last["role"], "user");
    assert!(last["content"][1]["image_url"]["url"].as_str().expect("a URL").starts_with("data:image/png;base64,"));
    rig.leaves_nothing().await;
}

const ADD: &str = "*** Begin Patch\n*** Add File: new/hello.txt\n+hello\n*** End Patch\n";
const MOVE: &str =
    "*** Begin Patch\n*** Update File: new/hello.txt\n*** Move to: bye.txt\n@@\n-hello\n+bye\n*** End Patch";
const WRONG: &str = "*** Begin Patch\n*** Update File: bye.txt\n@@\n-nothing like it\n+x\n*** End Patch\n";
const OUT: &str = "*** Begin Patch\n*** Add File: ../../etc/evil\n+x\n*** End Patch\n";

#[tokio::test]
async fn patches_come_as_free_text_to_a_responses_model() {
    let patch = |text: &str| item::custom_tool_call("apply_patch", text);
    let rig = Rig::turns([patch(ADD), patch(MOVE), patch(WRONG), patch(OUT), exec("cat bye.txt; ls"), done()]);
    rig.run(&rig.agent()).await;
    let tool = rig.tool(0, "apply_patch");
    assert_eq!(tool["type"], "custom");
    assert_eq!((&tool["format"]["type"], &tool["format"]["syntax"]), (&json!("grammar"), &json!("lark")));
    assert_eq!(tool["format"]["definition"].as_str(), Some(include_str!("apply_patch.lark")));
    let answers = rig.answers();
    assert!(answers[..4].iter().all(|answer| answer["type"] == "custom_tool_call_output"));
    let outputs = rig.texts();
    assert_eq!(outputs[0], "Created new/hello.txt");
    assert_eq!(outputs[1], "Updated new/hello.txt\nMoved new/hello.txt to bye.txt");
    assert!(outputs[2].contains("bye.txt"), "{}", outputs[2]);
    assert!(outputs[3].contains("../../etc/evil"), "{}", outputs[3]);
    assert_eq!(news(&outputs[4]), exited(0, "bye\nbye.txt\nnew\n"));
    rig.leaves_nothing().await;
}

#[tokio::test]
async fn patches_come_as_the_built_in_tool_with_a_status() {
    let patch = |operation: Value| item::apply_patch_call(operation);
    let rig = Rig::turns([
        patch(json!({ "type": "create_file", "path": "a.txt", "diff": "+one\n+two\n" })),
        patch(json!({ "type": "update_file", "path": "a.txt", "diff": "@@\n one\n-two\n+three\n" })),
        patch(json!({ "type": "update_file", "path": "missing", "diff": "@@\n-x\n+y\n" })),
        exec("cat a.txt"),
        patch(json!({ "type": "delete_file", "path": "a.txt" })),
        exec("ls"),
        done(),
    ]);
    let built_in = Filesystem::new().transport(PatchTransport::BuiltIn);
    rig.run(&rig.agent().capabilities(Capabilities::none().with(built_in).with(Shell::new()))).await;
    assert_eq!(rig.body(0)["tools"][1], json!({ "type": "apply_patch" }));
    let answers = rig.answers();
    let patches = [0, 1, 2, 4].map(|index| &answers[index]);
    assert!(patches.iter().all(|answer| answer["type"] == "apply_patch_call_output"), "{patches:?}");
    assert_eq!(
        patches.map(|answer| answer["status"].as_str().unwrap_or_default()),
        ["completed", "completed", "failed", "completed"]
    );
    let outputs = rig.texts();
    assert_eq!((&*outputs[0], &*outputs[1], &*outputs[4]), ("Created a.txt", "Updated a.txt", "Deleted a.txt"));
    assert!(outputs[2].contains("missing"), "{}", outputs[2]);
    assert!(news(&outputs[3]).starts_with(&exited(0, "one\nthree")), "{}", outputs[3]);
    assert_eq!(news(&outputs[5]), exited(0, ""));
    rig.leaves_nothing().await;
}

#[tokio::test]
async fn patches_come_as_a_function_to_a_chat_model_in_every_form() {
    let patch = |arguments: Value| call("apply_patch", arguments);
    let rig = Rig::turns([
        patch(json!({ "patch": ADD })),
        patch(json!({ "operation": { "type": "create_file", "path": "b", "diff": "+b\n" } })),
        patch(
            json!({ "operations": [{ "type": "create_file", "path": "c", "diff": "+c\n" }, { "type": "delete_file", "path": "b" }] }),
        ),
        patch(json!({ "command": ["apply_patch", MOVE] })),
        patch(json!({ "type": "create_file", "path": "d", "diff": "+d\n" })),
        patch(json!({})),
        patch(json!({ "patch": 7 })),
        exec("cat bye.txt c d; ls"),
        done(),
    ]);
    run(rig.agent().model(rig.chat()), "Go.").sandbox(rig.sandbox()).max_turns(20).await.expect("it ends well");
    let tool = rig.tool(0, "apply_patch");
    assert_eq!(tool["type"], "function");
    assert_eq!(tool["function"]["parameters"]["additionalProperties"], true);
    assert_eq!(tool["function"]["parameters"].get("required"), None);
    let outputs = rig.chat_texts();
    assert_eq!(
        outputs[..5],
        [
            "Created new/hello.txt",
            "Created b",
            "Created c\nDeleted b",
            "Updated new/hello.txt\nMoved new/hello.txt to bye.txt",
            "Created d",
        ]
    );
    assert_eq!(news(&outputs[7]), exited(0, "bye\nc\nd\nbye.txt\nc\nd\nnew\n"));
    rig.leaves_nothing().await;
}

#[tokio::test]
async fn a_transport_that_a_server_does_not_support_is_refused_or_becomes_a_function() {
    let rig = Rig::turns([done()]);
    let agent = |transport| rig.agent().model(rig.chat()).capabilities([Filesystem::new().transport(transport)]);
    let message = rig.failure(&agent(PatchTransport::BuiltIn), rig.sandbox()).await;
    assert!(message.contains("apply_patch cannot be used with a Chat Completions server"), "{message}");
    // A Chat Completions server gets the freeform tool as a function.
    rig.run(&agent(PatchTransport::Freeform)).await;
    assert_eq!(rig.tool(0, "apply_patch")["type"], "function");
    rig.leaves_nothing().await;
}

#[tokio::test]
async fn a_patch_needs_approval_only_if_it_touches_a_guarded_file() {
    let patch = |path: &str| {
        item::custom_tool_call("apply_patch", format!("*** Begin Patch\n*** Add File: {path}\n+x\n*** End Patch"))
    };
    let rig = Rig::turns([
        patch("free.txt"),
        item::custom_tool_call("apply_patch", "not a patch"),
        patch("sub\\..\\..\\out"),
        patch("./sub//guarded.txt"),
        done(),
    ]);
    let filesystem = Filesystem::new().ask_about(|path| path == "sub/guarded.txt");
    let sandbox = rig.sandbox();
    let agent = rig.agent().capabilities(Capabilities::none().with(filesystem));
    let paused = run(&agent, "Go.").sandbox(&sandbox).await.expect("it pauses");
    assert_eq!(*paused.stop(), Stop::Interrupted);
    assert_eq!(rig.texts().len(), 3);
    let mut state = paused.to_state();
    let asked = state.interruptions();
    assert!(asked[0].arguments.contains("guarded.txt"), "{asked:?}");
    state.approve(&asked[0]).expect("it waits");
    let result = run(&agent, state).sandbox(&sandbox).await.expect("it ends well");
    assert_eq!(result.final_output(), "Done.");
    assert_eq!(rig.texts()[3], "Created ./sub//guarded.txt");
    rig.leaves_nothing().await;
}

#[tokio::test]
async fn a_rule_about_files_does_not_replace_the_approval_of_all_patches() {
    let rig = Rig::turns([item::custom_tool_call("apply_patch", ADD), done()]);
    let filesystem = Filesystem::new().approval(Approval::Always).ask_about(|_path| false);
    let agent = rig.agent().capabilities(Capabilities::none().with(filesystem));
    let paused = run(&agent, "Go.").sandbox(rig.sandbox()).await.expect("it pauses");
    assert_eq!(*paused.stop(), Stop::Interrupted);
    drop(paused);
    rig.leaves_nothing().await;
}
