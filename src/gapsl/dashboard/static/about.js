// What a run was started with, where, and how to do it again.
import { card, fill, h } from "./dom.js";
import { get } from "./source.js";

const text = (value) => (Array.isArray(value) ? value.join(" ") : value === null ? "–" : String(value));

function pairs(values) {
  const row = ([name, value]) => h("tr", {}, h("td.key", {}, name), h("td.text", {}, text(value)));
  return h("table.pairs", {}, h("tbody", {}, Object.entries(values).map(row)));
}

function steps(found) {
  const made = found.environment, torch = (made.torch ?? "").split("+")[0];
  const custom = Object.entries(found.custom).map(([name, what]) => `${name} (${what})`).join(", ");
  const served = "It was trained over the network; in one process it ends with the same weights if no device was "
    + "missing. gapsl replay does it with those that were.";
  const list = [
    ["Install the same version", `pip install "gapsl==${made.gapsl ?? ""}" "torch==${torch}"`,
      made.commit ? `The run was made at commit ${made.commit}.` : null],
    ["Save the settings below as config.yaml, and train", "gapsl train --config config.yaml --out runs/again",
      found.served ? served : null],
  ];
  if (found.weights_sha256) {
    list.push(["Compare the weights", `gapsl show runs/again --format json | grep ${found.weights_sha256}`,
      "On the same kind of machine, with the same versions and number of threads, they are equal to the bit."]);
  }
  const step = ([title, command, note]) => h("li", {}, title, h("pre", {}, command), note && h("p.hint", {}, note));
  return [
    h("ol.steps", {}, list.map(step)),
    custom && h("p.note", {}, `It was given objects from Python, which settings cannot bring back: ${custom}.`),
  ];
}

export function aboutView(page) {
  const element = h("div");
  let shown = null;

  async function update() {
    const run = page.run();
    if (!run || shown === `${run.id} ${run.state}`) return;
    shown = `${run.id} ${run.state}`;
    const found = await get(`api/runs/${run.id}/about`);
    const { command, ...machine } = found.environment;
    const digest = found.weights_sha256 ? { weights_sha256: found.weights_sha256 } : {};
    const chosen = Object.fromEntries(Object.entries(found.settings).filter(([name]) => found.chosen.includes(name)));
    fill(element,
      card("Do it again", null, steps(found)),
      h("div.grid", {},
        card("Settings", "that differ from the defaults", pairs(chosen),
          h("details", {}, h("summary", {}, "All settings"), pairs(found.settings))),
        h("div", {}, card("Environment", null, pairs({ folder: found.folder, ...machine, ...digest })),
          command && card("Command", null, h("pre", {}, text(command))),
          card("config.yaml", null, h("pre", {}, found.config)))));
  }

  return { element, update, restyle() {}, leave() {} };
}
