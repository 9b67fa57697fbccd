// Elements, and numbers as people read them. Text is only ever set as text: names come from elsewhere.

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "path", "line", "circle", "text", "rect"]);

// h("div.card", {onclick: f, title: "..."}, child, "text")
export function h(tag, props = {}, ...children) {
  const [name, ...classes] = tag.split(".");
  const made = SVG_TAGS.has(name) ? document.createElementNS(SVG, name) : document.createElement(name);
  if (classes.length) made.classList.add(...classes);
  for (const [key, value] of Object.entries(props)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "style") for (const [one, to] of Object.entries(value)) made.style.setProperty(one, to);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...there(children));
  return made;
}

const there = (children) => children.flat(Infinity).filter((one) => one !== null && one !== undefined && one !== false);

// Gives an element these children. What is equal to what was there stays, so that nobody loses an open list.
export function fill(element, ...children) {
  const before = [...element.childNodes];
  const now = there(children).map((one) => (one instanceof Node ? one : document.createTextNode(one)));
  now.forEach((child, i) => {
    const old = before[i];
    if (!old) element.append(child);
    else if (old !== child && !old.isEqualNode(child)) old.replaceWith(child);
  });
  before.slice(now.length).forEach((old) => old.remove());
  return element;
}

export const known = (value) => value !== null && value !== undefined && !Number.isNaN(value);

export function percent(share, digits = 1) {
  return known(share) ? `${(100 * share).toFixed(digits)} %` : "–";
}

export function figure(value, digits = 3) {
  if (!known(value)) return "–";
  if (value !== 0 && (Math.abs(value) >= 1e6 || Math.abs(value) < 1e-3)) return value.toExponential(digits - 1);
  return Number(value.toPrecision(Math.max(digits, Math.ceil(Math.log10(Math.abs(value) + 1))))).toLocaleString("en");
}

export function bytes(value) {
  if (!known(value)) return "–";
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) [value, unit] = [value / 1000, unit + 1];
  return `${value >= 100 || unit === 0 ? value.toFixed(0) : value.toFixed(1)} ${units[unit]}`;
}

export function duration(seconds) {
  if (!known(seconds)) return "–";
  if (seconds < 0.0005) return seconds > 0 ? "< 1 ms" : "0 ms";
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 100) return `${Number(seconds.toPrecision(2))} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.round(hours / 24)} days`;
}

export const degrees = (value) => (known(value) ? `${value.toFixed(1)}°` : "–");
export const points = (value) => `${value >= 0 ? "+" : "−"}${Math.abs(value).toFixed(1)}`;

// A row of buttons of which one is chosen; arrow keys move.
export function choice(title, options, chosen, onchoose, role = "radiogroup") {
  const tabs = role === "tablist";
  const buttons = Object.entries(options).map(([value, label]) =>
    h("button", {
      type: "button", role: tabs ? "tab" : "radio", "data-value": value, onclick: () => onchoose(value),
      [tabs ? "aria-selected" : "aria-checked"]: String(value === chosen), tabindex: value === chosen ? 0 : -1,
    }, label));
  const onkeydown = (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const place = buttons.indexOf(document.activeElement);
    if (!step || place < 0) return;
    event.preventDefault();
    const next = buttons[(place + step + buttons.length) % buttons.length];
    next.focus();
    onchoose(next.dataset.value);
  };
  return h(`div.${tabs ? "tabs" : "choice"}`, { role, "aria-label": title, onkeydown }, buttons);
}

export function select(title, options, chosen, onchoose) {
  const made = h("select", { "aria-label": title, onchange: () => onchoose(made.value) },
    Object.entries(options).map(([value, label]) => h("option", { value, selected: value === String(chosen) }, label)));
  return made;
}

export function card(title, note, ...children) {
  return h("section.card", {}, h("header", {}, h("h2", {}, title), note && h("p", {}, note)), children);
}

export function tile(title, value, ...below) {
  return h("div.tile", {}, h("h3", {}, title), h("strong", {}, value), below.map((line) => line && h("p", {}, line)));
}

// columns: [heading, class]; rows: cells, each text or an element
export function table(columns, rows) {
  const look = (i) => (columns[i][1] ? `.${columns[i][1]}` : "");
  return h("table", {},
    h("thead", {}, h("tr", {}, columns.map(([heading], i) => h(`th${look(i)}`, { scope: "col" }, heading)))),
    h("tbody", {}, rows.map((cells) => h("tr", {}, cells.map((cell, i) => h(`td${look(i)}`, {}, cell))))));
}

export const whole = (value) => value.toLocaleString("en");

export const colourOf = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
export const isDark = () => colourOf("--scheme") === "dark";

// A method's colour, lighter on a dark page where it would not be seen.
export function onPage(colour, alpha = 1) {
  let parts = [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
  const light = (0.299 * parts[0] + 0.587 * parts[1] + 0.114 * parts[2]) / 255;
  const lighter = light < 0.05 ? 0.88 : 0.4;
  if (isDark() && light < 0.48) parts = parts.map((part) => Math.round(part + (255 - part) * lighter));
  return `rgba(${parts.join(", ")}, ${alpha})`;
}
