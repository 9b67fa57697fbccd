// A row per device; only the rows that are seen exist, so that a thousand scroll like ten.
import { bytes, card, degrees, figure, fill, h, known, percent, select } from "./dom.js";
import { get } from "./source.js";

const ROW = 44;
const LOOK = { leader: "lead", kept: "good", "took part": "good", connected: "good", excluded: "warn", slow: "warn", skipped: "bad", away: "bad" };
const EXPLAINED = {
  leader: "the leader gradient is the mean of these", kept: "in the round's loss", "took part": "took part in the last round",
  connected: "connected", excluded: "too far from the leader in the last round", slow: "connected, but the last round closed without it",
  skipped: "left out of the last round as an outlier", away: "not there", "not drawn": "not drawn for the last round", unknown: "no round yet",
};

export function devicesView(page) {
  let found = null, range = [0, 180], order = [], sort = "names", down = false, wanted = "", state = "", chosen = null, shown = "";
  const head = h("div.device-row.head"), rows = h("div", { style: { position: "relative" } });
  const viewport = h("div.viewport", { tabindex: 0, role: "listbox", "aria-label": "devices", onscroll: () => paint(), onkeydown: onkey }, rows);
  const list = h("div.devices", {}, head, viewport), controls = h("div.controls"), detail = h("div.detail"), notes = h("p.note");
  const search = h("input", { type: "search", placeholder: "Find a device", "aria-label": "find a device", oninput: () => { wanted = search.value.toLowerCase(); arrange(); } });

  const columns = () => [
    ["names", "device", ""], ["state", "state", ""], [null, "labels", "bars-cell"], [null, found.traced || "angle", ""],
    ...(found.chooses ? [["led", "leader", "n"], ["kept", "kept", "n extra"], ["excluded", "excluded", "n extra"]] : []),
    ["skipped", "skipped", "n extra"], ["accuracy", "accuracy", "n extra"], ["loss", "loss", "n extra"], ["sent", "sent", "n extra"], ["received", "received", "n extra"],
  ];
  const share = (name, device) => (found.rounds[device] ? `${Math.round((100 * found[name][device]) / found.rounds[device])}%` : "–");
  const valueOf = (name, device) => {
    if (["led", "kept", "excluded", "skipped"].includes(name)) return share(name, device);
    if (name === "accuracy") return percent(found.accuracy?.[device]);
    if (name === "loss") return figure(found.loss?.[device]);
    return bytes(found[name]?.[device]);
  };

  function arrange() {
    const key = (device) => (sort === "names" ? device : found[sort]?.[device] ?? -Infinity);
    order = found.names.map((_, device) => device).filter((device) =>
      found.names[device].toLowerCase().includes(wanted) && (!state || found.state[device] === state));
    order.sort((one, other) => (key(one) < key(other) ? -1 : key(one) > key(other) ? 1 : one - other) * (down ? -1 : 1));
    rows.style.height = `${order.length * ROW}px`;
    viewport.style.height = `${Math.min(Math.max(1, order.length) * ROW + 2, Math.max(260, innerHeight - 330))}px`;
    fill(head, columns().map(([name, label, look]) => {
      const classes = look ? `.${look.split(" ").join(".")}` : "";
      if (!name) return h(`span${classes}`, {}, label);
      const mark = name === sort ? (down ? " ↓" : " ↑") : "";
      return h(`button${classes}`, { type: "button", "aria-pressed": String(name === sort), onclick: () => { down = name === sort ? !down : name !== "names"; sort = name; arrange(); } }, label + mark);
    }));
    shown = "";
    paint();
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
    const made = h(`div.device-row${device === chosen ? ".chosen" : ""}`, { role: "option", "aria-selected": String(device === chosen), style: { top: `${top}px` }, onclick: () => choose(device === chosen ? null : device) },
      h("span.name", { title: found.names[device] }, found.names[device]),
      chip(found.state[device], found.reasons?.[device]),
      h("span.bars-cell", {}, found.labels ? bars(found.labels[device]) : h("span.hint", {}, "–")),
      spark(found.trace[device] ?? [], range),
      columns().slice(4).map(([name, , look]) => h(`span.${look.split(" ").join(".")}`, {}, valueOf(name, device))));
    return made;
  }

  function choose(device) {
    chosen = device;
    shown = "";
    paint();
    describe();
  }

  function onkey(event) {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 }[event.key];
    if (event.key === "Escape") choose(null);
    if (!step || !order.length) return;
    event.preventDefault();
    const place = Math.min(order.length - 1, Math.max(0, chosen === null ? 0 : order.indexOf(chosen) + step));
    if (place * ROW < viewport.scrollTop) viewport.scrollTop = place * ROW;
    if ((place + 1) * ROW > viewport.scrollTop + viewport.clientHeight) viewport.scrollTop = (place + 1) * ROW - viewport.clientHeight;
    choose(order[place]);
  }

  function describe() {
    if (chosen === null || chosen >= found.names.length) return fill(detail);
    const d = chosen, angles = (found.trace[d] ?? []).filter(known);
    const facts = [
      ["state", `${found.state[d]}: ${found.reasons?.[d] ?? EXPLAINED[found.state[d]] ?? ""}`],
      ["rounds", `took part in ${figure(found.rounds[d], 6)} of ${figure(found.total, 6)}`],
      ...(found.chooses ? [["chosen", `leader ${figure(found.led[d], 6)} times, kept ${figure(found.kept[d], 6)}, excluded ${figure(found.excluded[d], 6)}`]] : []),
      ["missing", `skipped ${figure(found.skipped[d], 6)} times, absent ${figure(found.absent[d], 6)}, went back ${figure(found.restored[d], 6)}`],
      ["traffic", `${bytes(found.sent[d])} sent, ${bytes(found.received[d])} received`],
      ["accuracy and loss", `${percent(found.accuracy?.[d])}, last loss ${figure(found.loss?.[d])}`],
      ...(angles.length ? [[found.traced, `${degrees(Math.min(...angles))} to ${degrees(Math.max(...angles))}, lately ${degrees(angles.at(-1))}`]] : []),
    ];
    const counts = found.labels?.[d], most = counts ? Math.max(...counts, 1) : 1;
    const histogram = counts
      ? h("div.classes", {}, counts.map((count, label) => [h("span", {}, found.classes[label] ?? String(label)), h("i", { style: { width: `${(100 * count) / most}%` } }), h("span", {}, count.toLocaleString("en"))]))
      : h("p.hint", {}, `Labels are not shown: ${found.unlabelled}.`);
    return fill(detail, card(`Device ${found.names[d]}`, null,
      h("div.grid", {}, h("dl.facts", {}, facts.map(([name, text]) => [h("dt", {}, name), h("dd", {}, text)])),
        h("div", {}, h("p.hint", {}, "samples by class"), histogram))));
  }

  async function update() {
    const run = page.run();
    if (!run) return;
    found = await get(`api/runs/${run.id}/devices`);
    list.classList.toggle("plain", !found.chooses);
    const counts = {};
    for (const one of found.state) counts[one] = (counts[one] ?? 0) + 1;
    const options = { "": `all ${found.names.length} devices`, ...Object.fromEntries(Object.entries(counts).map(([name, count]) => [name, `${name} (${count})`])) };
    if (state && !counts[state]) state = "";
    const focused = document.activeElement === search;
    fill(controls, search, select("state", options, state, (value) => { state = value; arrange(); }));
    if (focused) search.focus();
    const angles = found.trace.flat().filter(known);
    range = angles.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [85, 95]);
    const notice = [
      found.estimated ? "Counts are estimates until all records are read." : "",
      found.labels ? "" : `Labels are not shown: ${found.unlabelled}.`,
      found.traced ? `The line is the ${found.traced} over the rounds, from ${Math.round(range[0])}° to ${Math.round(range[1])}° for every device; the grey line is 90°.` : "This method measures no angles.",
      "Shares are of the rounds that a device took part in. Seconds are recorded per phase of a round, not per device: see Curves.",
    ];
    notes.textContent = notice.filter(Boolean).join(" ");
    arrange();
    describe();
  }

  return { element: h("div", {}, controls, list, notes, detail), update, restyle() {}, leave() {} };
}

export function chip(state, why) {
  const look = LOOK[state];
  return h(`span.chip${look ? `.${look}` : ""}`, { title: why ?? EXPLAINED[state] ?? state }, state);
}

// The samples of each class as bars of one path.
function bars(counts) {
  const most = Math.max(...counts, 1), wide = 100 / counts.length, gap = counts.length > 40 ? 0 : wide * 0.18;
  const path = counts.map((count, i) => (count ? `M${(i * wide).toFixed(2)} 26v${((-25 * count) / most).toFixed(2)}h${(wide - gap).toFixed(2)}V26z` : "")).join("");
  return h("svg.bars", { viewBox: "0 0 100 26", preserveAspectRatio: "none", role: "img", "aria-label": `samples by class: ${counts.join(", ")}` }, h("path", { d: path }));
}

// Angles over the rounds; all devices have the same scale.
function spark(values, [low, high]) {
  const y = (value) => (26 - (26 * (value - low)) / (high - low)).toFixed(1);
  let path = "", pen = "M";
  values.forEach((value, i) => {
    if (!known(value)) return;
    path += `${pen}${((100 * i) / Math.max(1, values.length - 1)).toFixed(1)} ${y(value)}`;
    pen = "L";
  });
  if (!path) return h("span.hint", {}, "–");
  return h("svg.spark", { viewBox: "0 0 100 26", preserveAspectRatio: "none", "aria-hidden": "true" }, low <= 90 && high >= 90 && h("line", { x1: 0, x2: 100, y1: y(90), y2: y(90) }), h("path", { d: path }));
}
