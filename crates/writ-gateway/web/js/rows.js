// A list that is shown again and again: what stays keeps its node, and with it the focus.

/** Shows items as rows of a list. */
export class Rows {
  #list;
  #make;
  #rows = new Map();

  /** `make` builds the node of an item, and answers with it and with what fills it anew. */
  constructor(list, make) {
    this.#list = list;
    this.#make = make;
  }

  /** Shows these items in this order; `key` names each. */
  show(items, key) {
    const wanted = new Map(items.map((item) => [key(item), item]));
    for (const [name, row] of this.#rows) {
      if (wanted.has(name)) continue;
      row.node.remove();
      this.#rows.delete(name);
    }
    let place = 0;
    for (const [name, item] of wanted) {
      const row = this.#rows.get(name) ?? this.#made(name, item);
      const seen = JSON.stringify(item);
      if (row.seen !== seen) {
        row.seen = seen;
        row.fill(item);
      }
      // Moving a node takes its focus away: one that stands where it belongs is left alone.
      if (this.#list.children[place] !== row.node) this.#list.insertBefore(row.node, this.#list.children[place] ?? null);
      place += 1;
    }
  }

  #made(name, item) {
    const row = { seen: null, ...this.#make(item) };
    this.#rows.set(name, row);
    return row;
  }
}
