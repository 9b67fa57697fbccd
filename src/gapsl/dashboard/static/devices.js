// A row per device; only the rows that are seen exist, so that a thousand scroll like ten.
import { bytes, card, degrees, duration, figure, fill, h, known, percent, select, whole } from "./dom.js";
import { get } from "./source.js";

const ROW = 44; // pixels
const STATES = { // look, and what it means
  leader: ["lead", "the leader gradient is the mean of these"],
  kept: ["good", "in the round's loss"],
  "took part": ["good", "took part in the last round"],
  connected: ["good", "connected"],
  excluded: ["warn", "too far from the leader in the last round"],
  slow: ["warn", "connected, but the last round was closed without it"],
  skipped: ["bad", "left out of the last round as an outlier"],
  away: ["bad", "not there"],
  "not drawn": ["", "not drawn for the last round"],
  unknown: ["", "no round yet"],
};
const SHARES = "Shares are of the rounds that a device took part in.";
// What a device's time is made of: the phases of its records, its look, and what it means.
const TIMES = {
  device: [["forward", "backward"], "its own forward, backward and step"],
  server: [["server"], "the server's passes for it"],
  waiting: [["waiting"], "transfer, and waiting for it"],
};
const SLOW = 2; // times the median, from which on a device is slow

export function devicesView(page) {
  let found = null, range = [0, 180], order = [], chosen = null, shown = "";
  let sort = "names", down = false, wanted = "", state = "";
  const head = h("div.device-row.head"), rows = h("div", { style: { position: "relative" } });
  const viewport = h("div.viewport",
    { tabindex: 0, role: "listbox", "aria-label": "devices", onscroll: () => paint(), onkeydown: onkey }, rows);
  const list = h("div.devices", {}, head, viewport), controls = h("div.controls");
  const detail = h("div.detail"), notes = h("p.note"), keys = h("p.note.keys");
  const look = () => { wanted = search.value.toLowerCase(); arrange(); };
  const search = h("input",
    { type: "search", placeholder: "Find a device", "aria-label": "find a device", oninput: look });

  // What it is sorted by, its heading, its classes.
  const columns = () => [
    ["names", "device", ""], ["state", "state", ""],
    [null, "labels", "bars-cell"], [null, "angle", ""], ["time", "time per round", "n"],
    ...(found.chooses ? [["led", "leader", "n.extra"]] : []),
    ...[...(found.chooses ? ["kept", "excluded"] : []), "skipped", "accuracy", "loss", "traffic"]
      .map((name) => [name, name, "n.extra"]),
  ];

  function valueOf(name, device) {
    if (name === "accuracy") return percent(found.accuracy?.[device]);
    if (name === "loss") return figure(found.loss?.[device]);
    if (name === "traffic") return bytes(found.traffic[device]);
    const rounds = found.rounds[device];
    return rounds ? `${Math.round((100 * found[name][device]) / rounds)}%` : "–";
  }

  function arrange() {
    const key = (device) => (sort === "names" ? device : found[sort]?.[device] ?? -Infinity);
    const matches = (device) => found.names[device].toLowerCase().includes(wanted)
      && (!state || found.state[device] === state);
    const before = (one, other) => (key(one) < key(other) ? -1 : key(one) > key(other) ? 1 : one - other);
    order = found.names.map((_, device) => device).filter(matches);
    order.sort((one, other) => before(one, other) * (down ? -1 : 1));
    rows.style.height = `${order.length * ROW}px`;
    const most = Math.max(260, innerHeight - 330);
    viewport.style.height = `${Math.min(Math.max(1, order.length) * ROW + 2, most)}px`;
    fill(head, columns().map(heading));
    shown = "";
    paint();
  }

  function heading([name, label, classes]) {
    const dotted = classes ? `.${classes}` : "";
    if (!name) return h(`span${dotted}`, {}, label);
    const onclick = () => {
      down = name === sort ? !down : name !== "names";
      sort = name;
      arrange();
    };
    const mark = name === sort ? (down ? " ↓" : " ↑") : "";
    return h(`button${dotted}`, { type: "button", "aria-pressed": String(name === sort), onclick }, label + mark);
  }

  function paint() {
    const first = Math.max(0, Math.floor(viewport.scrollTop / ROW) - 4);
    const last = Math.min(order.length, first + Math.ceil(viewport.clientHeight / ROW) + 9);
    const now = `${first} ${last} ${chosen}`;
    if (now === shown) return;
    shown = now;
    fill(rows, order.slice(first, last).map((device, i) => row(device, (first + i) * ROW)));
  }

  function row(device, top) {
    const is = device === chosen, name = found.names[device];
    const onclick = () => choose(device === chosen ? null : device);
    return h(`div.device-row${is ? ".chosen" : ""}`,
      { role: "option", "aria-selected": String(is), style: { top: `${top}px` }, onclick },
      h("span.name", { title: name }, name),
      chip(found.state[device], found.reasons?.[device]),
      h("span.bars-cell", {}, found.labels ? bars(found.labels[device]) : h("span.hint", {}, "–")),
      spark(found.trace[device] ?? [], range),
      clock(found, device),
      columns().slice(5).map(([column, , classes]) => h(`span.${classes}`, {}, valueOf(column, device))));
  }

  function choose(device) {
    chosen = device;
    paint();
    describe();
  }

  function onkey(event) {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 }[event.key];
    if (event.key === "Escape") choose(null);
    if (!step || !order.length) return;
    event.preventDefault();
    const from = chosen === null ? -step : order.indexOf(chosen);
    const place = Math.min(order.length - 1, Math.max(0, from + step));
    const top = place * ROW, room = viewport.clientHeight;
    if (top < viewport.scrollTop) viewport.scrollTop = top;
    if (top + ROW > viewport.scrollTop + room) viewport.scrollTop = top + ROW - room;
    choose(order[place]);
  }

  function describe() {
    if (chosen === null || chosen >= found.names.length) {
      fill(detail);
      return;
    }
    const counts = found.labels?.[chosen];
    fill(detail, card(`Device ${found.names[chosen]}`, null, h("div.grid", {},
      h("dl.facts", {}, factsOf(found, chosen).map(([name, text]) => [h("dt", {}, name), h("dd", {}, text)])),
      h("div", {}, h("p.hint", {}, "samples by class"),
        counts ? histogram(counts, found.classes) : h("p.hint", {}, `not known: ${found.unlabelled}`)))));
  }

  async function update() {
    const run = page.run();
    if (!run) return;
    found = timed(await get(`api/runs/${run.id}/devices`));
    list.classList.toggle("plain", !found.chooses);
    const options = { "": `all ${whole(found.names.length)} devices` };
    for (const one of new Set(found.state)) {
      options[one] = `${one} (${whole(found.state.filter((other) => other === one).length)})`;
    }
    if (!(state in options)) state = "";
    fill(controls, search, select("state", options, state, (value) => { state = value; arrange(); }));
    range = [85, 95];
    for (const value of found.trace.flat()) {
      if (known(value)) range = [Math.min(range[0], value), Math.max(range[1], value)];
    }
    const [low, high] = range.map(Math.round);
    notes.textContent = [
      found.estimated && "Counts are estimates until all records are read.",
      !found.labels && `Labels are not shown: ${found.unlabelled}.`,
      found.traced
        ? `The line is the ${found.traced} over the rounds, from ${low}° to ${high}° for every device; grey is 90°.`
        : "This method measures no angles.",
      SHARES,
    ].filter(Boolean).join(" ");
    fill(keys, found.slowest ? keysOf(found) : "How long each device takes is not in these records.");
    arrange();
    describe();
  }

  return { element: h("div", {}, controls, list, keys, notes, detail), update, restyle() {}, leave() {} };
}

export function chip(state, why) {
  const [look, meaning] = STATES[state] ?? ["", state];
  return h(`span.chip${look ? `.${look}` : ""}`, { title: why ?? meaning }, state);
}

function factsOf(found, d) {
  const times = (name) => figure(found[name][d], 6), angles = (found.trace[d] ?? []).filter(known);
  const why = found.reasons?.[d] ?? STATES[found.state[d]]?.[1] ?? "";
  const chosen = `leader ${times("led")} times, kept ${times("kept")}, excluded ${times("excluded")}`;
  const [low, high, last] = [Math.min(...angles), Math.max(...angles), angles.at(-1)].map(degrees);
  return [
    ["state", `${found.state[d]}: ${why}`],
    ["rounds", `took part in ${times("rounds")} of ${figure(found.total, 6)}`],
    ...(found.chooses ? [["chosen", chosen]] : []),
    ["missing", `skipped ${times("skipped")} times, absent ${times("absent")}, went back ${times("restored")}`],
    ...(known(found.time[d]) ? [["time per round, lately", timesOf(found, d)]] : []),
    ["traffic", `${bytes(found.sent[d])} sent, ${bytes(found.received[d])} received`],
    ["accuracy and loss", `${percent(found.accuracy?.[d])}, last loss ${figure(found.loss?.[d])}`],
    ...(angles.length ? [[found.traced, `${low} to ${high}, lately ${last}`]] : []),
  ];
}

// What a row and its place in the order need: all of a device's seconds, and all of its bytes.
function timed(found) {
  const sum = (values) => (values.some(known) ? values.reduce((total, value) => total + (value ?? 0), 0) : null);
  found.traffic = found.names.map((_, d) => found.sent[d] + found.received[d]);
  found.parts = Object.fromEntries(Object.entries(TIMES).map(([part, [phases]]) =>
    [part, found.names.map((_, d) => sum(phases.map((phase) => found.seconds[phase]?.[d])))]));
  found.time = found.names.map((_, d) => sum(Object.values(found.parts).map((values) => values[d])));
  const sorted = found.time.filter(known).sort((one, other) => one - other);
  found.slowest = sorted.at(-1) ?? 0;
  found.slow = sorted.length > 2 ? SLOW * sorted[Math.floor((sorted.length - 1) / 2)] : Infinity;
  return found;
}

const partsOf = (found) => Object.keys(TIMES).filter((part) => found.parts[part].some(known));

function timesOf(found, d) {
  const parts = partsOf(found).map((part) => `${part} ${duration(found.parts[part][d])} (${TIMES[part][1]})`);
  const much = found.time[d] > found.slow ? `: more than ${SLOW} times the median` : "";
  return `${duration(found.time[d])}${much}; ${parts.join(", ")}`;
}

function keysOf(found) {
  return ["Time is the mean of the last rounds: ", partsOf(found).map((part, i, all) =>
    [h(`i.${part}`), `${part} – ${TIMES[part][1]}${i < all.length - 1 ? "; " : "."}`])];
}

// A device's time and what it is made of, as long as it is beside the slowest's.
function clock(found, d) {
  if (!known(found.time[d])) return h("span.hint.n", {}, "–");
  let x = 0;
  const bars = partsOf(found).map((part) => {
    const width = (100 * (found.parts[part][d] ?? 0)) / (found.slowest || 1);
    x += width;
    return h(`rect.${part}`, { x: (x - width).toFixed(2), width: width.toFixed(2), height: 5 });
  });
  return h(`span.time${found.time[d] > found.slow ? ".slow" : ""}`, { title: timesOf(found, d) },
    duration(found.time[d]),
    h("svg", { viewBox: "0 0 100 5", preserveAspectRatio: "none", "aria-hidden": "true" }, bars));
}

function histogram(counts, classes) {
  const most = Math.max(...counts, 1);
  return h("div.classes", {}, counts.map((count, label) => [
    h("span", {}, classes[label] ?? String(label)),
    h("i", { style: { width: `${(100 * count) / most}%` } }),
    h("span", {}, whole(count)),
  ]));
}

const STRETCHED = { viewBox: "0 0 100 26", preserveAspectRatio: "none" };

// The samples of each class as bars of one path.
function bars(counts) {
  const most = Math.max(...counts, 1), wide = 100 / counts.length, gap = counts.length > 40 ? 0 : wide * 0.18;
  const bar = (count, i) =>
    `M${(i * wide).toFixed(2)} 26v${((-25 * count) / most).toFixed(2)}h${(wide - gap).toFixed(2)}V26z`;
  const d = counts.map((count, i) => (count ? bar(count, i) : "")).join("");
  const label = `samples by class: ${counts.join(", ")}`;
  return h("svg.bars", { ...STRETCHED, role: "img", "aria-label": label }, h("path", { d }));
}

// Angles over the rounds; all devices have the same scale.
function spark(values, [low, high]) {
  const y = (value) => (26 - (26 * (value - low)) / (high - low)).toFixed(1);
  const x = (i) => ((100 * i) / Math.max(1, values.length - 1)).toFixed(1);
  const drawn = values.map((value, i) => (known(value) ? `${x(i)} ${y(value)}` : null)).filter(known);
  if (!drawn.length) return h("span.hint", {}, "–");
  return h("svg.spark", { ...STRETCHED, "aria-hidden": "true" },
    h("line", { x1: 0, x2: 100, y1: y(90), y2: y(90) }), h("path", { d: `M${drawn.join("L")}` }));
}
