// Who agrees with whom: the angle between every two devices' gradients, round by round.
import { card, degrees, fill, h, isDark, select, whole } from "./dom.js";
import { get, isReport } from "./source.js";

const ORDERS = { run: "agreement over the run", round: "agreement in this round", number: "number" };
// From agreement over a right angle to conflict: ColorBrewer's RdBu, told apart by everybody, as in the plots.
const TONES = [[5, 48, 97], [33, 102, 172], [67, 147, 195], [146, 197, 222], [209, 229, 240], [247, 247, 247],
  [253, 219, 199], [244, 165, 130], [214, 96, 77], [178, 24, 43], [103, 0, 31]];
const NAMED = 24; // devices up to which names fit beside the map

function tone(share) {
  const place = Math.min(1, Math.max(0, share)) * (TONES.length - 1);
  const low = Math.min(TONES.length - 2, Math.floor(place));
  return TONES[low].map((part, i) => Math.round(part + (TONES[low + 1][i] - part) * (place - low)));
}

export function anglesView(page) {
  let run = null, found = null, matrix = null, order = "run", ordering = [];
  let round = null, reach = 5, timer = null, asked = 0;
  const leave = () => fill(pointed, "Point at a square.");
  const canvas = h("canvas", { role: "img", onmousemove: point, onmouseleave: leave });
  const left = h("div.names.rows"), below = h("div.names.columns"), pointed = h("dd", {}, "Point at a square.");
  const slide = () => { stop(); go(Number(slider.value)); };
  const slider = h("input", { type: "range", min: 0, step: 1, "aria-label": "round", oninput: slide });
  const label = h("output");
  const play = h("button.quiet", { type: "button", onclick: () => (timer ? stop() : start()) }, "Play");
  const orders = select("order of the devices", ORDERS, order, (value) => { order = value; draw(); });
  const mean = h("dd"), scale = h("div.scale"), ends = h("div.ends"), title = h("dd");
  const facts = [["pair", pointed], ["mean of all pairs", mean], ["round", title], ["scale", h("dd", {}, scale, ends)]];
  const map = card("Angles between the devices' gradients",
    "blue: they agree; white: a right angle; red: they work against each other",
    h("div.heat", {}, h("div.map", {}, left, canvas, below),
      h("dl.facts", {}, facts.map(([name, value]) => [h("dt", {}, name), value]))));
  const controls = h("div.controls", {}, h("div.slider", {}, play, slider, label), h("label", {}, "Order by", orders));
  const element = h("div", {}), nothing = h("p.nothing");

  function stop() {
    clearInterval(timer);
    timer = null;
    play.textContent = "Play";
  }

  function start() {
    play.textContent = "Pause";
    if (Number(slider.value) >= Number(slider.max)) slider.value = 0;
    timer = setInterval(() => {
      if (Number(slider.value) >= Number(slider.max)) { stop(); return; }
      slider.value = Number(slider.value) + Math.max(1, Math.round(slider.max / 200));
      go(Number(slider.value));
    }, 120);
  }

  function go(place) {
    const last = place >= found.rounds.length - 1;
    round = last && !isReport ? null : found.rounds[place]; // at the end it follows the run
    load().catch(page.failed);
  }

  async function load() {
    const mine = ++asked;
    const answer = await get(`api/runs/${run.id}/angles`, round === null ? {} : { round });
    if (mine !== asked) return; // a newer question is under way
    found = answer;
    if (!found.rounds.length) {
      nothing.textContent = found.why;
      fill(element, nothing);
      return;
    }
    if (!element.contains(map)) fill(element, controls, map);
    slider.max = found.rounds.length - 1;
    let place = found.rounds.findIndex((one) => one >= found.round);
    if (place < 0) place = found.rounds.length - 1;
    slider.value = round === null ? slider.max : place;
    slider.setAttribute("aria-valuetext", `round ${found.round}`);
    label.textContent = `round ${whole(found.round)}`;
    matrix = Uint8Array.from(atob(found.degrees), (letter) => letter.charCodeAt(0));
    for (const value of matrix) if (value !== found.none) reach = Math.max(reach, Math.abs(value - 90));
    draw();
  }

  function draw() {
    const size = found.names.length;
    ordering = found.orders[order] ?? found.names.map((_, device) => device);
    canvas.width = canvas.height = size;
    const context = canvas.getContext("2d"), image = context.createImageData(size, size);
    const none = isDark() ? [40, 48, 60] : [226, 230, 235];
    for (let i = 0; i < size; i++) {
      for (let j = 0; j < size; j++) {
        const value = matrix[ordering[i] * size + ordering[j]];
        const colour = value === found.none ? none : tone((value - 90 + reach) / (2 * reach));
        image.data.set([...colour, 255], 4 * (i * size + j));
      }
    }
    context.putImageData(image, 0, 0);
    canvas.setAttribute("aria-label", `angles of ${size} devices in round ${found.round}, mean ${degrees(found.mean)}`);
    const named = (name) => h("span", { title: name }, name.replace(/^device-/, ""));
    const names = size <= NAMED ? ordering.map((device) => named(found.names[device])) : [];
    fill(left, names);
    fill(below, names.map((one) => one.cloneNode(true)));
    mean.textContent = degrees(found.mean);
    title.textContent = `${whole(found.round)}; the slider has ${whole(found.rounds.length)}`;
    scale.style.background = `linear-gradient(90deg, ${TONES.map((one) => `rgb(${one.join(" ")})`).join(", ")})`;
    fill(ends, h("span", {}, `${90 - reach}°`), h("span", {}, "90°"), h("span", {}, `${90 + reach}°`));
  }

  function point(event) {
    const box = canvas.getBoundingClientRect(), size = found.names.length;
    const place = (at) => Math.min(size - 1, Math.floor((at / box.width) * size));
    const row = place(event.clientY - box.top), column = place(event.clientX - box.left);
    if (row < 0 || column < 0) return;
    const [one, other] = [ordering[row], ordering[column]], value = matrix[one * size + other];
    const angle = one === other ? "the same device" : value === found.none ? "not measured" : `${value}°`;
    fill(pointed, `${found.names[one]} and ${found.names[other]}: ${angle}`);
  }

  return {
    element,
    async update() {
      run = page.run();
      if (run && !timer) await load();
    },
    restyle: () => found?.rounds.length && draw(),
    leave: stop,
  };
}
