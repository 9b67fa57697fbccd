// Methods and seeds beside each other: curves with bands, the table, differences with their intervals.
import { card, choice, figure, fill, h, known, onPage, percent, points, select } from "./dom.js";
import { AXES, Chart } from "./charts.js";
import { get } from "./source.js";

const MEASURES = {
  device_mean: "mean of the devices", ensemble: "ensemble", merged: "merged", local: "local",
  device_min: "worst device", device_std: "spread over the devices", test_loss: "test loss",
};

export function compareView(page) {
  let found = null, measure = "device_mean", baseline = 0;
  const share = () => measure !== "test_loss";
  const chart = new Chart({ height: 340, floor: 0, text: (value, tick) => (share() ? (tick ? `${figure(100 * value, 3)}%` : percent(value)) : figure(value)) });
  const controls = h("div.controls"), table = h("div.scroll"), notes = h("div"), forest = h("div"), title = h("p.hint");
  const curves = card("Accuracy", null, chart.element, h("p.note", {}, "Thick: mean over the seeds as far as all of them are; band: ± standard deviation over the seeds; thin: each seed."));

  function draw() {
    fill(controls, h("label", {}, "Show", select("measure", MEASURES, measure, (value) => { measure = value; draw(); })),
      choice("axis", AXES, page.axis, (axis) => { page.axis = axis; draw(); }));
    curves.querySelector("h2").textContent = measure === "test_loss" ? "Test loss" : `Accuracy: ${MEASURES[measure]}`;
    const all = new Set(), lines = [];
    for (const group of found.groups) {
      const several = group.band.round !== undefined;
      for (const seed of group.seeds) {
        if (!seed.round.length) continue;
        lines.push({ group, x: seed[page.axis], values: seed[measure], thin: several, label: several ? `${group.label}, seed ${seed.seed}` : group.label });
      }
      if (several) lines.push({ group, x: group.band[page.axis], values: group.band[measure], sd: group.band[`${measure}_sd`], label: group.label });
    }
    for (const line of lines) for (const x of line.x) all.add(x);
    const x = [...all].sort((one, other) => one - other), place = new Map(x.map((value, i) => [value, i]));
    const spread = (line, values) => {
      const wide = new Array(x.length).fill(undefined);
      line.x.forEach((value, i) => { wide[place.get(value)] = values[i] ?? undefined; });
      return wide;
    };
    const series = lines.map((line) => ({
      label: line.label, colour: line.group.colour, unnamed: line.thin, width: line.thin ? 1 : 2.5, alpha: line.thin ? 0.45 : 1,
      values: spread(line, line.values),
      ...(line.sd ? { low: spread(line, line.values.map((v, i) => (known(v) ? v - line.sd[i] : null))), high: spread(line, line.values.map((v, i) => (known(v) ? v + line.sd[i] : null))) } : {}),
    }));
    chart.show(page.axis, x, series);
    differences();
  }

  function differences() {
    const names = found.finished;
    const rows = names.map((name, i) => [name, found.differences[i]?.[baseline], found.groups.find((group) => group.label === name)]).filter(([, one], i) => one && i !== baseline);
    if (!rows.length) {
      fill(forest, h("p.hint", {}, "Differences need at least two finished methods with a seed in common."));
      return;
    }
    const reach = Math.max(1, ...rows.flatMap(([, one]) => [one.mean, one.low, one.high].filter(known).map(Math.abs))) * 1.08;
    const at = (value) => 300 + (300 * value) / reach;
    fill(forest,
      h("div.controls", {}, h("label", {}, "Against", select("baseline", Object.fromEntries(names.map((name, i) => [i, name])), baseline, (value) => { baseline = Number(value); differences(); }))),
      h("div.forest", {}, rows.map(([name, one, group]) => {
        const colour = onPage(group?.colour ?? "#777777");
        return h("div", {}, h("span", {}, name),
          h("svg", { viewBox: "0 0 600 30", preserveAspectRatio: "none", role: "img", "aria-label": `${name}: ${points(one.mean)} points` },
            h("line", { x1: 300, x2: 300, y1: 0, y2: 30, stroke: "var(--strong)", "stroke-dasharray": "3 3", "vector-effect": "non-scaling-stroke" }),
            known(one.low) && h("line", { x1: at(one.low), x2: at(one.high), y1: 15, y2: 15, stroke: colour, "stroke-width": 2, "vector-effect": "non-scaling-stroke" }),
            h("line", { x1: at(one.mean), x2: at(one.mean), y1: 7, y2: 23, stroke: colour, "stroke-width": 5, "vector-effect": "non-scaling-stroke" })),
          h("span", {}, `${points(one.mean)}${known(one.low) ? `  [${points(one.low)}, ${points(one.high)}]` : ""}`));
      })),
      h("p.note", {}, "Mean accuracy of the devices, difference in points, paired by seed, with its 95 % interval (Student's t) where there are two pairs. An interval beyond zero is a difference that the seeds do not explain."));
  }

  async function update() {
    found = await get("api/compare");
    if (baseline >= found.finished.length) baseline = 0;
    title.textContent = found.table.title;
    const cells = found.table.columns, look = (column) => (column.key ? ".key" : "");
    fill(table, h("table", {}, h("thead", {}, h("tr", {}, cells.map((column) => h(`th${look(column)}`, { scope: "col" }, column.heading)))),
      h("tbody", {}, (cells[0]?.cells ?? []).map((_, i) => h("tr", {}, cells.map((column) => h(`td${look(column)}`, {}, column.cells[i])))))));
    fill(notes, found.table.notes.map((text) => h("p.note", {}, text)));
    draw();
  }

  return {
    element: h("div", {}, controls, curves, card("Results", null, title, table, notes), card("Differences", null, forest)),
    update,
    restyle: () => { chart.redraw(); if (found) differences(); },
    leave: () => chart.destroy(),
  };
}
