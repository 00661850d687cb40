//! Tests of which output a call returns, and of how omitted output is counted.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_character_is_never_split_between_updates() {
    let (table, mut stage) = stage(TableOptions::default());
    table.start(pipes()).await.unwrap();
    let puppet = stage.recv().await.unwrap();
    let poll = || async { table.write(1000, Write::new("")).await.unwrap().output };
    puppet.print(&b"a\xe2\x82"[..]).await;
    assert_eq!(poll().await, "a");
    puppet.output.send(Ok(Output::Stderr(Bytes::from_static("[é]".as_bytes())))).await.unwrap();
    puppet.print(&b"\xac\xff\xf0\x9f"[..]).await;
    assert_eq!(poll().await, "[é]€\u{fffd}");
    puppet.exit(0).await;
    assert_eq!(poll().await, "\u{fffd}");
}

#[tokio::test(start_paused = true)]
async fn output_that_no_call_reads_is_cut_in_the_middle_and_counted() {
    let (table, mut stage) = stage(TableOptions { buffer: 20, ..TableOptions::default() });
    table.start(pipes()).await.unwrap();
    let puppet = stage.recv().await.unwrap();
    for piece in ["0123456789", "abcdefghij", "ABCDEFGHIJ"] {
        puppet.print(piece).await;
    }
    let update = table.write(1000, Write::new("")).await.unwrap();
    assert_eq!(update.output, "0123456789\n... 10 bytes omitted ...\nABCDEFGHIJ");
    assert_eq!((update.omitted_bytes, update.original_token_count), (10, Some(8)));
    puppet.print("next").await;
    let update = table.write(1000, Write::new("")).await.unwrap();
    assert_eq!((update.output.as_str(), update.omitted_bytes, update.original_token_count), ("next", 0, None));
}

#[tokio::test(start_paused = true)]
async fn a_long_result_is_cut_to_ten_thousand_tokens_unless_told_otherwise() {
    let (table, mut stage) = stage(TableOptions::default());
    for max in [None, Some(50)] {
        let play = async {
            let puppet = stage.recv().await.unwrap();
            puppet.print(vec![b'x'; 100_000]).await;
            puppet.exit(0).await;
        };
        let (update, ()) = tokio::join!(table.start(Start { max_output_tokens: max, ..pipes() }), play);
        let update = update.unwrap();
        assert_eq!(update.output.len(), max.unwrap_or(10_000) * 4);
        assert_eq!(update.original_token_count, Some(25_000));
    }
}

#[tokio::test(start_paused = true)]
async fn omitted_bytes_are_counted_even_if_the_notice_is_cut_too() {
    let (table, mut stage) = stage(TableOptions { buffer: 4_000, ..TableOptions::default() });
    table.start(pipes()).await.unwrap();
    let puppet = stage.recv().await.unwrap();
    for _ in 0..25 {
        puppet.print(vec![b'x'; 40_000]).await;
    }
    let update = table.write(1000, Write::new("").max_output_tokens(100)).await.unwrap();
    // All bytes that are not shown: a million, less about 340 of both ends.
    let shown = update.output.matches('x').count() as u64;
    let count = (1_000_000 - shown).div_ceil(4);
    assert!(update.output.contains(&format!("…{count} tokens truncated…")), "{}", update.output);
    assert_eq!((update.omitted_bytes, update.original_token_count), (996_000, Some(250_000)));
    assert!(update.output.len() <= 400 && shown > 300);
    // A gap that lies outside the cut keeps its own line.
    for limit in 1_000..1_040 {
        puppet.print(vec![b'x'; 40_000]).await;
        let update = table.write(1000, Write::new("").max_output_tokens(limit)).await.unwrap();
        let shown = update.output.matches('x').count() as u64;
        let total: u64 = 40_000 - shown;
        let said = update.output.contains("... 36000 bytes omitted ...\n")
            || update.output.contains(&format!("…{} tokens truncated…", total.div_ceil(4)));
        assert!(said && update.output.len() <= limit * 4, "{limit}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_watcher_sees_pieces_of_whole_characters_and_what_it_missed_is_counted() {
    let (table, mut stage) = stage(TableOptions::default());
    table.start(pipes()).await.unwrap();
    let puppet = stage.recv().await.unwrap();
    let (mut quick, mut slow) = (table.subscribe(1000).unwrap(), table.subscribe(1000).unwrap());
    let text = "€".repeat(5_000);
    puppet.print(text.clone()).await;
    let mut seen = Vec::new();
    while seen.len() < text.len() {
        let piece = quick.next().await.unwrap();
        assert!(piece.len() <= 8192 && std::str::from_utf8(&piece).is_ok());
        seen.extend_from_slice(&piece);
    }
    assert_eq!(seen, text.as_bytes());
    for _ in 0..100 {
        puppet.print("x").await;
    }
    puppet.exit(0).await;
    drop(puppet);
    // Wait until the pump has read all output.
    sleep(Duration::from_millis(1)).await;
    let mut heard = 0;
    while slow.next().await.is_some() {
        heard += 1;
    }
    assert_eq!((heard, slow.missed()), (64, 102 - 64));
    // The subscriptions took no output away from the call.
    let update = table.write(1000, Write::new("").max_output_tokens(1 << 20)).await.unwrap();
    assert_eq!(update.output.len(), text.len() + 100);
    assert!(table.subscribe(1000).is_err());
}
