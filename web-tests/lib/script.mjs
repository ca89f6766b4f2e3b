// What the scripted model says in these tests.

const call = (tool, args) => ({ calls: [{ tool, arguments: args }] });

export const LONG_FILE = `${Array.from({ length: 200 }, (_, n) => `Line ${n + 1} of a file that is longer than a card.`).join("\n")}\n`;

export const SCRIPT = [
  { when: "hello", replies: [{ text: "Good morning. This reply has enough words to come in several pieces, one after the other, until it is complete." }] },
  {
    when: "fix the fee",
    replies: [
      { text: "I look at it first.", ...call("file_read", { path: "fee.txt" }) },
      call("file_write", { path: "fee.txt", content: "free from: 50.00 inclusive\n" }),
      { text: "The boundary was **wrong**: a basket of exactly 50.00 paid for delivery.\n\n- `fee.txt` says *inclusive* now.\n- Nothing else changed.\n\n```text\nfree from: 50.00 inclusive\n```\n\nIt waits for your word." },
    ],
  },
  { when: "keep the first", replies: [call("memory_store", { text: "the first" }), { text: "It waits." }] },
  { when: "keep the second", replies: [call("memory_store", { text: "the second" }), { text: "It waits." }] },
  { when: "keep the third", replies: [call("memory_store", { text: "the third" }), { text: "It waits." }] },
  { when: "look it up", replies: [call("web_fetch", { url: "https://strange.example/tea" }), { text: "It waits." }] },
  { when: "write much", replies: [call("file_write", { path: "much.txt", content: LONG_FILE }), { text: "It is written." }] },
  { when: "take your time", replies: [{ text: "The first half is said.", ...call("memory_store", { text: "The tests take their time" }) }, { text: "And the second half, too.", hold: "time" }] },
  { when: "wait for the other", replies: [{ text: "Both see this.", hold: "other" }] },
  { when: "be stopped", replies: [{ text: "This is never said.", hold: "never" }] },
  {
    when: "hostile",
    replies: [{
      text: "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>\n\n![picture](https://pictures.example/a.png) [your bank](https://evil.example/login) [run](javascript:document.title='owned') <b>bold</b>\n\n<style>body{display:none}</style>",
    }],
  },
  {
    when: "show me a table",
    replies: [{
      text: "| town | 2025 | note |\n| :--- | ---: | :-: |\n| Ulm | 12 | a \\| b |\n| Trier | 7 | <b>bold</b> |\n\nAnd how it is made:\n\n```rust\n// Adds them.\nfn add(a: u32) -> u32 { a + 1 } // \"two\"\nlet text = \"</code><script>document.title='owned'</script>\";\n```\n\n| no | table\nas it has | no line below its head",
    }],
  },
  {
    when: "send me the notes",
    replies: [
      call("file_write", { path: "out/notes.html", content: "<script>document.title = 'owned'</script>\n" }),
      call("send_file", { path: "out/notes.html" }),
      { text: "You have them." },
    ],
  },
  { when: "what can you do", replies: [{ text: "I read and change files in this conversation's own copy of a project, run commands without a network, and remember what you tell me.\n\n1. Reading and searching is free.\n2. Changing your project asks first.\n3. Everything is on record." }] },
];
