// A run over the network: who is connected, who is waited for, what went wrong, how fast the links are.
import { bytes, card, figure, fill, h, known, tile } from "./dom.js";
import { get, isReport } from "./source.js";
import { chip } from "./devices.js";

const sum = (values) => values.reduce((total, value) => total + value, 0);

export function fleetView(page) {
  const element = h("div");
  const log = h("pre", { tabindex: 0, "aria-label": "log" });

  async function update() {
    const run = page.run();
    if (!run) return;
    const found = await get(`api/runs/${run.id}/fleet`);
    if (!found.served) {
      fill(element, h("p.nothing", {}, "This run is trained in one process. gapsl fleet up and gapsl serve train over the network."));
      return;
    }
    const { names, connected } = found, here = connected?.filter(Boolean).length;
    const listed = (who) => (who.length > 6 ? `${who.slice(0, 6).join(", ")} and ${who.length - 6} more` : who.join(", "));
    const tiles = h("div.tiles", {},
      tile("Connected", connected ? `${here} of ${names.length}` : "–", connected ? null : found.unknown),
      tile("Waiting for", found.waiting.length ? String(found.waiting.length) : "nobody", listed(found.waiting)),
      tile("Drop-outs", figure(sum(found.absent), 6), "rounds closed without a device"),
      tile("Rollbacks", String(found.rollbacks.length), found.rollbacks.length ? `to round ${found.rollbacks.slice(-4).join(", ")}` : "of the whole fleet"),
      tile("Throughput", known(found.throughput[0]) ? `${bytes(sum(found.throughput))}/s` : "–", "all links, over the last 20 rounds"));
    const rows = names.map((name, device) => h("tr", {}, h("td.key", {}, name),
      h("td.key", {}, connected ? chip(connected[device] ? "connected" : "away") : "–"),
      h("td", {}, figure(found.absent[device], 6)), h("td", {}, figure(found.restored[device], 6)),
      h("td", {}, known(found.throughput[device]) ? `${bytes(found.throughput[device])}/s` : "–")));
    const heads = ["device", "link", "drop-outs", "went back", "throughput"].map((title, i) => h(`th${i < 2 ? ".key" : ""}`, { scope: "col" }, title));
    const about = [found.address && `server at ${found.address}`, found.security, `rounds close: ${found.closing}`].filter(Boolean).join(", ");
    const atEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 8;
    log.textContent = found.log.join("\n") || "No log is kept where this page can read it; gapsl fleet up keeps one.";
    fill(element, tiles, card("Links", about, h("div.scroll.links", {}, h("table", {}, h("thead", {}, h("tr", {}, heads)), h("tbody", {}, rows)))),
      card(isReport ? "The log's last lines" : "Log", null, log));
    if (atEnd) log.scrollTop = log.scrollHeight;
  }

  return { element, update, restyle() {}, leave() {} };
}
