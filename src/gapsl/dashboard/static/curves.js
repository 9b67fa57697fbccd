// One run over rounds, epochs, bytes or seconds: accuracy, loss, agreement, selection, time.
/* global uPlot */
import { bytes, card, choice, degrees, duration, figure, fill, h, known, percent, tile } from "./dom.js";
import { AXES, Chart } from "./charts.js";
import { get, isReport } from "./source.js";

const INK = "#777777";
const inPercent = (value, tick) => (tick ? `${figure(100 * value, 3)}%` : percent(value));
const inDegrees = (value, tick) => (tick ? `${figure(value, 3)}°` : degrees(value));
const PHASES = {
  collect: ["devices forward", "#0072B2"], server: ["server", "#D55E00"], deliver: ["devices backward", "#56B4E9"],
  move: ["moving models", "#CC79A7"], evaluate: ["evaluating", "#999933"],
};

// What is drawn: title, note, which table, how numbers are written, and the series by column.
const CARDS = [
  { title: "Accuracy", note: "on the test data; the band is from the worst to the best device", wide: true, table: "evaluations", text: inPercent, floor: 0, series: (c) => [
    { label: "mean of the devices", column: "device_mean", colour: c, width: 2.5, band: ["device_min", "device_max"] },
    { label: "ensemble", column: "ensemble", colour: c, dash: [7, 4], width: 1.5 },
    { label: "merged", column: "merged", colour: INK, dash: [2, 3], width: 1.5 },
    { label: "local", column: "local", colour: INK, width: 1.2 }] },
  { title: "Loss", note: "training loss per round; test loss at evaluations", text: (value) => figure(value), floor: 0, series: (c) => [
    { label: "training", column: "loss", colour: c, width: 1.5, band: ["loss_low", "loss_high"] },
    { label: "test", column: "test_loss", from: "evaluations", colour: INK, dash: [7, 4], width: 1.5 }] },
  { title: "Spread over the devices", note: "standard deviation of the devices' accuracies", table: "evaluations", text: inPercent, floor: 0, series: (c) => [
    { label: "standard deviation", column: "device_std", colour: c }] },
  { title: "Agreement", note: "angles between the devices' gradients", text: inDegrees, floor: 0, series: (c) => [
    { label: "mean angle", column: "angle", colour: c, width: 1.5 },
    { label: "threshold", column: "threshold", colour: INK, dash: [7, 4], width: 1.5 },
    { label: "dispersion", column: "dispersion", colour: INK, width: 1.2 }] },
  { title: "Selection", note: "share of the devices in the leader, and in the round's loss", text: inPercent, floor: 0, series: (c) => [
    { label: "kept", column: "kept", colour: c, width: 1.5 },
    { label: "selection ratio", column: "ratio", colour: INK, dash: [7, 4], width: 1.5 }] },
  { title: "Distance on the probes", note: "from the leader, relative to its length", text: (value) => figure(value), floor: 0, series: (c) => [
    { label: "distance", column: "apart", colour: c, width: 1.5 }] },
  { title: "Time per round", note: "by phase, all devices together", wide: true, low: true, text: (value) => (value === 0 ? "0" : duration(value)), floor: 0, series: () =>
    Object.entries(PHASES).map(([column, [label, colour]]) => ({ label, column, colour, width: 1.5 })) },
];

export function curvesView(page) {
  const tiles = h("div.tiles"), controls = h("div.controls"), grid = h("div.grid");
  let charts = new Map(), zoom = null, run = null;

  const onzoom = (range) => { zoom = range; update(); };
  const setAxis = (axis) => { page.axis = axis; zoom = null; update(); };

  function columnsOf(answer, spec) {
    const main = answer[spec.table ?? "rounds"];
    const found = spec.series(run.colour).filter((one) => answer[one.from ?? spec.table ?? "rounds"][one.column]?.some(known));
    const tables = [[main[page.axis]]], made = [];
    for (const one of found.filter((s) => !s.from)) {
      const band = one.band && main[one.band[0]];
      tables[0].push(main[one.column], ...(band ? [main[one.band[0]], main[one.band[1]]] : []));
    }
    for (const one of found.filter((s) => s.from)) tables.push([answer[one.from][page.axis], answer[one.from][one.column]]);
    if (!found.length || !tables[0][0].length) return null;
    const columns = tables.length > 1 ? uPlot.join(tables) : tables[0];
    let place = 1;
    for (const one of [...found.filter((s) => !s.from), ...found.filter((s) => s.from)]) {
      const band = !one.from && one.band && main[one.band[0]];
      made.push({ ...one, values: columns[place], ...(band ? { low: columns[place + 1], high: columns[place + 2] } : {}) });
      place += band ? 3 : 1;
    }
    return { x: columns[0], series: made };
  }

  async function update() {
    run = page.run();
    if (!run) return;
    const params = zoom && !isReport ? { axis: page.axis, low: zoom[0], high: zoom[1] } : {};
    const answer = await get(`api/runs/${run.id}/curves`, params);
    fill(tiles, summary(run));
    fill(controls, choice("axis", AXES, page.axis, setAxis),
      zoom ? h("button.quiet", { type: "button", onclick: () => onzoom(null) }, "Whole run") : h("span.hint", {}, "Drag over a chart to look closer."));
    if (zoom && isReport) for (const table of Object.values(answer)) cut(table, page.axis, zoom);
    for (const spec of CARDS) {
      const found = columnsOf(answer, spec);
      let chart = charts.get(spec.title);
      if (!found) {
        if (chart) chart.box.hidden = true;
        continue;
      }
      if (!chart) {
        chart = new Chart({ height: spec.wide && !spec.low ? 290 : 200, text: spec.text, floor: spec.floor, onzoom, sync: "rounds" });
        chart.box = card(spec.title, spec.title === "Accuracy" && run.evaluation?.split === "validation" ? spec.note.replace("test data", "validation split") : spec.note, chart.element);
        if (spec.wide) chart.box.classList.add("wide");
        charts.set(spec.title, chart);
        grid.append(chart.box);
      }
      chart.box.hidden = false;
      chart.show(page.axis, found.x, found.series);
    }
    grid.classList.toggle("empty", ![...charts.values()].some((chart) => !chart.box.hidden));
  }

  return {
    element: h("div", {}, tiles, controls, grid, h("p.nothing", {}, "No round is recorded yet. The curves begin with the first.")),
    update,
    restyle: () => charts.forEach((chart) => chart.redraw()),
    leave: () => charts.forEach((chart) => chart.destroy()),
  };
}

// Keeps the rows of a table within a range of an axis: a report has no server to ask.
function cut(table, axis, [low, high]) {
  const inside = table[axis].map((x) => x >= low && x <= high);
  for (const name of Object.keys(table)) table[name] = table[name].filter((_, i) => inside[i]);
}

export function summary(run) {
  const found = run.evaluation, left = run.state === "running" && run.total && run.pace ? run.pace * (run.total - run.round) : null;
  const progress = h("progress", { max: run.total ?? 1, value: run.round, "aria-label": "rounds done" });
  return [
    tile("Accuracy", found ? percent(found.device_mean) : "–", found && `${percent(found.device_min)} to ${percent(found.device_max)} over ${run.devices} devices`),
    tile("Training loss", figure(run.loss), found && known(found.test_loss) && `test ${figure(found.test_loss)}`),
    tile("Round", run.round.toLocaleString("en"), run.total ? [`of ${run.total.toLocaleString("en")}, epoch ${figure(run.epoch, 3)}`, progress] : null),
    tile("Traffic", bytes(run.bytes), run.round ? `${bytes(run.bytes / run.round)} per round` : null),
    tile("Training time", run.round ? duration(run.seconds) : "–", run.pace ? `${duration(run.pace)} per round${left !== null ? `, ${duration(left)} left` : ""}` : null),
  ];
}
