// The page: which run, which view, and news as they come.
import { choice, fill, h, percent, select } from "./dom.js";
import { follow, get, isReport } from "./source.js";
import { curvesView } from "./curves.js";
import { devicesView } from "./devices.js";
import { anglesView } from "./angles.js";
import { compareView } from "./compare.js";
import { fleetView } from "./fleet.js";
import { aboutView } from "./about.js";

const VIEWS = { compare: compareView, curves: curvesView, devices: devicesView, angles: anglesView, fleet: fleetView, about: aboutView };
const TITLES = { compare: "Compare", curves: "Curves", devices: "Devices", angles: "Angles", fleet: "Fleet", about: "About" };
const PAUSE = 400; // milliseconds between two updates
const LINKS = 2000; // milliseconds between two looks at the links of a fleet, which no record tells of
const STATES = { running: "good", stopped: "warn", finished: "" };

const page = {
  axis: "round",
  overview: null,
  run() {
    return this.overview?.runs.find((run) => run.id === this.number) ?? this.overview?.runs[0] ?? null;
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
  theme(remembered("gapsl-theme", document.documentElement.dataset.theme === "dark" ? "light" : "dark") ?? (document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
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
  return Object.fromEntries(Object.entries(TITLES).filter(([one]) =>
    (one !== "compare" || runs.length > 1) && (one !== "fleet" || runs.some((run) => run.served))));
}

function show(wanted) {
  const possible = views();
  const next = wanted in possible ? wanted : Object.keys(possible)[0];
  if (next === name) return;
  view?.leave();
  name = next;
  view = VIEWS[name](page);
  fill(content, view.element);
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
const called = (run) => `${page.overview.runs.filter((other) => alike(run, other)).length > 1 ? `${run.folder}: ` : ""}${run.name}, seed ${run.seed}${run.state === "finished" ? "" : `, ${run.state}`}${run.evaluation ? ` (${percent(run.evaluation.device_mean)})` : ""}`;

function header() {
  const { runs, title, refused } = page.overview, run = page.run(), several = runs.length > 1;
  const compared = name === "compare";
  const running = runs.filter((one) => one.state === "running").length;
  const state = compared ? (running ? `${running} of ${runs.length} running` : `${runs.length} runs`) : run?.state;
  const focused = document.activeElement?.closest?.(".tabs, .bar") ? document.activeElement.getAttribute("data-value") ?? document.activeElement.id : null;
  fill(bar, h("span.mark", {}, h("i"), "gapsl"),
    several && !compared
      ? select("run", Object.fromEntries(runs.map((one) => [one.id, called(one)])), run.id, choose)
      : h("h1", {}, compared || !run ? title : `${run.name} on ${run.about[0]}, ${run.about[1]}, ${run.devices} devices, ${run.about[2]}, seed ${run.seed}`),
    h("div.end", {},
      state && h(`span.chip${compared ? (running ? ".good" : "") : STATES[state] ? `.${STATES[state]}` : ""}`, {}, state),
      !linked && h("span.chip.bad", { role: "status" }, "no connection, trying again"),
      h("button.icon", { type: "button", id: "theme", title: "light or dark", "aria-label": "light or dark", onclick: flip },
        h("svg", { viewBox: "0 0 20 20", width: 18, height: 18, "aria-hidden": "true" }, h("circle", { cx: 10, cy: 10, r: 7, fill: "none", stroke: "currentColor", "stroke-width": 1.6 }), h("path", { d: "M10 3a7 7 0 0 1 0 14z", fill: "currentColor" })))));
  fill(tabs, choice("views", views(), name, (wanted) => { show(wanted); refresh(); }, "tablist"));
  if (focused) document.querySelector(`[data-value="${CSS.escape(focused)}"], #${CSS.escape(focused)}`)?.focus();
  const told = [...refused.map((text) => h("p.notice.bad", {}, `Not shown: ${text}`))];
  if (run && !compared && run.trouble) told.push(h("p.notice.bad", {}, run.trouble));
  if (run && !compared && run.reading !== null) told.push(h("p.notice", {}, `A long run: some of its rounds are shown while all are read (${Math.round(100 * run.reading)} %).`));
  fill(notices, told);
  foot.textContent = `${isReport ? "A report" : "Reads the run's files, changes nothing"}. gapsl ${page.overview.gapsl}`;
  document.title = `${run && !compared ? `${run.name}, round ${run.round}` : title} · gapsl`;
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
      name = name ?? null;
      header();
    } else {
      if (!view) show(fromAddress());
      header();
      await view.update();
    }
    document.body.dataset.round = String(page.run()?.round ?? 0);
  } catch (error) {
    if (!(error instanceof TypeError)) fill(notices, h("p.notice.bad", { role: "alert" }, error.message)); // no connection is said above
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
