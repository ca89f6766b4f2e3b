// Builds elements. Text only ever becomes text nodes: nothing on this page parses markup.

const SVG = "http://www.w3.org/2000/svg";

/**
 * Makes an element. `props` are properties (`className`, `hidden`), listeners (`onclick`), `data` for data
 * attributes, and attributes for everything that has a dash or is not a property.
 */
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null) continue;
    if (name === "data") Object.assign(node.dataset, value);
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name in node && !name.includes("-")) node[name] = value;
    else node.setAttribute(name, value);
  }
  append(node, children);
  return node;
}

/** Appends nodes and texts; `null` and `undefined` are left out. */
export function append(node, children) {
  for (const child of children.flat()) {
    if (child !== null && child !== undefined) node.append(child);
  }
  return node;
}

/** Makes an icon from the data of its path. */
export function icon(path, view = 16) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", "icon");
  svg.setAttribute("viewBox", `0 0 ${view} ${view}`);
  svg.setAttribute("aria-hidden", "true");
  const line = document.createElementNS(SVG, "path");
  line.setAttribute("d", path);
  svg.append(line);
  return svg;
}

export const ICONS = {
  done: "m3.5 8.5 3 3 6-6.5",
  failed: "m4.5 4.5 7 7m0-7-7 7",
  denied: "M3.2 8a4.8 4.8 0 1 0 9.6 0 4.8 4.8 0 1 0-9.6 0Zm1.5-3.3 6.6 6.6",
  waiting: "M5.5 4v8M10.5 4v8",
  unknown: "M6 6.2a2 2 0 1 1 2.9 1.8C8.3 8.3 8 8.7 8 9.3M8 11.6v.1",
  started: "M8 3.2a4.8 4.8 0 1 1-4.8 4.8",
  simulated: "M4 8h1.5M7.3 8h1.5M10.6 8h1.5",
  cancelled: "M4.5 8h7",
  more: "M3.6 8h.01M8 8h.01M12.4 8h.01",
  outside: "M8 2.8a5.2 5.2 0 1 0 0 10.4A5.2 5.2 0 0 0 8 2.8ZM2.9 8h10.2M8 2.9c3 3.3 3 6.9 0 10.2M8 2.9c-3 3.3-3 6.9 0 10.2",
};

/** The element with this id; it is part of the page. */
export const byId = (id) => document.getElementById(id);
