// What is written and not sent yet, by conversation: it outlives a reload, and stays with its conversation.

const key = (session) => `writ.draft.${session}`;

export function keepDraft(session, text) {
  try {
    if (text === "") sessionStorage.removeItem(key(session));
    else sessionStorage.setItem(key(session), text);
  } catch {
    // Storage is full or forbidden: the text stays in the box.
  }
}

export function draftOf(session) {
  try {
    return sessionStorage.getItem(key(session)) ?? "";
  } catch {
    return "";
  }
}
