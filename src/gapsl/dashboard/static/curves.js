// One run over rounds, epochs, bytes or seconds: accuracy, loss, agreement, selection, time.
/* global uPlot */
import { bytes, card, choice, degrees, duration, figure, fill, h, known, percent, tile, whole } from "./dom.js";
import { AXES, Chart } from "./charts.js";
import { get, isReport } from "./source.js";

const INK = "#777777";
const SHORT = [7, 4], DOTS = [2, 3]; // dashes
const plainly = (value) => figure(value);
const inPercent = (value, tick) => (tick ? `${figure(100 * value, 3)}%` : percent(value));
const inDegrees = (value, tick) => (tick ? `${figure(value, 3)}°` : degrees(value));
const inSeconds = (value) => (value === 0 ? "0" : duration(value));
const thin = (label, column, colour, dash, more = {}) => ({ label, column, colour, dash, width: 1.5, ...more });

// What is drawn: how numbers are written, from which table, and the columns, in the method's colour or in grey.
const CARDS = [
  {
    title: "Accuracy", note: "on the test data; the band is from the worst to the best device",
    height: 290, wide: true, table: "evaluations", text: inPercent,
    series: (colour) => [
      thin("mean of the devices", "device_mean", colour, null, { width: 2.5, band: ["device_min", "device_max"] }),
      thin("ensemble", "ensemble", colour, SHORT),
      thin("merged", "merged", INK, DOTS),
      thin("local", "local", INK),
    ],
  },
  {
    title: "Loss", note: "training loss per round; test loss at evaluations", text: plainly,
    series: (colour) => [
      thin("training", "loss", colour, null, { band: ["loss_low", "loss_high"] }),
      thin("test", "test_loss", INK, SHORT, { from: "evaluations" }),
    ],
  },
  {
    title: "Spread over the devices", note: "standard deviation of the devices' accuracies",
    table: "evaluations", text: inPercent,
    series: (colour) => [thin("standard deviation", "device_std", colour)],
  },
  {
    title: "Agreement", note: "angles between the devices' gradients", text: inDegrees,
    series: (colour) => [
      thin("mean angle", "angle", colour),
      thin("threshold", "threshold", INK, SHORT),
      thin("dispersion", "dispersion", INK),
    ],
  },
  {
    title: "Selection", note: "share of the devices in the leader, and in the round's loss", text: inPercent,
    series: (colour) => [thin("kept", "kept", colour), thin("selection ratio", "ratio", INK, SHORT)],
  },
  {
    title: "Distance on the probes", note: "from the leader, relative to its length", text: plainly,
    series: (colour) => [thin("distance", "apart", colour)],
  },
  {
    title: "Time per round", note: "by phase, all devices together", wide: true, text: inSeconds,
    series: () => [
      thin("devices forward", "collect", "#0072B2"),
      thin("server", "server", "#D55E00"),
      thin("devices backward", "deliver", "#56B4E9", SHORT), // on a dark page both are light blue
      thin("moving models", "move", "#CC79A7"),
      thin("evaluating", "evaluate", "#999933"),
    ],
  },
];

export function curvesView(page) {
  const tiles = h("div.tiles"), controls = h("div.controls"), grid = h("div.grid");
  const charts = new Map();
  let zoom = null;

  const onzoom = (range) => { zoom = range; update().catch(page.failed); };
  const setAxis = (axis) => { page.axis = axis; onzoom(null); };

  function chartOf(spec, run) {
    if (!charts.has(spec.title)) {
      const split = run.evaluation?.split === "validation" ? "validation split" : "test data";
      const chart = new Chart({ height: spec.height ?? 200, text: spec.text, floor: 0, onzoom, sync: "rounds" });
      chart.box = card(spec.title, spec.note.replace("test data", split), chart.element);
      chart.box.classList.toggle("wide", !!spec.wide);
      charts.set(spec.title, chart);
      grid.append(chart.box);
    }
    return charts.get(spec.title);
  }

  async function update() {
    const run = page.run();
    if (!run) return;
    const params = zoom && !isReport ? { axis: page.axis, low: zoom[0], high: zoom[1] } : {};
    let answer = await get(`api/runs/${run.id}/curves`, params);
    if (zoom && isReport) answer = cut(answer, page.axis, zoom);
    const back = () => onzoom(null);
    fill(tiles, summary(run));
    fill(controls, choice("axis", AXES, page.axis, setAxis), zoom
      ? h("button.quiet", { type: "button", onclick: back }, "Whole run")
      : h("span.hint", {}, "Drag over a chart to look closer."));
    for (const spec of CARDS) {
      const found = columnsOf(answer, spec, page.axis, run.colour);
      if (!found && !charts.has(spec.title)) continue;
      const chart = chartOf(spec, run);
      chart.box.hidden = !found;
      if (found) chart.show(page.axis, found.x, found.series);
    }
    grid.classList.toggle("empty", ![...charts.values()].some((chart) => !chart.box.hidden));
  }

  return {
    element: h("div", {}, tiles, controls, grid,
      h("p.nothing", {}, "No round is recorded yet. The curves begin with the first.")),
    update,
    restyle: () => charts.forEach((chart) => chart.redraw()),
    leave: () => charts.forEach((chart) => chart.destroy()),
  };
}

// The series of a card that have numbers, over one common axis; null if there are none.
function columnsOf(answer, spec, axis, colour) {
  const tableOf = (one) => answer[one.from ?? spec.table ?? "rounds"];
  const found = spec.series(colour).filter((one) => tableOf(one)[one.column]?.some(known));
  if (!found.length) return null;
  const tables = [], made = [];
  for (const one of found) {
    const table = tableOf(one), band = one.band && table[one.band[0]] ? one.band.map((name) => table[name]) : [];
    tables.push([table[axis], table[one.column], ...band]);
    made.push({ ...one, banded: band.length > 0 });
  }
  const [x, ...columns] = uPlot.join(tables);
  for (const one of made) {
    one.values = columns.shift();
    if (one.banded) [one.low, one.high] = [columns.shift(), columns.shift()];
  }
  return { x, series: made };
}

// The rows of all tables within a range of an axis: a report has no server to ask.
function cut(answer, axis, [low, high]) {
  return Object.fromEntries(Object.entries(answer).map(([name, table]) => {
    const inside = table[axis].map((x) => x >= low && x <= high);
    const columns = Object.entries(table).map(([column, values]) => [column, values.filter((_, i) => inside[i])]);
    return [name, Object.fromEntries(columns)];
  }));
}

function summary(run) {
  const found = run.evaluation, running = run.state === "running" && run.total && run.pace;
  const left = running ? `, ${duration(run.pace * (run.total - run.round))} left` : "";
  const progress = h("progress", { max: run.total ?? 1, value: run.round, "aria-label": "rounds done" });
  const range = found && `${percent(found.device_min)} to ${percent(found.device_max)} over ${run.devices} devices`;
  const planned = run.total && [`of ${whole(run.total)}, epoch ${figure(run.epoch, 3)}`, progress];
  return [
    tile("Accuracy", found ? percent(found.device_mean) : "–", range),
    tile("Training loss", figure(run.loss), known(found?.test_loss) && `test ${figure(found.test_loss)}`),
    tile("Round", whole(run.round), planned),
    tile("Traffic", bytes(run.bytes), run.round > 0 && `${bytes(run.bytes / run.round)} per round`),
    tile("Training time", duration(run.round ? run.seconds : null), run.pace && `${duration(run.pace)} per round${left}`),
  ];
}
