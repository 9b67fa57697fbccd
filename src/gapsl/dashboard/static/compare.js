// Methods and seeds beside each other: curves with bands, the table, differences with their intervals.
import { card, choice, figure, fill, h, known, onPage, percent, points, select, table } from "./dom.js";
import { AXES, Chart } from "./charts.js";
import { get } from "./source.js";

const MEASURES = {
  device_mean: "mean of the devices", ensemble: "ensemble", merged: "merged", local: "local",
  device_min: "worst device", device_std: "spread over the devices", test_loss: "test loss",
};
const DRAWN = "Thick: mean over the seeds as far as all of them are; band: ± standard deviation over the seeds; "
  + "thin: each seed.";
const INTERVALS = "Mean accuracy of the devices, difference in points, paired by seed, with its 95 % interval "
  + "(Student's t) where there are two pairs. An interval beyond zero is a difference that the seeds do not explain.";

export function compareView(page) {
  let found = null, measure = "device_mean", baseline = 0;
  const text = (value, tick) => {
    if (measure === "test_loss") return figure(value);
    return tick ? `${figure(100 * value, 3)}%` : percent(value);
  };
  const chart = new Chart({ height: 340, floor: 0, text });
  const controls = h("div.controls"), results = h("div.scroll"), notes = h("div"), forest = h("div");
  const title = h("p.hint"), curves = card("Accuracy", null, chart.element, h("p.note", {}, DRAWN));

  function draw() {
    fill(controls,
      h("label", {}, "Show", select("measure", MEASURES, measure, (value) => { measure = value; draw(); })),
      choice("axis", AXES, page.axis, (axis) => { page.axis = axis; draw(); }));
    const about = measure === "test_loss" ? "Test loss" : `Accuracy: ${MEASURES[measure]}`;
    curves.querySelector("h2").textContent = about;
    const lines = found.groups.flatMap((group) => linesOf(group, measure, page.axis));
    const x = [...new Set(lines.flatMap((line) => line.x))].sort((one, other) => one - other);
    chart.show(page.axis, x, lines.map((line) => seriesOf(line, x)));
    differences();
  }

  function differences() {
    const names = found.finished;
    const rows = names.map((name, i) => ({ name, ...found.differences[i][baseline] })).filter((row) => known(row.mean));
    if (!rows.length) {
      fill(forest, h("p.hint", {}, "Differences need two finished methods with a seed in common."));
      return;
    }
    const ends = rows.flatMap((row) => [row.mean, row.low, row.high]).filter(known);
    const reach = Math.max(1, ...ends.map(Math.abs)) * 1.08;
    const colours = Object.fromEntries(found.groups.map((group) => [group.label, group.colour]));
    const options = Object.fromEntries(names.map((name, i) => [i, name]));
    const change = (value) => { baseline = Number(value); differences(); };
    fill(forest,
      h("div.controls", {}, h("label", {}, "Against", select("baseline", options, baseline, change))),
      h("div.forest", {}, rows.map((row) => intervalOf(row, reach, onPage(colours[row.name] ?? "#777777")))),
      h("p.note", {}, INTERVALS));
  }

  async function update() {
    found = await get("api/compare");
    if (baseline >= found.finished.length) baseline = 0;
    title.textContent = found.table.title;
    const { columns } = found.table;
    const rows = (columns[0]?.cells ?? []).map((_, i) => columns.map((column) => column.cells[i]));
    fill(results, table(columns.map((column) => [column.heading, column.key ? "key" : ""]), rows));
    fill(notes, found.table.notes.map((line) => h("p.note", {}, line)));
    draw();
  }

  return {
    element: h("div", {}, controls, curves,
      card("Results", null, title, results, notes), card("Differences", null, forest)),
    update,
    restyle: () => { chart.redraw(); if (found) differences(); },
    leave: () => chart.destroy(),
  };
}

// The lines of a group: each seed, thin where there are several, and then their mean with its band.
function linesOf(group, measure, axis) {
  const several = group.band.round !== undefined;
  const lines = group.seeds.filter((seed) => seed.round.length).map((seed) => ({
    colour: group.colour, x: seed[axis], values: seed[measure], thin: several,
    label: several ? `${group.label}, seed ${seed.seed}` : group.label,
  }));
  if (several) {
    const { band, colour, label } = group;
    lines.push({ colour, label, x: band[axis], values: band[measure], sd: band[`${measure}_sd`] });
  }
  return lines;
}

// A line as a chart takes it: at every place of the common axis, nothing where the line has none.
function seriesOf(line, x) {
  const place = new Map(x.map((value, i) => [value, i]));
  const spread = (factor) => {
    const wide = new Array(x.length);
    line.x.forEach((value, i) => {
      const y = line.values[i];
      if (known(y)) wide[place.get(value)] = y + (factor ? factor * line.sd[i] : 0);
    });
    return wide;
  };
  return {
    label: line.label, colour: line.colour, unnamed: line.thin, values: spread(0),
    width: line.thin ? 1 : 2.5, alpha: line.thin ? 0.45 : 1,
    ...(line.sd ? { low: spread(-1), high: spread(1) } : {}),
  };
}

// A difference with its interval, around zero in the middle.
function intervalOf(row, reach, colour) {
  const at = (value) => 300 + (300 * value) / reach;
  const line = (from, to, y1, y2, look) =>
    h("line", { x1: at(from), x2: at(to), y1, y2, "vector-effect": "non-scaling-stroke", ...look });
  const range = known(row.low) ? `  [${points(row.low)}, ${points(row.high)}]` : "";
  const label = `${row.name}: ${points(row.mean)} points`;
  return h("div", {}, h("span", {}, row.name),
    h("svg", { viewBox: "0 0 600 30", preserveAspectRatio: "none", role: "img", "aria-label": label },
      line(0, 0, 0, 30, { stroke: "var(--strong)", "stroke-dasharray": "3 3" }),
      known(row.low) && line(row.low, row.high, 15, 15, { stroke: colour, "stroke-width": 2 }),
      line(row.mean, row.mean, 7, 23, { stroke: colour, "stroke-width": 5 })),
    h("span", {}, points(row.mean) + range));
}
