//! `--tune`: what is measured is kept, and goes on being used without measuring; nothing of it is needed.
#![allow(clippy::unwrap_used)]
#![cfg(target_os = "linux")]

mod common;

use std::fs;

use common::card::Card;

const BENCH: &str = "bench dit --model formula:tiny --latent 1x16x16 --repeat 1";

/// What a run said on stderr, and how many products the library made for it.
fn run(card: &Card, words: &str) -> (String, usize) {
    let count = card.0.path("products");
    let _ = fs::remove_file(&count);
    let mut command = card.command(words);
    command.env("RESEED_STUB_PRODUCTS", &count);
    let outcome = common::outcome(command);
    assert_eq!(outcome.code, Some(0), "reseed {words}: {}", outcome.stderr);
    (outcome.stderr, fs::read_to_string(count).map_or(0, |text| text.parse().unwrap()))
}

#[test]
fn a_measured_choice_is_kept_and_used() {
    let card = Card::new();
    card.build("cublaslt.c", "libcublasLt.so.12");
    assert_eq!(run(&card, BENCH), (String::new(), 0), "nothing is measured unasked");
    let record = card.0.path("cache/reseed/linear.txt");
    assert!(!record.exists());

    let (said, tried) = run(&card, &format!("{BENCH} --tune on"));
    assert!(said.is_empty() && tried > 0, "{said}");
    let text = fs::read_to_string(&record).unwrap();
    let choices: Vec<&str> = text.lines().skip(1).collect();
    // By the clock of this card all kernels take the same time, and then ours is the choice.
    assert!(choices.len() > 4 && choices.iter().all(|line| line.starts_with("stub\t13.0\t120804\t")), "{text}");
    assert!(choices.iter().all(|line| line.ends_with("\town")), "{text}");
    assert_eq!(run(&card, &format!("{BENCH} --tune on")), (String::new(), 0), "nothing is measured twice");

    fs::write(&record, text.replace("\town", &format!("\tcublaslt {}", "07".repeat(64)))).unwrap();
    let (said, products) = run(&card, BENCH);
    // Three passes: one before the profile, one with it, one that is timed.
    assert!(said.is_empty() && products > 3 * choices.len() && products.is_multiple_of(3), "{said} {products}");

    fs::remove_file(card.0.path("libcublasLt.so.12")).unwrap();
    assert_eq!(run(&card, BENCH), (String::new(), 0), "without the library our own kernels run");
    let (said, _) = run(&card, &format!("{BENCH} --tune on"));
    assert!(said.contains("cannot measure linear layers") && said.contains("cuBLASLt not found"), "{said}");
    assert_eq!(said.lines().count(), 1);
}

#[test]
fn a_damaged_record_is_one_line_and_no_harm() {
    let card = Card::new();
    card.build("cublaslt.c", "libcublasLt.so.12");
    fs::create_dir_all(card.0.path("cache/reseed")).unwrap();
    fs::write(card.0.path("cache/reseed/linear.txt"), "anything\nelse").unwrap();
    let (said, products) = run(&card, BENCH);
    assert_eq!((said.lines().count(), products), (1, 0), "{said}");
    assert!(said.contains("linear.txt: line 2 is damaged"), "{said}");
    let (said, tried) = run(&card, &format!("{BENCH} --tune on"));
    assert!(said.lines().count() == 1 && tried > 0, "{said}");
    assert_eq!(run(&card, BENCH), (String::new(), 0), "--tune on wrote a new one");
}

#[test]
fn other_words_than_off_and_on_are_refused() {
    let outcome = Card::new().0.run(&format!("{BENCH} --tune perhaps"));
    assert!(outcome.code == Some(2) && outcome.stderr.contains("`perhaps` is not off or on"), "{}", outcome.stderr);
}
