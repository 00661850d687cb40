//! An item of a transcript as a model's server sends it: read, looked at, and written as the same.

use sandbar_agent::{Item, View};

/// Whether the bytes were read to the end.
pub fn accepts(bytes: &[u8]) -> bool {
    let Ok(item) = serde_json::from_slice::<Item>(bytes) else { return false };
    match item.view() {
        View::Message(message) => drop((message.text(), message.refusal())),
        View::FunctionCall(call) => assert!(item.is_call() && item.call_id() == Some(call.call_id)),
        View::CustomCall(call) => assert!(item.is_call() && item.call_id() == Some(call.call_id)),
        View::Answer(answer) => assert!(answer.is_answer()),
        View::Other(kind) => assert_eq!(kind, item.kind()),
        _ => {}
    }
    let text = serde_json::to_string(&item).expect("what was read can be written");
    let again: Item = serde_json::from_str(&text).expect("our own text");
    assert_eq!(again, item);
    assert_eq!(serde_json::to_string(&again).expect("text"), text);
    true
}
