// The page: which run, which view, and news as they come.
import { choice, fill, h, percent, select } from "./dom.js";
import { follow, get, isReport, Unreachable } from "./source.js";
import { curvesView } from "./curves.js";
import { devicesView } from "./devices.js";
import { anglesView } from "./angles.js";
import { compareView } from "./compare.js";
import { fleetView } from "./fleet.js";
import { aboutView } from "./about.js";

const VIEWS = {
  compare: ["Compare", compareView],
  curves: ["Curves", curvesView],
  devices: ["Devices", devicesView],
  angles: ["Angles", anglesView],
  fleet: ["Fleet", fleetView],
  about: ["About", aboutView],
};
const PAUSE = 400; // milliseconds between two updates
const LINKS = 2000; // milliseconds between two looks at the links of a fleet, which no record tells of
const STANDING = { running: ".good", stopped: ".warn", finished: "" };

const page = {
  axis: "round",
  overview: null,
  run() {
    return this.overview?.runs.find((run) => run.id === this.number) ?? this.overview?.runs[0] ?? null;
  },
  failed(error) {
    // That there is no connection is said in the bar.
    if (!(error instanceof Unreachable)) fill(notices, h("p.notice.bad", { role: "alert" }, error.message));
  },
};
let view = null, name = null, busy = false, again = false, linked = true;
const bar = h("div.bar"), tabs = h("div"), notices = h("div"), main = h("main", { id: "main" }), foot = h("footer");
const content = h("div", { role: "tabpanel" });

function remembered(key, value) {
  try {
    if (value !== undefined) localStorage.setItem(key, value);
    return localStorage.getItem(key);
  } catch {
    return null; // a file, or a browser that keeps nothing
  }
}

const dark = matchMedia("(prefers-color-scheme: dark)");

function theme(wanted) {
  const chosen = wanted ?? remembered("gapsl-theme");
  document.documentElement.dataset.theme = chosen ?? (dark.matches ? "dark" : "light");
  view?.restyle();
}

function flip() {
  const other = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  remembered("gapsl-theme", other);
  theme(other);
  header();
}

function fromAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  page.number = given.has("run") ? Number(given.get("run")) : page.number;
  return given.get("view");
}

function toAddress() {
  const run = page.run();
  history.replaceState(null, "", `#${new URLSearchParams({ view: name, ...(run ? { run: run.id } : {}) })}`);
}

function views() {
  const runs = page.overview.runs;
  const possible = { compare: runs.length > 1, fleet: runs.some((run) => run.served) };
  const shown = Object.keys(VIEWS).filter((one) => possible[one] ?? true);
  return Object.fromEntries(shown.map((one) => [one, VIEWS[one][0]]));
}

function show(wanted) {
  const possible = views();
  const next = wanted in possible ? wanted : Object.keys(possible)[0];
  if (next === name) return;
  view?.leave();
  name = next;
  view = VIEWS[name][1](page);
  content.replaceChildren(view.element); // its own, also where it looks like the last one
  toAddress();
  header();
}

function choose(number) {
  page.number = Number(number);
  const wanted = name === "compare" ? "curves" : name;
  name = null;
  show(wanted);
  refresh();
}

const alike = (one, other) => one.name === other.name && one.seed === other.seed;

function called(run) {
  const several = page.overview.runs.filter((other) => alike(run, other)).length > 1;
  const state = run.state === "finished" ? "" : `, ${run.state}`;
  const accuracy = run.evaluation ? ` (${percent(run.evaluation.device_mean)})` : "";
  return `${several ? `${run.folder}: ` : ""}${run.name}, seed ${run.seed}${state}${accuracy}`;
}

function described(run) {
  const [dataset, model, partition] = run.about;
  return `${run.name} on ${dataset}, ${model}, ${run.devices} devices, ${partition}, seed ${run.seed}`;
}

function halfMoon() {
  return h("svg", { viewBox: "0 0 20 20", width: 18, height: 18, "aria-hidden": "true" },
    h("circle", { cx: 10, cy: 10, r: 7, fill: "none", stroke: "currentColor", "stroke-width": 1.6 }),
    h("path", { d: "M10 3a7 7 0 0 1 0 14z", fill: "currentColor" }));
}

function header() {
  const { runs, title } = page.overview, run = page.run(), compared = name === "compare";
  const running = runs.filter((one) => one.state === "running").length;
  const state = compared ? (running ? `${running} of ${runs.length} running` : `${runs.length} runs`) : run?.state;
  const look = compared ? STANDING[running ? "running" : "finished"] : STANDING[state];
  const options = Object.fromEntries(runs.map((one) => [one.id, called(one)]));
  const active = document.activeElement?.closest?.(".tabs") ? document.activeElement.dataset.value : null;
  fill(bar, h("span.mark", {}, h("i"), "gapsl"),
    runs.length > 1 && !compared
      ? select("run", options, run.id, choose)
      : h("h1", {}, compared || !run ? title : described(run)),
    h("div.end", {},
      state && h(`span.chip${look}`, {}, state),
      !linked && h("span.chip.bad", { role: "status" }, "no connection, trying again"),
      h("button.icon", { type: "button", id: "theme", "aria-label": "light or dark", onclick: flip }, halfMoon())));
  fill(tabs, choice("views", views(), name, (wanted) => { show(wanted); refresh(); }, "tablist"));
  if (active) tabs.querySelector(`[data-value="${active}"]`)?.focus();
  fill(notices, page.overview.refused.map((text) => h("p.notice.bad", {}, `Not shown: ${text}`)),
    run && !compared && noticesOf(run));
  foot.textContent = `${isReport ? "Report" : "Reads the run's files, changes nothing"}. gapsl ${page.overview.gapsl}`;
  document.title = `${run && !compared ? `${run.name}, round ${run.round}` : title} · gapsl`;
}

function noticesOf(run) {
  const reading = `A long run: some of its rounds are shown while all are read (${Math.round(100 * run.reading)} %).`;
  return [run.trouble && h("p.notice.bad", {}, run.trouble), run.reading !== null && h("p.notice", {}, reading)];
}

async function refresh() {
  if (busy) {
    again = true;
    return;
  }
  busy = true;
  try {
    page.overview = await get("api/overview");
    if (!page.overview.runs.length) {
      fill(content, h("p.nothing", {}, "Waiting for the run to begin."));
      header();
    } else {
      if (!view) show(fromAddress());
      header();
      await view.update();
    }
    document.body.dataset.round = String(page.run()?.round ?? 0);
  } catch (error) {
    page.failed(error);
  }
  setTimeout(() => {
    busy = false;
    if (again) {
      again = false;
      refresh();
    }
  }, isReport ? 0 : PAUSE);
}

theme();
dark.addEventListener("change", () => { theme(); });
fill(document.getElementById("app"), h("div.top", {}, bar, tabs), fill(main, notices, content), foot);
addEventListener("hashchange", () => {
  const wanted = fromAddress();
  if (wanted !== name) show(wanted);
  refresh();
});
follow(refresh, (there) => {
  const returned = there && !linked;
  linked = there;
  if (page.overview) header();
  if (returned) refresh();
});
refresh();
if (!isReport) {
  setInterval(() => {
    const run = page.run();
    if (run?.served && run.state === "running" && (name === "fleet" || name === "devices")) refresh();
  }, LINKS);
}
